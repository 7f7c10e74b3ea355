//! Runs the rule many times and counts what it says.

use bench_run::stats::random::SplitMix64;
use bench_run::verdict::decide::decide;
use bench_run::verdict::rule::{
    Direction, Gate, Judgement, Moderation, NullCheck, Revision, Rule, Verdict,
};

use super::world::{METRIC, World, history, run};

/// The gate in percent of a rate.
pub(crate) const GATE_PCT: f64 = 1.0;

/// Error level of both questions.
pub(crate) const ALPHA: f64 = 0.05;

/// τ of the gate.
pub(crate) fn tau() -> f64 {
    -(1.0 - GATE_PCT / 100.0).ln()
}

/// What a new plan on a host without a history is sealed with.
pub(crate) fn rule() -> Rule {
    Rule {
        revision: Revision::CURRENT,
        threshold_pct: GATE_PCT,
        alpha: ALPHA,
        min_rounds: 3,
        moderation: Some(Moderation::DEFAULT),
        null_check: Some(NullCheck::DEFAULT),
        unequal_noise: true,
        null_history: std::collections::BTreeMap::new(),
    }
}

/// How often something was seen, in `of` chances.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) hits: u64,
    pub(crate) of: u64,
}

impl Share {
    pub(crate) fn add(&mut self, hit: bool) {
        self.hits += u64::from(hit);
        self.of += 1;
    }

    pub(crate) fn value(self) -> f64 {
        self.hits as f64 / self.of as f64
    }

    /// At most `bound`, up to the one-sided 99 % margin of so many chances.
    pub(crate) fn is_at_most(self, bound: f64) -> bool {
        self.value() <= bound + 2.326 * (bound * (1.0 - bound) / self.of as f64).sqrt()
    }

    /// Between two bounds, up to the 99 % margin of `runs` independent chances.
    pub(crate) fn is_between(self, low: f64, high: f64, runs: u64) -> bool {
        let margin = |bound: f64| 2.576 * (bound * (1.0 - bound) / runs as f64).sqrt();
        self.value() >= low - margin(low) && self.value() <= high + margin(high)
    }
}

/// What was seen in many runs of one world.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    /// Runs in which any cell is called slower, faster; fails; is Invalid.
    pub(crate) any_slower: Share,
    pub(crate) any_faster: Share,
    pub(crate) any_fail: Share,
    pub(crate) any_invalid: Share,
    /// The first cell.
    pub(crate) slower: Share,
    pub(crate) fails: Share,
    pub(crate) passes: Share,
    pub(crate) equivalent: Share,
    /// Cells, all runs together.
    pub(crate) covered: Share,
    /// Runs in which relabelling finds any difference at α.
    pub(crate) any_relabelled: Share,
    /// The first cell by relabelling: a difference; a pass.
    pub(crate) relabelled: Share,
    pub(crate) relabelled_pass: Share,
}

/// `runs` runs of `world` under `rule`, through the whole of `decide`.
pub(crate) fn trial(world: &World, rule: &Rule, runs: u64, seed: u64) -> Seen {
    let mut random = SplitMix64::new(seed);
    let mut seen = Seen::default();
    let mut rule = rule.clone();
    for _ in 0..runs {
        let known = history(world, &mut random);
        rule.null_history.insert(METRIC.into(), known);
        let judged = decide(&run(world, &mut random), &rule);
        seen.count(world, &judged);
    }
    seen
}

impl Seen {
    fn count(&mut self, world: &World, judged: &[Judgement]) {
        let any = |keep: &dyn Fn(&Judgement) -> bool| judged.iter().any(keep);
        self.any_slower
            .add(any(&|one| one.direction == Direction::Slower));
        self.any_faster
            .add(any(&|one| one.direction == Direction::Faster));
        self.any_fail.add(any(&|one| one.gate == Gate::Fail));
        self.any_invalid
            .add(any(&|one| one.verdict == Verdict::Invalid));
        let first = &judged[0];
        self.slower.add(first.direction == Direction::Slower);
        self.fails.add(first.gate == Gate::Fail);
        self.passes.add(first.gate == Gate::Pass);
        self.equivalent.add(first.verdict == Verdict::Equivalent);
        for (cell, one) in judged.iter().enumerate() {
            let truth = if cell < world.hit { world.effect } else { 0.0 };
            if let Some(estimate) = one.estimate {
                self.covered
                    .add(estimate.low <= truth && truth <= estimate.high);
            }
        }
        let below = |p: Option<f64>| p.is_some_and(|p| p <= ALPHA);
        let differs = |one: &Judgement| one.permutation.is_some_and(|p| below(p.p_direction));
        self.any_relabelled.add(any(&differs));
        self.relabelled.add(differs(first));
        let passes = first.permutation.is_some_and(|p| below(p.p_gate));
        self.relabelled_pass.add(passes);
    }
}
