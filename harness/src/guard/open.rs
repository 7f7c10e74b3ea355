//! Makes the guard that an experiment asks for: reads the environment once, takes the
//! lock, picks the kind that fits the machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::cpu::{COMPILER_VARIABLE, Compilers};
use super::cuda;
use super::gpu::Gpu;
use super::interface::{Guard, GuardError};
use super::lock::{self, HELD_VARIABLE, LOCK_VARIABLE, Lock, LockOptions};
use super::machine::{MachineGuard, Parts, Patience};
use super::none::NoGuard;
use super::policy::{Limits, Own};
use super::rocm::{self, KFD_VARIABLE, Kfd};
use super::sampler::Sampler;
use crate::execute::signal::Interrupt;
use crate::execute::sys;
use crate::experiment::model::{Guard as Settings, GuardKind};

/// Everything about a guard that is not in the experiment: the machine, the caller's
/// overrides and who we are.
#[derive(Debug, Clone)]
pub struct Options {
    /// Root of procfs.
    pub proc: PathBuf,
    /// Root of sysfs.
    pub sys: PathBuf,
    /// Another directory of GPU holders.
    pub kfd: Option<PathBuf>,
    /// Opens the NVIDIA GPUs, given the root of procfs.
    pub nvidia: fn(&Path) -> Result<Box<dyn Gpu>, String>,
    /// Who compiles.
    pub compilers: Compilers,
    /// The lock file.
    pub lock: PathBuf,
    /// The pid that the environment names as holding the lock for us.
    pub lock_held: Option<String>,
    /// What waiting guards read about us, such as `bench-run run a.yaml`.
    pub command: String,
    /// Our pid.
    pub harness: u32,
    /// Ends waits early.
    pub interrupt: Interrupt,
    /// True when the longest wait covers all waits together, the lock included.
    pub together: bool,
    /// Time between two readings while waiting.
    pub tick: Duration,
}

impl Options {
    /// The real machine, with the overrides of the caller's environment.
    ///
    /// # Errors
    /// [`GuardError::Unavailable`] when an override cannot be used.
    pub fn from_env(command: &str, interrupt: Interrupt) -> Result<Self, GuardError> {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let text = |name| set(name).map(|value: OsString| value.to_string_lossy().into_owned());
        let compilers =
            Compilers::from_pattern(text(COMPILER_VARIABLE).as_deref()).map_err(|error| {
                GuardError::Unavailable {
                    kind: COMPILER_VARIABLE.to_owned(),
                    reason: error.to_string(),
                }
            })?;
        Ok(Options {
            proc: PathBuf::from("/proc"),
            sys: PathBuf::from("/sys"),
            kfd: set(KFD_VARIABLE).map(PathBuf::from),
            nvidia: cuda::open_gpu,
            compilers,
            lock: set(LOCK_VARIABLE)
                .map_or_else(|| std::env::temp_dir().join(lock::FILE_NAME), PathBuf::from),
            lock_held: text(HELD_VARIABLE),
            command: command.to_owned(),
            harness: std::process::id(),
            interrupt,
            together: false,
            tick: Duration::from_secs(1),
        })
    }

    /// What a command below this guard should find in its environment, so that a guard
    /// inside it passes.
    #[must_use]
    pub fn held_variable(&self) -> (OsString, OsString) {
        let outer = lock::outer_guard(&self.proc, self.harness, self.lock_held.as_deref());
        let holder = outer.unwrap_or(self.harness);
        (HELD_VARIABLE.into(), holder.to_string().into())
    }
}

/// Opens the guard. Waits for the lock, which is held as long as the guard lives;
/// `tell` gets a line for what the caller should know.
///
/// # Errors
/// [`GuardError::Unavailable`] when this kind cannot work here, [`GuardError::LockHeld`] when
/// the lock did not become free in time, [`GuardError::Interrupted`] on a signal.
pub fn open(
    settings: &Settings,
    options: &Options,
    tell: &mut dyn FnMut(&str),
) -> Result<Box<dyn Guard>, GuardError> {
    let Some((kind, gpu)) = pick(settings.kind, options, tell)? else {
        return Ok(Box::new(NoGuard));
    };
    let max_wait =
        (settings.max_wait_secs > 0).then(|| Duration::from_secs(settings.max_wait_secs));
    let outer_guard =
        lock::outer_guard(&options.proc, options.harness, options.lock_held.as_deref());
    let lock = if outer_guard.is_some() {
        Lock::held_by_outer_guard()
    } else {
        let lock = LockOptions {
            path: options.lock.clone(),
            holder: format!("pid {} ({})", options.harness, options.command),
            max_wait,
            interrupt: options.interrupt,
        };
        Lock::acquire(&lock, tell)?
    };
    let sampler = Sampler::new(&options.proc, &options.sys, gpu);
    let limits = Limits {
        max_foreign_cpu_pct: settings.max_foreign_cpu_pct,
        ticks_per_second: ticks_per_second(),
        cpus: sampler.cpus(),
    };
    Ok(Box::new(MachineGuard::new(Parts {
        kind,
        sampler,
        compilers: options.compilers.clone(),
        limits,
        own: Own {
            harness: options.harness,
            outer_guard,
            measured_session: None,
            measuring: false,
        },
        patience: Patience {
            idle: Duration::from_secs(settings.idle_secs),
            max_wait,
            together: options.together,
            tick: options.tick,
        },
        interrupt: options.interrupt,
        lock,
    })))
}

/// The kind of guard that is used, and the GPU that it watches.
type Picked = (&'static str, Option<Box<dyn Gpu>>);

/// The kind in use and its GPU; `None` for no guard.
fn pick(
    kind: GuardKind,
    options: &Options,
    tell: &mut dyn FnMut(&str),
) -> Result<Option<Picked>, GuardError> {
    let kfd = rocm::kfd_directory(&options.sys, options.kfd.as_deref());
    let unavailable = |kind: &str, reason: String| {
        Err(GuardError::Unavailable {
            kind: kind.to_owned(),
            reason,
        })
    };
    match (kind, kfd, &options.kfd) {
        (GuardKind::None, ..) => Ok(None),
        (GuardKind::Cpu, ..) => Ok(Some(("cpu", None))),
        (GuardKind::Rocm | GuardKind::Auto, Some(kfd), _) => {
            Ok(Some(("rocm", Some(Box::new(Kfd(kfd))))))
        }
        (GuardKind::Rocm | GuardKind::Auto, None, Some(asked)) => {
            let asked = asked.display();
            unavailable("rocm", format!("{KFD_VARIABLE}={asked} is no directory"))
        }
        (GuardKind::Rocm, None, None) => unavailable(
            "rocm",
            "no AMD GPU driver (no class/kfd/kfd/proc in sysfs)".to_owned(),
        ),
        (GuardKind::Auto, None, None) => match (options.nvidia)(&options.proc) {
            Ok(gpu) => Ok(Some(("cuda", Some(gpu)))),
            Err(reason) => {
                if options.proc.join("driver/nvidia/version").exists() {
                    tell(&format!(
                        "an NVIDIA driver is here, but {reason}: guarding the CPU only"
                    ));
                }
                Ok(Some(("cpu", None)))
            }
        },
        (GuardKind::Cuda, ..) => match (options.nvidia)(&options.proc) {
            Ok(gpu) => Ok(Some(("cuda", Some(gpu)))),
            Err(reason) => unavailable("cuda", reason),
        },
    }
}

#[expect(clippy::cast_precision_loss, reason = "a hundred or a thousand")]
fn ticks_per_second() -> f64 {
    sys::ticks_per_second() as f64
}
