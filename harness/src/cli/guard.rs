//! `bench-run guard -- COMMAND`: runs any command on a quiet machine, again until one
//! attempt was undisturbed.
//!
//! Every attempt prints into files of its own; only the clean one's output reaches
//! standard output and error, so that a number of a rejected attempt cannot be
//! taken for a result. The guard's own lines go to standard error and to `--log`.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::guard_output::{Log, Outputs, output_path};
use crate::execute::interface::{Ended, Executor, ProcessSpec};
use crate::execute::process::ProcessExecutor;
use crate::execute::signal::{self, Interrupt};
use crate::exit_code;
use crate::experiment::model::{Guard as Settings, GuardKind};
use crate::guard::interface::{Guard, GuardError};
use crate::guard::open::{self, Options};
use crate::record::format::Usage;

/// More output than this is a runaway program.
const MAX_OUTPUT_BYTES: u64 = 1 << 30;
/// The shell's exit status for a command that cannot be started.
const CANNOT_START: i32 = 127;

/// Arguments of `bench-run guard`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Exit status: the command's own (128 + n after signal n, 127 when it cannot \
    be started); 75 when no attempt was clean or the waiting time is gone; 2 for wrong arguments; \
    130 or 143 on a signal, with the command stopped."
)]
pub struct GuardArgs {
    /// Quiet seconds in a row before an attempt
    #[arg(long, value_name = "N", default_value = "90", value_parser = plain_number)]
    pub idle_secs: u64,
    /// Attempts before giving up
    #[arg(long, value_name = "N", default_value = "5", value_parser = plain_number)]
    pub max_attempts: u64,
    /// Longest wait in all, for the lock and for quiet; 0 waits for ever
    #[arg(long, value_name = "SECS", default_value = "0", value_parser = plain_number)]
    pub max_wait: u64,
    /// CPU time that foreign processes may take, in percent of one core
    #[arg(long, value_name = "PCT", default_value = "20", value_parser = plain_number)]
    pub max_foreign_cpu_pct: u64,
    /// Append the guard's lines to this file and keep every attempt's output beside it
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Write the guard's own outcome here, as JSON
    #[arg(long, value_name = "FILE")]
    pub status_file: Option<PathBuf>,
    /// What to guard
    #[arg(long, value_enum, default_value_t = Kind::Auto)]
    pub kind: Kind,
    /// The command to run, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// What to guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// What fits the machine
    Auto,
    /// Foreign processes and compilers
    Cpu,
    /// As cpu, and foreign holders of an AMD GPU
    Rocm,
    /// As cpu, and foreign holders of an NVIDIA GPU
    Cuda,
    /// Nothing: run the command
    None,
}

impl From<Kind> for GuardKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Auto => GuardKind::Auto,
            Kind::Cpu => GuardKind::Cpu,
            Kind::Rocm => GuardKind::Rocm,
            Kind::Cuda => GuardKind::Cuda,
            Kind::None => GuardKind::None,
        }
    }
}

/// Digits only: `+5`, `5.0` and `0x5` are mistakes.
fn plain_number(text: &str) -> Result<u64, String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("expected a plain non-negative integer".to_owned());
    }
    text.parse().map_err(|_| "number too large".to_owned())
}

/// Runs the sub-command; returns the exit code.
#[must_use]
pub fn run(args: &GuardArgs) -> i32 {
    let mut log = match Log::open(args.log.as_deref()) {
        Ok(log) => log,
        Err(error) => {
            Log::default().line(&format!("cannot open the log: {error}"));
            return exit_code::USAGE;
        }
    };
    let outcome = guarded(args, &mut log).unwrap_or_else(|error| Outcome::Broken {
        reason: error.to_string(),
    });
    log.line(&outcome.sentence());
    if let Some(path) = &args.status_file
        && let Err(error) = write_status(path, &outcome)
    {
        log.line(&format!("cannot write the status file: {error}"));
    }
    outcome.exit_code()
}

