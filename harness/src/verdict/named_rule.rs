//! Other people's decision rules, each as its source states it, for measurements that were
//! published under them. They are shown beside our own rule and decide nothing here.
//!
//! Both look at changes as their sources print them: the ratio of two values minus one, in
//! the metric's own direction, not the logarithm that our own rule works on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rule::{CellData, Gate, Judgement};
use crate::experiment::model::Better;
use crate::stats::quantile::{median, range};
use crate::unit;

/// Which rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NamedRule {
    /// The median over rounds of the paired changes may lose at most the threshold; a
    /// larger loss that lies within the range of the null arms is "inside null".
    #[serde(rename = "adr-0007")]
    Adr0007,
    /// The median of the candidate may lose at most the threshold against the median of
    /// the base; null arms are reported alongside and change nothing.
    RatioOfMedians,
}

impl NamedRule {
    /// Every rule, in reading order.
    pub const ALL: [NamedRule; 2] = [NamedRule::Adr0007, NamedRule::RatioOfMedians];

    /// As files and reports call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            NamedRule::Adr0007 => "adr-0007",
            NamedRule::RatioOfMedians => "ratio-of-medians",
        }
    }
}

/// What a named rule says about one comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The loss is at most the threshold.
    Within,
    /// The loss is larger, and identical programs differed by as much in this session.
    InsideNull,
    /// The loss is larger than the threshold.
    Beyond,
}

/// The answer of one rule for one (cell, candidate, metric). Changes are shares of the
/// base's value (0.01 is one percent more).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NamedVerdict {
    /// The rule.
    pub rule: NamedRule,
    /// Cell id.
    pub cell: String,
    /// Candidate arm.
    pub candidate: String,
    /// Metric name.
    pub metric: String,
    /// Which way is better.
    pub better: Better,
    /// Complete rounds.
    pub rounds: usize,
    /// The change that the rule looks at.
    pub change: f64,
    /// Smallest and largest paired change.
    pub range: (f64, f64),
    /// Median and range of the null arms' paired changes; `None` without a null arm.
    pub null: Option<Null>,
    /// What the rule says.
    pub outcome: Outcome,
}

/// What identical programs differed by.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Null {
    /// The same figure as the rule takes of a candidate, over all null arms.
    pub change: f64,
    /// Smallest and largest paired change.
    pub range: (f64, f64),
    /// Whether the candidate's change lies within that range.
    pub covers: bool,
}

/// The answers of `rule` for every candidate of a cell, under a threshold in percent.
/// A candidate without complete rounds, or with a value that has no ratio, has none.
#[must_use]
pub fn judge(rule: NamedRule, data: &CellData, threshold_pct: f64) -> Vec<NamedVerdict> {
    let out = |arm: usize| data.invalid.iter().any(|(invalid, _)| *invalid == arm);
    let candidates = data.arms.iter().enumerate();
    candidates
        .filter(|(arm, copy)| *arm != data.base && copy.null_of.is_none() && !out(*arm))
        .filter_map(|(arm, _)| judge_one(rule, data, arm, threshold_pct))
        .collect()
}

fn judge_one(
    rule: NamedRule,
    data: &CellData,
    candidate: usize,
    threshold_pct: f64,
) -> Option<NamedVerdict> {
    let paired = paired(data, candidate, data.base)?;
    let change = figure(rule, data, candidate, data.base)?;
    let null = null(rule, data, change);
    let loss = match data.better {
        Better::Higher => -change,
        Better::Lower => change,
    };
    let excused = rule == NamedRule::Adr0007 && null.is_some_and(|null| null.covers);
    let outcome = match loss <= threshold_pct / 100.0 {
        true => Outcome::Within,
        false if excused => Outcome::InsideNull,
        false => Outcome::Beyond,
    };
    Some(NamedVerdict {
        rule,
        cell: data.cell.clone(),
        candidate: data.arms[candidate].name.clone(),
        metric: data.metric.clone(),
        better: data.better,
        rounds: data.rounds.len(),
        change,
        range: range(&paired)?,
        null,
        outcome,
    })
}

/// The figure that a rule compares with its threshold.
fn figure(rule: NamedRule, data: &CellData, arm: usize, reference: usize) -> Option<f64> {
    match rule {
        NamedRule::Adr0007 => median(&paired(data, arm, reference)?),
        NamedRule::RatioOfMedians => {
            let middle =
                |arm: usize| median(&data.rounds.iter().map(|row| row[arm]).collect::<Vec<f64>>());
            finite(middle(arm)? / middle(reference)? - 1.0)
        }
    }
}

/// Each null arm is held against the arm that it repeats.
fn null(rule: NamedRule, data: &CellData, change: f64) -> Option<Null> {
    let mut figures = Vec::new();
    let mut all = Vec::new();
    for (arm, copy) in data.arms.iter().enumerate() {
        let of = |of: &String| data.arms.iter().position(|arm| arm.name == *of);
        let Some(original) = copy.null_of.as_ref().and_then(of) else {
            continue;
        };
        figures.extend(figure(rule, data, arm, original));
        all.extend(paired(data, arm, original).into_iter().flatten());
    }
    let (low, high) = range(&all)?;
    Some(Null {
        change: median(&figures)?,
        range: (low, high),
        covers: (low..=high).contains(&change),
    })
}

