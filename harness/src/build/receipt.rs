//! The version line by which an artifact proves what it was built from.

use std::ffi::OsString;
use std::io::Read as _;
use std::path::Path;
use std::sync::{Arc, LazyLock, mpsc};
use std::time::Duration;

use indexmap::IndexMap;
use regex::Regex;

use super::error::BuildError;
use super::job;
use crate::experiment::model::Receipt;
use crate::source::pin::Pin;

/// How long `--version` may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// A version line is short; a program that prints for ever is cut off here.
const MOST_BYTES: u64 = 64 * 1024;

/// Runs `<artifact> --version` and gives its first line that is not empty.
///
/// # Errors
/// One line that says why there is none: it cannot be started, fails, prints nothing, or takes
/// too long.
pub fn ask(artifact: &Path, environment: &IndexMap<String, OsString>) -> Result<String, String> {
    let reader = duct::cmd(artifact, ["--version"])
        .full_env(environment)
        .dir(std::env::temp_dir())
        .stdin_null()
        .stderr_to_stdout()
        .unchecked()
        .before_spawn(|command| {
            std::os::unix::process::CommandExt::process_group(command, 0);
            Ok(())
        })
        .reader()
        .map_err(|error| format!("it cannot be started: {error}"))?;
    let reader = Arc::new(reader);
    let (told, hears) = mpsc::channel();
    let reading = Arc::clone(&reader);
    let thread = std::thread::spawn(move || {
        let mut text = Vec::new();
        let result = (&*reading).take(MOST_BYTES).read_to_end(&mut text);
        // Nobody listens any more after the time limit.
        let _ = told.send(result.map(|_| text));
    });
    let answer = hears.recv_timeout(PATIENCE);
    let status = reader.try_wait().ok().flatten().map(|output| output.status);
    for leader in reader.pids() {
        job::kill_group(leader);
    }
    let _ = thread.join();
    let text = match answer {
        Ok(Ok(text)) => text,
        Ok(Err(error)) => return Err(format!("its output cannot be read: {error}")),
        Err(_) => return Err(format!("no answer within {} s", PATIENCE.as_secs())),
    };
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    let line = line.ok_or_else(|| "it prints nothing".to_owned())?;
    match status {
        // An error and no version, with a path of this machine in it perhaps.
        Some(status) if !status.success() && commit_in(line).is_none() => {
            Err(format!("it ends with {status} and names no commit"))
        }
        _ => Ok(line.to_owned()),
    }
}

/// Compares the version line with the pin. Without a pin (a prebuilt program)
/// there is nothing to compare.
///
/// # Errors
/// Under `commit`, the line must hold the full commit; under `optional`, a full
/// commit in it must match. A line that calls a clean pin's build dirty is wrong too.
pub fn check(
    mode: Receipt,
    artifact: &str,
    pin: Option<&Pin>,
    answer: &Result<String, String>,
) -> Result<(), BuildError> {
    let Some(pin) = pin else {
        return Ok(());
    };
    let line = answer.as_deref().unwrap_or_default();
    let mismatch = |expected: String| BuildError::ReceiptMismatch {
        artifact: artifact.to_owned(),
        expected,
        got: line.to_owned(),
    };
    match commit_in(line) {
        Some(commit) if commit != pin.commit => Err(mismatch(format!("commit {}", pin.commit))),
        Some(_) if pin.patch_sha256.is_none() && says_dirty(line) => {
            Err(mismatch(format!("commit {} from a clean tree", pin.commit)))
        }
        Some(_) => Ok(()),
        None if mode == Receipt::Commit => Err(BuildError::ReceiptMissing {
            artifact: artifact.to_owned(),
            commit: pin.commit.clone(),
            got: match answer {
                Ok(line) => format!("{line:?}"),
                Err(reason) => format!("nothing: {reason}"),
            },
        }),
        None => Ok(()),
    }
}

