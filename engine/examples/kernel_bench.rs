//! Measures the CPU kernels beside what the machine can do.
//!
//! ```text
//! cargo run --release -p mlxcel-engine --example kernel_bench [-- threads [part …]]
//! ```
//!
//! The name of an instruction set among the parts (avx2, scalar, …) forces it.
//! Parts: probe, vector, gate, matrix, decode, prefill, pool (all by default).
//! Every figure is the median of several repetitions with the smallest and
//! largest behind it; bandwidth is probed again beside each memory-bound part,
//! because a shared machine changes under one's feet.

#![expect(clippy::print_stdout, reason = "a program for people")]

use std::hint::black_box;
use std::time::Instant;

use half::f16;
use mlxcel_engine::backend::cpu::kernel::{
    Activations, AffineSource, AlignedBuffer, AttentionShape, DecodeScratch, FloatKind,
    FloatSource, Gate, Isa, KernelChoice, Kernels, KvRing, KvSegment, KvView, PrefillQueries,
    QuantisedMatrix, decode_attention, gated_product, prefill_attention, product, share,
};

/// Well beyond any cache.
const PROBE_BYTES: usize = 256 << 20;
const REPETITIONS: usize = 9;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let threads = arguments.next().map_or(Ok(2), |text| text.parse())?;
    let mut parts: Vec<String> = arguments.collect();
    let forced = Isa::ALL
        .into_iter()
        .find(|isa| parts.iter().any(|part| part == isa.name()));
    parts.retain(|part| forced.is_none_or(|isa| part != isa.name()));
    let kernels = Kernels::new(
        forced.map_or(KernelChoice::Best, KernelChoice::Force),
        threads,
    )?;
    println!("kernels {} on {threads} threads", kernels.isa());
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|name| name == part);
    let probe = Probe::new();
    if wanted("probe") {
        probe.report(&kernels);
    }
    if wanted("pool") {
        let seconds = measure(|| kernels.pool().run(|_, _| {}), 1000);
        println!("pool: empty job {}", seconds.text(1e6, "µs"));
    }
    if wanted("vector") {
        vectors(&kernels, &probe)?;
    }
    if wanted("gate") {
        gates(&kernels, &probe)?;
    }
    if wanted("matrix") {
        matrices(&kernels)?;
    }
    if wanted("decode") {
        decode(&kernels);
    }
    if wanted("prefill") {
        prefill(&kernels);
    }
    Ok(())
}

/// Seconds: smallest, median, largest.
#[derive(Clone, Copy)]
struct Spread([f64; 3]);

impl Spread {
    fn text(&self, factor: f64, unit: &str) -> String {
        let [low, median, high] = self.0.map(|seconds| seconds * factor);
        format!("{median:.2} {unit} ({low:.2}–{high:.2})")
    }

    fn rate(&self, amount: f64, unit: &str) -> String {
        let [fast, median, slow] = self.0.map(|seconds| amount / seconds / 1e9);
        format!("{median:.1} {unit} ({slow:.1}–{fast:.1})")
    }
}

fn measure(mut run: impl FnMut(), inner: usize) -> Spread {
    run();
    let mut seconds: Vec<f64> = (0..REPETITIONS)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..inner {
                run();
            }
            start.elapsed().as_secs_f64() / inner as f64
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    Spread([
        seconds[0],
        seconds[REPETITIONS / 2],
        seconds[REPETITIONS - 1],
    ])
}

struct Probe(AlignedBuffer<i32>);

impl Probe {
    fn new() -> Self {
        let mut buffer = AlignedBuffer::zeroed(PROBE_BYTES / 4);
        buffer.fill(1);
        Probe(buffer)
    }

    fn measure(&self, kernels: &Kernels) -> Spread {
        let read = || {
            kernels.pool().run(|worker, workers| {
                let mut sums = [0i32; 64];
                for chunk in self.0[share(self.0.len(), worker, workers)].chunks_exact(64) {
                    for (sum, value) in sums.iter_mut().zip(chunk) {
                        *sum ^= value;
                    }
                }
                black_box(sums);
            });
        };
        measure(read, 1)
    }

