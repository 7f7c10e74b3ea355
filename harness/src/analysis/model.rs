//! The whole answer of a record: plain data that report, terminal and gate print.

use serde::Serialize;

use super::stage_data::StageData;
use crate::verdict::claim::ClaimVerdict;
use crate::verdict::control::ControlCheck;
use crate::verdict::rule::{CellData, Judgement, SuiteLine};

/// The whole answer of a record.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Analysis {
    /// One per (cell, candidate, metric), in the plan's order.
    pub judgements: Vec<Judgement>,
    /// The mean over cells of each metric and candidate, shown beside them.
    pub suite: Vec<SuiteLine>,
    /// One per (cell, gated metric that a slow-down moves), where the run has a control arm.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub controls: Vec<ControlCheck>,
    /// The numbers the judgements were drawn from, one per (cell, metric): where several
    /// stages judged, those of the last.
    #[serde(skip)]
    pub data: Vec<CellData>,
    /// Those of every stage, in order, where several judged a (cell, metric).
    #[serde(skip)]
    pub stages: Vec<StageData>,
    /// What became of the published effects that the experiment names, in its order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<JudgedClaim>,
    /// What became of each arm's attempts.
    pub counts: Vec<ArmCounts>,
    /// Tries of a round that were dropped as a whole.
    pub dropped: Vec<DroppedTry>,
    /// What the gate says.
    pub gate: GateOutcome,
    /// One sentence for the gate.
    pub gate_sentence: String,
    /// Things the reader must know.
    pub notes: Vec<String>,
}

/// A published effect, held against what was measured in one cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JudgedClaim {
    /// Cell id.
    pub cell: String,
    /// The arm that it is about.
    pub candidate: String,
    /// The metric.
    pub metric: String,
    /// The metric's claimed change in percent of the base.
    pub change_pct: f64,
    /// Who says so, and where.
    pub source: String,
    /// What became of it.
    pub verdict: ClaimVerdict,
    /// What was measured and what it means for the claim.
    pub sentence: String,
}

/// What became of one arm's attempts, over all cells; priming ones are not counted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ArmCounts {
    /// Arm name.
    pub arm: String,
    /// Ran as expected.
    pub ok: u32,
    /// Disturbed.
    pub rejected: u32,
    /// Did not run to its end, or printed what cannot be read.
    pub failed: u32,
    /// Ran into the time limit.
    pub timed_out: u32,
    /// Broke an expectation.
    pub invalid: u32,
}

impl ArmCounts {
    /// Attempts that ran, whatever became of them.
    #[must_use]
    pub fn ran(&self) -> u32 {
        self.ok + self.rejected + self.failed + self.timed_out + self.invalid
    }
}

/// One try of a round that was dropped as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DroppedTry {
    /// Cell id.
    pub cell: String,
    /// 1-based round.
    pub round: u32,
    /// 1-based try.
    pub round_try: u32,
    /// Arm and reason.
    pub reason: String,
}

/// What the gate says about the whole run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GateOutcome {
    /// Every gated judgement passes.
    Pass,
    /// At least one gated judgement fails.
    Regressed,
    /// None fails, at least one is undecided.
    Undecided,
    /// At least one gated judgement is invalid, or nothing was measured.
    Invalid,
}
