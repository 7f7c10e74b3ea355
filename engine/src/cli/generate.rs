//! `mlxcel generate`: a prompt to a text on standard output, as it is written.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use serde_json::json;
use signal_hook::consts::SIGINT;

use super::compute::ComputeArguments;
use super::exit_code::{INTERRUPTED, SUCCESS};
use super::progress::ByteProgress;
use super::{model_argument, overrides, routes};
use crate::backend;
use crate::bench::arguments::{ArithmeticArgument, LoopArgument, temperature, top_p};
use crate::decode::SamplerOptions;
use crate::engine::Engine;
use crate::generate::{Ending, GenerateOptions, Generated, Prompt, generate, prompt_ids};
use crate::tokenizer::TextTokenizer;

/// Write a text: answer a question, or with --raw go on with the prompt as it is
///
/// The text goes to standard output, piece by piece. A question is put into the folder's chat
/// template, if it has one.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// MLX model folder with a tokenizer
    #[arg(short, long, value_name = "DIR")]
    pub model: String,
    /// Prompt; without it, standard input is read to its end (one newline there is dropped)
    #[arg(short, long, value_name = "TEXT")]
    pub prompt: Option<String>,
    /// Tell the model how to behave (chat only)
    #[arg(long, value_name = "TEXT", conflicts_with = "raw")]
    pub system: Option<String>,
    /// Use the chat template; an error where the folder has none
    #[arg(long, conflicts_with = "raw")]
    pub chat: bool,
    /// Go on with the prompt as it is
    #[arg(long)]
    pub raw: bool,
    /// Most tokens to write
    #[arg(short = 'n', long, value_name = "N", default_value_t = 256,
          value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub max_tokens: u32,
    /// End the text at TEXT, which is not printed; may be given several times
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,
    /// Go on past the model's end tokens
    #[arg(long)]
    pub ignore_eos: bool,
    /// Divides the logits before a token is drawn; 0 takes the most likely one
    #[arg(long, value_name = "T", default_value_t = 0.0, value_parser = temperature)]
    pub temperature: f32,
    /// Draw from the smallest set of tokens whose probability reaches P
    #[arg(long, value_name = "P", default_value_t = 1.0, value_parser = top_p)]
    pub top_p: f32,
    /// Seed of the draws
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// float32 is the reference; fast rounds activations, to 8 bits on a processor
    #[arg(long, value_enum, default_value_t = ArithmeticArgument::Fast)]
    pub arithmetic: ArithmeticArgument,
    /// Where to compute.
    #[command(flatten)]
    pub compute: ComputeArguments,
    /// Decode loop; MLXCEL_FORCE_SYNC, set to anything, makes the engine's steps synchronous
    #[arg(long = "loop", value_enum, default_value_t = LoopArgument::Engine)]
    pub decode_loop: LoopArgument,
    /// After the text, print tokens and speed on standard error
    #[arg(long)]
    pub stats: bool,
    /// Print one line of JSON at the end instead of the text as it comes
    #[arg(long)]
    pub json: bool,
}

