//! Every route that the processor executes, against dequantise-then-multiply in float64.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod packed;

use std::sync::Arc;

use mlxcel_engine::backend::cpu::kernel::{
    Activations, AffineSource, CpuFeatures, DequantisedMatrix, FloatKind, FloatSource,
    KernelChoice, Kernels, QuantisedMatrix, dense_product,
};
use mlxcel_engine::backend::cpu::routed::{Choose, RoutedProducts};
use mlxcel_engine::qmm::{Profile, QmmOptions, Route};
use packed::{Packed, activations};

const BITS: [usize; 6] = [2, 3, 4, 5, 6, 8];
const GROUPS: [usize; 3] = [32, 64, 128];
const KINDS: [FloatKind; 3] = [FloatKind::Bf16, FloatKind::F16, FloatKind::F32];

/// Unit roundoff of float32: a sum of K products is off by at most K of them (Higham, Accuracy and
/// Stability of Numerical Algorithms, 2nd ed., section 3.1).
const F32_ROUNDOFF: f64 = 1.0 / (1u64 << 24) as f64;

/// Half a code of int8 activations, as a share of the largest one in the group.
const HALF_A_CODE: f64 = 0.5 / 127.0;

/// Below its smallest normal number, f16 is off by at most half of its smallest step.
const F16_SMALLEST_HALF_STEP: f64 = 1.0 / (1u64 << 25) as f64;

/// Unit roundoff of a stored type.
fn roundoff(kind: FloatKind) -> f64 {
    match kind {
        FloatKind::Bf16 => 1.0 / 256.0,
        FloatKind::F16 => 1.0 / 2048.0,
        FloatKind::F32 => F32_ROUNDOFF,
    }
}

/// What a result should be, and how far each kind of route may be from it at most.
struct Expected {
    value: f64,
    fused: f64,
    dense: f64,
}

fn expected(packed: &Packed, group: usize, kind: FloatKind, row: usize, x: &[f32]) -> Expected {
    let (mut value, mut fused, mut weighted, mut parts, mut sum) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (g, xs) in x.chunks(group).enumerate() {
        let peak = xs.iter().fold(0.0f32, |peak, x| peak.max(x.abs()));
        for (i, x) in xs.iter().enumerate() {
            let (code, scale, bias) = weight_parts(&packed.source(), row, g * group + i);
            let (x, weight) = (f64::from(*x), scale * code + bias);
            value += x * weight;
            fused += weight.abs() * f64::from(peak) * HALF_A_CODE;
            weighted += (x * weight).abs();
            // An activation may grow by its rounding before it is multiplied.
            parts += f64::from(peak) * ((scale * code).abs() + bias.abs());
            sum += x.abs();
        }
    }
    let roundings = (x.len() + 4) as f64 * F32_ROUNDOFF;
    Expected {
        value,
        fused: fused + roundings * parts,
        dense: (roundoff(kind) + roundings) * 1.01 * weighted
            + 2.0 * F32_ROUNDOFF * parts
            + F16_SMALLEST_HALF_STEP * sum,
    }
}

/// Code, scale and bias of a weight, bit by bit from the stream of its row.
fn weight_parts(source: &AffineSource<'_>, row: usize, column: usize) -> (f64, f64, f64) {
    let bits = source.bits;
    let stream = &source.codes[row * (source.columns * bits / 8)..];
    let code = (0..bits).map(|bit| {
        let at = column * bits + bit;
        usize::from((stream[at / 8] >> (at % 8)) & 1) << bit
    });
    let code: usize = code.sum();
    let index = row * (source.columns / source.group) + column / source.group;
    let float = |floats: &FloatSource<'_>| f64::from(floats.get(index));
    (code as f64, float(&source.scales), float(&source.biases))
}

/// Routes of one mechanism give the same bits; one stands for each.
const MECHANISMS: [(Route, Choose); 2] = [
    (Route::Tiled, |_, _, _| Route::Tiled),
    (Route::DequantGemm, |_, _, _| Route::DequantGemm),
];

fn every_isa() -> Vec<Kernels> {
    let isas = CpuFeatures::detect().available();
    isas.into_iter()
        .map(|isa| Kernels::new(KernelChoice::Force(isa), 2).unwrap())
        .collect()
}

fn run(
    kernels: &Kernels,
    products: &RoutedProducts,
    matrix: &Arc<QuantisedMatrix>,
    x: &[f32],
) -> Vec<f32> {
    let mut y = vec![f32::NAN; x.len() / matrix.columns() * matrix.rows()];
    products.product(kernels, matrix, &mut Activations::new(), x, &mut y);
    y
}

fn check(kernels: &Kernels, bits: usize, group: usize, kind: FloatKind, shape: [usize; 3]) {
    let [m, n, k] = shape;
    let packed = Packed::random((n, k), bits, group, kind);
    let matrix = Arc::new(QuantisedMatrix::repack(kernels, &[packed.source()]).unwrap());
    let x = activations(m * k, (m + bits) as u64);
    for (route, table) in MECHANISMS {
        let options = QmmOptions::default();
        let products = RoutedProducts::with_table(table, kernels.isa(), None, options);
        let y = run(kernels, &products, &matrix, &x);
        for (token, y) in y.chunks(n).enumerate() {
            for (row, y) in y.iter().enumerate() {
                let expected = expected(&packed, group, kind, row, &x[token * k..][..k]);
                let most = match route {
                    Route::Tiled => expected.fused,
                    _ => expected.dense,
                };
                let off = (f64::from(*y) - expected.value).abs();
                assert!(
                    off <= most,
                    "{} {route:?} {bits}-bit g{group} {kind:?} {shape:?} token {token} row {row}: \
                     {y} is {off} from {}, at most {most}",
                    kernels.isa(),
                    expected.value
                );
            }
        }
    }
}

