//! Several looks at a growing run, and a confirmation of what fails.
//!
//! Every look is the whole rule at its part of α, with the same family for Holm. A
//! comparison that passes or fails keeps that answer; a cell with no open comparison, and
//! with its control found, is not run further. A cell that fails may be run again with
//! fresh rounds: then their answer counts, so that the gate fails only if both do.

use std::collections::BTreeMap;

use super::control::{self, ControlCheck};
use super::decide::{Decision, decide_raw};
use super::rule::{CellData, DecidedAt, Gate, Judgement, Rule, Verdict};
use crate::unit;

/// (cell, candidate or control, metric).
type Key = (String, String, String);

/// Decides the cells of one stage. Simulations leave out what is only for the reader.
pub(super) type Decide = fn(&[CellData], &Rule) -> Decision;

/// What the looks so far have settled.
#[derive(Debug, Clone)]
pub struct Sequence {
    rule: Rule,
    decide: Decide,
    looks: u32,
    kept: BTreeMap<Key, Judgement>,
    found: BTreeMap<Key, ControlCheck>,
}

impl Sequence {
    /// Nothing is settled. `rule` has the level of one stage, `looks` is how many there are.
    #[must_use]
    pub fn new(rule: Rule, looks: u32) -> Self {
        Self::deciding_by(decide_raw, rule, looks)
    }

    pub(super) fn deciding_by(decide: Decide, rule: Rule, looks: u32) -> Self {
        Sequence {
            rule,
            decide,
            looks,
            kept: BTreeMap::new(),
            found: BTreeMap::new(),
        }
    }

    /// Takes a look, 1-based; `cells` are all (cell, metric) with the rounds so far, those of
    /// cells that stopped earlier included. Returns the decision of this look alone.
    pub fn look(&mut self, number: u32, cells: &[CellData]) -> Decision {
        let mut decision = (self.decide)(cells, &self.rule);
        for judgement in &mut decision.judgements {
            self.mark(judgement, number);
            if judgement.gated && is_settled(judgement, cells) {
                let kept = self.kept.entry(key_of(judgement));
                kept.or_insert_with(|| judgement.clone());
            }
        }
        for check in &mut decision.controls {
            check.looked_at = self.at_look(number);
            if check.found {
                let found = self.found.entry(key_of_control(check));
                found.or_insert_with(|| check.clone());
            }
        }
        decision
    }

    /// Whether a cell must be run further, after the look that gave `last`.
    #[must_use]
    pub fn is_open(&self, cell: &str, last: &Decision) -> bool {
        let open =
            |judgement: &Judgement| judgement.gated && !self.kept.contains_key(&key_of(judgement));
        let missed = |check: &ControlCheck| !self.found.contains_key(&key_of_control(check));
        let mut judgements = last.judgements.iter().filter(|one| one.cell == cell);
        let mut controls = last.controls.iter().filter(|one| one.cell == cell);
        judgements.any(open) || controls.any(missed)
    }

    /// Whether a comparison of this cell fails, so that it has to be confirmed.
    #[must_use]
    pub fn fails(&self, cell: &str) -> bool {
        let mut kept = self.kept.values();
        kept.any(|judgement| judgement.cell == cell && judgement.gate == Gate::Fail)
    }

    /// The answer of the whole run: `last` is the decision of the last look, `confirmation`
    /// the fresh rounds of the cells that were run again.
    #[must_use]
    pub fn finish(self, last: Decision, confirmation: Option<&[CellData]>) -> Decision {
        let Sequence {
            rule,
            decide,
            kept,
            found,
            ..
        } = self;
        let mut judgements: Vec<Judgement> = last
            .judgements
            .into_iter()
            .map(|judgement| kept.get(&key_of(&judgement)).cloned().unwrap_or(judgement))
            .collect();
        let mut controls: Vec<ControlCheck> = last
            .controls
            .into_iter()
            .map(|check| found.get(&key_of_control(&check)).cloned().unwrap_or(check))
            .collect();
        if let Some(cells) = confirmation {
            let second = decide(cells, &rule);
            for judgement in &mut judgements {
                if judgement.gate != Gate::Fail {
                    continue;
                }
                let again = second
                    .judgements
                    .iter()
                    .find(|again| key_of(again) == key_of(judgement));
                if let Some(again) = again {
                    *judgement = confirmed(judgement, again.clone());
                }
            }
            controls.extend(second.controls.into_iter().map(|check| ControlCheck {
                looked_at: Some(DecidedAt::Confirmation { first_delta: None }),
                ..check
            }));
        }
        control::withdraw_if_missed(&mut judgements, &controls);
        Decision {
            judgements,
            controls,
        }
    }

    /// `None` where a run has one look.
    fn at_look(&self, number: u32) -> Option<DecidedAt> {
        (self.looks >= 2).then_some(DecidedAt::Look {
            number,
            of: self.looks,
        })
    }

    fn mark(&self, judgement: &mut Judgement, number: u32) {
        judgement.decided_at = self.at_look(number);
        if judgement.decided_at.is_none() {
            return;
        }
        let open = judgement.gated && judgement.gate == Gate::Undecided;
        let word = if open { "Still open at" } else { "Decided at" };
        judgement.sentence.push_str(&format!(
            " {word} look {number} of {}, after {} rounds.",
            self.looks, judgement.rounds
        ));
    }
}

/// Whether further rounds cannot change the answer: it is one, or the arm is out.
fn is_settled(judgement: &Judgement, cells: &[CellData]) -> bool {
    let is_out = || {
        let of = |data: &&CellData| data.cell == judgement.cell && data.metric == judgement.metric;
        cells.iter().find(of).is_some_and(|data| {
            let name = |arm: usize| data.arms.get(arm).map(|arm| arm.name.as_str());
            let mut invalid = data.invalid.iter();
            invalid.any(|(arm, _)| name(*arm) == Some(judgement.candidate.as_str()))
        })
    };
    match judgement.gate {
        Gate::Pass | Gate::Fail => true,
        Gate::Undecided => judgement.verdict == Verdict::Invalid && is_out(),
    }
}

/// The second answer, which is the one that counts, with a word about the first.
fn confirmed(first: &Judgement, mut again: Judgement) -> Judgement {
    let first_delta = first.estimate.map(|estimate| estimate.delta);
    let was = first_delta.map_or_else(String::new, |delta| {
        format!(" ({})", super::sentence::metric_change(delta, first.better))
    });
    let fate = match again.gate {
        Gate::Fail => "confirm it",
        Gate::Pass | Gate::Undecided => "do not confirm it",
    };
    again.sentence.push_str(&format!(
        " {} first rounds failed the gate{was}; these {} fresh ones {fate}.",
        unit::value(f64::from(first.rounds)),
        unit::value(f64::from(again.rounds)),
    ));
    again.decided_at = Some(DecidedAt::Confirmation { first_delta });
    again
}

fn key_of(judgement: &Judgement) -> Key {
    (
        judgement.cell.clone(),
        judgement.candidate.clone(),
        judgement.metric.clone(),
    )
}

fn key_of_control(check: &ControlCheck) -> Key {
    (check.cell.clone(), check.arm.clone(), check.metric.clone())
}

#[cfg(test)]
mod tests;
