//! `mlxcel perplexity`: how well a model predicts a text file.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;

use super::compute::{ArithmeticsArgument, ComputeArguments};
use super::exit_code::SUCCESS;
use super::progress::ByteProgress;
use super::{model_argument, routes};
use crate::backend;
use crate::backend::interface::Arithmetic;
use crate::engine::Engine;
use crate::perplexity::{PerplexityOptions, measure};
use crate::tokenizer::TextTokenizer;

/// Most tokens in a window unless the options say more.
const DEFAULT_CONTEXT_TOKENS: usize = 2048;

/// Say how well a model predicts a text
///
/// A text longer than the context is cut into overlapping windows; every token is predicted once.
/// With --arithmetic both, float32 and fast run in step and are compared token by token.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// MLX model folder with a tokenizer
    #[arg(short, long, value_name = "DIR")]
    pub model: String,
    /// Text to predict, in UTF-8
    #[arg(short, long, value_name = "TEXT")]
    pub file: PathBuf,
    /// float32 is the reference; fast rounds activations, to 8 bits on a processor
    #[arg(long, value_enum, default_value_t = ArithmeticsArgument::Float32)]
    pub arithmetic: ArithmeticsArgument,
    /// Tokens in a window [default: 2048, or the model's context if that is shorter]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1 << 20))]
    pub context: Option<u32>,
    /// Tokens that the next window moves on by [default: half the context]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub stride: Option<u32>,
    /// Predict only the first N tokens of the text
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub tokens: Option<u32>,
    /// Where to compute.
    #[command(flatten)]
    pub compute: ComputeArguments,
    /// Print one line of JSON
    #[arg(long)]
    pub json: bool,
}

/// Measures and prints.
///
/// # Errors
/// A folder without a model or a tokenizer, a file that is no text, a text too short to predict
/// anything, a step that fails.
pub fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let qmm = routes::options();
    let loads = arguments.arithmetic.arithmetics().iter().map(|a| {
        let mut load = arguments.compute.load_options(*a, qmm);
        if (arguments.arithmetic, *a) == (ArithmeticsArgument::Both, Arithmetic::Float32) {
            // What the other one is compared with; it has no routes.
            load.qmm.route_profile = None;
        }
        load
    });
    let loads: Vec<_> = loads.collect();
    for load in &loads {
        backend::require(load.backend)?;
    }
    let text = std::fs::read_to_string(&arguments.file)
        .with_context(|| format!("failed to read {}", arguments.file.display()))?;
    let folder = model_argument::folder(&arguments.model)?;
    let tokenizer = TextTokenizer::load(&folder)?;
    let start = tokenizer.start_tokens()?;
    let mut ids = tokenizer.encode_plain(&text)?;
    ids.truncate(
        arguments
            .tokens
            .map_or(usize::MAX, |tokens| tokens as usize),
    );
    let mut engines = Vec::new();
    for load in &loads {
        let mut bar = ByteProgress::new(format!("loading {}", arguments.model));
        engines.push(Engine::load(&folder, load, &mut |progress| {
            bar.update(progress.done_bytes, progress.total_bytes);
        })?);
    }
    let options = options(arguments, &engines[0]);
    let mut bar = ByteProgress::tokens("predicting");
    let report = measure(&engines, &start, &ids, options, &mut |done| {
        bar.update(done as u64, ids.len() as u64);
    })?;
    drop(bar);
    engines
        .iter()
        .for_each(|engine| routes::print_cache_stats(&engine.qmm_report()));
    let mut out = std::io::stdout();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string(&report)?)?;
    } else {
        write!(out, "{report}")?;
    }
    Ok(SUCCESS)
}

fn options(arguments: &Arguments, engine: &Engine) -> PerplexityOptions {
    let most = engine.model().max_position_tokens.unwrap_or(usize::MAX);
    let context_tokens = match arguments.context {
        Some(context) => context as usize,
        None => DEFAULT_CONTEXT_TOKENS.min(most),
    };
    PerplexityOptions {
        context_tokens,
        stride_tokens: arguments.stride.map_or(context_tokens / 2, |s| s as usize),
    }
}
