//! The quantised products against the definition, on every instruction set.

use half::{bf16, f16};

use super::testing::{Random, every_isa, wave};
use super::*;

/// An MLX-packed matrix with its codes, scales and biases in the open.
struct Packed {
    rows: usize,
    columns: usize,
    bits: usize,
    group: usize,
    kind: FloatKind,
    codes: Vec<u8>,
    scales: Vec<f32>,
    biases: Vec<f32>,
    code_bytes: Vec<u8>,
    scale_bytes: Vec<u8>,
    bias_bytes: Vec<u8>,
}

fn float_bytes(kind: FloatKind, values: &mut [f32]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for value in values {
        match kind {
            FloatKind::Bf16 => {
                *value = bf16::from_f32(*value).to_f32();
                bytes.extend(bf16::from_f32(*value).to_le_bytes());
            }
            FloatKind::F16 => {
                *value = f16::from_f32(*value).to_f32();
                bytes.extend(f16::from_f32(*value).to_le_bytes());
            }
            FloatKind::F32 => bytes.extend(value.to_le_bytes()),
        }
    }
    bytes
}

impl Packed {
    fn new(rows: usize, columns: usize, bits: usize, group: usize, kind: FloatKind) -> Self {
        let mut random = Random((rows * 31 + columns * 7 + bits) as u64);
        let codes: Vec<u8> = (0..rows * columns)
            .map(|_| (random.bits() & ((1 << bits) - 1)) as u8)
            .collect();
        let mut code_bytes = vec![0u8; rows * columns * bits / 8];
        for (index, &code) in codes.iter().enumerate() {
            for bit in 0..bits {
                let at = index * bits + bit;
                code_bytes[at / 8] |= ((code >> bit) & 1) << (at % 8);
            }
        }
        // Scales of both signs occur in real files.
        let mut scales: Vec<f32> = (0..rows * columns / group)
            .map(|_| random.unit() * 0.05)
            .collect();
        let mut biases: Vec<f32> = (0..rows * columns / group)
            .map(|_| random.unit() * 0.4)
            .collect();
        let scale_bytes = float_bytes(kind, &mut scales);
        let bias_bytes = float_bytes(kind, &mut biases);
        Packed {
            rows,
            columns,
            bits,
            group,
            kind,
            codes,
            scales,
            biases,
            code_bytes,
            scale_bytes,
            bias_bytes,
        }
    }

    fn source(&self) -> AffineSource<'_> {
        AffineSource {
            rows: self.rows,
            columns: self.columns,
            bits: self.bits,
            group: self.group,
            codes: &self.code_bytes,
            scales: FloatSource {
                kind: self.kind,
                bytes: &self.scale_bytes,
            },
            biases: FloatSource {
                kind: self.kind,
                bytes: &self.bias_bytes,
            },
        }
    }

    /// The definition, with the integer dot products exact and the two
    /// roundings of each group spelt out.
    fn twin(&self, x: &[f32]) -> Vec<f32> {
        let groups = self.columns / self.group;
        let quantised: Vec<(f32, Vec<i32>)> = x
            .chunks(self.group)
            .map(|x| {
                let peak = x.iter().fold(0.0f32, |peak, x| peak.max(x.abs()));
                let code = |x: &f32| (x * (127.0 / peak)).round_ties_even() as i32;
                (peak / 127.0, x.iter().map(code).collect())
            })
            .collect();
        (0..self.rows)
            .map(|row| {
                let mut y = 0.0f32;
                for (group, (x_scale, codes)) in quantised.iter().enumerate() {
                    let at = row * self.columns + group * self.group;
                    let dot: i32 = self.codes[at..at + self.group]
                        .iter()
                        .zip(codes)
                        .map(|(&w, &x)| i32::from(w) * x)
                        .sum();
                    let sum = x_scale * codes.iter().sum::<i32>() as f32;
                    y = self.scales[row * groups + group].mul_add(dot as f32 * x_scale, y);
                    y = self.biases[row * groups + group].mul_add(sum, y);
                }
                y
            })
            .collect()
    }

    /// W·x in f64 with unquantised activations.
    fn exact(&self, x: &[f32]) -> Vec<f64> {
        let weight = |index: usize| {
            let group = index / self.group;
            f64::from(self.codes[index]) * f64::from(self.scales[group])
                + f64::from(self.biases[group])
        };
        (0..self.rows)
            .map(|row| {
                let row = row * self.columns;
                (0..self.columns)
                    .map(|k| weight(row + k) * f64::from(x[k]))
                    .sum()
            })
            .collect()
    }
}

