//! One measuring job per machine: an exclusive lock on a file in the temporary directory.
//!
//! The file is writable for everybody, so that users exclude each other, and holds
//! the holder's pid and command for the messages of those who wait. A guard that runs
//! inside another one passes: the outer one names itself in the environment.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::interface::GuardError;
use crate::execute::process_table;
use crate::execute::signal::Interrupt;

/// Names another lock file.
pub const LOCK_VARIABLE: &str = "ROCM_GPU_GUARD_LOCK";
/// Pid of the guard that holds the lock for everything below it.
pub const HELD_VARIABLE: &str = "ROCM_GPU_GUARD_LOCK_HELD";
/// The lock file's name in the temporary directory. CPU and GPU jobs share it, because they
/// disturb each other.
pub const FILE_NAME: &str = "rocm_gpu_guard.lock";

/// How often the lock is tried, and how often a waiting guard says so.
const RETRY: Duration = Duration::from_secs(1);
const REMIND: Duration = Duration::from_secs(60);
/// Longest text kept about a holder.
const HOLDER_BYTES: u64 = 200;

/// The lock; given back when dropped.
#[derive(Debug)]
pub struct Lock {
    /// `None` when an outer guard holds it for us.
    file: Option<File>,
    /// How long it took to get.
    pub waited: Duration,
}

/// Which lock and how to wait for it.
#[derive(Debug, Clone)]
pub struct LockOptions {
    /// The lock file.
    pub path: PathBuf,
    /// Who we are, for the messages of others: pid and command.
    pub holder: String,
    /// Gives up after this time; `None` waits for ever.
    pub max_wait: Option<Duration>,
    /// Ends the wait early.
    pub interrupt: Interrupt,
}

impl Lock {
    /// The lock of a guard that runs inside another one.
    #[must_use]
    pub fn held_by_outer_guard() -> Self {
        Lock {
            file: None,
            waited: Duration::ZERO,
        }
    }

    /// Waits for the lock; `tell` gets a line when there is something to wait for.
    ///
    /// # Errors
    /// [`GuardError::LockHeld`] when the time is over, [`GuardError::Interrupted`] on a
    /// signal, [`GuardError::Unavailable`] when the file cannot be a lock.
    pub fn acquire(options: &LockOptions, tell: &mut dyn FnMut(&str)) -> Result<Self, GuardError> {
        let unavailable = |error: io::Error| GuardError::Unavailable {
            kind: "lock".to_owned(),
            reason: format!("{}: {error}", options.path.display()),
        };
        let mut file = open(&options.path).map_err(unavailable)?;
        let start = Instant::now();
        let mut told: Option<Instant> = None;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(unavailable(error)),
            }
            let waited = start.elapsed();
            let holder = holder(&mut file);
            if told.is_none_or(|told| told.elapsed() >= REMIND) {
                tell(&format!("waiting for the lock, held by {holder}"));
                told = Some(Instant::now());
            }
            let left = options.max_wait.map(|limit| limit.saturating_sub(waited));
            if left == Some(Duration::ZERO) {
                return Err(GuardError::LockHeld {
                    holder,
                    waited_seconds: waited.as_secs(),
                });
            }
            if options
                .interrupt
                .sleep(left.map_or(RETRY, |left| left.min(RETRY)))
            {
                let signal = options.interrupt.interrupted().unwrap_or(libc::SIGINT);
                return Err(GuardError::Interrupted { signal });
            }
        }
        let waited = start.elapsed();
        if told.is_some() {
            tell(&format!("lock acquired after {} s", waited.as_secs()));
        }
        // The text is only for people: a full disk must not stop a measurement.
        let _ = sign(&mut file, &options.holder);
        Ok(Lock {
            file: Some(file),
            waited,
        })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            let _ = file.set_len(0);
            let _ = file.unlock();
        }
    }
}

/// The pid that the environment names as the lock's holder, if it really is an ancestor of
/// `pid`: a value left over from elsewhere must not open the lock.
#[must_use]
pub fn outer_guard(proc: &Path, pid: u32, held: Option<&str>) -> Option<u32> {
    let held = held?.trim().parse().ok()?;
    let processes = process_table::read(proc);
    process_table::ancestors(&processes, pid)
        .contains(&held)
        .then_some(held)
}

/// Opens or creates the file, for everybody to read and write. A symbolic link or
/// anything but a regular file is refused: the directory is open to all.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = match options.open(path) {
        // Asking to create a file that another user owns is refused in sticky
        // directories, so creating is the second try.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            match options.clone().create_new(true).mode(0o666).open(path) {
                Ok(file) => {
                    file.set_permissions(std::fs::Permissions::from_mode(0o666))?;
                    file
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => options.open(path)?,
                Err(error) => return Err(error),
            }
        }
        other => other?,
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("the lock is not a regular file"));
    }
    Ok(file)
}

fn holder(file: &mut File) -> String {
    let mut text = Vec::new();
    let read = file
        .rewind()
        .and_then(|()| (&*file).take(HOLDER_BYTES).read_to_end(&mut text));
    let text: String = String::from_utf8_lossy(&text)
        .chars()
        .filter(|character| !character.is_control())
        .collect();
    match read {
        Ok(_) if !text.is_empty() => text,
        _ => "somebody unknown".to_owned(),
    }
}

fn sign(file: &mut File, holder: &str) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(holder.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(path: &Path, max_wait: Duration) -> LockOptions {
        LockOptions {
            path: path.to_owned(),
            holder: "pid 77 (bench-run run a.yaml)".to_owned(),
            max_wait: Some(max_wait),
            interrupt: Interrupt::never(),
        }
    }

    #[test]
    fn a_second_guard_waits_and_says_who_holds_the_lock() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("lock");
        let options = options(&path, Duration::from_millis(20));
        let first = Lock::acquire(&options, &mut |_| {}).unwrap();
        let mut lines = Vec::new();
        let error = Lock::acquire(&options, &mut |line| lines.push(line.to_owned())).unwrap_err();
        assert!(matches!(error, GuardError::LockHeld { holder, .. } if holder.contains("pid 77")));
        assert_eq!(lines.len(), 1);
        assert!(lines[0].contains("a.yaml"), "{lines:?}");
        drop(first);
        assert!(Lock::acquire(&options, &mut |_| panic!("nothing to wait for")).is_ok());
    }

    #[test]
    fn the_file_is_open_to_everybody_whatever_the_umask() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("lock");
        let _lock = Lock::acquire(&options(&path, Duration::ZERO), &mut |_| {}).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o666);
    }

    #[test]
    fn a_symbolic_link_is_no_lock() {
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("precious");
        std::fs::write(&target, "text").unwrap();
        let path = place.path().join("lock");
        std::os::unix::fs::symlink(&target, &path).unwrap();
        let error = Lock::acquire(&options(&path, Duration::ZERO), &mut |_| {}).unwrap_err();
        assert!(matches!(error, GuardError::Unavailable { .. }));
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "text");
    }

    #[test]
    fn only_a_living_ancestor_opens_the_lock_for_us() {
        let own = std::process::id();
        let proc = Path::new("/proc");
        assert_eq!(outer_guard(proc, own, None), None);
        assert_eq!(outer_guard(proc, own, Some("nonsense")), None);
        // Ourselves and a stale value are no ancestors.
        assert_eq!(outer_guard(proc, own, Some(&own.to_string())), None);
        assert_eq!(outer_guard(proc, own, Some("4194000")), None);
    }
}
