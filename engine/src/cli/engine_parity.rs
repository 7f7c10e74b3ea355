//! `mlxcel-engine-parity`: every decode path against the synchronous one.

use std::io::Write;

use anyhow::Context;

use super::compute::ComputeArguments;
use super::exit_code::{FAILURE, SUCCESS};
use super::progress::ByteProgress;
use super::{model_argument, overrides, routes, version};
use crate::backend::interface::Arithmetic;
use crate::bench::arguments::ArithmeticArgument;
use crate::bench::prompt::Tokenizer;
use crate::decode::{SamplerOptions, UndoPolicy};
use crate::parity::{FastText, ParityOptions, default_prompt_tokens, parity, twin};
use crate::{Engine, LoadOptions, backend};

/// Name of the program in messages.
pub const PROGRAM: &str = "mlxcel-engine-parity";

/// Decode the same prompt by every path and compare tokens and logits
///
/// The default prompt ends shortly before the model's sliding window does, so that the text fills
/// it, wraps it and goes on.
#[derive(Debug, clap::Parser)]
#[command(name = PROGRAM, disable_version_flag = true)]
pub struct Arguments {
    /// MLX model folder, or synthetic:NAME
    #[arg(short, long, value_name = "DIR", required_unless_present = "version")]
    pub model: Option<String>,
    /// Tokens of the prompt
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub prompt_tokens: Option<u32>,
    /// Tokens to decode by each path
    #[arg(short = 'n', long, value_name = "N", default_value_t = 128,
          value_parser = clap::value_parser!(u32).range(2..=1 << 20))]
    pub max_tokens: u32,
    /// Exit with 1 where a path differs, is not to be had, or proves nothing
    #[arg(long)]
    pub expect_identical: bool,
    /// Of the sampled texts
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// float32 is the reference; fast rounds activations, to 8 bits on a processor
    #[arg(long, value_enum, default_value_t = ArithmeticArgument::Fast)]
    pub arithmetic: ArithmeticArgument,
    /// Also feed the greedy text to the model in float32, and see how near its best each token is
    #[arg(long)]
    pub twin: bool,
    /// Where to compute.
    #[command(flatten)]
    pub compute: ComputeArguments,
    /// Leave rows out of rewinds: a test of this test
    #[arg(long, hide = true)]
    pub plant_rewind_bug: bool,
    /// Print one line of JSON
    #[arg(long)]
    pub json: bool,
    /// Print version, commit, dirty flag, features, target and profile
    #[arg(short = 'V', long)]
    pub version: bool,
}

/// Compares and prints.
///
/// # Errors
/// A model that is not there or cannot be loaded, or a step that fails.
pub fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    if arguments.version {
        version::print(PROGRAM, arguments.json)?;
        return Ok(SUCCESS);
    }
    // clap asks for the model unless the version was asked for.
    let model = arguments.model.as_deref().unwrap_or_default();
    let arithmetic = arguments.arithmetic.arithmetic();
    let options = arguments
        .compute
        .load_options(arithmetic, routes::options());
    backend::require(options.backend)?;
    let undo = overrides::lookahead_options()?.undo;
    check(arguments, undo)?;
    let folder = model_argument::folder(model)?;
    let load = |options: &LoadOptions| {
        let mut bar = ByteProgress::new(format!("loading {model}"));
        Engine::load(&folder, options, &mut |progress| {
            bar.update(progress.done_bytes, progress.total_bytes);
        })
        .with_context(|| format!("failed to load {model}"))
    };
    let engine = load(&options)?;
    let info = engine.model();
    let prompt_tokens = match arguments.prompt_tokens {
        Some(tokens) => tokens as usize,
        None => default_prompt_tokens(info.window_tokens),
    };
    let prompt = Tokenizer::open(&folder, info.vocab_size)?.synthesise(prompt_tokens)?;
    let parity_options = ParityOptions {
        tokens: arguments.max_tokens as usize,
        sampled: SamplerOptions {
            temperature: 1.0,
            top_p: 0.95,
            seed: arguments.seed,
        },
        undo,
        plant_rewind_bug: arguments.plant_rewind_bug,
    };
    let mut report = parity(&engine, &prompt, &parity_options)?;
    let cache = engine.qmm_report();
    if arguments.twin {
        let fast = FastText::new(&engine, &prompt, &report.text)?;
        // One at a time: both may be more than there is memory for.
        drop(engine);
        let options = LoadOptions {
            arithmetic: Arithmetic::Float32,
            ..options
        };
        let said = twin(&load(&options)?, &prompt, &report.text, &fast)?;
        report = report.with_twin(said);
    }
    let mut out = std::io::stdout();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string(&report)?)?;
    } else {
        write!(out, "{report}")?;
    }
    routes::print_cache_stats(&cache);
    Ok(match arguments.expect_identical && !report.passed {
        true => FAILURE,
        false => SUCCESS,
    })
}

/// What cannot be compared is refused before anything is loaded.
fn check(arguments: &Arguments, undo: UndoPolicy) -> anyhow::Result<()> {
    anyhow::ensure!(
        undo != UndoPolicy::Discard,
        "{}: a text that was decoded with discard cannot be continued, so there is nothing to compare",
        overrides::UNDO
    );
    anyhow::ensure!(
        undo != UndoPolicy::Slack || !arguments.plant_rewind_bug,
        "with slack no row is put back, so none can be left out: set {}=in_append",
        overrides::UNDO
    );
    anyhow::ensure!(
        !arguments.twin || arguments.arithmetic.arithmetic() == Arithmetic::Fast,
        "--twin: expected --arithmetic fast, got float32, which is the twin itself"
    );
    Ok(())
}