const KINDS: [FloatKind; 3] = [FloatKind::Bf16, FloatKind::F16, FloatKind::F32];

#[test]
fn one_token_equals_the_definition_for_every_format_on_every_isa() {
    for kernels in every_isa(2) {
        for (index, bits) in [2, 3, 4, 5, 6, 8].into_iter().enumerate() {
            for (group, columns) in [(32, 96), (64, 192), (128, 256)] {
                let packed = Packed::new(37, columns, bits, group, KINDS[index % 3]);
                let matrix = QuantisedMatrix::repack(&kernels, &[packed.source()]).unwrap();
                let x = wave(columns, 0.3);
                let mut activations = Activations::new();
                activations.quantise(&kernels, &x, columns, group);
                let mut y = vec![f32::NAN; 37];
                product(&kernels, &matrix, &activations, &mut y);
                assert_eq!(
                    y,
                    packed.twin(&x),
                    "{} {bits} bits, group {group}",
                    kernels.isa()
                );
            }
        }
    }
}

#[test]
fn the_error_against_exact_arithmetic_is_that_of_int8_activations() {
    /// Half a code step is 1/254 of a group's largest value; the errors of 512
    /// columns add like a random walk: well below 1 % of the result's size.
    const RELATIVE_RMS: f64 = 0.01;
    for kernels in every_isa(1) {
        let packed = Packed::new(64, 512, 4, 64, FloatKind::Bf16);
        let matrix = QuantisedMatrix::repack(&kernels, &[packed.source()]).unwrap();
        let x = wave(512, 0.9);
        let mut activations = Activations::new();
        activations.quantise(&kernels, &x, 512, 64);
        let mut y = vec![0.0; 64];
        product(&kernels, &matrix, &activations, &mut y);
        let exact = packed.exact(&x);
        let error: f64 = y
            .iter()
            .zip(&exact)
            .map(|(y, e)| (f64::from(*y) - e).powi(2))
            .sum();
        let size: f64 = exact.iter().map(|e| e * e).sum();
        assert!(
            (error / size).sqrt() < RELATIVE_RMS,
            "{}",
            (error / size).sqrt()
        );
    }
}

#[test]
fn many_tokens_give_the_bits_of_one_token_each() {
    for kernels in every_isa(2) {
        for (bits, rows) in [(4, 16 * 9 + 5), (8, 16 * 5), (3, 7)] {
            let packed = Packed::new(rows, 128, bits, 64, FloatKind::Bf16);
            let matrix = QuantisedMatrix::repack(&kernels, &[packed.source()]).unwrap();
            let mut activations = Activations::new();
            for tokens in (1..=17).chain([300]) {
                let x = wave(tokens * 128, tokens as f32);
                activations.quantise(&kernels, &x, 128, 64);
                let mut together = vec![f32::NAN; tokens * rows];
                product(&kernels, &matrix, &activations, &mut together);
                for (x, together) in x.chunks(128).zip(together.chunks(rows)) {
                    assert_eq!(
                        together,
                        packed.twin(x),
                        "{} {tokens} tokens",
                        kernels.isa()
                    );
                }
            }
        }
    }
}

#[test]
fn stacked_matrices_give_the_outputs_of_each() {
    for kernels in every_isa(2) {
        let parts = [
            Packed::new(21, 64, 4, 32, FloatKind::F16),
            Packed::new(5, 64, 3, 32, FloatKind::Bf16),
            Packed::new(32, 64, 2, 32, FloatKind::F16),
        ];
        let sources: Vec<_> = parts.iter().map(Packed::source).collect();
        let matrix = QuantisedMatrix::repack(&kernels, &sources).unwrap();
        assert_eq!(
            (matrix.rows(), matrix.code_bits(), matrix.source_bits()),
            (58, 4, 4)
        );
        let x = wave(64, 0.2);
        let mut activations = Activations::new();
        activations.quantise(&kernels, &x, 64, 32);
        let mut y = vec![0.0; 58];
        product(&kernels, &matrix, &activations, &mut y);
        let expected: Vec<f32> = parts.iter().flat_map(|part| part.twin(&x)).collect();
        assert_eq!(y, expected);
    }
}

