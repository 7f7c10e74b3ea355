//! `mlxcel fetch MODEL`: the folder of a model, made or downloaded first.

use std::io::Write;

use super::exit_code::SUCCESS;
use super::model_argument;

/// Fetch a model into the cache and print its folder
///
/// For scripts that must not download in the middle of something else.
#[derive(Debug, clap::Args)]
#[command(after_help = "Environment: HF_ENDPOINT, HF_TOKEN, HF_HOME for hf: names")]
pub struct Arguments {
    /// hf:ORGANISATION/NAME (with @REVISION behind it, if wanted), synthetic:NAME, or a folder
    pub model: String,
}

/// Provides the folder and prints its path.
///
/// # Errors
/// As [`model_argument::folder`].
pub fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let folder = model_argument::folder(&arguments.model)?;
    writeln!(std::io::stdout(), "{}", folder.display())?;
    Ok(SUCCESS)
}
