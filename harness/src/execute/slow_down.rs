//! The brake of the positive control: runs a command so that it takes a known share longer.
//!
//! What a metric's clock does not see does not slow it. A program that times its own inner
//! part must lose time inside that part: its process group is stopped and continued again
//! and again, and this process spins while it stands, so that CPU time grows too. What is
//! then missing for the wall-clock or the CPU time of the whole attempt is spun after the
//! end. This process is the attempt's leader, so the kernel adds its CPU time to the
//! command's. docs/adr/0017 has the reasons and what came of measuring it.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::time::{Duration, Instant};

use super::sys;
use crate::record::format::{SlowDown, Usage};

/// Length of one stop. Stopping and continuing costs some 20 µs that are not counted, and a
/// phase that the program times gains or loses half a stop by chance: this is between the two.
const STOP: Duration = Duration::from_micros(500);

/// How much stronger than asked for a slow-down may come out, as a share of it.
const TOLERANCE: f64 = 0.1;

/// Runs `command` slowed down; returns how it ended, its CPU time being its own alone.
///
/// Standard streams and the environment are this process's. Must be called from the main
/// thread: the command dies with the thread that started it.
///
/// # Errors
/// The command cannot be started (the first word is named) or waited for, or is too short to
/// be slowed down by so little.
pub fn run(slow_down: &SlowDown, command: &[OsString]) -> io::Result<Usage> {
    let share = slow_down.pct / 100.0;
    let child = start(command)?;
    let began = Instant::now();
    let ended = sys::pidfd(child)?;
    sys::sharpen_timer();
    let paused = if slow_down.inside {
        stop_and_go(child, &ended, share)?
    } else {
        sys::wait_for_ever(&ended)?;
        Duration::ZERO
    };
    let ran = began.elapsed().saturating_sub(paused);
    let usage = sys::reap(child)?;
    let of_child = Duration::from_nanos(usage.user_ns + usage.system_ns);
    if slow_down.wall {
        // Starting this process took time as well, almost all of it on the CPU.
        let startup = sys::own_cpu_time().saturating_sub(of_child + paused);
        spin(owed(share, ran, paused + startup)?);
    }
    if slow_down.cpu {
        let spent = sys::own_cpu_time().saturating_sub(of_child);
        spin_cpu(owed(share, of_child, spent)?);
    }
    Ok(usage)
}

/// What is left of `share` of `time` after `paid`.
///
/// # Errors
/// More is paid than is owed: the command is so short that this process alone slows it down
/// further than was asked for, and a control that is found would prove too little.
fn owed(share: f64, time: Duration, paid: Duration) -> io::Result<Duration> {
    let due = time.mul_f64(share);
    if paid > due.mul_f64(1.0 + TOLERANCE) + STOP {
        return Err(io::Error::other(format!(
            "the command is too short: expected to add {due:.1?} to {time:.1?}, but the brake \
             itself took {paid:.1?}; ask for a larger slow-down or measure a longer command",
        )));
    }
    Ok(due.saturating_sub(paid))
}

fn start(command: &[OsString]) -> io::Result<u32> {
    let Some((program, arguments)) = command.split_first() else {
        let empty = "expected a command, got none";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, empty));
    };
    let mut command = Command::new(program);
    command.args(arguments);
    sys::group_of_its_own(&mut command);
    let child = command.spawn().map_err(|error| {
        let program = program.display();
        io::Error::new(error.kind(), format!("cannot start {program}: {error}"))
    })?;
    Ok(child.id())
}

/// Stops and continues the group until its leader has ended; returns how long it stood.
///
/// The sum is kept to the share of the time that it ran: a stop that was too long makes
/// the next one late. The first comes after half a period, so that a phase of any length
/// loses its share on average.
fn stop_and_go(child: u32, ended: &OwnedFd, share: f64) -> io::Result<Duration> {
    let began = Instant::now();
    let mut paused = Duration::ZERO;
    loop {
        let ran = began.elapsed().saturating_sub(paused);
        let due = ran.mul_f64(share) + STOP / 2;
        let debt = due.saturating_sub(paused);
        if debt < STOP {
            let until_due = (STOP - debt).div_f64(share);
            if sys::wait_one(ended, until_due)? {
                return Ok(paused);
            }
            continue;
        }
        // Not waited for: a process that has just forked by `vfork` cannot stop before its
        // child goes on, and the child stands as well.
        let stood = Instant::now();
        sys::signal_group(child, libc::SIGSTOP);
        spin(debt);
        sys::signal_group(child, libc::SIGCONT);
        paused += stood.elapsed();
    }
}

/// Keeps one CPU busy for a time.
fn spin(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Keeps one CPU busy until this process has used so much more CPU time.
fn spin_cpu(time: Duration) {
    let goal = sys::own_cpu_time() + time;
    // Asking is a system call, and only user time counts for some metrics.
    while let Some(left) = goal
        .checked_sub(sys::own_cpu_time())
        .filter(|left| !left.is_zero())
    {
        spin(left.min(Duration::from_micros(200)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_paid_already_is_not_owed_again() {
        let second = Duration::from_secs(1);
        let left = |paid_ms| owed(0.05, second, Duration::from_millis(paid_ms)).unwrap();
        assert_eq!(left(0).as_millis(), 50);
        assert_eq!(left(20).as_millis(), 30);
        assert_eq!(left(52), Duration::ZERO);
    }

    #[test]
    fn a_brake_that_costs_more_than_it_should_add_is_an_error() {
        let (short, cost) = (Duration::from_millis(20), Duration::from_millis(9));
        let error = owed(0.05, short, cost).unwrap_err().to_string();
        assert!(
            error.contains("expected to add 1.0ms to 20.0ms, but the brake itself took 9.0ms"),
            "{error}"
        );
    }
}
