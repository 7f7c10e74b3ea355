//! Bringing a URL's commits into the mirror with the `git` program.
//!
//! The program is used because it has the user's transports and credentials
//! (ssh agent, credential helpers, proxies); libgit2 is built without TLS. It
//! never asks at the terminal: a question nobody sees would hang the run.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufReader, Read};

use git2::{Oid, Repository};

use super::error::{GitContext as _, SourceError};
use super::progress::{SourceProgress, Tell};
use super::repository::without_credentials;

/// How many of git's last lines an error carries.
const KEPT_LINES: usize = 6;

/// Fetches every branch and tag, and points the mirror's HEAD to the remote's.
/// Nothing is pruned: a pin stays after its branch is gone.
pub(super) fn branches_and_tags(
    bare: &Repository,
    url: &str,
    tell: &mut Tell<'_>,
) -> Result<(), SourceError> {
    let refspecs = ["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"];
    let arguments: Vec<OsString> = ["fetch", "--progress", "--force", "--no-tags", url]
        .into_iter()
        .chain(refspecs)
        .map(OsString::from)
        .collect();
    git(bare, url, &arguments, tell)?;
    let listed = git(
        bare,
        url,
        &[
            "ls-remote".into(),
            "--symref".into(),
            url.into(),
            "HEAD".into(),
        ],
        tell,
    )?;
    if let Some(branch) = head_branch(&listed) {
        bare.set_head(branch)
            .doing_in("set the mirror's HEAD", &without_credentials(url))?;
    }
    Ok(())
}

/// Fetches one commit by its full hash, where the server allows it.
pub(super) fn commit(
    bare: &Repository,
    url: &str,
    commit: Oid,
    tell: &mut Tell<'_>,
) -> Result<(), SourceError> {
    let arguments: Vec<OsString> = ["fetch", "--progress", "--no-tags", url]
        .into_iter()
        .map(OsString::from)
        .chain([commit.to_string().into()])
        .collect();
    git(bare, url, &arguments, tell).map(drop)
}

/// The branch that `ls-remote --symref … HEAD` names: `ref: refs/heads/main\tHEAD`.
fn head_branch(listed: &str) -> Option<&str> {
    listed
        .lines()
        .find_map(|line| line.strip_prefix("ref: ")?.strip_suffix("\tHEAD"))
}

/// Runs git on the mirror and gives all it printed, both streams together.
fn git(
    bare: &Repository,
    url: &str,
    arguments: &[OsString],
    tell: &mut Tell<'_>,
) -> Result<String, SourceError> {
    let repo = without_credentials(url);
    let failed = |reason: String| SourceError::Fetch {
        repo: repo.clone(),
        reason: reason.replace(url, &repo),
    };
    let mut words: Vec<OsString> = vec!["--git-dir".into(), bare.path().into()];
    // A server that stops sending ends the fetch after a minute.
    for setting in ["http.lowSpeedLimit=1000", "http.lowSpeedTime=60"] {
        words.extend(["-c".into(), setting.into()]);
    }
    words.extend_from_slice(arguments);
    let mut command = duct::cmd("git", words)
        .stdin_null()
        .stderr_to_stdout()
        .unchecked()
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_ALLOW_PROTOCOL", "file:git:http:https:ssh")
        .env("LC_ALL", "C");
    // Set while a hook runs, and then about another repository.
    for variable in [
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_OBJECT_DIRECTORY",
    ] {
        command = command.env_remove(variable);
    }
    let reader = command.reader().map_err(|error| {
        failed(match error.kind() {
            std::io::ErrorKind::NotFound => {
                "the program `git` is needed for URLs and is not installed".into()
            }
            _ => format!("cannot start git: {error}"),
        })
    })?;
    let mut told = |line: &str| {
        tell(SourceProgress::Fetching {
            repo: repo.clone(),
            last_line: line.replace(url, &repo),
        });
    };
    told("");
    let (text, last_lines) = follow(&reader, &mut told)
        .map_err(|error| failed(format!("cannot read git's output: {error}")))?;
    match reader.try_wait() {
        Ok(Some(output)) if output.status.success() => Ok(text),
        Ok(_) => Err(failed(last_lines)),
        Err(error) => Err(failed(error.to_string())),
    }
}

/// Reads to the end, telling each line; git ends a progress line with `\r`.
fn follow(input: impl Read, told: &mut dyn FnMut(&str)) -> std::io::Result<(String, String)> {
    let mut text = String::new();
    let mut kept: VecDeque<String> = VecDeque::new();
    let mut line = Vec::new();
    for byte in BufReader::new(input).bytes() {
        match byte? {
            end @ (b'\n' | b'\r') => {
                let complete = String::from_utf8_lossy(&line).trim().to_owned();
                line.clear();
                if complete.is_empty() {
                    continue;
                }
                told(&complete);
                if end == b'\n' {
                    text.push_str(&complete);
                    text.push('\n');
                    kept.push_back(complete);
                    if kept.len() > KEPT_LINES {
                        kept.pop_front();
                    }
                }
            }
            other => line.push(other),
        }
    }
    let rest = String::from_utf8_lossy(&line).trim().to_owned();
    if !rest.is_empty() {
        text.push_str(&rest);
        kept.push_back(rest);
    }
    Ok((text, Vec::from(kept).join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_lines_are_told_and_not_kept() {
        let mut told = Vec::new();
        let (text, kept) = follow(
            &b"Receiving 1%\rReceiving 2%\rdone.\nfatal: no"[..],
            &mut |line| told.push(line.to_owned()),
        )
        .unwrap();
        assert_eq!(told, ["Receiving 1%", "Receiving 2%", "done."]);
        assert_eq!(text, "done.\nfatal: no");
        assert_eq!(kept, "done.; fatal: no");
    }

    #[test]
    fn the_remote_head_is_read_from_its_symref_line() {
        assert_eq!(
            head_branch("ref: refs/heads/trunk\tHEAD\n0123\tHEAD\n"),
            Some("refs/heads/trunk")
        );
        assert_eq!(head_branch("0123\tHEAD\n"), None);
    }
}
