//! `mlxcel synth <name> DIR`: a synthetic model as an MLX folder.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;

use super::exit_code::SUCCESS;
use super::progress::ByteProgress;
use crate::weights::synthetic::catalogue::public_names;
use crate::weights::synthetic::manifest::Manifest;
use crate::weights::synthetic::store::Outcome;
use crate::weights::synthetic::{PREFIX, write_folder};

/// Write a synthetic model (random weights in a real model's shapes) as a folder
#[derive(Debug, clap::Args)]
#[command(after_help = format!("Models: {}", public_names().join(", ")))]
pub struct Arguments {
    /// Name of the configuration, with or without `synthetic:`
    pub name: String,
    /// Folder to write: absent, empty, or one that this command made before
    pub folder: PathBuf,
    /// Read every byte of the folder again and compare with its recorded hashes
    #[arg(long)]
    pub verify: bool,
}

/// Writes the folder, or verifies it.
///
/// # Errors
/// An unknown name, a folder that holds something else, a failed write, or a
/// hash that differs.
pub fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let name = arguments
        .name
        .strip_prefix(PREFIX)
        .unwrap_or(&arguments.name);
    let folder = &arguments.folder;
    if arguments.verify {
        let manifest = Manifest::read(folder)?
            .with_context(|| format!("{} is not a synthetic model", folder.display()))?;
        manifest.check_quickly(folder, name)?;
        manifest.check_fully(folder)?;
        return report("verified", arguments, &manifest);
    }
    let mut bar = ByteProgress::new(format!("writing {PREFIX}{name}"));
    let outcome = write_folder(name, folder, &mut |progress| {
        bar.update(progress.written_bytes, progress.total_bytes);
    })?;
    drop(bar);
    let manifest = Manifest::read(folder)?
        .with_context(|| format!("{} lost its manifest", folder.display()))?;
    let verb = match outcome {
        Outcome::Written => "wrote",
        Outcome::AlreadyThere => "already there:",
    };
    report(verb, arguments, &manifest)
}

fn report(verb: &str, arguments: &Arguments, manifest: &Manifest) -> anyhow::Result<u8> {
    let bytes: u64 = manifest.files.iter().map(|entry| entry.bytes).sum();
    let hash = manifest.weights_sha256().unwrap_or("none");
    let folder = arguments.folder.display();
    writeln!(
        std::io::stdout(),
        "{verb} {PREFIX}{} in {folder} ({bytes} bytes, weights sha256 {hash})",
        manifest.name
    )?;
    Ok(SUCCESS)
}
