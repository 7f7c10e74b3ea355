//! `mlxcel-bench-decode`: arguments to a report on standard output.

use std::io::Write;

use anyhow::Context;

use super::exit_code::SUCCESS;
use super::progress::ByteProgress;
use super::{model_argument, overrides, routes, version};
use crate::backend;
use crate::bench::arguments::{Arguments, PROGRAM};
use crate::bench::measure::{Overrides, measure};
use crate::bench::{json_report, text_report};
use crate::version::receipt;

/// Measures and prints.
///
/// # Errors
/// A model that is not there or cannot be loaded, a prompt without tokens, a
/// step that fails.
pub fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    if arguments.version {
        version::print(PROGRAM, arguments.json)?;
        return Ok(SUCCESS);
    }
    // clap asks for the model unless the version was asked for.
    let model = arguments.model.as_deref().unwrap_or_default();
    anyhow::ensure!(
        arguments.prompt_tokens.is_some() || !arguments.prompt.is_empty(),
        "the prompt is empty: give -p a text or use --prompt-tokens"
    );
    backend::require(arguments.load_options().backend)?;
    let folder = model_argument::folder(model)?;
    let mut bar = ByteProgress::new(format!("loading {model}"));
    let overrides = Overrides {
        lookahead: overrides::lookahead_options()?,
        qmm: routes::options(),
    };
    let measured = measure(&folder, arguments, overrides, &mut |progress| {
        bar.update(progress.done_bytes, progress.total_bytes);
    });
    drop(bar);
    let measurement = measured.with_context(|| format!("failed to measure {model}"))?;
    let report = if arguments.json {
        let mut line = json_report::render(&measurement, arguments, &receipt()).to_string();
        line.push('\n');
        line
    } else {
        text_report::render(&measurement)
    };
    std::io::stdout().write_all(report.as_bytes())?;
    routes::print_cache_stats(&measurement.qmm);
    Ok(SUCCESS)
}
