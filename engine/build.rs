//! Collects what `--version` says about this build into one string.
//!
//! The string reaches the program as `MLXCEL_RECEIPT`, used in `src/version.rs`
//! only. A builder that knows better (a checkout without git, a patched tree)
//! sets `MLXCEL_BUILD_COMMIT` and `MLXCEL_BUILD_DIRTY` (`true` or `false`).
//!
//! `dirty` is asked of the engine's own inputs, not of the whole tree: those
//! are the files whose change makes cargo run this script again, so the flag
//! cannot be stale, and editing a document does not soil a build.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

#[path = "build_kernels.rs"]
mod build_kernels;

/// What a build of the engine reads, relative to its folder.
const INPUTS: [&str; 10] = [
    "build.rs",
    "build_kernels.rs",
    "Cargo.toml",
    "src",
    "kernels",
    "../Cargo.toml",
    "../Cargo.lock",
    "../.cargo",
    "../rust-toolchain",
    "../rust-toolchain.toml",
];

const UNKNOWN: &str = "unknown";

fn main() -> ExitCode {
    let folder = PathBuf::from(variable("CARGO_MANIFEST_DIR").unwrap_or_else(|| ".".into()));
    println!("cargo:rerun-if-env-changed=MLXCEL_BUILD_COMMIT");
    println!("cargo:rerun-if-env-changed=MLXCEL_BUILD_DIRTY");
    for input in INPUTS.iter().filter(|input| folder.join(input).exists()) {
        println!("cargo:rerun-if-changed={input}");
    }
    let images = match build_kernels::compile(&folder) {
        Ok(images) => images,
        Err(problem) => {
            println!("cargo:warning={problem}");
            return ExitCode::FAILURE;
        }
    };
    let git = Git::find(&folder);
    if let Some(git) = &git {
        for path in git.watched() {
            println!("cargo:rerun-if-changed={}", path.display());
        }
    }
    let commit = variable("MLXCEL_BUILD_COMMIT").or_else(|| git.as_ref()?.commit());
    let dirty = match variable("MLXCEL_BUILD_DIRTY") {
        Some(dirty) => Some(dirty),
        // A builder that names the commit but not the state vouches for neither.
        None if variable("MLXCEL_BUILD_COMMIT").is_some() => None,
        None => git.as_ref().and_then(Git::dirty),
    };
    let fields = [
        ("version", variable("CARGO_PKG_VERSION")),
        ("commit", commit),
        ("dirty", dirty),
        ("features", Some(features())),
        ("target", variable("TARGET")),
        ("profile", profile()),
        ("images", Some(images)),
    ];
    let receipt: Vec<String> = fields
        .into_iter()
        .map(|(name, value)| field(name, value.as_deref().unwrap_or(UNKNOWN)))
        .collect();
    println!("cargo:rustc-env=MLXCEL_RECEIPT={}", receipt.join(" "));
    ExitCode::SUCCESS
}

/// `name=value`; the receipt is split at spaces, so a value may hold none.
fn field(name: &str, value: &str) -> String {
    assert!(
        !value.is_empty()
            && value.len() <= 160
            && value.bytes().all(|byte| byte.is_ascii_graphic()),
        "the receipt's {name} must be 1 to 160 printable characters without spaces, got {value:?}"
    );
    assert!(
        name != "dirty" || ["true", "false", UNKNOWN].contains(&value),
        "MLXCEL_BUILD_DIRTY must be true or false, got {value:?}"
    );
    format!("{name}={value}")
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn features() -> String {
    let mut names: Vec<String> = env::vars()
        .filter_map(|(name, _)| name.strip_prefix("CARGO_FEATURE_").map(str::to_lowercase))
        .filter(|name| name != "default")
        .collect();
    names.sort();
    if names.is_empty() {
        return "none".into();
    }
    names.join(",")
}

/// The profile's folder: `PROFILE` would call every custom profile `release`.
/// The output folder is `<target>/<profile>/build/<package>/out`.
fn profile() -> Option<String> {
    let out = PathBuf::from(variable("OUT_DIR")?);
    let folder = out.ancestors().nth(3)?;
    Some(folder.file_name()?.to_string_lossy().into_owned())
}

/// The repository that tracks this package.
struct Git {
    folder: PathBuf,
    git_dir: PathBuf,
    common_dir: PathBuf,
}

impl Git {
    /// `None` without git, without a repository, or inside somebody else's
    /// repository that does not track this package.
    fn find(folder: &Path) -> Option<Self> {
        run(folder, &["ls-files", "--error-unmatch", "Cargo.toml"])?;
        let lines = run(folder, &["rev-parse", "--git-dir", "--git-common-dir"])?;
        let mut lines = lines.lines().map(|line| folder.join(line));
        Some(Self {
            folder: folder.to_owned(),
            git_dir: lines.next()?,
            common_dir: lines.next()?,
        })
    }

    fn commit(&self) -> Option<String> {
        run(&self.folder, &["rev-parse", "HEAD"])
    }

    fn dirty(&self) -> Option<String> {
        let mut arguments = vec!["status", "--porcelain", "--"];
        arguments.extend(INPUTS);
        Some((!run(&self.folder, &arguments)?.is_empty()).to_string())
    }

    /// Files that change when the commit or the index does. In a worktree
    /// `.git` is a file and HEAD lies in a folder of its own, while branches
    /// lie in the common folder. A path that does not exist would make cargo
    /// run this script at every build, so only those that exist are named; the
    /// log of HEAD covers a branch that moves from packed to loose.
    fn watched(&self) -> Vec<PathBuf> {
        let mut paths = vec![
            self.git_dir.join("HEAD"),
            self.git_dir.join("index"),
            self.git_dir.join("logs").join("HEAD"),
            self.common_dir.join("packed-refs"),
        ];
        if let Some(branch) = run(&self.folder, &["symbolic-ref", "--quiet", "HEAD"]) {
            paths.push(self.common_dir.join(branch));
        }
        paths.retain(|path| path.exists());
        paths
    }
}

/// Runs git and gives its trimmed output; `None` on any failure.
fn run(folder: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        // Refreshing the index would touch it and rebuild for ever.
        .arg("--no-optional-locks")
        // Builds in containers often run as another user than the checkout's.
        .args(["-c", "safe.directory=*", "-c", "core.fsmonitor=false"])
        .args(arguments)
        .current_dir(folder)
        // Set while a hook runs, and then about another repository.
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .env_remove("GIT_INDEX_FILE")
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