#[test]
fn rows_dequantise_to_scale_times_code_plus_bias() {
    for (kernels, bits) in every_isa(1)
        .iter()
        .flat_map(|k| [2, 3, 4, 5, 6, 8].map(|b| (k, b)))
    {
        let packed = Packed::new(19, 96, bits, 32, FloatKind::Bf16);
        let matrix = QuantisedMatrix::repack(kernels, &[packed.source()]).unwrap();
        for row in [0, 15, 16, 18] {
            let mut out = vec![0.0; 96];
            matrix.dequantise_row(row, &mut out);
            for (column, out) in out.into_iter().enumerate() {
                let index = row * 96 + column;
                let group = index / 32;
                let expected =
                    f32::from(packed.codes[index]) * packed.scales[group] + packed.biases[group];
                assert_eq!(out, expected);
            }
        }
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let packed = Packed::new(16 * 11 + 3, 128, 4, 64, FloatKind::Bf16);
    let x = wave(5 * 128, 0.4);
    let mut results = Vec::new();
    for threads in [1, 2, 3, 7] {
        for kernels in every_isa(threads) {
            let matrix = QuantisedMatrix::repack(&kernels, &[packed.source()]).unwrap();
            let mut activations = Activations::new();
            activations.quantise(&kernels, &x, 128, 64);
            let mut y = vec![0.0; 5 * packed.rows];
            product(&kernels, &matrix, &activations, &mut y);
            results.push(y);
        }
    }
    assert!(results.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn the_fused_gate_equals_two_products_and_an_elementwise_gate() {
    for kernels in every_isa(1) {
        // 270 blocks are several runs of one token's task.
        for (tokens, rows) in [(1, 16 * 270 + 9), (1, 3), (2, 105), (7, 105), (13, 105)] {
            for function in [Gate::GeluTanh, Gate::Silu] {
                let gate = Packed::new(rows, 128, 4, 64, FloatKind::Bf16);
                let up = Packed::new(rows, 128, 8, 64, FloatKind::F16);
                let gate = QuantisedMatrix::repack(&kernels, &[gate.source()]).unwrap();
                let up = QuantisedMatrix::repack(&kernels, &[up.source()]).unwrap();
                let mut activations = Activations::new();
                activations.quantise(&kernels, &wave(tokens * 128, 0.6), 128, 64);
                let [mut g, mut u, mut apart, mut fused] =
                    std::array::from_fn(|_| vec![0.0; tokens * rows]);
                product(&kernels, &gate, &activations, &mut g);
                product(&kernels, &up, &activations, &mut u);
                elementwise::gate(&kernels, function, &g, &u, &mut apart);
                gated_product(&kernels, &gate, &up, function, &activations, &mut fused);
                assert_eq!(fused, apart, "{} {tokens} tokens", kernels.isa());
            }
        }
    }
}

/// A matrix whose product with ones has the given values: codes do not count, biases do.
fn with_products(kernels: &Kernels, values: &[f32]) -> QuantisedMatrix {
    let mut packed = Packed::new(values.len(), 64, 4, 64, FloatKind::F32);
    packed.scale_bytes.fill(0);
    packed.bias_bytes = values
        .iter()
        .flat_map(|v| (v / 64.0).to_le_bytes())
        .collect();
    QuantisedMatrix::repack(kernels, &[packed.source()]).unwrap()
}

#[test]
fn the_fused_argmax_is_the_first_of_the_largest_wherever_it_is() {
    for kernels in every_isa(3) {
        let mut ones = Activations::new();
        ones.quantise(&kernels, &[1.0; 64], 64, 64);
        // 100 rows end within a block: what lies behind them is larger than any of them.
        for at in [0, 15, 16, 40, 95, 96, 99] {
            let mut values = vec![-3.0; 100];
            (values[at], values[99]) = (-1.0, -1.0);
            let matrix = with_products(&kernels, &values);
            assert_eq!(product_argmax(&kernels, &matrix, &ones, None), at);
            let mut y = vec![0.0; 100];
            assert_eq!(product_argmax(&kernels, &matrix, &ones, Some(&mut y)), at);
            let mut again = vec![0.0; 100];
            product(&kernels, &matrix, &ones, &mut again);
            assert_eq!(y, again);
        }
    }
}

#[test]
fn the_fused_argmax_passes_over_nan() {
    for kernels in every_isa(2) {
        let mut ones = Activations::new();
        ones.quantise(&kernels, &[1.0; 64], 64, 64);
        let mut values = vec![f32::NAN; 600];
        assert_eq!(
            product_argmax(&kernels, &with_products(&kernels, &values), &ones, None),
            0
        );
        values[417] = -5.0;
        assert_eq!(
            product_argmax(&kernels, &with_products(&kernels, &values), &ones, None),
            417
        );
    }
}

#[test]
fn tensors_that_contradict_the_shape_are_refused_with_both_sizes() {
    let kernels = &every_isa(1)[0];
    let packed = Packed::new(8, 64, 4, 32, FloatKind::Bf16);
    let repack =
        |source: AffineSource<'_>| QuantisedMatrix::repack(kernels, &[source]).unwrap_err();
    let good = packed.source();
    let text = repack(AffineSource {
        codes: &good.codes[1..],
        ..good
    })
    .to_string();
    assert!(text.contains("255") && text.contains("256"), "{text}");
    let scales = FloatSource {
        kind: FloatKind::F32,
        ..good.scales
    };
    let text = repack(AffineSource { scales, ..good }).to_string();
    assert!(
        text.contains("scales") && text.contains("32") && text.contains("64"),
        "{text}"
    );
    assert_eq!(
        repack(AffineSource { bits: 7, ..good }),
        RepackError::Bits { bits: 7 }
    );
    assert_eq!(
        repack(AffineSource { group: 48, ..good }),
        RepackError::Group { group: 48 }
    );
    let error = repack(AffineSource {
        columns: 80,
        ..good
    });
    assert_eq!(
        error,
        RepackError::Columns {
            columns: 80,
            group: 32
        }
    );
    let other = Packed::new(8, 64, 8, 32, FloatKind::Bf16);
    let error = QuantisedMatrix::repack(kernels, &[good, other.source()]).unwrap_err();
    assert_eq!(
        error,
        RepackError::Stack {
            what: "code bits",
            got: 8,
            expected: 4
        }
    );
}

#[test]
fn plain_matrices_multiply_like_their_definition_in_every_kind() {
    /// Sums of 50 products in f32 against f64.
    const RELATIVE: f64 = 1e-5;
    for kernels in every_isa(2) {
        for kind in KINDS {
            for tokens in [1, 2, 6, 15] {
                let (rows, columns) = (16 * 5 + 3, 50);
                let mut values = wave(rows * columns, 0.1);
                let bytes = float_bytes(kind, &mut values);
                let values_source = FloatSource {
                    kind,
                    bytes: &bytes,
                };
                let source = PlainSource {
                    rows,
                    columns,
                    values: values_source,
                };
                let matrix = PlainMatrix::repack(&kernels, &[source]).unwrap();
                let x = wave(tokens * columns, 0.8);
                let mut y = vec![0.0; tokens * rows];
                plain_product(&kernels, &matrix, &x, &mut y);
                for (x, y) in x.chunks(columns).zip(y.chunks(rows)) {
                    for (w, &y) in values.chunks(columns).zip(y) {
                        let in_order = w.iter().zip(x).fold(0.0, |y, (w, x)| w.mul_add(*x, y));
                        assert_eq!(y, in_order, "{} {kind:?}", kernels.isa());
                        let terms = w.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x));
                        let size: f64 = terms.clone().map(f64::abs).sum();
                        assert!((f64::from(y) - terms.sum::<f64>()).abs() <= RELATIVE * size);
                    }
                }
                let mut row = vec![0.0; columns];
                matrix.copy_row(20, &mut row);
                assert_eq!(row, values[20 * columns..21 * columns]);
            }
        }
    }
}