/// What became of the whole call.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
enum Outcome {
    /// One attempt was undisturbed; the command's own status counts.
    Clean { attempt: u64, exit_status: i32 },
    /// No attempt was.
    NeverClean { attempts: u64 },
    /// The waiting time is gone.
    BudgetGone { reason: String },
    /// A signal came.
    Interrupted { signal: i32 },
    /// This guard cannot work here.
    Unavailable { reason: String },
    /// The command cannot be started.
    CannotStart { reason: String },
    /// The command printed more than can be kept.
    OutputTooLarge { bytes: u64 },
    /// The guard itself failed.
    Broken { reason: String },
}

impl Outcome {
    fn exit_code(&self) -> i32 {
        match self {
            Outcome::Clean { exit_status, .. } => *exit_status,
            Outcome::NeverClean { .. } | Outcome::BudgetGone { .. } => exit_code::TRY_AGAIN,
            Outcome::Interrupted { signal } => exit_code::of_signal(*signal),
            Outcome::Unavailable { .. } => exit_code::USAGE,
            Outcome::CannotStart { .. } => CANNOT_START,
            Outcome::OutputTooLarge { .. } | Outcome::Broken { .. } => exit_code::IO,
        }
    }

    fn sentence(&self) -> String {
        match self {
            Outcome::Clean {
                attempt,
                exit_status,
            } => format!("done: attempt {attempt} was clean, exit status {exit_status}"),
            Outcome::NeverClean { attempts } => {
                format!("gave up: none of {attempts} attempts was clean")
            }
            Outcome::BudgetGone { reason } => format!("gave up: {reason}"),
            Outcome::Interrupted { signal } => format!("stopped by {}", signal::name(*signal)),
            Outcome::OutputTooLarge { bytes } => format!(
                "stopped: the command printed {bytes} bytes, more than the {MAX_OUTPUT_BYTES} that are kept"
            ),
            Outcome::Unavailable { reason }
            | Outcome::CannotStart { reason }
            | Outcome::Broken { reason } => reason.clone(),
        }
    }
}

impl From<GuardError> for Outcome {
    fn from(error: GuardError) -> Self {
        let reason = error.to_string();
        match error {
            GuardError::LockHeld { .. } | GuardError::NeverIdle { .. } => {
                Outcome::BudgetGone { reason }
            }
            GuardError::Interrupted { signal } => Outcome::Interrupted { signal },
            GuardError::Unavailable { .. } => Outcome::Unavailable { reason },
        }
    }
}

/// Opens the guard, runs the attempts and passes the clean one's output on.
fn guarded(args: &GuardArgs, log: &mut Log) -> io::Result<Outcome> {
    let interrupt = signal::install()?;
    let words: Vec<_> = args
        .command
        .iter()
        .map(|word| word.to_string_lossy())
        .collect();
    let command = format!("bench-run guard -- {}", words.join(" "));
    let mut options = match Options::from_env(&command, interrupt) {
        Ok(options) => options,
        Err(error) => return Ok(error.into()),
    };
    options.together = true;
    let settings = Settings {
        kind: args.kind.into(),
        idle_secs: args.idle_secs,
        max_wait_secs: args.max_wait,
        #[expect(clippy::cast_precision_loss, reason = "a percentage")]
        max_foreign_cpu_pct: args.max_foreign_cpu_pct as f64,
    };
    let held = options.held_variable();
    let mut guard = match open::open(&settings, &options, &mut |line| log.line(line)) {
        Ok(guard) => guard,
        Err(error) => return Ok(error.into()),
    };
    let outputs = Outputs::create(args.log.as_deref())?;
    let mut env: Vec<(OsString, OsString)> = std::env::vars_os()
        .filter(|(name, _)| *name != held.0)
        .collect();
    env.push(held);
    let spec = ProcessSpec {
        argv: args.command.clone(),
        env,
        directory: std::env::current_dir()?,
        timeout: Duration::MAX,
        stdout: PathBuf::new(),
        stderr: PathBuf::new(),
        max_output_bytes: MAX_OUTPUT_BYTES,
    };
    let mut executor = ProcessExecutor::new(interrupt)?;
    let outcome = attempts(
        &mut *guard,
        &mut executor,
        &Shared {
            spec,
            outputs: outputs.directory().to_owned(),
            max_attempts: args.max_attempts,
            interrupt,
        },
        log,
    )?;
    let clean = match outcome {
        Outcome::Clean { attempt, .. } => Some(attempt),
        _ => None,
    };
    outputs.pass_on(clean);
    let nothing_rejected = matches!(
        outcome,
        Outcome::Clean { attempt: 1, .. } | Outcome::CannotStart { .. }
    );
    outputs.close(!nothing_rejected, log);
    Ok(outcome)
}

