//! Running a command as a process group of its own, with a log and a time limit.
//!
//! `duct` starts and waits; the group is ended through the shell's `kill`, since
//! `duct` only knows the processes that it started itself. Used for builds, for setup
//! steps and for asking programs, never for measured attempts.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indexmap::IndexMap;

/// How often the end, the limit and the stop flag are looked at.
const PULSE: Duration = Duration::from_millis(100);
/// How often the last line of the log is told.
const TELLING: Duration = Duration::from_millis(500);
/// How much of a log's end is searched for its last line.
const LAST_LINE_BYTES: u64 = 4096;

/// A command to run.
pub(crate) struct Job<'a> {
    /// Program and arguments.
    pub(crate) words: Vec<OsString>,
    /// The whole environment.
    pub(crate) environment: &'a IndexMap<String, OsString>,
    /// Working directory.
    pub(crate) folder: &'a Path,
    /// Both output streams go here; the file is made.
    pub(crate) log: &'a Path,
    /// Standard output goes here instead, where it is an answer; the file is made.
    pub(crate) answer: Option<&'a Path>,
    /// The group is killed after this time.
    pub(crate) timeout: Duration,
    /// The group is killed when this becomes true.
    pub(crate) stop: Option<&'a AtomicBool>,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// By itself, or by a signal from elsewhere.
    Exited(ExitStatus),
    /// Killed at its time limit.
    TimedOut,
    /// Killed because the caller asked for it.
    Stopped,
}

/// Runs `job`; whatever of its group is left at the end is killed.
pub(crate) fn run(job: &Job<'_>, told: &mut dyn FnMut(Duration, String)) -> io::Result<Ended> {
    let log = File::create(job.log)?;
    let (program, arguments) = job
        .words
        .split_first()
        .ok_or_else(|| io::Error::other("no command"))?;
    let stdout = job.answer.map_or_else(|| log.try_clone(), File::create)?;
    let handle = duct::cmd(program, arguments)
        .full_env(job.environment)
        .dir(job.folder)
        .stdin_null()
        .stdout_file(stdout)
        .stderr_file(log)
        .unchecked()
        .before_spawn(|command| {
            command.process_group(0);
            Ok(())
        })
        .start()?;
    let started = Instant::now();
    let mut told_at = started;
    let ended = loop {
        if let Some(output) = handle.wait_timeout(PULSE)? {
            break Ended::Exited(output.status);
        }
        let now = Instant::now();
        if now - started >= job.timeout {
            break Ended::TimedOut;
        }
        if job.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            break Ended::Stopped;
        }
        if now - told_at >= TELLING {
            told_at = now;
            told(now - started, last_line(job.log).unwrap_or_default());
        }
    };
    for leader in handle.pids() {
        kill_group(leader);
    }
    handle.wait()?;
    Ok(ended)
}

/// Ends every process of the group, also when its leader is gone already.
pub(crate) fn kill_group(leader: u32) {
    kill(&[format!("-{leader}")]);
}

/// Ends every process that has `folder` as the value of `variable` in its environment:
/// what a job left that belonged to a harness that was killed, or that left its group.
pub(crate) fn kill_leftovers(variable: &str, folder: &Path) {
    let mut wanted = variable.as_bytes().to_vec();
    wanted.push(b'=');
    wanted.extend_from_slice(folder.as_os_str().as_bytes());
    // More than once: a process may start another while the list is read.
    let mut killed = BTreeSet::new();
    loop {
        let found: BTreeSet<u32> = processes_with(&wanted);
        let new: Vec<String> = found.difference(&killed).map(u32::to_string).collect();
        if new.is_empty() {
            return;
        }
        kill(&new);
        killed.extend(found);
    }
}

fn processes_with(variable: &[u8]) -> BTreeSet<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return BTreeSet::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|process| *process != std::process::id())
        .filter(|process| {
            // Unreadable for processes of others, and those are not ours.
            std::fs::read(format!("/proc/{process}/environ"))
                .is_ok_and(|all| all.split(|byte| *byte == 0).any(|one| one == variable))
        })
        .collect()
}

fn kill(targets: &[String]) {
    let mut words: Vec<&OsStr> = vec![
        OsStr::new("-c"),
        OsStr::new("kill -s KILL -- \"$@\""),
        OsStr::new("kill"),
    ];
    words.extend(targets.iter().map(OsStr::new));
    // Fails when all are gone already, which is what is wanted.
    let _ = duct::cmd("/bin/sh", words)
        .stdin_null()
        .stdout_null()
        .stderr_null()
        .unchecked()
        .run();
}

