//! The calls into the Linux kernel that the standard library does not offer,
//! each behind a safe function. Nothing is decided here.
#![expect(
    unsafe_code,
    reason = "process control (subreaper, pidfd, poll, wait4, kill, getrusage), getrlimit and fallocate have no safe wrapper in std"
)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use crate::record::format::Usage;

/// Makes this process the parent of every orphan below it, so that none escapes.
///
/// # Errors
/// Where the kernel refuses (older than Linux 3.4).
pub fn become_subreaper() -> io::Result<()> {
    // SAFETY: prctl with integer arguments only; it touches no memory of ours.
    check(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }).map(drop)
}

/// Prepares `command` to start in a session and process group of its own, with
/// default signal actions, no inherited descriptor, and killed should the harness die.
pub(super) fn isolate(command: &mut Command) {
    let harness = std::process::id();
    // SAFETY: the closure runs between fork and exec and makes only calls that
    // are async-signal-safe: no allocation, no lock.
    unsafe {
        command.pre_exec(move || in_child(harness));
    }
}

fn in_child(harness: u32) -> io::Result<()> {
    // SAFETY: setsid, prctl, getppid, signal and close_range take integers only and are
    // async-signal-safe.
    unsafe {
        check(libc::setsid())?;
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0))?;
        // The harness may have died before the line above took effect.
        if libc::getppid().cast_unsigned() != harness {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
            libc::signal(signal, libc::SIG_DFL);
        }
        // Older kernels (before 5.11) lack the flag; the harness's own
        // descriptors are close-on-exec anyway.
        libc::syscall(
            libc::SYS_close_range,
            3_u32,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        );
    }
    Ok(())
}

/// Prepares `command` to start in a process group of its own inside this session, killed
/// should the calling thread end.
pub(super) fn group_of_its_own(command: &mut Command) {
    let parent = std::process::id();
    // SAFETY: the closure runs between fork and exec and makes only async-signal-safe
    // calls with integer arguments: no allocation, no lock.
    unsafe {
        command.pre_exec(move || {
            check(libc::setpgid(0, 0))?;
            check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0))?;
            if libc::getppid().cast_unsigned() != parent {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            Ok(())
        });
    }
}

/// The largest file that this process and those it starts may write, in bytes, if limited.
pub(super) fn file_size_limit() -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: getrlimit writes one rlimit to a valid place.
    let got = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    (got == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Has the file system set `bytes` aside behind byte `from` of a file, which does not grow.
///
/// # Errors
/// The disk is full. A file system that cannot tell is no error.
pub(super) fn reserve(file: &File, from: u64, bytes: u64) -> io::Result<()> {
    let offset = |bytes: u64| libc::off_t::try_from(bytes).unwrap_or(libc::off_t::MAX);
    let (from, bytes) = (offset(from), offset(bytes));
    // SAFETY: fallocate takes integers only; the descriptor is open while `file` is borrowed.
    let done = unsafe { libc::fallocate(file.as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE, from, bytes) };
    match check(done) {
        Err(error) if is_out_of_space(&error) => Err(error),
        _ => Ok(()),
    }
}

fn is_out_of_space(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}

/// Lets this thread's waits end when they should: by default the kernel may add 50 µs.
pub(super) fn sharpen_timer() {
    // SAFETY: prctl with integer arguments only. A kernel that refuses leaves the default.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
}

/// Ends this process by `signal`, so that its parent sees what happened to the command.
pub fn die_of(signal: i32) {
    // SAFETY: signal and raise take integers; the default action of the signal follows.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

/// A descriptor that becomes readable when the process ends.
pub(super) fn pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open takes two integers and returns a new descriptor or -1.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel has just handed this descriptor to us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Waits until one of `fds` is readable or the time is over; tells which ones are.
/// `None` waits for ever; a signal ends the wait early with none readable.
pub(super) fn wait_readable<const N: usize>(
    fds: [RawFd; N],
    time: Option<Duration>,
) -> io::Result<[bool; N]> {
    let mut polled = fds.map(|fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    });
    // Rounded up: waking a moment early would only mean another turn of the loop.
    let milliseconds = time.map_or(-1, |time| {
        i32::try_from(time.as_micros().div_ceil(1000)).unwrap_or(i32::MAX)
    });
    // SAFETY: the pointer and the length describe `polled`, which outlives the call;
    // negative descriptors are skipped by the kernel.
    let ready = unsafe {
        libc::poll(
            polled.as_mut_ptr(),
            libc::nfds_t::try_from(N).unwrap_or(0),
            milliseconds,
        )
    };
    if ready < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
        return Ok([false; N]);
    }
    Ok(polled.map(|entry| entry.revents != 0))
}