/// What the attempts have in common.
struct Shared {
    /// Output paths are filled in per attempt.
    spec: ProcessSpec,
    outputs: PathBuf,
    max_attempts: u64,
    interrupt: Interrupt,
}

/// Attempts the command until one attempt is clean.
fn attempts(
    guard: &mut dyn Guard,
    executor: &mut dyn Executor,
    shared: &Shared,
    log: &mut Log,
) -> io::Result<Outcome> {
    let total = shared.max_attempts;
    for attempt in 1..=total {
        if let Err(error) = quiet_start(guard, shared.interrupt, log) {
            return Ok(error.into());
        }
        log.line(&format!("attempt {attempt}/{total} start"));
        let mut spec = shared.spec.clone();
        spec.stdout = output_path(&shared.outputs, attempt, "stdout");
        spec.stderr = output_path(&shared.outputs, attempt, "stderr");
        let ended = watched(guard, executor, &spec, log)?;
        let verdict = guard.end();
        if let Some(signal) = shared.interrupt.interrupted() {
            return Ok(Outcome::Interrupted { signal });
        }
        let usage = match ended {
            Ended::NotStarted(reason) => return Ok(Outcome::CannotStart { reason }),
            Ended::OutputTooLarge(_, bytes) => return Ok(Outcome::OutputTooLarge { bytes }),
            Ended::Exited(usage) | Ended::TimedOut(usage) | Ended::Stopped(usage, _) => usage,
        };
        if let Some(reason) = verdict.rejected {
            log.line(&format!("attempt {attempt} REJECTED {reason}"));
            continue;
        }
        log.line(&format!("attempt {attempt} CLEAN"));
        let exit_status = exit_status(&usage);
        return Ok(Outcome::Clean {
            attempt,
            exit_status,
        });
    }
    Ok(Outcome::NeverClean { attempts: total })
}

/// Waits for quiet and takes the first counters at a quiet moment.
fn quiet_start(
    guard: &mut dyn Guard,
    interrupt: Interrupt,
    log: &mut Log,
) -> Result<(), GuardError> {
    loop {
        guard.wait_idle(&mut |line| log.line_now_and_then(line))?;
        let Some(contended) = guard.begin() else {
            return Ok(());
        };
        log.line(&format!("idle streak reset at the start: {contended}"));
        // Whatever came is looked at again in a second, not at full speed.
        if interrupt.sleep(Duration::from_secs(1)) {
            let signal = interrupt.interrupted().unwrap_or(libc::SIGINT);
            return Err(GuardError::Interrupted { signal });
        }
    }
}

/// Runs one attempt; the first contended sample stops it.
fn watched(
    guard: &mut dyn Guard,
    executor: &mut dyn Executor,
    spec: &ProcessSpec,
    log: &mut Log,
) -> io::Result<Ended> {
    // Both callbacks need the guard, one after the other.
    let guard = RefCell::new(guard);
    let mut samples = 0_u32;
    executor.run(
        spec,
        &mut |pid| guard.borrow_mut().measured_group(pid),
        &mut || {
            samples += 1;
            let contended = guard.borrow_mut().sample()?;
            log.line(&format!("sample {samples} CONTENDED {contended}"));
            Some(contended)
        },
    )
}

