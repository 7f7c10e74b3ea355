//! The decision rule and its answer, as plain data. docs/METHODOLOGY.md explains them.
//!
//! Everything here is on y = ln(metric) with the sign turned so that larger is
//! slower; δ is the difference candidate − base of y.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::experiment::model::Better;
use crate::stats::linear_model::SlotEffect;
use crate::stats::null_calibration::NullContrast;

/// Which revision of the rule a plan was sealed with: a record keeps its verdict for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Revision {
    /// Slot effects in any complete square; a noisier candidate widens the noise that all
    /// arms of all cells settled together.
    #[default]
    First,
    /// Slot effects from two squares on, before that their slope; every comparison settles
    /// its own noise (docs/adr/0030).
    Second,
    /// As the second, and copies of one program that differ without any noise refute the
    /// noise model (docs/adr/0032).
    Third,
}

impl Revision {
    /// What new plans are sealed with.
    pub const CURRENT: Self = Revision::Third;

    /// What the slots of so many rounds do; `balanced` says that the rounds are complete
    /// squares. A single square, or part of one, has no degrees of freedom to spare for every
    /// slot, and two arms have none to spare at all.
    pub(crate) fn slot_effect(
        self,
        arms: usize,
        rounds: usize,
        balanced: bool,
    ) -> Option<SlotEffect> {
        match self {
            Revision::First => balanced.then_some(SlotEffect::Each),
            Revision::Second | Revision::Third if balanced && rounds >= 2 * arms => {
                Some(SlotEffect::Each)
            }
            Revision::Second | Revision::Third => (arms > 2).then_some(SlotEffect::Slope),
        }
    }
}

/// The sealed rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// Which revision of it.
    pub revision: Revision,
    /// The gate in percent.
    pub threshold_pct: f64,
    /// Error level of both questions.
    pub alpha: f64,
    /// Fewer complete rounds than this are Invalid.
    pub min_rounds: u32,
    /// Variances are moderated over cells; `None`: each cell stands alone.
    pub moderation: Option<Moderation>,
    /// The noise model is checked; `None`: it is believed.
    pub null_check: Option<NullCheck>,
    /// A candidate that scatters more than copies of the base has its noise widened.
    pub unequal_noise: bool,
    /// Contrasts of earlier runs of the same program on the same machine, by metric.
    pub null_history: BTreeMap<String, Vec<NullContrast>>,
}

/// When and how far the variances of a metric's cells are drawn together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moderation {
    /// Cells with noise from which on it is done.
    pub from_cells: u32,
    /// Most degrees of freedom that the other cells lend, in units of a cell's own.
    pub largest_prior: f64,
}

/// How contrasts between copies of one program are used.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NullCheck {
    /// Contrasts from which on the inflation is estimated.
    pub from_contrasts: u32,
    /// An inflation above this makes every verdict of the metric Invalid.
    pub limit: f64,
}

impl Moderation {
    /// What new plans are sealed with: below eight cells the common variance is too
    /// uncertain to gain from, and a prior without limit errs too often (docs/adr/0016).
    pub const DEFAULT: Self = Moderation {
        from_cells: 8,
        largest_prior: 2.0,
    };
}

impl NullCheck {
    /// What new plans are sealed with: ten contrasts tell the inflation to about a
    /// quarter, and at twice the noise something other than noise is at work.
    pub const DEFAULT: Self = NullCheck {
        from_contrasts: 10,
        limit: 2.0,
    };
}

/// One (cell, metric) with all its complete rounds: the input of a decision.
#[derive(Debug, Clone, PartialEq)]
pub struct CellData {
    /// Cell id.
    pub cell: String,
    /// Metric name.
    pub metric: String,
    /// Unit of its values for readers, such as `tok/s`; may be empty.
    pub unit: String,
    /// Which way is better.
    pub better: Better,
    /// Whether the gate decides on it.
    pub gated: bool,
    /// The arms, in the plan's order.
    pub arms: Vec<ArmCopy>,
    /// Index into `arms` of the base itself.
    pub base: usize,
    /// `rounds[r][a]`: the metric as measured (not its logarithm) of arm `a`.
    pub rounds: Vec<Vec<f64>>,
    /// `slots[r][a]`: 0-based position of arm `a` in round `r`.
    pub slots: Vec<Vec<usize>>,
    /// True when the rounds form a complete balanced square: slot effects enter the model.
    pub balanced: bool,
    /// Reasons found outside the numbers (guard, identity, expectations, requirements)
    /// why an arm, by index, cannot be judged.
    pub invalid: Vec<(usize, String)>,
}

