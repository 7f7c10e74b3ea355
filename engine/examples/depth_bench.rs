//! Decode speed against the tokens that came before.
//!
//! ```text
//! cargo run --release -p mlxcel-engine --features cuda --example depth_bench -- FOLDER DEPTH…
//! ```
//!
//! On the first NVIDIA GPU. The model is loaded once; each depth has a sequence of its own, whose prompt
//! is not timed. A figure is the median of several stretches with the slowest and fastest behind it,
//! and its share of what the same program's probe reads.

#![expect(clippy::print_stdout, reason = "a program for people")]

use std::path::PathBuf;
use std::time::Instant;

use mlxcel_engine::decode::{LookaheadOptions, LoopChoice, Sampler, SamplerOptions, StopRule};
use mlxcel_engine::{BackendChoice, Engine, LoadOptions};

/// Stretches of a depth, the first of which warms up.
const STRETCHES: usize = 6;
/// Tokens of a stretch.
const TOKENS: usize = 32;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("usage: depth_bench FOLDER DEPTH…")?);
    let depths: Vec<usize> = arguments
        .map(|depth| depth.parse())
        .collect::<Result<_, _>>()?;
    let options = LoadOptions {
        backend: BackendChoice::Cuda,
        ..LoadOptions::default()
    };
    let engine = Engine::load(&folder, &options, &mut |_| ())?;
    let mut passes = engine.read_bandwidth()?.unwrap_or_default();
    passes.sort_by(f64::total_cmp);
    let bandwidth = passes.get(passes.len() / 2).copied().unwrap_or(f64::NAN);
    println!("{}, {:.2} TB/s", engine.device().name, bandwidth / 1e12);
    println!("| depth | tok/s (slowest–fastest) | MB a token | limit tok/s | share |");
    println!("|---|---|---|---|---|");
    for depth in depths {
        let mut rates = rates_at(&engine, depth)?;
        rates.sort_by(f64::total_cmp);
        let (low, middle, high) = (rates[0], rates[rates.len() / 2], rates[rates.len() - 1]);
        let mean_depth = depth + STRETCHES * TOKENS / 2;
        let bytes = (engine.model().bytes_per_token + engine.cache_bytes_at(mean_depth)) as f64;
        println!(
            "| {depth} | {middle:.0} ({low:.0}–{high:.0}) | {:.0} | {:.0} | {:.0} % |",
            bytes / 1e6,
            bandwidth / bytes,
            100.0 * middle * bytes / bandwidth
        );
    }
    Ok(())
}

/// Tokens per second of each stretch behind a prompt of `depth` tokens.
fn rates_at(engine: &Engine, depth: usize) -> Result<Vec<f64>, Box<dyn std::error::Error>> {
    let choice = LoopChoice::Engine(LookaheadOptions::default());
    let vocab_size = engine.model().vocab_size;
    let prompt: Vec<u32> = (0..depth).map(|i| (i * 7919 % vocab_size) as u32).collect();
    let stop = StopRule {
        max_tokens: STRETCHES * TOKENS + 1,
        end_tokens: Vec::new(),
    };
    let mut sequence = choice.new_sequence(engine)?;
    let sampler = Sampler::new(SamplerOptions::default());
    let mut decoder = choice.over(&mut sequence, sampler, stop, false);
    decoder.prefill(&prompt)?;
    let mut rates = Vec::with_capacity(STRETCHES);
    for _ in 0..STRETCHES {
        let start = Instant::now();
        for _ in 0..TOKENS {
            decoder.next()?.ok_or("the model stopped early")?;
        }
        rates.push(TOKENS as f64 / start.elapsed().as_secs_f64());
    }
    decoder.finish()?;
    Ok(rates.split_off(1))
}
