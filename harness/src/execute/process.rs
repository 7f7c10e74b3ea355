//! Runs an attempt as a real process, in a session and process group of its own.
//!
//! While it runs the harness sleeps in one `poll`: it wakes when the process ends, when
//! a signal asks the harness to stop, and once a second to look at the size of the
//! output and to ask `watch`. Standard input is /dev/null.
//!
//! `peak_rss_bytes` has a floor: Linux carries the high-water mark over `exec`, so a
//! program smaller than the harness itself (about ten MiB) reads as large as it.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::interface::{Ended, Executor, ProcessSpec, Watch};
use super::signal::{self, Interrupt};
use super::{leftovers, output, sys};
use crate::record::format::Usage;

/// How often a running attempt is looked at, and no more often: looking costs CPU time
/// that the measured program would miss.
const TICK: Duration = Duration::from_secs(1);
/// Time between asking a group to end and killing it.
const GRACE: Duration = Duration::from_millis(200);
/// Time a killed process may take to go; longer means it hangs inside the kernel.
const DYING: Duration = Duration::from_secs(10);

/// Runs attempts as processes of this machine.
#[derive(Debug)]
pub struct ProcessExecutor {
    interrupt: Interrupt,
}

impl ProcessExecutor {
    /// An executor whose attempts end when `interrupt` fires.
    ///
    /// # Errors
    /// When the kernel does not let this process adopt orphans.
    pub fn new(interrupt: Interrupt) -> io::Result<Self> {
        sys::become_subreaper()?;
        Ok(ProcessExecutor { interrupt })
    }

    /// Sleeps until the process ended or there is a reason to end it.
    fn supervise(
        &self,
        spec: &ProcessSpec,
        ended: &OwnedFd,
        watch: &mut Watch<'_>,
    ) -> io::Result<Fate> {
        let start = Instant::now();
        let deadline = start.checked_add(spec.timeout);
        let mut next_tick = start + TICK;
        loop {
            let wake = deadline.map_or(next_tick, |deadline| deadline.min(next_tick));
            let time = wake.saturating_duration_since(Instant::now());
            let fds = [ended.as_raw_fd(), self.interrupt.descriptor()];
            if sys::wait_readable(fds, Some(time))?[0] {
                return Ok(Fate::Exited);
            }
            if let Some(signal) = self.interrupt.interrupted() {
                let name = signal::name(signal);
                return Ok(Fate::Stopped(format!("interrupted by {name}")));
            }
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Ok(Fate::TimedOut);
            }
            if now < next_tick {
                continue;
            }
            next_tick = now + TICK;
            if let Some(size) = output::too_large(spec) {
                return Ok(Fate::OutputTooLarge(size));
            }
            if let Some(reason) = watch() {
                return Ok(Fate::Stopped(reason));
            }
        }
    }
}

/// Why the wait for a process was over.
enum Fate {
    Exited,
    TimedOut,
    Stopped(String),
    OutputTooLarge(u64),
}

impl Executor for ProcessExecutor {
    fn run(
        &mut self,
        spec: &ProcessSpec,
        started: &mut dyn FnMut(u32),
        watch: &mut Watch<'_>,
    ) -> io::Result<Ended> {
        if let Some(signal) = self.interrupt.interrupted() {
            let name = signal::name(signal);
            return Ok(Ended::NotStarted(format!("interrupted by {name}")));
        }
        let stdout = output::create(&spec.stdout)?;
        let stderr = output::create(&spec.stderr)?;
        let before = leftovers::children_now();
        let start = Instant::now();
        let leader = match spawn(spec, stdout, stderr) {
            Ok(leader) => leader,
            Err(error) => return Ok(Ended::NotStarted(why_not_started(spec, &error))),
        };
        started(leader);
        let outcome = self.to_the_end(spec, leader, start, &before, watch);
        leftovers::leaders().remove(&leader);
        outcome
    }
}

impl ProcessExecutor {
    fn to_the_end(
        &self,
        spec: &ProcessSpec,
        leader: u32,
        start: Instant,
        before: &BTreeSet<u32>,
        watch: &mut Watch<'_>,
    ) -> io::Result<Ended> {
        let ended = match sys::pidfd(leader) {
            Ok(ended) => ended,
            Err(error) => {
                sys::signal_group(leader, libc::SIGKILL);
                sys::reap(leader)?;
                return Err(error);
            }
        };
        // An error of the wait itself must not leave the process behind.
        let fate = self.supervise(spec, &ended, watch);
        if !matches!(fate, Ok(Fate::Exited)) {
            stop(leader, &ended)?;
        }
        let wall = start.elapsed();
        // The leader is collected last: until then its id cannot become anybody else's.
        let left_processes = leftovers::sweep(leader, before);
        let mut usage = sys::reap(leader)?;
        usage.wall_ns = u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX);
        usage.left_processes = left_processes;
        let fate = fate?;
        let size = output::too_large(spec);
        if size.is_some() {
            output::cut(spec)?;
        }
        output::had_room(spec)?;
        Ok(conclude(fate, usage, size))
    }
}

fn conclude(fate: Fate, usage: Usage, size: Option<u64>) -> Ended {
    match (fate, size) {
        (Fate::Exited, Some(size)) => Ended::OutputTooLarge(usage, size),
        (Fate::Exited, None) => Ended::Exited(usage),
        (Fate::TimedOut, _) => Ended::TimedOut(usage),
        (Fate::Stopped(reason), _) => Ended::Stopped(usage, reason),
        (Fate::OutputTooLarge(size), _) => Ended::OutputTooLarge(usage, size),
    }
}

fn spawn(spec: &ProcessSpec, stdout: File, stderr: File) -> io::Result<u32> {
    let Some((program, arguments)) = spec.argv.split_first() else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "empty command line",
        ));
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(
            spec.env
                .iter()
                .map(|(name, value)| (name.as_os_str(), value.as_os_str())),
        )
        .current_dir(&spec.directory)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr);
    sys::isolate(&mut command);
    let mut leaders = leftovers::leaders();
    let leader = command.spawn()?.id();
    leaders.insert(leader);
    Ok(leader)
}

/// One line for the record: no absolute path, since a record may be published.
fn why_not_started(spec: &ProcessSpec, error: &io::Error) -> String {
    let program = spec.argv.first().map_or(Path::new("?"), Path::new);
    let name = program.file_name().unwrap_or(OsStr::new("?")).display();
    let reason = if !spec.directory.is_dir() {
        "its working directory does not exist".to_owned()
    } else if error.raw_os_error() == Some(libc::ENOENT) {
        // Joining leaves an absolute path as it is.
        if program.components().count() > 1 && spec.directory.join(program).exists() {
            "its interpreter or loader does not exist".to_owned()
        } else {
            "command not found".to_owned()
        }
    } else if error.raw_os_error() == Some(libc::EACCES) {
        "not executable (permission denied)".to_owned()
    } else {
        error.to_string()
    };
    format!("cannot start {name}: {reason}")
}

/// Ends a whole group: asks, waits a moment, kills.
fn stop(leader: u32, ended: &OwnedFd) -> io::Result<()> {
    sys::signal_group(leader, libc::SIGTERM);
    // A stopped process sees no SIGTERM before it goes on.
    sys::signal_group(leader, libc::SIGCONT);
    let gone = sys::wait_one(ended, GRACE)?;
    sys::signal_group(leader, libc::SIGKILL);
    if gone || sys::wait_one(ended, DYING)? {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::TimedOut,
        format!("process {leader} does not die: it hangs inside the kernel"),
    ))
}