/// `arm / reference − 1` of every round; `None` without rounds or where one has no ratio.
fn paired(data: &CellData, arm: usize, reference: usize) -> Option<Vec<f64>> {
    let ratios = data.rounds.iter();
    let ratios: Option<Vec<f64>> = ratios
        .map(|row| finite(row.get(arm)? / row.get(reference)? - 1.0))
        .collect();
    ratios.filter(|ratios| !ratios.is_empty())
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

/// One sentence where the answers about one comparison contradict each other: which rule
/// is asked decides whether it passes. `ours` is our own judgement of it.
#[must_use]
pub fn disagreement(answers: &[&NamedVerdict], ours: &Judgement) -> Option<String> {
    let passes = |outcome: Outcome| outcome != Outcome::Beyond;
    let mut sides: Vec<bool> = answers.iter().map(|one| passes(one.outcome)).collect();
    match ours.gate {
        Gate::Pass => sides.push(true),
        Gate::Fail => sides.push(false),
        Gate::Undecided => {}
    }
    let first = *sides.first()?;
    if sides.iter().all(|side| *side == first) {
        return None;
    }
    let said: Vec<String> = answers
        .iter()
        .map(|one| {
            let word = if passes(one.outcome) {
                "passes"
            } else {
                "fails"
            };
            let name = one.rule.name();
            format!(
                "{name} {word} it with {}",
                unit::signed_pct(100.0 * one.change)
            )
        })
        .collect();
    let own = match ours.gate {
        Gate::Pass => "passes it",
        Gate::Fail => "fails it",
        Gate::Undecided => "leaves it undecided",
    };
    Some(format!(
        "{} of `{}` in {}: {}; our own rule {own}. The answer depends on the estimator.",
        ours.metric,
        ours.candidate,
        ours.cell,
        said.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::super::decide::decide;
    use super::super::example::{RULE, cell};
    use super::*;

    fn verdicts(data: &CellData) -> Vec<NamedVerdict> {
        NamedRule::ALL
            .into_iter()
            .flat_map(|rule| judge(rule, data, 1.0))
            .collect()
    }

    #[test]
    fn the_two_rules_may_differ_on_the_same_rounds() {
        // Paired changes are −2 %, −1.2 %, +1 %; the medians differ by −0.8 % only.
        let rounds = [
            [100.0, 100.1, 98.0],
            [100.4, 100.3, 99.2],
            [99.0, 99.1, 99.99],
        ];
        let data = cell("decode_tok_s", Better::Higher, &rounds);
        let found = verdicts(&data);
        let outcomes: Vec<Outcome> = found.iter().map(|one| one.outcome).collect();
        assert_eq!(outcomes, [Outcome::Beyond, Outcome::Within]);
        assert!((found[0].change - (99.2 / 100.4 - 1.0)).abs() < 1e-12);
        assert!((found[1].change - (99.2 / 100.0 - 1.0)).abs() < 1e-12);
        let ours = &decide(&[data], &RULE)[0];
        let answers: Vec<&NamedVerdict> = found.iter().collect();
        let text = disagreement(&answers, ours).unwrap();
        assert!(
            text.contains(
                "adr-0007 fails it with −1.20 %, ratio-of-medians passes it with −0.80 %"
            ),
            "{text}"
        );
        assert_eq!(disagreement(&answers[..1], ours), None);
    }

    #[test]
    fn a_loss_within_what_identical_programs_differ_by_is_inside_null() {
        let rounds = [
            [100.0, 97.0, 98.0],
            [100.0, 103.0, 97.5],
            [100.0, 100.0, 98.2],
        ];
        let data = cell("decode_tok_s", Better::Higher, &rounds);
        let found = verdicts(&data);
        assert_eq!(found[0].outcome, Outcome::InsideNull);
        assert!(found[0].null.unwrap().covers);
        // The other rule reports the null arm and does not look at it.
        assert_eq!(found[1].outcome, Outcome::Beyond);
    }

    #[test]
    fn a_time_loses_by_growing_and_a_gain_of_any_size_is_within() {
        let of = |candidate: f64| {
            let data = cell("wall_ms", Better::Lower, &[[100.0, 100.0, candidate]; 3]);
            judge(NamedRule::Adr0007, &data, 1.0)[0].outcome
        };
        assert_eq!(of(101.5), Outcome::Beyond);
        assert_eq!(of(100.5), Outcome::Within);
        assert_eq!(of(50.0), Outcome::Within);
    }

    #[test]
    fn without_a_null_arm_nothing_is_excused_and_nothing_is_shown() {
        let mut data = cell("v_tok_s", Better::Higher, &[[100.0, 90.0, 98.0]; 3]);
        data.arms[1].null_of = None;
        let found = judge(NamedRule::Adr0007, &data, 1.0);
        assert_eq!(found.len(), 2);
        assert!(
            found
                .iter()
                .all(|one| one.null.is_none() && one.outcome == Outcome::Beyond)
        );
    }

    #[test]
    fn what_has_no_ratio_has_no_answer() {
        for rounds in [vec![], vec![[0.0, 1.0, 1.0]; 3]] {
            assert!(verdicts(&cell("v_ms", Better::Lower, &rounds)).is_empty());
        }
    }
}
