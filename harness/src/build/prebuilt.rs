//! A program that somebody else built: hashed and described, measured where it lies.
//!
//! It is not copied, because it may find its own files by its place. The plan holds
//! its hash, so a change during the run is noticed ([`super::builder::unchanged`]).

use std::path::Path;

use indexmap::IndexMap;

use super::builder::Built;
use super::error::BuildError;
use super::toolchain::Toolchain;
use super::{artifact, environment, library, receipt};
use crate::experiment::model::Receipt;
use crate::record::format::PlannedBuild;

/// Describes the program at `file`.
///
/// # Errors
/// It is missing or unreadable, or a script that was not declared.
pub fn prebuilt(
    file: &Path,
    allow_script: bool,
    mode: Receipt,
    run_env: &IndexMap<String, String>,
    toolchain: &Toolchain,
) -> Result<Built, BuildError> {
    if !file.exists() {
        return Err(BuildError::BinaryMissing { path: file.into() });
    }
    let name = file.file_name().unwrap_or_default();
    artifact::refuse_script(file, Path::new(name), allow_script)?;
    let directory = file.parent().unwrap_or(Path::new("/")).to_owned();
    let inspected = artifact::inspect(file, &name.to_string_lossy())?;
    let run_env = environment::filled(run_env, &directory);
    let mut planned = inspected.planned.clone();
    let loaded = library::loaded(file, &inspected, None, &run_env)?;
    planned.libraries = loaded.into_iter().map(|one| one.planned).collect();
    let warnings = library::missing(&planned).into_iter().collect();
    let receipt = match mode {
        Receipt::None => None,
        _ => receipt::ask(file, &environment::of_receipt(toolchain, &run_env)).ok(),
    };
    let artifacts = vec![planned];
    Ok(Built {
        planned: PlannedBuild {
            commit: None,
            dirty: false,
            patch_sha256: None,
            key: artifacts[0].file_sha256.clone(),
            code_sha256: artifact::combined_code_sha256(&artifacts),
            receipt,
            artifacts,
        },
        artifacts: vec![file.to_owned()],
        directory,
        log: None,
        cached: true,
        build_seconds: 0.0,
        warnings,
    })
}