    fn report(&self, kernels: &Kernels) {
        let spread = self.measure(kernels);
        println!(
            "read bandwidth probe: {}",
            spread.rate(PROBE_BYTES as f64, "GB/s")
        );
    }
}

fn numbers(count: usize) -> Vec<f32> {
    (0..count)
        .map(|index| ((index * 7919 % 1000) as f32 - 500.0) / 300.0)
        .collect()
}

fn matrix(
    kernels: &Kernels,
    rows: usize,
    columns: usize,
    bits: usize,
    group: usize,
) -> Result<QuantisedMatrix, Box<dyn std::error::Error>> {
    let codes: Vec<u8> = (0..rows * columns * bits / 8)
        .map(|index| ((index * 31) >> 3) as u8)
        .collect();
    let floats: Vec<u8> = [0x00, 0x3c].repeat(rows * columns / group);
    let floats = FloatSource {
        kind: FloatKind::Bf16,
        bytes: &floats,
    };
    let source = AffineSource {
        rows,
        columns,
        bits,
        group,
        codes: &codes,
        scales: floats,
        biases: floats,
    };
    Ok(QuantisedMatrix::repack(kernels, &[source])?)
}

/// One token times matrices, streamed from memory and from the cache.
fn vectors(kernels: &Kernels, probe: &Probe) -> Result<(), Box<dyn std::error::Error>> {
    for (name, rows, columns, bits, group) in [
        ("head 4-bit g64", 262_144, 640, 4, 64),
        ("head 4-bit g32", 262_144, 640, 4, 32),
        ("head 8-bit g64", 131_072, 640, 8, 64),
        ("ffn  4-bit g64 (in cache)", 2048, 640, 4, 64),
        ("o    4-bit g64 (in cache)", 640, 1024, 4, 64),
    ] {
        let matrix = matrix(kernels, rows, columns, bits, group)?;
        let mut x = Activations::new();
        x.quantise(kernels, &numbers(columns), columns, group);
        let mut y = vec![0.0; rows];
        let inner = if matrix.bytes() > 64 << 20 { 1 } else { 100 };
        let before = probe.measure(kernels);
        let spread = measure(|| product(kernels, &matrix, &x, &mut y), inner);
        let rate = spread.rate(matrix.bytes() as f64, "GB/s");
        println!(
            "{name}: {rate}, {}; probe {}",
            spread.text(1e6, "µs"),
            before.rate(PROBE_BYTES as f64, "GB/s")
        );
    }
    Ok(())
}

/// The fused gate over several layers' worth of different matrices.
fn gates(kernels: &Kernels, probe: &Probe) -> Result<(), Box<dyn std::error::Error>> {
    let mut layers = Vec::new();
    for _ in 0..40 {
        layers.push((
            matrix(kernels, 4096, 1024, 4, 64)?,
            matrix(kernels, 4096, 1024, 4, 64)?,
        ));
    }
    let mut x = Activations::new();
    x.quantise(kernels, &numbers(1024), 1024, 64);
    let mut y = vec![0.0; 4096];
    let bytes: usize = layers
        .iter()
        .map(|(gate, up)| gate.bytes() + up.bytes())
        .sum();
    let before = probe.measure(kernels);
    let fused = measure(
        || {
            for (gate, up) in &layers {
                gated_product(kernels, gate, up, Gate::GeluTanh, &x, &mut y);
            }
        },
        1,
    );
    let apart = measure(
        || {
            for matrix in layers.iter().flat_map(|(gate, up)| [gate, up]) {
                product(kernels, matrix, &x, &mut y);
            }
        },
        1,
    );
    println!(
        "40 × 2 × 4096 × 1024 4-bit: gated {}, one after the other {}; probe {}",
        fused.rate(bytes as f64, "GB/s"),
        apart.rate(bytes as f64, "GB/s"),
        before.rate(PROBE_BYTES as f64, "GB/s")
    );
    Ok(())
}

