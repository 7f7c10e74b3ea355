//! `mlxcel inspect DIR`: what a folder is and what would stop it from loading.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;

use super::exit_code::SUCCESS;
use crate::inspect::inspect;

/// Say what a model folder is: family, bits by module, bytes, cache, what would not load
///
/// Works on families that the engine cannot run, too. Exit code 0 even then: `loads` in the
/// output says whether a problem was found.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Folder of a model
    pub folder: PathBuf,
    /// Print one line of JSON
    #[arg(long)]
    pub json: bool,
}

/// Inspects and prints.
///
/// # Errors
/// When `folder` is not a folder.
pub fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let folder = &arguments.folder;
    let metadata =
        std::fs::metadata(folder).with_context(|| format!("no model at {}", folder.display()))?;
    anyhow::ensure!(
        metadata.is_dir(),
        "{} is not a folder: expected an MLX model folder",
        folder.display()
    );
    let report = inspect(folder);
    let mut out = std::io::stdout();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string(&report)?)?;
    } else {
        write!(out, "{report}")?;
    }
    Ok(SUCCESS)
}