/// As a shell reports it.
fn exit_status(usage: &Usage) -> i32 {
    usage
        .exit_status
        .or_else(|| usage.signal.map(exit_code::of_signal))
        .unwrap_or(exit_code::INTERNAL)
}

fn write_status(path: &Path, outcome: &Outcome) -> io::Result<()> {
    let mut text = serde_json::to_vec(outcome)?;
    text.push(b'\n');
    std::fs::write(path, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::guard_output::copy;
    use crate::execute::mock::{MockExecutor, MockRun};
    use crate::guard::scripted::{ScriptedAttempt, ScriptedGuard};

    fn shared(outputs: &Path, max_attempts: u64) -> Shared {
        Shared {
            spec: ProcessSpec {
                argv: vec!["bench".into()],
                env: Vec::new(),
                directory: outputs.to_owned(),
                timeout: Duration::MAX,
                stdout: PathBuf::new(),
                stderr: PathBuf::new(),
                max_output_bytes: 1000,
            },
            outputs: outputs.to_owned(),
            max_attempts,
            interrupt: Interrupt::never(),
        }
    }

    fn contended(sample: u32) -> ScriptedAttempt {
        ScriptedAttempt {
            contended: Some((sample, "compilers=[7:rustc]".to_owned())),
            rejected: None,
        }
    }

    /// Runs 5 s and prints another speed each time.
    fn bench(prints: &'static [&'static str]) -> impl FnMut(&ProcessSpec, usize) -> MockRun {
        move |_, call| MockRun {
            seconds: 5,
            ..MockRun::prints(prints[call], 5_000_000_000)
        }
    }

    #[test]
    fn the_value_of_a_rejected_attempt_is_not_the_result() {
        let place = tempfile::tempdir().unwrap();
        let mut guard = ScriptedGuard::new(vec![contended(2)]);
        let mut executor = MockExecutor::new(bench(&["61.93", "62.01"]));
        let shared = shared(place.path(), 10);
        let outcome = attempts(&mut guard, &mut executor, &shared, &mut Log::default()).unwrap();
        assert_eq!(
            outcome,
            Outcome::Clean {
                attempt: 2,
                exit_status: 0
            }
        );
        let mut printed = Vec::new();
        copy(&output_path(place.path(), 2, "stdout"), &mut printed).unwrap();
        assert_eq!(printed, b"62.01");
        assert_eq!(guard.idle_waits, 2);
    }

    #[test]
    fn short_attempts_are_judged_by_the_counters_alone() {
        let place = tempfile::tempdir().unwrap();
        let rejected = ScriptedAttempt {
            contended: None,
            rejected: Some("foreign CPU time".to_owned()),
        };
        let mut guard = ScriptedGuard::new(vec![rejected.clone(), rejected]);
        let mut executor = MockExecutor::new(|_: &ProcessSpec, _| MockRun::prints("1", 1000));
        let shared = shared(place.path(), 2);
        let outcome = attempts(&mut guard, &mut executor, &shared, &mut Log::default()).unwrap();
        assert_eq!(outcome, Outcome::NeverClean { attempts: 2 });
        assert_eq!(outcome.exit_code(), 75);
    }

    #[test]
    fn the_status_of_a_clean_command_is_passed_on_even_when_it_failed() {
        let usage = |exit_status, signal| Usage {
            exit_status,
            signal,
            ..Usage::default()
        };
        assert_eq!(exit_status(&usage(Some(3), None)), 3);
        assert_eq!(exit_status(&usage(None, Some(11))), 139);
    }

    #[test]
    fn a_number_is_digits_only() {
        assert_eq!(plain_number("007"), Ok(7));
        for text in ["", "+5", "-1", "5.0", " 5", "1e3", "99999999999999999999"] {
            assert!(plain_number(text).is_err(), "{text}");
        }
    }
}