/// The last `count` lines of a log.
pub(crate) fn last_lines(log: &Path, count: usize) -> String {
    // A line of a log may be long, a log may be huge.
    const MOST_BYTES: u64 = 64 * 1024;
    let text = end_of(log, MOST_BYTES).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// The last line of a log that is not blank, where one is; a line ends at a return too.
pub(crate) fn last_line(log: &Path) -> io::Result<String> {
    let text = end_of(log, LAST_LINE_BYTES)?;
    let line = text
        .split(['\n', '\r'])
        .rev()
        .map(str::trim)
        .find(|line| !line.is_empty());
    Ok(line.unwrap_or_default().to_owned())
}

fn end_of(log: &Path, bytes: u64) -> io::Result<String> {
    let mut file = File::open(log)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(bytes)))?;
    let mut end = Vec::new();
    file.take(bytes).read_to_end(&mut end)?;
    Ok(String::from_utf8_lossy(&end).into_owned())
}

/// The words that run `command` in a shell: unset variables and failures are errors.
pub(crate) fn shell_words(command: &str) -> Vec<OsString> {
    [
        PathBuf::from("/bin/sh").into(),
        "-euc".into(),
        command.into(),
    ]
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::environment::CHECKOUT_VARIABLE;

    fn run_shell(command: &str, timeout: Duration, stop: Option<&AtomicBool>) -> (Ended, String) {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let environment = IndexMap::from([(
            "PATH".to_owned(),
            OsString::from("/usr/local/bin:/usr/bin:/bin"),
        )]);
        let job = Job {
            words: shell_words(command),
            environment: &environment,
            folder: folder.path(),
            log: &log,
            answer: None,
            timeout,
            stop,
        };
        let ended = run(&job, &mut |_, _| {}).unwrap();
        (ended, std::fs::read_to_string(log).unwrap())
    }

    /// True while a process has this text among its arguments.
    /// Seconds that name this very test process, so that another one's are not counted.
    fn nap(seconds: u32) -> String {
        format!("{seconds}.{}", std::process::id())
    }

    fn is_running(argument: &str) -> bool {
        std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
            std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| {
                line.split(|byte| *byte == 0)
                    .any(|word| word == argument.as_bytes())
            })
        })
    }

    fn gone_soon(argument: &str) -> bool {
        (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            !is_running(argument)
        })
    }

    #[test]
    fn output_and_status_are_kept_and_only_the_given_environment_is_seen() {
        let (ended, log) = run_shell(
            "echo out; echo err >&2; env; exit 3",
            Duration::from_secs(9),
            None,
        );
        assert!(matches!(ended, Ended::Exited(status) if status.code() == Some(3)));
        assert!(log.starts_with("out\nerr\n"), "{log}");
        assert!(!log.contains("HOME="), "{log}");
    }

    #[test]
    fn a_shell_variable_that_is_not_set_fails_the_command() {
        let (ended, _) = run_shell("echo $NOT_SET; true", Duration::from_secs(9), None);
        assert!(matches!(ended, Ended::Exited(status) if !status.success()));
    }

    #[test]
    fn the_time_limit_ends_grandchildren_too() {
        let nap = nap(4711);
        let (ended, _) = run_shell(
            &format!("(sleep {nap}; true) & sleep {nap}; true"),
            Duration::from_millis(300),
            None,
        );
        assert!(matches!(ended, Ended::TimedOut));
        assert!(gone_soon(&nap));
    }

    #[test]
    fn a_command_that_ends_takes_what_it_left_with_it() {
        let nap = nap(4712);
        let (ended, _) = run_shell(&format!("sleep {nap} & true"), Duration::from_secs(9), None);
        assert!(matches!(ended, Ended::Exited(status) if status.success()));
        assert!(gone_soon(&nap));
    }

    #[test]
    fn the_stop_flag_ends_the_command() {
        let stop = AtomicBool::new(true);
        let nap = nap(4713);
        let (ended, _) = run_shell(&format!("sleep {nap}"), Duration::from_secs(9), Some(&stop));
        assert!(matches!(ended, Ended::Stopped));
        assert!(gone_soon(&nap));
    }

    #[test]
    fn processes_of_a_killed_harness_are_found_by_their_checkout() {
        let folder = tempfile::tempdir().unwrap();
        let mut orphan = std::process::Command::new("sleep")
            .arg("60")
            .env(CHECKOUT_VARIABLE, folder.path())
            .process_group(0)
            .spawn()
            .unwrap();
        kill_leftovers(CHECKOUT_VARIABLE, Path::new("/some/other/checkout"));
        assert!(orphan.try_wait().unwrap().is_none());
        // A process that is just being started shows no environment for a moment.
        let deadline = Instant::now() + Duration::from_secs(9);
        while orphan.try_wait().unwrap().is_none() && Instant::now() < deadline {
            kill_leftovers(CHECKOUT_VARIABLE, folder.path());
        }
        let ended = orphan.try_wait().unwrap();
        orphan.kill().unwrap();
        assert!(ended.is_some());
    }

    #[test]
    fn the_last_line_ignores_empty_ones_and_splits_at_returns() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "a\nb 1%\rb 2%\r\n\n").unwrap();
        assert_eq!(last_line(file.path()).unwrap(), "b 2%");
        assert_eq!(last_lines(file.path(), 1), "");
        std::fs::write(file.path(), "a\nb\nc\n").unwrap();
        assert_eq!(last_lines(file.path(), 2), "b\nc");
    }
}
