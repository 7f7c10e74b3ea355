//! `mlxcel check DIR`: a folder's reference outputs against the engine.

use std::io::Write;
use std::path::PathBuf;

use super::exit_code::{FAILURE, SUCCESS};
use super::progress::ByteProgress;
use crate::Arithmetic;
use crate::bench::arguments::BackendArgument;
use crate::check::{CheckOptions, CheckReport, check};

/// Compare a folder's reference.safetensors with what the engine computes
///
/// Exit code 1 when a figure is outside its limits.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Folder of a model that carries reference.safetensors
    pub folder: PathBuf,
    /// Arithmetic to check
    #[arg(long, value_enum, default_value_t = Choice::Both)]
    pub arithmetic: Choice,
    /// Where to compute
    #[arg(long, value_enum, default_value_t = BackendArgument::Auto)]
    pub backend: BackendArgument,
    /// Threads that compute; 0 means one a core
    #[arg(long, default_value_t = 0)]
    pub threads: usize,
    /// Print one line of JSON
    #[arg(long)]
    pub json: bool,
}

/// What `--arithmetic` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Choice {
    /// The reference mode
    Float32,
    /// The mode that decodes fast
    Fast,
    /// One after the other
    Both,
}

/// Checks and prints.
///
/// # Errors
/// When the folder or its reference cannot be loaded, or a step fails.
pub fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let arithmetics = match arguments.arithmetic {
        Choice::Float32 => vec![Arithmetic::Float32],
        Choice::Fast => vec![Arithmetic::Fast],
        Choice::Both => vec![Arithmetic::Float32, Arithmetic::Fast],
    };
    let options = CheckOptions {
        backend: arguments.backend.choice(),
        arithmetics,
        threads: arguments.threads,
    };
    let mut bar = ByteProgress::new("loading");
    let report = check(&arguments.folder, &options, &mut |progress| {
        bar.update(progress.done_bytes, progress.total_bytes);
    })?;
    drop(bar);
    print(&report, arguments.json)?;
    Ok(if report.passed { SUCCESS } else { FAILURE })
}

fn print(report: &CheckReport, json: bool) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    if json {
        writeln!(out, "{}", serde_json::to_string(report)?)?;
    } else {
        write!(out, "{report}")?;
    }
    Ok(())
}