impl CellData {
    /// Whether an arm, by index, is the base or runs the base's program as the base does.
    #[must_use]
    pub fn is_copy_of_base(&self, arm: usize) -> bool {
        let treatment = |arm: usize| self.arms.get(arm).map(|arm| arm.treatment);
        treatment(arm).is_some() && treatment(arm) == treatment(self.base)
    }
}

/// One column of a cell: an arm or a null arm.
#[derive(Debug, Clone, PartialEq)]
pub struct ArmCopy {
    /// Name of the arm.
    pub name: String,
    /// Copies of one treatment share a number and one effect.
    pub treatment: usize,
    /// The arm that this one repeats.
    pub null_of: Option<String>,
    /// True for an arm of the experiment, false for a null arm that the plan added. A
    /// declared arm that repeats the base is a candidate whose build changed nothing.
    pub declared: bool,
    /// What was injected into a control arm: it is judged like a candidate and is none.
    pub injected: Option<Injected>,
}

/// The slow-down of a control arm, as one metric sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Injected {
    /// δ of the slow-down: ln(1 + percent / 100).
    pub delta: f64,
    /// Whether the metric can see it; a size in bytes cannot.
    pub reaches: bool,
}

/// First question: is there an effect, and which way?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// δ > 0 at the Holm-adjusted level.
    Slower,
    /// δ < 0 at the Holm-adjusted level.
    Faster,
    /// Neither is proven.
    Undetermined,
}

/// Second question: is it within the threshold?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// The upper one-sided bound of δ is below τ.
    Pass,
    /// Slower, and the estimate is at or beyond τ.
    Fail,
    /// Neither.
    Undecided,
}

/// The verdict: direction and gate in one word (table in docs/METHODOLOGY.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Slower, and beyond the threshold.
    Regressed,
    /// Slower, and proven to be within the threshold.
    SlowerWithinThreshold,
    /// Slower; whether beyond the threshold is open.
    SlowerSizeUndecided,
    /// No direction, and proven to be within ± threshold.
    Equivalent,
    /// Faster, within the gate.
    Improved,
    /// No direction, and proven not to be slower than the threshold.
    NotSlower,
    /// The same program in the same environment as the base: nothing to compare.
    Identical,
    /// Nothing is proven.
    Unresolved,
    /// No verdict can be drawn from the data.
    Invalid,
}

/// The estimate of one contrast in the linear model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// δ̂, natural logarithm, larger is slower.
    pub delta: f64,
    /// Standard error of δ̂.
    pub standard_error: f64,
    /// Residual degrees of freedom.
    pub degrees_of_freedom: f64,
    /// Lower end of the two-sided 1 − α interval.
    pub low: f64,
    /// Upper end of the two-sided 1 − α interval.
    pub high: f64,
    /// Upper one-sided 1 − α bound (the gate compares it with τ).
    pub upper_bound: f64,
    /// Lower one-sided 1 − α bound (Equivalent compares it with −τ).
    pub lower_bound: f64,
}

/// What the sealed rule can see with the noise that was measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Power {
    /// Residual standard deviation of one attempt, natural logarithm.
    pub sigma: f64,
    /// Smallest |δ| distinguishable from 0 with probability 90 %.
    pub detectable: f64,
    /// Smallest δ that fails the gate with probability 90 %.
    pub fails_gate: f64,
    /// Probability that an unchanged candidate passes the gate.
    pub pass_if_unchanged: f64,
    /// Rounds after which an unchanged candidate passes with probability 90 %.
    pub rounds_to_pass: Option<u32>,
}

