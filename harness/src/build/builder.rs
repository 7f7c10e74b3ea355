//! One build: look in the cache, else check out, run the command, keep what it left.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use indexmap::IndexMap;

use super::artifact::{self, Inspected};
use super::cache::{BuildCache, Lookup, Manifest, OwnLibrary};
use super::environment::CHECKOUT_VARIABLE;
use super::error::{BuildError, IoContext as _, LogEnd};
use super::job::{self, Ended, Job};
use super::key::KeyInputs;
use super::progress::{BuildProgress, Tell};
use super::toolchain::Toolchain;
use super::{collect, describe, environment, library};
use crate::experiment::model::{Build, Submodules};
use crate::record::format::PlannedBuild;
use crate::source::cache_root::CacheRoot;
use crate::source::checkout::{self, Checkout};
use crate::source::mirror::Mirror;
use crate::source::pin::Pin;

/// How much of a failed build's log an error carries.
const LOG_TAIL_LINES: usize = 30;

/// What is to be built. Two requests with equal inputs are one build.
#[derive(Debug, Clone, Copy)]
pub struct BuildRequest<'a> {
    /// Where builds are kept.
    pub cache: &'a CacheRoot,
    /// The repository.
    pub mirror: &'a Mirror,
    /// The commit, with what is on top.
    pub pin: &'a Pin,
    /// What to do with submodules.
    pub submodules: Submodules,
    /// The experiment's `build`.
    pub build: &'a Build,
    /// The command: `build.command`, or the arm's own.
    pub command: &'a str,
    /// The declared environment of the arm's attempts; `{artifact_dir}` is filled in.
    pub run_env: &'a IndexMap<String, String>,
    /// The tools.
    pub toolchain: &'a Toolchain,
    /// Ends the build when it becomes true.
    pub stop: Option<&'a AtomicBool>,
}

/// A build that is there.
#[derive(Debug, Clone)]
pub struct Built {
    /// For the plan.
    pub planned: PlannedBuild,
    /// `{artifact_dir}`: holds the artifacts under their paths.
    pub directory: PathBuf,
    /// The artifacts' absolute paths in the experiment's order; the first is `{artifact}`.
    pub artifacts: Vec<PathBuf>,
    /// The build's log; `None` for a prebuilt program.
    pub log: Option<PathBuf>,
    /// True if nothing had to be built.
    pub cached: bool,
    /// Seconds that the build command ran, whenever that was.
    pub build_seconds: f64,
    /// Things the reader must know.
    pub warnings: Vec<String>,
}

/// The key under which the request's build is kept.
///
/// # Errors
/// A declared path leaves the checkout, or the pin cannot be read.
pub fn key(request: &BuildRequest<'_>) -> Result<String, BuildError> {
    Ok(inputs(request)?.key())
}

/// Builds, or finds the same build in the cache.
///
/// # Errors
/// See [`BuildError`]; [`BuildError::is_the_arms_own`] tells whether other arms may go on.
pub fn build(request: &BuildRequest<'_>, tell: &mut Tell<'_>) -> Result<Built, BuildError> {
    let inputs = inputs(request)?;
    let key = inputs.key();
    let cache = BuildCache::new(request.cache);
    let _lock = cache.lock(&key, &mut || {
        tell(BuildProgress::Waiting {
            what: format!("the same build in another process ({})", request.pin.commit),
        });
    })?;
    let (manifest, cached) = match cache.find(&key) {
        Lookup::Found(manifest) => {
            tell(BuildProgress::Cached { key: key.clone() });
            (*manifest, true)
        }
        Lookup::Damaged(reason) => {
            tell(BuildProgress::Rebuilding { reason });
            (make(request, inputs, &cache, tell)?, false)
        }
        Lookup::Absent => (make(request, inputs, &cache, tell)?, false),
    };
    describe::built(request, &key, &manifest, cached, &cache)
}

/// What became of an artifact after its plan was sealed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unlike {
    /// It cannot be read any more.
    #[error("artifact {path} is gone: {reason}")]
    Gone {
        /// As the plan names it.
        path: String,
        /// The system's reason.
        reason: String,
    },
    /// It is another file.
    #[error(
        "artifact {path} has changed since the plan was sealed: expected sha256 {expected}, got {got}"
    )]
    Changed {
        /// As the plan names it.
        path: String,
        /// The plan's hash.
        expected: String,
        /// What is there.
        got: String,
    },
}

