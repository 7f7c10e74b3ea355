//! The whole environment of a build and of a version check: nothing else leaks in.

use std::ffi::OsString;
use std::path::Path;

use indexmap::IndexMap;

use super::toolchain::Toolchain;
use crate::source::pin::Pin;

/// Compilers put this time where the source asks for the time of the build
/// (`__DATE__`); one fixed second, 2024-01-01, keeps equal code equal.
const SOURCE_DATE_EPOCH: &str = "1704067200";

/// Set for every process of a build, with the checkout's path as value: how
/// leftover processes of a killed run are recognised.
pub(super) const CHECKOUT_VARIABLE: &str = "BENCH_RUN_CHECKOUT";

/// The placeholder for the folder of copied artifacts in an attempt's environment.
const ARTIFACT_FOLDER: &str = "{artifact_dir}";

/// The environment of the build command: fixed, then declared.
///
/// `BENCH_RUN_COMMIT` and `BENCH_RUN_PATCH_SHA256` tell a build what is pinned,
/// for programs that stamp their version without asking git.
pub(super) fn of_build(
    toolchain: &Toolchain,
    pin: &Pin,
    checkout: &Path,
    declared: &IndexMap<String, String>,
) -> IndexMap<String, OsString> {
    let mut environment = toolchain.environment.clone();
    let mut set = |name: &str, value: OsString| {
        environment.insert(name.to_owned(), value);
    };
    set("LANG", "C.UTF-8".into());
    set("SOURCE_DATE_EPOCH", SOURCE_DATE_EPOCH.into());
    set("BENCH_RUN_COMMIT", pin.commit.clone().into());
    if let Some(patch) = &pin.patch_sha256 {
        set("BENCH_RUN_PATCH_SHA256", patch.into());
    }
    set(CHECKOUT_VARIABLE, checkout.into());
    for (name, value) in declared {
        set(name, value.into());
    }
    environment
}

/// The environment of `--version`: fixed, then the attempts' own.
pub(super) fn of_receipt(
    toolchain: &Toolchain,
    run: &IndexMap<String, String>,
) -> IndexMap<String, OsString> {
    let mut environment: IndexMap<String, OsString> = toolchain
        .environment
        .iter()
        .filter(|(name, _)| ["PATH", "HOME"].contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    environment.insert("LANG".into(), "C.UTF-8".into());
    environment.extend(run.iter().map(|(name, value)| (name.clone(), value.into())));
    environment
}

/// `run` with `{artifact_dir}` filled in.
#[must_use]
pub(crate) fn filled(run: &IndexMap<String, String>, folder: &Path) -> IndexMap<String, String> {
    let folder = folder.display().to_string();
    run.iter()
        .map(|(name, value)| (name.clone(), value.replace(ARTIFACT_FOLDER, &folder)))
        .collect()
}
