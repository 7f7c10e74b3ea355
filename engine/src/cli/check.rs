//! `mlxcel check DIR`: a folder's reference outputs against the engine.

use std::io::Write;
use std::path::PathBuf;

use super::compute::ArithmeticsArgument;
use super::exit_code::{FAILURE, SUCCESS};
use super::progress::ByteProgress;
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
    #[arg(long, value_enum, default_value_t = ArithmeticsArgument::Both)]
    pub arithmetic: ArithmeticsArgument,
    /// Where to compute
    #[arg(long, value_enum, default_value_t = BackendArgument::Auto)]
    pub backend: BackendArgument,
    /// Threads that compute; 0 means one for each core this process may use
    #[arg(long, value_name = "N", default_value_t = 0,
          value_parser = clap::value_parser!(u16).range(0..=1024))]
    pub threads: u16,
    /// Print one line of JSON
    #[arg(long)]
    pub json: bool,
}

/// Checks and prints.
///
/// # Errors
/// When the folder or its reference cannot be loaded, or a step fails.
pub fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let options = CheckOptions {
        backend: arguments.backend.choice(),
        arithmetics: arguments.arithmetic.arithmetics().to_vec(),
        threads: usize::from(arguments.threads),
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
