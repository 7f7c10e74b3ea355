//! How Ctrl-C and SIGTERM reach a wait.
//!
//! The handler notes the signal and makes a pipe readable that is never drained:
//! every wait that polls it, now or later, ends at once. What happens then (stop the
//! measured group, exit with 128 + signal) is the caller's business.
#![expect(
    unsafe_code,
    reason = "installing a signal handler and the self-pipe have no safe wrapper in std"
)]

use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use super::sys;

static SIGNAL: AtomicI32 = AtomicI32::new(0);
static WAKE: AtomicI32 = AtomicI32::new(-1);
static PIPE: OnceLock<RawFd> = OnceLock::new();

/// A handle on the signals that ask the harness to stop. Cheap to copy.
#[derive(Debug, Clone, Copy)]
pub struct Interrupt {
    pipe: RawFd,
}

impl Interrupt {
    /// A handle that never fires: for tests and for callers without handlers.
    #[must_use]
    pub const fn never() -> Self {
        // poll(2) skips negative descriptors.
        Interrupt { pipe: -1 }
    }

    /// The signal that asked to stop, if one came. Exit with 128 + this number.
    #[must_use]
    pub fn interrupted(self) -> Option<i32> {
        if self.pipe < 0 {
            return None;
        }
        Some(SIGNAL.load(Ordering::Acquire)).filter(|&signal| signal != 0)
    }

    /// Sleeps for `time`; returns true at once when a signal asked to stop.
    #[must_use]
    pub fn sleep(self, time: Duration) -> bool {
        let end = Instant::now() + time;
        loop {
            if self.interrupted().is_some() {
                return true;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            if sys::wait_readable([self.pipe], Some(left)).is_err() {
                std::thread::sleep(left);
            }
        }
    }

    pub(super) fn descriptor(self) -> RawFd {
        self.pipe
    }
}

/// The name of a signal for messages.
#[must_use]
pub fn name(signal: i32) -> String {
    let known = match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGPIPE => "SIGPIPE",
        TIME_IS_OVER => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        _ => return format!("signal {signal}"),
    };
    known.to_owned()
}

/// Installs handlers for SIGINT, SIGTERM and SIGHUP and returns the handle. A signal
/// that the caller had set to be ignored (`nohup`, a background job) stays ignored.
/// May be called more than once.
///
/// # Errors
/// When the pipe or a handler cannot be made.
pub fn install() -> io::Result<Interrupt> {
    if let Some(&pipe) = PIPE.get() {
        return Ok(Interrupt { pipe });
    }
    let (reader, writer) = io::pipe()?;
    // SAFETY: fcntl on a descriptor we own; a full pipe must never block the handler.
    unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    // Both ends live as long as the process: the handler may run at any moment.
    let pipe = *PIPE.get_or_init(|| reader.into_raw_fd());
    WAKE.store(writer.into_raw_fd(), Ordering::Release);
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        handle(signal)?;
    }
    Ok(Interrupt { pipe })
}

/// The signal by which [`alarm`] ends every wait.
pub const TIME_IS_OVER: i32 = libc::SIGALRM;

/// Lets [`TIME_IS_OVER`] come in `time`, also where the caller had it ignored: whatever waits
/// then, for a lock, for a quiet machine or for an attempt, ends as for any other signal.
/// [`install`] must have been called. Attempts do not inherit it.
///
/// # Errors
/// When the handler or the timer cannot be set.
pub fn alarm(time: Duration) -> io::Result<()> {
    handle_also_if_ignored(TIME_IS_OVER)?;
    // A timer of nothing would never come.
    let time = time.max(Duration::from_micros(1));
    let once = libc::itimerval {
        it_interval: libc::timeval {
            tv_sec: 0,
            tv_usec: 0,
        },
        it_value: libc::timeval {
            tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_usec: libc::suseconds_t::from(time.subsec_micros()),
        },
    };
    // SAFETY: the pointer is to a local, and no old value is asked for.
    let set = unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const once, std::ptr::null_mut()) };
    if set < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn handle(signal: i32) -> io::Result<()> {
    // SAFETY: sigaction is a plain C struct for which all zeros is a value; the pointer is
    // to a local.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(signal, std::ptr::null(), &raw mut old) < 0 {
            return Err(io::Error::last_os_error());
        }
        if old.sa_sigaction == libc::SIG_IGN {
            return Ok(());
        }
    }
    handle_also_if_ignored(signal)
}

fn handle_also_if_ignored(signal: i32) -> io::Result<()> {
    // SAFETY: as above; the handler is async-signal-safe (see `on_signal`).
    unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = on_signal as *const () as libc::sighandler_t;
        new.sa_flags = libc::SA_RESTART;
        libc::sigemptyset(&raw mut new.sa_mask);
        if libc::sigaction(signal, &raw const new, std::ptr::null_mut()) < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

extern "C" fn on_signal(signal: i32) {
    // The first signal decides the exit code.
    let _ = SIGNAL.compare_exchange(0, signal, Ordering::AcqRel, Ordering::Relaxed);
    let wake = WAKE.load(Ordering::Acquire);
    // SAFETY: write(2) is async-signal-safe, the byte is a local, and errno is
    // put back so that the interrupted code does not see ours.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let byte = 1_u8;
        libc::write(wake, (&raw const byte).cast(), 1);
        *errno = before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_that_never_fires_sleeps_its_time() {
        let start = Instant::now();
        assert!(!Interrupt::never().sleep(Duration::from_millis(5)));
        assert!(start.elapsed() >= Duration::from_millis(5));
        assert_eq!(Interrupt::never().interrupted(), None);
    }

    #[test]
    fn a_signal_is_named_as_people_know_it() {
        assert_eq!(name(11), "SIGSEGV");
        assert_eq!(name(62), "signal 62");
    }
}
