//! What keeping overwritten rows costs a token, in nanoseconds.
//!
//! ```text
//! cargo run --release -p mlxcel-engine --example undo_bench
//! ```
//!
//! Rows as wide and layers as many as in Gemma 3 4B and 270M, windows full. Each figure is the
//! median of several repetitions with the smallest and largest behind it. The ways take turns within
//! a repetition, because a shared machine changes under one's feet; `again` is `nothing` measured a
//! second time, so what it differs by is noise.

#![expect(clippy::print_stdout, reason = "a program for people")]

use std::hint::black_box;
use std::time::Instant;

use half::f16;
use mlxcel_engine::backend::cpu::kernel::{
    AlignedBuffer, AttentionShape, KernelChoice, Kernels, replace_row, write_rows,
};
use mlxcel_engine::kv_cache::{CacheCursor, RewindableCache, RotatingCursor, SaveMethod};

const REPETITIONS: usize = 15;
const TOKENS: usize = 200;

struct Model {
    name: &'static str,
    layers: usize,
    kv_heads: usize,
    head_dim: usize,
    window: usize,
}

const MODELS: [Model; 2] = [
    Model {
        name: "gemma3-4b",
        layers: 29,
        kv_heads: 4,
        head_dim: 256,
        window: 1024,
    },
    Model {
        name: "gemma3-270m",
        layers: 15,
        kv_heads: 1,
        head_dim: 256,
        window: 512,
    },
];

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Nothing,
    Again,
    Slack,
    OwnCopies,
    InAppend,
}

const WAYS: [(Way, &str); 5] = [
    (Way::Nothing, "nothing"),
    (Way::Again, "again"),
    (Way::Slack, "slack"),
    (Way::OwnCopies, "own copies"),
    (Way::InAppend, "in append"),
];

const SLACK_ROWS: usize = 2;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let kernels = Kernels::new(KernelChoice::Best, 1)?;
    println!(
        "kernels {}, ns per token: median (smallest to largest)",
        kernels.isa()
    );
    for model in &MODELS {
        println!("{}: {} windowed layers", model.name, model.layers);
        rows(&kernels, model);
    }
    println!("host: a cursor and its journal");
    cursors();
    Ok(())
}

/// The device's part: writing a key and a value row in each layer, and keeping the old ones.
fn rows(kernels: &Kernels, model: &Model) {
    let shape = AttentionShape {
        heads: model.kv_heads,
        kv_heads: model.kv_heads,
        head_dim: model.head_dim,
        scale: 1.0,
    };
    let width = model.kv_heads * model.head_dim;
    let source = vec![0.5f32; width];
    // A key and a value buffer a layer, so that nothing is in a cache by accident.
    let buffers = |slots: usize| -> Vec<AlignedBuffer<f16>> {
        let buffer = |_| AlignedBuffer::zeroed(width * slots);
        (0..2 * model.layers).map(buffer).collect()
    };
    let mut plain = buffers(model.window);
    let mut with_slack = buffers(model.window + SLACK_ROWS);
    let mut kept = vec![vec![f16::ZERO; width]; 2 * model.layers];
    let mut token = 0;
    compare(|way| {
        token += 1;
        let (buffers, slots) = match way {
            Way::Slack => (&mut with_slack, model.window + SLACK_ROWS),
            _ => (&mut plain, model.window),
        };
        let slot = token % slots;
        for (buffer, kept) in buffers.iter_mut().zip(&mut kept) {
            if way == Way::InAppend {
                replace_row(kernels, &shape, &source, buffer, slots, slot, kept);
                continue;
            }
            if way == Way::OwnCopies {
                for (head, to) in kept.chunks_exact_mut(model.head_dim).enumerate() {
                    let start = (head * slots + slot) * model.head_dim;
                    to.copy_from_slice(&buffer[start..start + model.head_dim]);
                }
                black_box(&mut *kept);
            }
            let row = source.len();
            write_rows(kernels, &shape, &source, row, 1, buffer, slots, slot);
        }
    });
}

/// The host's part: moving the cursor of one kind of cache, logged or not.
fn cursors() {
    let ring = |slack| CacheCursor::Rotating(RotatingCursor::with_slack(512, slack));
    let mut bare = ring(0);
    let mut logged = RewindableCache::new(ring(0), 2);
    let mut slack = RewindableCache::new(ring(SLACK_ROWS), 2);
    compare(|way| match way {
        Way::Nothing | Way::Again => {
            black_box(bare.append(1));
        }
        Way::Slack => {
            black_box(slack.append(1, Some(SaveMethod::InAppend)));
        }
        Way::OwnCopies => {
            black_box(logged.append(1, Some(SaveMethod::OwnCopies)));
        }
        Way::InAppend => {
            black_box(logged.append(1, Some(SaveMethod::InAppend)));
        }
    });
}

fn compare(mut token: impl FnMut(Way)) {
    let mut times = [const { Vec::new() }; WAYS.len()];
    for _ in 0..REPETITIONS {
        for (times, (way, _)) in times.iter_mut().zip(WAYS) {
            let start = Instant::now();
            for _ in 0..TOKENS {
                token(way);
            }
            times.push(start.elapsed().as_nanos() as f64 / TOKENS as f64);
        }
    }
    for (times, (_, name)) in times.iter_mut().zip(WAYS) {
        times.sort_by(f64::total_cmp);
        let (low, middle, high) = (times[0], times[REPETITIONS / 2], times[REPETITIONS - 1]);
        println!("  {name:<11} {middle:>9.0} ({low:.0} to {high:.0})");
    }
}
