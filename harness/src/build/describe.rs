//! What a build is once it is used: its libraries and its receipt.
//!
//! Both depend on the environment of the attempts, so they are looked up each time,
//! also for a build from the cache.

use std::path::Path;

use indexmap::IndexMap;

use super::artifact::{self, Inspected};
use super::builder::{BuildRequest, Built};
use super::cache::{BuildCache, Manifest};
use super::error::{BuildError, ForeignLibrary};
use super::{environment, library, receipt};
use crate::experiment::model::Receipt;
use crate::record::format::{ArtifactKind, PlannedBuild};

/// Looks up the libraries in the attempts' environment, asks for the receipt, and
/// puts together what the plan records.
pub(super) fn built(
    request: &BuildRequest<'_>,
    key: &str,
    manifest: &Manifest,
    cached: bool,
    cache: &BuildCache,
) -> Result<Built, BuildError> {
    let directory = cache.artifacts(key);
    let run_env = environment::filled(request.run_env, &directory);
    let mut warnings = Vec::new();
    let mut artifacts = Vec::new();
    for one in &manifest.artifacts {
        let file = directory.join(&one.planned.path);
        let mut planned = one.planned.clone();
        for loaded in library::loaded(&file, one, loader_of(&manifest.artifacts), &run_env)? {
            refuse_foreign(request, &planned.path, &loaded, manifest, &directory)?;
            planned.libraries.push(loaded.planned);
        }
        warnings.extend(library::missing(&planned));
        artifacts.push(planned);
    }
    let receipt = ask_receipt(request, manifest, &directory, &run_env)?;
    let pin = request.pin;
    Ok(Built {
        planned: PlannedBuild {
            commit: Some(pin.commit.clone()),
            dirty: pin.dirty,
            patch_sha256: pin.patch_sha256.clone(),
            key: key.to_owned(),
            code_sha256: artifact::combined_code_sha256(&artifacts),
            receipt,
            artifacts,
        },
        artifacts: manifest
            .artifacts
            .iter()
            .map(|one| directory.join(&one.planned.path))
            .collect(),
        directory,
        log: Some(cache.log(key)),
        cached,
        build_seconds: manifest.build_seconds,
        warnings,
    })
}

/// A library that the build made must be the one that is loaded, from the copied
/// artifacts: not the system's of the same name, nor one in the checkout.
fn refuse_foreign(
    request: &BuildRequest<'_>,
    artifact: &str,
    loaded: &library::Loaded,
    manifest: &Manifest,
    directory: &Path,
) -> Result<(), BuildError> {
    let soname = &loaded.planned.soname;
    let tree = request.mirror.tree_path();
    let real = loaded
        .path
        .as_ref()
        .map(|path| path.canonicalize().unwrap_or_else(|_| path.clone()));
    let in_checkout = real.as_ref().and_then(|path| path.strip_prefix(&tree).ok());
    let own: Vec<&Path> = manifest
        .own_libraries
        .iter()
        .filter(|own| own.soname == *soname)
        .map(|own| own.path.as_path())
        .collect();
    let copied = real
        .as_ref()
        .is_some_and(|path| path.starts_with(directory));
    if copied || (own.is_empty() && in_checkout.is_none()) {
        return Ok(());
    }
    let artifacts = &request.build.artifacts;
    let listed = own
        .iter()
        .copied()
        .find(|path| artifacts.iter().any(|one| one == path));
    let library = listed
        .or_else(|| own.first().copied())
        .or(in_checkout)
        .unwrap_or(Path::new(soname))
        .to_owned();
    let from = match (&real, in_checkout) {
        (_, Some(_)) => "the checkout, where the next arm's build replaces it".to_owned(),
        (Some(path), None) => path.display().to_string(),
        (None, None) => "nowhere".to_owned(),
    };
    let folder = library.parent().unwrap_or(Path::new(""));
    Err(BuildError::ForeignLibrary(Box::new(ForeignLibrary {
        artifact: artifact.to_owned(),
        soname: soname.clone(),
        from,
        folder: folder.display().to_string(),
        library: library.display().to_string(),
        listed: listed.is_some(),
    })))
}

fn ask_receipt(
    request: &BuildRequest<'_>,
    manifest: &Manifest,
    directory: &Path,
    run_env: &IndexMap<String, String>,
) -> Result<Option<String>, BuildError> {
    let mode = request.build.receipt;
    let Some(first) = manifest.artifacts.first() else {
        return Ok(None);
    };
    let runs = !matches!(
        first.planned.kind,
        ArtifactKind::Directory | ArtifactKind::Other
    );
    if mode == Receipt::None || (mode == Receipt::Optional && !runs) {
        return Ok(None);
    }
    let environment = environment::of_receipt(request.toolchain, run_env);
    let answer = receipt::ask(&directory.join(&first.planned.path), &environment);
    receipt::check(mode, &first.planned.path, Some(request.pin), &answer)?;
    Ok(answer.ok())
}

/// The loader of the first artifact that has one, for libraries among the artifacts.
pub(super) fn loader_of(artifacts: &[Inspected]) -> Option<&Path> {
    artifacts
        .iter()
        .find_map(|artifact| artifact.interpreter.as_deref())
}
