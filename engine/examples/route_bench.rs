//! Where dequantise-then-multiply would overtake the int8 kernels on this processor.
//!
//! ```text
//! cargo run --release -p mlxcel-engine --example route_bench [-- threads [isa …]]
//! ```
//!
//! For each instruction set (all that the processor has, or those named) and each shape: the median
//! time of both mechanisms by rows of activations, and their ratio. Dense products choose their
//! instructions themselves, so a forced instruction set slows the int8 kernels only: the ratio is
//! then the best case of dequantising, not that of a processor that has no more.

#![expect(clippy::print_stdout, reason = "a program for people")]

use std::time::Instant;

use half::bf16;
use mlxcel_engine::backend::cpu::kernel::{
    Activations, AffineSource, CpuFeatures, DequantisedMatrix, FloatKind, FloatSource, Isa,
    KernelChoice, Kernels, QuantisedMatrix, dense_product, product,
};

const REPETITIONS: usize = 7;

/// Rows of activations.
const ROWS: [usize; 7] = [1, 2, 8, 32, 128, 512, 2048];

/// N and K of real modules: q|k|v, gate and down of Gemma 3 270M, 1B and 4B.
const SHAPES: [(usize, usize); 4] = [(1536, 640), (6912, 1152), (1152, 6912), (10_240, 2560)];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let threads = arguments.next().map_or(Ok(2), |text| text.parse())?;
    let names: Vec<String> = arguments.collect();
    let mut isas = CpuFeatures::detect().available();
    isas.retain(|isa| names.is_empty() || names.iter().any(|name| name == isa.name()));
    for isa in isas {
        let kernels = Kernels::new(KernelChoice::Force(isa), threads)?;
        for (n, k) in SHAPES {
            println!("{isa}, {threads} threads, N {n}, K {k}: int8 ms, dequantised ms, ratio");
            shape(&kernels, n, k)?;
        }
    }
    Ok(())
}

fn shape(kernels: &Kernels, n: usize, k: usize) -> Result<(), Box<dyn std::error::Error>> {
    let (codes, floats) = (
        vec![0x5A; n * k / 2],
        bf16::from_f32(0.01).to_le_bytes().repeat(n * k / 64),
    );
    let float = FloatSource {
        kind: FloatKind::Bf16,
        bytes: &floats,
    };
    let source = AffineSource {
        rows: n,
        columns: k,
        bits: 4,
        group: 64,
        codes: &codes,
        scales: float,
        biases: float,
    };
    let matrix = QuantisedMatrix::repack(kernels, &[source])?;
    let mut activations = Activations::new();
    for rows in ROWS {
        // The portable kernels would take minutes.
        if kernels.isa() == Isa::Scalar && rows > 128 {
            break;
        }
        let x: Vec<f32> = (0..rows * k).map(|i| (i % 13) as f32 - 6.0).collect();
        let mut y = vec![0.0; rows * n];
        let int8 = median(|| {
            activations.quantise(kernels, &x, k, 64);
            product(kernels, &matrix, &activations, &mut y);
        });
        let dense = median(|| {
            let weights = DequantisedMatrix::new(kernels, &matrix);
            dense_product(kernels, &weights, &x, &mut y);
        });
        let ratio = dense / int8;
        println!(
            "  M {rows:5}  {:9.3}  {:9.3}  {ratio:6.2}",
            int8 * 1e3,
            dense * 1e3
        );
    }
    Ok(())
}

/// Median seconds of some runs after one that is not timed.
fn median(mut run: impl FnMut()) -> f64 {
    run();
    let mut seconds: Vec<f64> = (0..REPETITIONS)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    seconds[REPETITIONS / 2]
}
