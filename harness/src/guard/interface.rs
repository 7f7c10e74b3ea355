//! What the run loop asks of a guard: hold the device, wait for quiet, judge an attempt.

use crate::record::format::GuardSummary;

/// Why the guard gave up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GuardError {
    /// Somebody else holds the device.
    #[error("the measuring lock is held by {holder} since {waited_seconds} s; gave up")]
    LockHeld {
        /// Pid and name, as far as known.
        holder: String,
        /// How long this guard waited.
        waited_seconds: u64,
    },
    /// The machine never became quiet.
    #[error("no quiet {idle_seconds} s within {waited_seconds} s; last seen: {last_seen}")]
    NeverIdle {
        /// The quiet time asked for.
        idle_seconds: u64,
        /// How long this guard waited.
        waited_seconds: u64,
        /// Who was there.
        last_seen: String,
    },
    /// The guard cannot work here.
    #[error("guard {kind} cannot work here: {reason}")]
    Unavailable {
        /// The kind asked for.
        kind: String,
        /// Why.
        reason: String,
    },
    /// Ctrl-C or SIGTERM came while waiting.
    #[error("interrupted while waiting for a quiet machine (signal {signal})")]
    Interrupted {
        /// Its number; exit with 128 + this.
        signal: i32,
    },
}

/// What came of one attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct GuardVerdict {
    /// `Some(who or what)` when the attempt was disturbed.
    pub rejected: Option<String>,
    /// For the row.
    pub summary: GuardSummary,
}

/// A guard over the machine. The exclusive lock is held as long as the value lives.
pub trait Guard {
    /// `cpu`, `rocm`, `cuda` or `none`.
    fn kind(&self) -> &'static str;

    /// Waits until the machine was quiet for the configured seconds in a row.
    /// `tell` gets a line whenever the streak is broken and once a second at most.
    ///
    /// # Errors
    /// [`GuardError::NeverIdle`] when the budget is gone, [`GuardError::Interrupted`]
    /// when a signal asked to stop.
    fn wait_idle(&mut self, tell: &mut dyn FnMut(&str)) -> Result<(), GuardError>;

    /// Takes the counters before an attempt; `Some(who)` when the machine is not quiet
    /// at this moment, so that the attempt need not be started. It may be all the
    /// same: then [`Guard::end`] rejects it.
    fn begin(&mut self) -> Option<String>;

    /// Tells which process group is the measured one, once it runs.
    fn measured_group(&mut self, process_group: u32);

    /// One sample during the attempt; `Some(who)` when it is contended.
    fn sample(&mut self) -> Option<String>;

    /// Judges the attempt from the counters and the samples. The summary tells all waiting
    /// since the attempt before, for the lock and for a quiet machine.
    fn end(&mut self) -> GuardVerdict;
}