/// Writes the text.
///
/// # Errors
/// A folder without a model or a tokenizer, a chat without a template, a prompt that is empty or
/// too long, a step that fails.
pub fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let arithmetic = arguments.arithmetic.arithmetic();
    let options = arguments
        .compute
        .load_options(arithmetic, routes::options());
    backend::require(options.backend)?;
    let lookahead = overrides::lookahead_options()?;
    let folder = model_argument::folder(&arguments.model)?;
    // Whatever is wrong with the words is said before the weights are read.
    let tokenizer = TextTokenizer::load(&folder)?;
    let ids = prompt_ids(&tokenizer, &prompt(arguments, &tokenizer)?)?;
    let mut bar = ByteProgress::new(format!("loading {}", arguments.model));
    let engine = Engine::load(&folder, &options, &mut |progress| {
        bar.update(progress.done_bytes, progress.total_bytes);
    })?;
    drop(bar);
    let options = GenerateOptions {
        sampler: SamplerOptions {
            temperature: arguments.temperature,
            top_p: arguments.top_p,
            seed: arguments.seed,
        },
        max_tokens: arguments.max_tokens as usize,
        stop_strings: arguments.stop.clone(),
        ignore_end_tokens: arguments.ignore_eos,
        decode_loop: arguments.decode_loop.choice(lookahead),
        cancel: cancelled_by_interrupt()?,
    };
    let mut out = std::io::stdout();
    let streams = !arguments.json;
    let generated = generate(&engine, &tokenizer, &ids, &options, &mut |piece| {
        if streams {
            out.write_all(piece.as_bytes())?;
            out.flush()?;
        }
        Ok(())
    })?;
    if arguments.json {
        writeln!(out, "{}", json_line(arguments, &generated))?;
    } else if !generated.text.ends_with('\n') {
        writeln!(out)?;
    }
    if arguments.stats {
        writeln!(std::io::stderr(), "{}", stats(&generated))?;
    }
    routes::print_cache_stats(&engine.qmm_report());
    Ok(match generated.ending {
        Ending::Cancelled => INTERRUPTED,
        _ => SUCCESS,
    })
}

/// A flag that the first SIGINT (Ctrl-C) raises; the second one ends the program at once.
fn cancelled_by_interrupt() -> anyhow::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let exit_code = i32::from(INTERRUPTED);
    // The order is the rule: what ends the program must see the flag before it is raised.
    signal_hook::flag::register_conditional_shutdown(SIGINT, exit_code, Arc::clone(&flag))
        .and_then(|_| signal_hook::flag::register(SIGINT, Arc::clone(&flag)))
        .context("failed to watch for interrupts")?;
    Ok(flag)
}

fn prompt(arguments: &Arguments, tokenizer: &TextTokenizer) -> anyhow::Result<Prompt> {
    let text = match &arguments.prompt {
        Some(text) => text.clone(),
        None => {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .context("failed to read the prompt from standard input")?;
            // `echo` and editors end a text with a newline that nobody meant.
            text.strip_suffix('\n').map(str::to_owned).unwrap_or(text)
        }
    };
    anyhow::ensure!(
        !text.is_empty(),
        "the prompt is empty: give -p a text or write one to standard input"
    );
    let wants_chat = arguments.chat || arguments.system.is_some();
    if arguments.raw || !(wants_chat || tokenizer.has_chat_template()) {
        return Ok(Prompt::Raw(text));
    }
    Ok(Prompt::Chat {
        system: arguments.system.clone(),
        user: text,
    })
}

fn json_line(arguments: &Arguments, generated: &Generated) -> serde_json::Value {
    json!({
        "model": arguments.model,
        "text": generated.text,
        "ids": generated.ids,
        "ending": generated.ending,
        "decode_path": generated.statistics.decode_path,
        "sync_reason": generated.statistics.sync_reason,
        "prompt_tokens": generated.prompt_tokens,
        "generated_tokens": generated.ids.len(),
        "prefill_ms": generated.prefill_ns as f64 / 1e6,
        "decode_ms": generated.decode_ns as f64 / 1e6,
    })
}

fn stats(generated: &Generated) -> String {
    let rate = |tokens: usize, ns: u64| tokens as f64 * 1e9 / (ns.max(1)) as f64;
    // The first token is prefill's.
    let decoded = generated.ids.len().saturating_sub(1);
    format!(
        "Prompt: {} tokens, {:.2} tokens-per-sec\nGeneration: {} tokens, {:.2} tokens-per-sec\n\
         Decode path: {}",
        generated.prompt_tokens,
        rate(generated.prompt_tokens, generated.prefill_ns),
        generated.ids.len(),
        rate(decoded, generated.decode_ns),
        generated.statistics.decode_path,
    )
}