/// The first word of exactly 40 hex digits.
fn commit_in(line: &str) -> Option<String> {
    line.split(|letter: char| !letter.is_ascii_alphanumeric())
        .find(|word| word.len() == 40 && word.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .map(str::to_lowercase)
}

/// `-dirty`, `dirty=true` or `dirty: true`, but not `dirty=false`.
fn says_dirty(line: &str) -> bool {
    static DIRTY: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"(?i)\bdirty\b\s*([=:]\s*(\w+))?").ok());
    let Some(pattern) = DIRTY.as_ref() else {
        return false;
    };
    pattern.captures_iter(line).any(|found| {
        found
            .get(2)
            .is_none_or(|value| ["true", "yes", "1"].contains(&value.as_str()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    fn pin(patch: Option<&str>) -> Pin {
        Pin {
            commit: COMMIT.into(),
            tree: COMMIT.into(),
            dirty: false,
            patch_sha256: patch.map(str::to_owned),
        }
    }

    fn checked(mode: Receipt, line: &str, patch: Option<&str>) -> Result<(), BuildError> {
        check(mode, "app", Some(&pin(patch)), &Ok(line.to_owned()))
    }

    #[test]
    fn the_full_commit_passes_and_another_one_never_does() {
        let good = format!("app 1.0 commit={COMMIT} dirty=false");
        let other = good.replace("0123", "9999");
        for mode in [Receipt::Commit, Receipt::Optional] {
            checked(mode, &good, None).unwrap();
            let text = checked(mode, &other, None).unwrap_err().to_string();
            assert!(text.contains("wrong receipt"), "{text}");
            assert!(text.contains(COMMIT) && text.contains("9999"), "{text}");
        }
    }

    #[test]
    fn a_line_without_a_commit_passes_only_where_it_is_optional() {
        checked(Receipt::Optional, "jq-1.7.1-dirty", None).unwrap();
        let text = checked(Receipt::Commit, "jq-1.7.1", None)
            .unwrap_err()
            .to_string();
        assert!(text.contains("must print the full commit"), "{text}");
        assert!(text.contains("jq-1.7.1"), "{text}");
        let nothing = Err("no answer within 10 s".to_owned());
        let error = check(Receipt::Commit, "app", Some(&pin(None)), &nothing).unwrap_err();
        assert!(
            error.to_string().contains("no answer within 10 s"),
            "{error}"
        );
        check(Receipt::Commit, "app", None, &nothing).unwrap();
    }

    #[test]
    fn a_dirty_build_of_a_clean_pin_is_wrong_and_of_a_patched_one_right() {
        for dirty in ["dirty=true", "dirty", "dirty: yes"] {
            let line = format!("app ({COMMIT}, {dirty})");
            assert!(checked(Receipt::Commit, &line, None).is_err(), "{line}");
            checked(Receipt::Commit, &line, Some("p")).unwrap();
        }
        for clean in ["dirty=false", "dirty=unknown", ""] {
            checked(Receipt::Commit, &format!("app {COMMIT} {clean}"), None).unwrap();
        }
    }

    #[test]
    fn hashes_of_other_lengths_are_no_commits() {
        assert_eq!(commit_in(&format!("sha256={COMMIT}{COMMIT}")), None);
        assert_eq!(commit_in("app 0123456789abcdef"), None);
        let upper = COMMIT.to_uppercase();
        assert_eq!(commit_in(&format!("v-{upper}-x")), Some(COMMIT.into()));
    }

    fn answer_of(script: &str) -> Result<String, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("app");
        std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        let environment = IndexMap::from([("PATH".to_owned(), OsString::from("/usr/bin:/bin"))]);
        ask(&file, &environment)
    }

    #[test]
    fn the_first_line_is_taken_from_either_stream_and_after_a_failure_only_with_a_commit() {
        assert_eq!(
            answer_of("echo; echo \"app $1\""),
            Ok("app --version".into())
        );
        assert_eq!(answer_of("echo v1 >&2"), Ok("v1".into()));
        let failing = answer_of("echo usage >&2; exit 2").unwrap_err();
        assert!(failing.ends_with("and names no commit"), "{failing}");
        let named = format!("app {COMMIT}");
        assert_eq!(answer_of(&format!("echo {named}; exit 1")), Ok(named));
        assert_eq!(answer_of("true"), Err("it prints nothing".into()));
        let absent = ask(Path::new("/no/such/program"), &IndexMap::new());
        assert!(absent.unwrap_err().starts_with("it cannot be started"));
    }

    #[test]
    fn a_program_that_prints_for_ever_is_cut_off() {
        assert_eq!(answer_of("yes"), Ok("y".into()));
    }
}
