//! What became of the attempts: counts per arm, and each one that was not used.

use serde::Serialize;

use super::words;
use crate::analysis::model::{Analysis, ArmCounts};
use crate::record::format::{Attempt, Outcome};
use crate::record::reader::Record;
use crate::unit;

/// Longest list of single attempts in a report; the raw rows hold all.
const LISTED: usize = 50;

/// What became of the attempts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcomes {
    /// One line per arm.
    pub counts: Vec<CountLine>,
    /// Attempts that were not used, in the order in which they ran.
    pub unused: Vec<UnusedLine>,
    /// How many more of them the raw rows hold.
    pub not_listed: usize,
    /// Tries of a round that were dropped as a whole.
    pub dropped_tries: usize,
}

/// What became of one arm's attempts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CountLine {
    /// The arm and how many attempts ended how.
    #[serde(flatten)]
    pub counts: ArmCounts,
    /// Share of all its attempts that were rejected.
    pub rejected_share: String,
}

/// One attempt that was not used. It has no value on purpose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnusedLine {
    /// The cell.
    pub cell: String,
    /// `priming`, `3`, or `3, try 2`.
    pub round: String,
    /// The arm.
    pub arm: String,
    /// What became of it.
    pub outcome: &'static str,
    /// Why.
    pub reason: String,
}

pub(crate) fn outcomes(record: &Record, analysis: &Analysis) -> Outcomes {
    let unused = || record.attempts.iter().filter(|row| !row.outcome.is_ok());
    let count = unused().count();
    Outcomes {
        counts: analysis.counts.iter().map(count_line).collect(),
        unused: unused().take(LISTED).map(unused_line).collect(),
        not_listed: count.saturating_sub(LISTED),
        dropped_tries: analysis.dropped.len(),
    }
}

fn count_line(counts: &ArmCounts) -> CountLine {
    // 0/0 is spelt "n/a".
    let share = f64::from(counts.rejected) / f64::from(counts.ran());
    CountLine {
        counts: counts.clone(),
        rejected_share: words::share(share),
    }
}

fn unused_line(row: &Attempt) -> UnusedLine {
    let (outcome, reason) = match &row.outcome {
        Outcome::Ok => ("ok", String::new()),
        Outcome::Rejected { reason } => ("rejected", reason.clone()),
        Outcome::Failed { reason } => ("failed", reason.clone()),
        Outcome::Invalid { reason } => ("invalid", reason.clone()),
        Outcome::TimedOut { limit_seconds } => {
            #[expect(clippy::cast_precision_loss, reason = "a time limit for readers")]
            let limit = unit::duration(*limit_seconds as f64);
            ("timed out", format!("killed after {limit}"))
        }
    };
    UnusedLine {
        cell: row.cell.clone(),
        round: match (row.round, row.round_try) {
            (0, _) => "priming".into(),
            (round, 0 | 1) => round.to_string(),
            (round, nth) => format!("{round}, try {nth}"),
        },
        arm: row.arm.clone(),
        outcome,
        reason,
    }
}