/// Whether the artifacts under `directory` still are what the plan says.
///
/// # Errors
/// The first that is not.
pub fn unchanged(planned: &PlannedBuild, directory: &Path) -> Result<(), Unlike> {
    for known in &planned.artifacts {
        let file = directory.join(&known.path);
        let now = artifact::inspect(&file, &known.path).map_err(|error| Unlike::Gone {
            path: known.path.clone(),
            reason: match error {
                BuildError::Io { source, .. } => source.to_string(),
                other => other.to_string(),
            },
        })?;
        if now.planned.file_sha256 != known.file_sha256 {
            return Err(Unlike::Changed {
                path: known.path.clone(),
                expected: known.file_sha256.clone(),
                got: now.planned.file_sha256,
            });
        }
    }
    Ok(())
}

fn inputs(request: &BuildRequest<'_>) -> Result<KeyInputs, BuildError> {
    let build = request.build;
    if build.artifacts.is_empty() {
        return Err(BuildError::NoArtifacts);
    }
    for path in &build.artifacts {
        checkout::inside("build.artifacts", path)?;
    }
    let keep = match &build.keep {
        Some(keep) => keep.clone(),
        None if checkout::has_file(request.mirror, request.pin, Path::new("Cargo.toml"))? => {
            vec!["target".into()]
        }
        None => Vec::new(),
    };
    for path in &keep {
        checkout::inside("build.keep", path)?;
    }
    let sorted = |map: &IndexMap<String, String>| {
        map.iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    };
    let mut toolchain = request.toolchain.versions.clone();
    toolchain.extend(request.toolchain.declared(&build.env));
    let pin = request.pin;
    Ok(KeyInputs {
        patch_sha256: pin.patch_sha256.clone(),
        command: request.command.to_owned(),
        environment: sorted(&build.env),
        artifacts: build.artifacts.clone(),
        keep,
        toolchain: sorted(&toolchain),
        host: request.toolchain.host.clone(),
        ..KeyInputs::new(request.mirror.key(), &pin.commit, &pin.tree)
    })
}

/// Checks out, builds and keeps the result.
fn make(
    request: &BuildRequest<'_>,
    inputs: KeyInputs,
    cache: &BuildCache,
    tell: &mut Tell<'_>,
) -> Result<Manifest, BuildError> {
    let key = inputs.key();
    let mut told = |step| tell(BuildProgress::Source(step));
    let claim = checkout::claim(request.mirror, &mut told)?;
    job::kill_leftovers(CHECKOUT_VARIABLE, &request.mirror.tree_path());
    let checkout = claim.lay_out(request.pin, request.submodules, &inputs.keep, &mut told)?;
    remove_stale(request, &checkout)?;
    let partial = cache.start(&key)?;
    let made = run_command(request, &key, &checkout, cache, tell).and_then(|manifest| {
        tell(BuildProgress::Collecting);
        gather(
            request,
            &key,
            &checkout,
            cache,
            &partial,
            Manifest { inputs, ..manifest },
        )
    });
    match made {
        Ok(manifest) => {
            cache.finish(&key, &manifest)?;
            Ok(manifest)
        }
        Err(error) => {
            cache.abandon(&key)?;
            Err(error)
        }
    }
}