/// How the noise of a comparison was estimated.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct NoiseModel {
    /// Cells of this metric whose variances were drawn together; 0: this cell stands alone.
    pub moderated_cells: u32,
    /// Contrasts between copies of one program in this run, over all cells of the metric.
    pub null_contrasts: u32,
    /// The same of earlier runs, as sealed in the plan.
    pub null_contrasts_before: u32,
    /// λ, by which the standard error is multiplied; `None`: the noise model is not checked.
    pub inflation: Option<f64>,
    /// By what the standard error is multiplied since the candidate scatters more than
    /// copies of one program do; 1 where it does not.
    pub widening: f64,
}

/// Estimators shown beside the deciding one; they decide nothing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct OtherEstimators {
    /// Median over rounds of the paired δ.
    pub median_paired: f64,
    /// ln of the ratio of the arms' medians.
    pub ratio_of_medians: f64,
    /// Hodges–Lehmann: median of all pairwise averages of paired δ.
    pub hodges_lehmann: f64,
}

/// What exchanging labels within rounds says; it decides nothing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Permutation {
    /// Two-sided p of no difference, adjusted over all gated comparisons by max-T;
    /// `None`: too few rounds to say.
    pub p_direction: Option<f64>,
    /// The smallest p of no difference that so many rounds can show.
    pub floor_direction: f64,
    /// One-sided p of a candidate slower by τ or more; `None`: too few rounds to say.
    pub p_gate: Option<f64>,
    /// The smallest of these that so many rounds can show.
    pub floor_gate: f64,
}

/// The mean over all cells of one metric, for one candidate; it decides nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SuiteLine {
    /// Metric name.
    pub metric: String,
    /// Candidate arm.
    pub candidate: String,
    /// Which way is better.
    pub better: Better,
    /// Cells of the metric.
    pub cells: u32,
    /// Rounds that all of them have complete.
    pub rounds: u32,
    /// The mean δ over cells.
    pub mean: SuiteMean,
}

/// The mean over cells, or why there is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SuiteMean {
    /// What was estimated.
    Estimate(Estimate),
    /// Which cell stands in the way, and why.
    Missing(String),
}

/// The null arms of one cell and metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NullBand {
    /// Name of the null arm.
    pub name: String,
    /// Median over rounds of the paired δ against the arm it repeats.
    pub median: f64,
    /// Smallest paired δ.
    pub low: f64,
    /// Largest paired δ.
    pub high: f64,
}

/// The stage of a run that a judgement stems from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecidedAt {
    /// One of several looks.
    Look {
        /// Which, 1-based.
        number: u32,
        /// Of how many.
        of: u32,
    },
    /// Fresh rounds after a failure.
    Confirmation {
        /// δ̂ of the rounds that failed first.
        first_delta: Option<f64>,
    },
}

/// The answer for one (cell, candidate, metric).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// Cell id.
    pub cell: String,
    /// Candidate arm.
    pub candidate: String,
    /// Metric name.
    pub metric: String,
    /// Which way is better.
    pub better: Better,
    /// Whether the gate decides on it.
    pub gated: bool,
    /// Complete rounds that entered.
    pub rounds: u32,
    /// τ: the gate on the logarithmic scale.
    pub tau: f64,
    /// `None` when nothing could be estimated.
    pub estimate: Option<Estimate>,
    /// Two-sided p of δ = 0, unadjusted.
    pub p: Option<f64>,
    /// The same after Holm over all gated judgements (ungated ones: unadjusted).
    pub p_adjusted: Option<f64>,
    /// First question.
    pub direction: Direction,
    /// Second question.
    pub gate: Gate,
    /// Both in one word.
    pub verdict: Verdict,
    /// What is proven, what is not, and what would settle it, in one sentence or two.
    pub sentence: String,
    /// When it was decided, where the run had several stages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<DecidedAt>,
    /// What this rule could see here.
    pub power: Option<Power>,
    /// How the noise was estimated; `None` when nothing could be.
    pub noise: Option<NoiseModel>,
    /// Shown beside it.
    pub others: Option<OtherEstimators>,
    /// Shown beside it; `None` for one that is not gated or shows no noise.
    pub permutation: Option<Permutation>,
    /// The null arms of this cell and metric.
    pub nulls: Vec<NullBand>,
}
