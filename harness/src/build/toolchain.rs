//! Which tools build the arms: found once, recorded, the same for every arm.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use indexmap::IndexMap;

/// Tools whose version can change what a build leaves.
const TOOLS: [&str; 13] = [
    "rustc", "cargo", "cc", "c++", "clang", "ld", "make", "cmake", "ninja", "meson", "go", "hipcc",
    "nvcc",
];

/// Variables of a build's environment that name a tool.
const TOOL_VARIABLES: [&str; 7] = ["CC", "CXX", "LD", "RUSTC", "CARGO", "HIPCC", "NVCC"];

/// A tool that does not tell its version within this time counts as absent.
const PATIENCE: Duration = Duration::from_secs(10);

/// The tools, and the part of the caller's environment that builds may see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toolchain {
    /// Tool → version line, for those that exist.
    pub versions: IndexMap<String, String>,
    /// Host triple, such as `x86_64-unknown-linux-gnu`.
    pub host: String,
    /// `PATH`, `HOME`, `CARGO_HOME`, `RUSTUP_HOME`, `RUSTUP_TOOLCHAIN`: as far as set.
    pub(super) environment: IndexMap<String, OsString>,
}

impl Toolchain {
    /// Looks the tools up, with the caller's environment read through `variable`.
    /// A rustup toolchain is pinned to the one active in the current folder, so
    /// that no `rust-toolchain` file of a checkout can switch it.
    #[must_use]
    pub fn detect(variable: &dyn Fn(&str) -> Option<OsString>) -> Self {
        let mut environment = IndexMap::new();
        let path = clean_path(&variable("PATH").unwrap_or_default());
        environment.insert("PATH".to_owned(), path);
        for name in ["HOME", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN"] {
            if let Some(value) = variable(name).filter(|value| !value.is_empty()) {
                environment.insert(name.to_owned(), value);
            }
        }
        let mut toolchain = Self {
            versions: IndexMap::new(),
            host: format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
            environment,
        };
        if let Some(active) = toolchain.active_rustup_toolchain() {
            toolchain
                .environment
                .insert("RUSTUP_TOOLCHAIN".into(), active.into());
        }
        for tool in TOOLS {
            if let Some(line) = toolchain.version_line(tool) {
                toolchain.versions.insert(tool.to_owned(), line);
            }
        }
        if let Some(host) = toolchain.rust_host() {
            toolchain.host = host;
        }
        toolchain
    }

    /// The part of the caller's environment that builds and setup steps see.
    #[must_use]
    pub fn environment(&self) -> &IndexMap<String, OsString> {
        &self.environment
    }

    /// Versions of the tools that a build's own environment names (`CC: clang-18`).
    #[must_use]
    pub fn declared(&self, environment: &IndexMap<String, String>) -> IndexMap<String, String> {
        let mut versions = IndexMap::new();
        for name in TOOL_VARIABLES {
            let words = environment
                .get(name)
                .map(String::as_str)
                .unwrap_or_default();
            // `ccache clang` names two tools.
            for word in words
                .split_whitespace()
                .filter(|word| !word.starts_with('-'))
            {
                if let Some(line) = self.version_line(word) {
                    versions.insert(word.to_owned(), line);
                }
            }
        }
        versions
    }

    /// The first file called `tool` in `PATH`; a tool with a `/` is taken as it is.
    pub(super) fn find(&self, tool: &str) -> Option<PathBuf> {
        if tool.contains('/') {
            return Path::new(tool).is_file().then(|| tool.into());
        }
        let path = self.environment.get("PATH")?;
        std::env::split_paths(path)
            .map(|folder| folder.join(tool))
            .find(|file| file.is_file())
    }

    fn version_line(&self, tool: &str) -> Option<String> {
        let text = self.ask(tool, &["--version"], Path::new("/"))?;
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        // nvcc's first line is its name; the release stands further down.
        if tool == "nvcc" {
            return lines
                .find(|line| line.contains("release"))
                .map(str::to_owned);
        }
        lines.next().map(str::to_owned)
    }