/// An artifact in a kept folder may be another pin's: without this, a command that
/// leaves it alone would pass for a build.
fn remove_stale(request: &BuildRequest<'_>, checkout: &Checkout) -> Result<(), BuildError> {
    for path in &request.build.artifacts {
        if checkout::has_file(request.mirror, request.pin, path)? {
            continue;
        }
        let file = checkout.path.join(path);
        let removed = if file.is_dir() && !file.is_symlink() {
            std::fs::remove_dir_all(&file)
        } else {
            std::fs::remove_file(&file)
        };
        match removed {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).doing("remove the old artifact", &file)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Runs the build command; a failure keeps its log.
fn run_command(
    request: &BuildRequest<'_>,
    key: &str,
    checkout: &Checkout,
    cache: &BuildCache,
    tell: &mut Tell<'_>,
) -> Result<Manifest, BuildError> {
    let commit = &request.pin.commit;
    let environment = environment::of_build(
        request.toolchain,
        request.pin,
        &checkout.path,
        &request.build.env,
    );
    // A success moves it to its place; a failure leaves it.
    let log = cache.trial_log(key);
    let job = Job {
        words: job::shell_words(request.command),
        environment: &environment,
        folder: &checkout.path,
        log: &log,
        answer: None,
        timeout: Duration::from_secs(request.build.timeout_secs),
        stop: request.stop,
    };
    let started = Instant::now();
    let mut building = |elapsed, last_line| {
        tell(BuildProgress::Building {
            commit: commit.clone(),
            elapsed,
            last_line,
        });
    };
    building(Duration::ZERO, String::new());
    let ended = job::run(&job, &mut building).doing("run the build in", &checkout.path)?;
    job::kill_leftovers(CHECKOUT_VARIABLE, &checkout.path);
    match ended {
        Ended::Exited(status) if status.success() => {}
        Ended::Exited(status) => {
            return Err(BuildError::Failed {
                commit: commit.clone(),
                status: status.to_string(),
                log: log_end(&log),
            });
        }
        Ended::TimedOut => {
            return Err(BuildError::TimedOut {
                commit: commit.clone(),
                limit_seconds: request.build.timeout_secs,
                log: log_end(&log),
            });
        }
        Ended::Stopped => {
            return Err(BuildError::Interrupted {
                commit: commit.clone(),
            });
        }
    }
    let mut manifest = Manifest::new(KeyInputs::new("", "", ""));
    manifest.build_seconds = started.elapsed().as_secs_f64();
    manifest.environment = environment
        .into_iter()
        .map(|(name, value)| (name, value.to_string_lossy().into_owned()))
        .collect();
    Ok(manifest)
}

fn log_end(log: &Path) -> Box<LogEnd> {
    Box::new(LogEnd {
        path: log.to_owned(),
        tail: job::last_lines(log, LOG_TAIL_LINES),
    })
}

/// Copies and inspects the artifacts, and finds the libraries built beside them.
fn gather(
    request: &BuildRequest<'_>,
    key: &str,
    checkout: &Checkout,
    cache: &BuildCache,
    partial: &Path,
    mut manifest: Manifest,
) -> Result<Manifest, BuildError> {
    let log = cache.trial_log(key);
    let directory = partial.join("artifacts");
    for path in &request.build.artifacts {
        let left = checkout.path.join(path);
        if !left.exists() {
            return Err(BuildError::ArtifactMissing {
                commit: request.pin.commit.clone(),
                path: path.clone(),
                near: collect::near(&checkout.path, path),
                log: log_end(&log),
            });
        }
        artifact::refuse_script(&left, path, request.build.allow_script)?;
        let copied = directory.join(path);
        collect::copy(&left, &copied)?;
        let name = path.display().to_string();
        manifest.artifacts.push(artifact::inspect(&copied, &name)?);
    }
    manifest.own_libraries = own_libraries(request, checkout, &manifest.artifacts, &directory)?;
    let kept_log = partial.join("build.log");
    std::fs::rename(&log, &kept_log).doing("keep the log", &log)?;
    Ok(manifest)
}

/// Libraries that the artifacts ask for and that the build left in the checkout.
fn own_libraries(
    request: &BuildRequest<'_>,
    checkout: &Checkout,
    artifacts: &[Inspected],
    directory: &Path,
) -> Result<Vec<OwnLibrary>, BuildError> {
    let run_env = environment::filled(request.run_env, directory);
    let mut sonames: Vec<String> = Vec::new();
    for one in artifacts {
        let file = directory.join(&one.planned.path);
        let loaded = library::loaded(&file, one, describe::loader_of(artifacts), &run_env)?;
        sonames.extend(loaded.into_iter().map(|library| library.planned.soname));
        sonames.extend(one.needed.iter().cloned());
    }
    sonames.sort();
    sonames.dedup();
    let names: Vec<&str> = sonames.iter().map(String::as_str).collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let mut own = Vec::new();
    for path in collect::files_named(&checkout.path, &names) {
        if !checkout::has_file(request.mirror, request.pin, &path)? {
            let soname = path.file_name().unwrap_or_default().to_string_lossy();
            own.push(OwnLibrary {
                soname: soname.into_owned(),
                path,
            });
        }
    }
    Ok(own)
}
