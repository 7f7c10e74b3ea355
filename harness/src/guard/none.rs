//! The guard that does nothing: `guard: { kind: none }`. The report says so.

use super::interface::{Guard, GuardError, GuardVerdict};
use crate::record::format::GuardSummary;

/// Accepts every attempt.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoGuard;

impl Guard for NoGuard {
    fn kind(&self) -> &'static str {
        "none"
    }

    fn wait_idle(&mut self, _tell: &mut dyn FnMut(&str)) -> Result<(), GuardError> {
        Ok(())
    }

    fn begin(&mut self) -> Option<String> {
        None
    }

    fn measured_group(&mut self, _process_group: u32) {}

    fn sample(&mut self) -> Option<String> {
        None
    }

    fn end(&mut self) -> GuardVerdict {
        GuardVerdict {
            rejected: None,
            summary: GuardSummary {
                kind: self.kind().to_owned(),
                ..GuardSummary::default()
            },
        }
    }
}
