//! `mlxcel logit-trace`: what a model predicts at every position of a text.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::json;

use super::compute::ComputeArguments;
use super::exit_code::SUCCESS;
use super::progress::ByteProgress;
use super::{model_argument, routes};
use crate::backend;
use crate::bench::arguments::ArithmeticArgument;
use crate::bench::prompt::Tokenizer;
use crate::engine::Engine;
use crate::logit_trace::{TraceOptions, trace};

/// Moves whenever a reader of traces must know.
const FORMAT: u32 = 1;

/// Write what a model predicts at every position of a text
///
/// The text is fed in chunks, each on a sequence of its own. One line of JSON a position, after a
/// first one that says of what; compare two with scripts/compare_logit_traces.py.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// MLX model folder, synthetic:NAME or hf:ORG/NAME
    #[arg(short, long, value_name = "DIR")]
    pub model: String,
    /// Text to predict, in UTF-8 [default: a neutral English paragraph, repeated]
    #[arg(short, long, value_name = "TEXT")]
    pub file: Option<PathBuf>,
    /// Predict the first N tokens of the text
    #[arg(long, value_name = "N", default_value_t = 1024,
          value_parser = clap::value_parser!(u32).range(2..=1 << 20))]
    pub tokens: u32,
    /// Tokens of a chunk, which is one step: its logits are held at once
    #[arg(long, value_name = "N", default_value_t = 256,
          value_parser = clap::value_parser!(u32).range(2..=1 << 16))]
    pub chunk: u32,
    /// Likeliest tokens to write at each position
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub top: u32,
    /// File to write; standard output without it
    #[arg(short, long, value_name = "TRACE")]
    pub output: Option<PathBuf>,
    /// float32 is the reference; fast rounds activations, to 8 bits on a processor
    #[arg(long, value_enum, default_value_t = ArithmeticArgument::Fast)]
    pub arithmetic: ArithmeticArgument,
    /// Where to compute.
    #[command(flatten)]
    pub compute: ComputeArguments,
}

/// Writes the trace.
///
/// # Errors
/// A model that is not there or cannot be loaded, a file that is no text, a step that fails, an
/// output that cannot be written.
pub fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let arithmetic = arguments.arithmetic.arithmetic();
    let load = arguments
        .compute
        .load_options(arithmetic, routes::options());
    backend::require(load.backend)?;
    let text = match &arguments.file {
        Some(path) => Some(
            std::fs::read_to_string(path)
                .with_context(|| format!("failed to read {}", path.display()))?,
        ),
        None => None,
    };
    let folder = model_argument::folder(&arguments.model)?;
    let mut bar = ByteProgress::new(format!("loading {}", arguments.model));
    let engine = Engine::load(&folder, &load, &mut |progress| {
        bar.update(progress.done_bytes, progress.total_bytes);
    })?;
    drop(bar);
    let tokenizer = Tokenizer::open(&folder, engine.model().vocab_size)?;
    let count = arguments.tokens as usize;
    let mut ids = match &text {
        Some(text) => tokenizer.encode(text, false)?,
        None => tokenizer.synthesise(count)?,
    };
    ids.truncate(count);
    match &arguments.output {
        None => write(arguments, &engine, &ids, std::io::stdout())?,
        Some(path) => write_whole(path, |file| write(arguments, &engine, &ids, file))?,
    }
    routes::print_cache_stats(&engine.qmm_report());
    Ok(SUCCESS)
}

fn write(
    arguments: &Arguments,
    engine: &Engine,
    ids: &[u32],
    out: impl Write,
) -> anyhow::Result<()> {
    let mut out = BufWriter::new(out);
    writeln!(out, "{}", header(arguments, engine, ids.len()))?;
    let options = TraceOptions {
        chunk_tokens: arguments.chunk as usize,
        top: arguments.top as usize,
    };
    trace(engine, ids, options, &mut |row| {
        serde_json::to_writer(&mut out, row)?;
        out.write_all(b"\n")
    })?;
    Ok(out.flush()?)
}

/// Fills the file at `path` by way of one beside it, so that a trace that fails leaves what was there.
/// Pipes and devices are written to as they are.
fn write_whole(path: &Path, fill: impl FnOnce(File) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let create = |path: &Path| {
        File::create(path).with_context(|| format!("failed to create {}", path.display()))
    };
    if path.metadata().is_ok_and(|found| !found.is_file()) {
        return fill(create(path)?);
    }
    let mut incomplete = path.as_os_str().to_owned();
    incomplete.push(".incomplete");
    let incomplete = PathBuf::from(incomplete);
    let filled = fill(create(&incomplete)?).and_then(|()| {
        std::fs::rename(&incomplete, path)
            .with_context(|| format!("failed to rename {} into place", incomplete.display()))
    });
    if filled.is_err() {
        // The reason is that of the trace.
        let _ = std::fs::remove_file(&incomplete);
    }
    filled
}

/// What two traces must agree in to be comparable. Nothing about builds, routes or devices: traces
/// of two of them may be equal to the byte.
fn header(arguments: &Arguments, engine: &Engine, tokens: usize) -> serde_json::Value {
    json!({
        "logit_trace": FORMAT,
        "model_hash": engine.model().model_hash,
        "tokens": tokens,
        "chunk_tokens": arguments.chunk,
        "top": arguments.top,
    })
}
