//! A tiny project with a history of its own: a program whose speed is a number in a file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The program: a script, so that nothing has to be compiled. Its rate comes from the
/// commit, its noise from the seeded padding, so that a run is the same every time.
const PROGRAM: &str = r#"#!/bin/sh
rate=SPEED
path=PATHNAME
[ "${SLOW:-}" ] && rate=$((rate - rate / 20))
noise=$(( ${#BENCH_RUN_PADDING} % 5 ))
sleep "${NAP:-0}"
EXTRA
echo "{\"rate_tok_s\": $((rate * 10 + noise)), \"ids\": \"cafe\", \"path\": \"$path\"}"
"#;

/// A project in a folder of its own, with a cache of its own.
pub(crate) struct Project {
    folder: tempfile::TempDir,
}

impl Project {
    /// An empty repository.
    pub(crate) fn new() -> Self {
        let project = Project {
            folder: tempfile::tempdir().unwrap(),
        };
        fs::create_dir(project.root().join("cache")).unwrap();
        fs::write(
            project.root().join(".gitignore"),
            "/cache\n/results\n/docs\n*.yaml\n",
        )
        .unwrap();
        project.git(&["init", "--quiet", "--initial-branch=main"]);
        project
    }

    /// The project's root.
    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }

    fn git(&self, arguments: &[&str]) -> String {
        let output = Command::new("git")
            .args([
                "-c",
                "user.name=t",
                "-c",
                "user.email=t@example.org",
                "-c",
                "commit.gpgsign=false",
            ])
            .args(arguments)
            .current_dir(self.root())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "git {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Commits a program with this rate; returns the commit.
    pub(crate) fn commit(&self, rate: u32) -> String {
        self.commit_with(rate, "fast", "")
    }

    /// Commits a program that also runs `extra`.
    pub(crate) fn commit_with(&self, rate: u32, path: &str, extra: &str) -> String {
        let text = PROGRAM
            .replace("SPEED", &rate.to_string())
            .replace("PATHNAME", path)
            .replace("EXTRA", extra);
        fs::write(self.root().join("prog.sh"), text).unwrap();
        self.commit_all("a program")
    }

    /// Commits whatever lies there.
    pub(crate) fn commit_all(&self, message: &str) -> String {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty", "--message", message]);
        self.git(&["rev-parse", "HEAD"])
    }

    /// Writes `x.yaml`: two arms, a null arm of the base, and `more` keys.
    pub(crate) fn experiment(&self, base: &str, main: &str, more: &str) -> PathBuf {
        let text = format!(
            "schema: 1\nname: toy\nquestion: Is it slower?\nsource: {{ repo: . }}\n\
             build:\n  command: mkdir -p out && cp prog.sh out/prog && chmod +x out/prog\n  \
             artifacts: [out/prog]\n  allow_script: true\n  receipt: none\n\
             arms:\n  base: {{ rev: {base} }}\n  main: {{ rev: {main} }}\n\
             nulls: [base]\n\
             command: '{{artifact}}'\n\
             metrics: {{ rate_tok_s: {{ json: rate_tok_s, better: higher, gate: true }} }}\n\
             guard: {{ kind: none }}\n{more}"
        );
        let path = self.root().join("x.yaml");
        fs::write(&path, text).unwrap();
        path
    }

    /// `bench-run` with these arguments, in this project.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bench-run"));
        command
            .args(arguments)
            .current_dir(self.root())
            .env("BENCH_RUN_CACHE", self.root().join("cache"))
            .env_remove("GITHUB_STEP_SUMMARY")
            .env_remove("GITHUB_ACTIONS")
            .stdin(std::process::Stdio::null());
        command
    }

    /// Runs it to its end.
    pub(crate) fn bench_run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// The folders of records, oldest first.
    pub(crate) fn records(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.root().join("results")) else {
            return Vec::new();
        };
        // A kill while a record is made leaves a hidden folder, which is no record.
        let mut found: Vec<PathBuf> = entries
            .map(|entry| entry.unwrap())
            .filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'))
            .map(|entry| entry.path())
            .collect();
        found.sort();
        found
    }

    /// The rows of a record as JSON, without what may differ between two runs.
    pub(crate) fn rows(&self, record: &Path) -> Vec<String> {
        let text = fs::read_to_string(record.join("attempts.jsonl")).unwrap();
        let mut rows = Vec::new();
        for line in text.lines() {
            let mut row: serde_json::Value = serde_json::from_str(line).unwrap();
            for key in [
                "plan",
                "started_at",
                "session_seconds",
                "usage",
                "guard",
                "output_files",
            ] {
                row.as_object_mut().unwrap().remove(key);
            }
            rows.push(row.to_string());
        }
        rows
    }
}

/// Standard error as text.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Standard output as text.
pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}