/// Many tokens times matrices.
fn matrices(kernels: &Kernels) -> Result<(), Box<dyn std::error::Error>> {
    for (name, rows, columns, bits, group) in [
        ("ffn up   4-bit g64", 2048, 640, 4, 64),
        ("ffn down 4-bit g64", 640, 2048, 4, 64),
        ("kv       4-bit g64", 512, 640, 4, 64),
        ("ffn up   4-bit g32", 1536, 576, 4, 32),
        ("ffn up   8-bit g64", 2048, 640, 8, 64),
        ("4096²    4-bit g64", 4096, 4096, 4, 64),
    ] {
        let matrix = matrix(kernels, rows, columns, bits, group)?;
        for tokens in [8, 512, 2048] {
            let mut x = Activations::new();
            x.quantise(kernels, &numbers(tokens * columns), columns, group);
            let mut y = vec![0.0; tokens * rows];
            if rows * tokens * columns > 1 << 34 {
                continue;
            }
            let spread = measure(|| product(kernels, &matrix, &x, &mut y), 1);
            let operations = 2.0 * (tokens * rows * columns) as f64;
            println!("{name} × {tokens}: {}", spread.rate(operations, "GOP/s"));
        }
    }
    let mut x = Activations::new();
    let data = numbers(2048 * 640);
    let spread = measure(|| x.quantise(kernels, &data, 640, 64), 1);
    println!("quantise 2048 × 640: {}", spread.text(1e6, "µs"));
    Ok(())
}

fn decode(kernels: &Kernels) {
    for (heads, kv_heads, head_dim) in [(4, 1, 256), (9, 3, 64), (32, 8, 128)] {
        let shape = AttentionShape {
            heads,
            kv_heads,
            head_dim,
            scale: 0.0625,
        };
        for rows in [16, 512, 2048] {
            let data = |seed: usize| -> Vec<f16> {
                let count = kv_heads * rows * head_dim;
                numbers(count + seed)[seed..]
                    .iter()
                    .map(|&x| f16::from_f32(x))
                    .collect()
            };
            let (keys, values) = (data(0), data(1));
            let view = KvView {
                keys: &keys,
                values: &values,
                slots: rows,
            };
            let ring = KvRing {
                view,
                ring_slots: rows,
                oldest_slot: rows / 3,
                rows,
            };
            let q = numbers(heads * head_dim);
            let mut out = vec![0.0; q.len()];
            let mut scratch = DecodeScratch::new();
            let run = || decode_attention(kernels, &shape, ring, &q, &mut scratch, &mut out);
            let spread = measure(run, 50);
            let operations = 4.0 * (heads * rows * head_dim) as f64;
            println!(
                "decode attention {heads}/{kv_heads} heads of {head_dim}, {rows} rows: {}, {}",
                spread.text(1e6, "µs"),
                spread.rate(operations, "GFLOP/s")
            );
        }
    }
}

fn prefill(kernels: &Kernels) {
    for (heads, kv_heads, head_dim) in [(4, 1, 256), (9, 3, 64)] {
        let shape = AttentionShape {
            heads,
            kv_heads,
            head_dim,
            scale: 0.0625,
        };
        for (tokens, window) in [(512, None), (2048, None), (2048, Some(512))] {
            let count = kv_heads * tokens * head_dim;
            let data: Vec<f16> = numbers(count).iter().map(|&x| f16::from_f32(x)).collect();
            let view = KvView {
                keys: &data,
                values: &data,
                slots: tokens,
            };
            let segment = KvSegment {
                view,
                first_slot: 0,
                rows: tokens,
                first_position: 0,
            };
            let q = numbers(tokens * heads * head_dim);
            let row = heads * head_dim;
            let queries = PrefillQueries {
                q: &q,
                row,
                tokens,
                first_position: 0,
            };
            let mut out = vec![0.0; q.len()];
            let run = || prefill_attention(kernels, &shape, &[segment], &queries, window, &mut out);
            let spread = measure(run, 1);
            let pairs: usize = (0..tokens)
                .map(|i| (i + 1).min(window.unwrap_or(tokens)))
                .sum();
            let operations = 4.0 * (pairs * heads * head_dim) as f64;
            println!(
                "prefill attention {heads}/{kv_heads} heads of {head_dim}, {tokens} tokens, \
                 window {window:?}: {}, {}",
                spread.text(1e3, "ms"),
                spread.rate(operations, "GFLOP/s")
            );
        }
    }
}
