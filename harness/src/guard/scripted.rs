//! A guard for tests: says what it was told to say, attempt by attempt.

use std::collections::VecDeque;

use super::interface::{Guard, GuardError, GuardVerdict};
use crate::record::format::GuardSummary;

/// What the guard sees during one attempt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScriptedAttempt {
    /// The 1-based sample that is contended first, and by whom.
    pub contended: Option<(u32, String)>,
    /// What the counters say at the end.
    pub rejected: Option<String>,
}

/// Follows a script; attempts beyond it are clean.
#[derive(Debug, Clone, Default)]
pub struct ScriptedGuard {
    script: VecDeque<ScriptedAttempt>,
    current: ScriptedAttempt,
    samples: u32,
    seen: Option<String>,
    /// How often the machine was waited for.
    pub idle_waits: u32,
    /// What it says that it waited before the next attempt.
    pub waited_seconds: f64,
}

impl ScriptedGuard {
    /// A guard that follows `script`.
    #[must_use]
    pub fn new(script: Vec<ScriptedAttempt>) -> Self {
        ScriptedGuard {
            script: script.into(),
            ..ScriptedGuard::default()
        }
    }
}

impl Guard for ScriptedGuard {
    fn kind(&self) -> &'static str {
        "cpu"
    }

    fn wait_idle(&mut self, _tell: &mut dyn FnMut(&str)) -> Result<(), GuardError> {
        self.idle_waits += 1;
        Ok(())
    }

    fn begin(&mut self) -> Option<String> {
        self.current = self.script.pop_front().unwrap_or_default();
        self.samples = 0;
        self.seen = None;
        None
    }

    fn measured_group(&mut self, _process_group: u32) {}

    fn sample(&mut self) -> Option<String> {
        self.samples += 1;
        if let Some((at, who)) = &self.current.contended
            && *at == self.samples
        {
            self.seen = Some(who.clone());
        }
        self.seen.clone()
    }

    fn end(&mut self) -> GuardVerdict {
        GuardVerdict {
            rejected: self.seen.take().or_else(|| self.current.rejected.take()),
            summary: GuardSummary {
                kind: self.kind().to_owned(),
                samples: self.samples,
                waited_seconds: std::mem::take(&mut self.waited_seconds),
                ..GuardSummary::default()
            },
        }
    }
}