    fn rust_host(&self) -> Option<String> {
        let text = self.ask("rustc", &["-vV"], Path::new("/"))?;
        let host = text.lines().find_map(|line| line.strip_prefix("host: "))?;
        Some(host.trim().to_owned())
    }

    fn active_rustup_toolchain(&self) -> Option<String> {
        let here = std::env::current_dir().ok()?;
        let text = self.ask("rustup", &["show", "active-toolchain"], &here)?;
        text.split_whitespace().next().map(str::to_owned)
    }

    /// What `tool` prints; `None` if it is absent, fails or hangs.
    fn ask(&self, tool: &str, arguments: &[&str], folder: &Path) -> Option<String> {
        let program = self.find(tool)?;
        let handle = duct::cmd(program, arguments)
            .full_env(&self.environment)
            .dir(folder)
            .stdin_null()
            .stdout_capture()
            .stderr_null()
            .start()
            .ok()?;
        let Ok(Some(output)) = handle.wait_timeout(PATIENCE) else {
            let _ = handle.kill();
            return None;
        };
        String::from_utf8(output.stdout.clone()).ok()
    }
}

/// Without repeated, relative and empty entries: `cargo run` repeats some, and a
/// relative entry would mean another folder in every checkout.
fn clean_path(path: &OsStr) -> OsString {
    let mut kept: Vec<PathBuf> = Vec::new();
    for entry in std::env::split_paths(path) {
        if entry.is_absolute() && !kept.contains(&entry) {
            kept.push(entry);
        }
    }
    std::env::join_paths(kept).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn tool(folder: &Path, name: &str, script: &str) {
        let file = folder.join(name);
        std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn detected(folder: &Path) -> Toolchain {
        Toolchain::detect(&|name| (name == "PATH").then(|| folder.as_os_str().to_owned()))
    }

    #[test]
    fn only_tools_that_exist_and_answer_are_recorded() {
        let folder = tempfile::tempdir().unwrap();
        tool(folder.path(), "cc", "echo; echo 'cc 1.2'; echo more");
        tool(folder.path(), "make", "exit 3");
        let toolchain = detected(folder.path());
        let versions: Vec<_> = toolchain.versions.into_iter().collect();
        assert_eq!(versions, [("cc".to_owned(), "cc 1.2".to_owned())]);
    }

    #[test]
    fn the_active_rustup_toolchain_is_pinned_for_every_tool() {
        let folder = tempfile::tempdir().unwrap();
        tool(
            folder.path(),
            "rustup",
            "echo 'nightly-x86 (overridden by a file)'",
        );
        tool(
            folder.path(),
            "rustc",
            "echo \"rustc of $RUSTUP_TOOLCHAIN\"; echo 'host: x86_64-test'",
        );
        let toolchain = detected(folder.path());
        assert_eq!(toolchain.versions["rustc"], "rustc of nightly-x86");
        assert_eq!(toolchain.host, "x86_64-test");
    }

    #[test]
    fn tools_named_by_the_builds_environment_count() {
        let folder = tempfile::tempdir().unwrap();
        tool(folder.path(), "clang-99", "echo 'clang 99'");
        let environment = IndexMap::from([
            ("CC".to_owned(), "clang-99 -m64".to_owned()),
            ("OTHER".to_owned(), "clang-99".to_owned()),
        ]);
        let declared = detected(folder.path()).declared(&environment);
        assert_eq!(
            declared,
            IndexMap::from([("clang-99".to_owned(), "clang 99".to_owned())])
        );
    }

    #[test]
    fn the_search_path_is_cleaned() {
        let cleaned = clean_path(OsStr::new("/a:/b:relative::/a:/c"));
        assert_eq!(cleaned, "/a:/b:/c");
    }
}