#[test]
fn every_format_and_shape_is_within_the_bounds_of_its_route() {
    for kernels in every_isa() {
        for bits in BITS {
            for group in GROUPS {
                for kind in KINDS {
                    for shape in [[1, 1, group], [2, 33, 2 * group], [13, 5, 3 * group]] {
                        check(&kernels, bits, group, kind, shape);
                    }
                }
            }
        }
    }
}

#[test]
fn shapes_beyond_a_panel_and_a_tile_are_within_the_bounds() {
    for kernels in every_isa() {
        for shape in [[1, 300, 640], [9, 257, 192], [131, 130, 128]] {
            check(&kernels, 4, 64, FloatKind::Bf16, shape);
            check(&kernels, 6, 32, FloatKind::F16, shape);
        }
    }
}

#[test]
fn the_bounds_are_narrow_enough_to_tell_the_arithmetics_apart() {
    // The float16 matrix is nearer to the exact result than int8 activations can be sure to be.
    let packed = Packed::random((8, 512), 4, 64, FloatKind::F16);
    let x = activations(512, 3);
    let expected = expected(&packed, 64, FloatKind::F16, 0, &x);
    assert!(expected.dense < expected.fused / 2.0);
    assert!(expected.fused < 0.05 * 512.0);
}

fn gfx1151() -> Option<Profile> {
    Some(Profile::find("gfx1151").unwrap())
}

#[test]
fn dense_products_do_not_depend_on_threads_or_on_what_is_cached() {
    let packed = Packed::random((270, 256), 4, 64, FloatKind::F16);
    let x = activations(150 * 256, 5);
    let mut results = Vec::new();
    for threads in [1, 2, 3] {
        let kernels = Kernels::new(KernelChoice::Best, threads).unwrap();
        let matrix = Arc::new(QuantisedMatrix::repack(&kernels, &[packed.source()]).unwrap());
        for entries in [0, 8] {
            let options = QmmOptions {
                dequant_cache_entries: entries,
                ..QmmOptions::default()
            };
            let products = RoutedProducts::new(kernels.isa(), gfx1151(), options);
            for _ in 0..2 {
                results.push(run(&kernels, &products, &matrix, &x));
            }
            let cache = products.report().dequant_cache;
            let expected = if entries == 0 { (0, 0) } else { (1, 1) };
            assert_eq!((cache.hits, cache.misses), expected);
        }
    }
    assert!(results.windows(2).all(|pair| pair[0] == pair[1]));
}

// The cache knows a matrix by its address. One that is freed leaves its address to the next of its
// size, which must not be given the weights of the first.
#[test]
fn a_matrix_in_the_place_of_a_freed_one_is_another_matrix() {
    let new_kernels = || Kernels::new(KernelChoice::Best, 1).unwrap();
    let options = QmmOptions {
        dequant_cache_entries: 2,
        ..QmmOptions::default()
    };
    let products = RoutedProducts::new(new_kernels().isa(), gfx1151(), options);
    let (shape, tokens) = ((48, 128), 70);
    let x = activations(tokens * shape.1, 5);
    for seed in 0..40 {
        // With the memory that they hand out, which goes back to the system with them.
        let kernels = new_kernels();
        let packed = Packed::seeded(shape, 4, 64, FloatKind::F16, seed);
        let matrix = Arc::new(QuantisedMatrix::repack(&kernels, &[packed.source()]).unwrap());
        let mut expected = vec![0.0; tokens * shape.0];
        let dense = DequantisedMatrix::new(&kernels, &matrix);
        dense_product(&kernels, &dense, &x, &mut expected);
        for _ in 0..2 {
            assert_eq!(run(&kernels, &products, &matrix, &x), expected, "{seed}");
        }
    }
    let cache = products.report().dequant_cache;
    assert_eq!((cache.hits, cache.misses, cache.evictions), (40, 40, 38));
}

#[test]
fn the_report_counts_products_by_route_and_says_whose_routes_they_are() {
    let kernels = Kernels::new(KernelChoice::Best, 1).unwrap();
    let packed = Packed::random((64, 128), 4, 64, FloatKind::F16);
    let matrix = Arc::new(QuantisedMatrix::repack(&kernels, &[packed.source()]).unwrap());
    let products = RoutedProducts::new(kernels.isa(), gfx1151(), QmmOptions::default());
    for tokens in [1, 1, 8, 9, 128] {
        run(&kernels, &products, &matrix, &activations(tokens * 128, 1));
    }
    let report = products.report();
    assert_eq!((report.profile.as_str(), report.foreign), ("gfx1151", true));
    let expected = [
        ("batched_qmv", 1),
        ("dequant_gemm", 1),
        ("qmv", 2),
        ("tiled", 1),
    ];
    let expected = expected.map(|(route, count)| (route.to_owned(), count));
    assert_eq!(report.routes, expected.into());

    let own = RoutedProducts::new(kernels.isa(), None, QmmOptions::default());
    run(&kernels, &own, &matrix, &activations(128 * 128, 1));
    assert!(!own.report().foreign);
    assert_eq!(own.report().routes, [("tiled".to_owned(), 1)].into());
}