/// Waits until `fd` is readable; false when the time is over.
pub(super) fn wait_one(fd: &OwnedFd, time: Duration) -> io::Result<bool> {
    let end = std::time::Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(std::time::Instant::now());
        if wait_readable([fd.as_raw_fd()], Some(left))? == [true] {
            return Ok(true);
        }
        if left.is_zero() {
            return Ok(false);
        }
    }
}

/// Waits until `fd` is readable.
pub(super) fn wait_for_ever(fd: &OwnedFd) -> io::Result<()> {
    while wait_readable([fd.as_raw_fd()], None)? != [true] {}
    Ok(())
}

/// Sends `signal` to every process of a group. A group that is gone is no error.
pub(super) fn signal_group(group: u32, signal: i32) {
    if let Ok(group) = i32::try_from(group)
        && group > 1
    {
        // SAFETY: kill takes integers; a positive group id other than 1 cannot
        // mean "every process" or "my own group".
        unsafe { libc::kill(-group, signal) };
    }
}

/// Sends `signal` to one process. A process that is gone is no error.
pub(super) fn signal_process(pid: u32, signal: i32) {
    if let Ok(pid) = i32::try_from(pid)
        && pid > 1
    {
        // SAFETY: kill takes integers; a positive pid means that process alone.
        unsafe { libc::kill(pid, signal) };
    }
}

/// Reaps a child and returns its account, with `wall_ns` and `left_processes` at zero.
pub(super) fn reap(pid: u32) -> io::Result<Usage> {
    wait4(pid, 0)?.ok_or_else(|| io::Error::other("wait4 returned without a process"))
}

/// Reaps a child if it has ended; false while it runs or when it is no child.
pub(super) fn reap_if_ended(pid: u32) -> bool {
    matches!(wait4(pid, libc::WNOHANG), Ok(Some(_)))
}

fn wait4(pid: u32, options: i32) -> io::Result<Option<Usage>> {
    let pid = i32::try_from(pid).map_err(io::Error::other)?;
    let mut status = 0;
    // SAFETY: rusage is a plain C struct for which all zeros is a value.
    let mut account: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to locals that outlive the call.
        let reaped = unsafe { libc::wait4(pid, &raw mut status, options, &raw mut account) };
        if reaped >= 0 {
            return Ok((reaped == pid).then(|| usage(status, &account)));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn usage(status: i32, account: &libc::rusage) -> Usage {
    let exited = libc::WIFEXITED(status);
    let signaled = libc::WIFSIGNALED(status);
    Usage {
        wall_ns: 0,
        user_ns: nanoseconds(account.ru_utime),
        system_ns: nanoseconds(account.ru_stime),
        // Linux counts ru_maxrss in KiB.
        peak_rss_bytes: account.ru_maxrss.cast_unsigned().saturating_mul(1024),
        exit_status: exited.then(|| libc::WEXITSTATUS(status)),
        signal: signaled.then(|| libc::WTERMSIG(status)),
        involuntary_switches: account.ru_nivcsw.cast_unsigned(),
        major_faults: account.ru_majflt.cast_unsigned(),
        left_processes: 0,
    }
}

fn nanoseconds(time: libc::timeval) -> u64 {
    let seconds = time.tv_sec.cast_unsigned();
    let microseconds = time.tv_usec.cast_unsigned();
    seconds.saturating_mul(1_000_000_000) + microseconds * 1000
}

/// The session of a process; `None` when it is gone.
pub(super) fn session_of(pid: u32) -> Option<u32> {
    let pid = i32::try_from(pid).ok()?;
    // SAFETY: getsid takes an integer and returns one.
    let session = unsafe { libc::getsid(pid) };
    u32::try_from(session).ok()
}

/// CPU time of this process and of all its children that it has waited for,
/// user and system together. Precise, unlike the ticks in /proc.
#[must_use]
pub fn own_cpu_time() -> Duration {
    [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN]
        .map(|who| {
            // SAFETY: rusage is a plain C struct for which all zeros is a value.
            let mut account: libc::rusage = unsafe { std::mem::zeroed() };
            // SAFETY: the pointer is to a local that outlives the call.
            unsafe { libc::getrusage(who, &raw mut account) };
            Duration::from_nanos(nanoseconds(account.ru_utime) + nanoseconds(account.ru_stime))
        })
        .into_iter()
        .sum()
}

/// Clock ticks per second in /proc; 100 on every common machine.
#[must_use]
pub fn ticks_per_second() -> u64 {
    // SAFETY: sysconf takes an integer and returns one.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks).ok().filter(|&t| t > 0).unwrap_or(100)
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}
