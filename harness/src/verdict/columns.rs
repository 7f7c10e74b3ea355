//! From the complete rounds of one (cell, metric) to the columns of the linear
//! model: logarithms with the sign turned so that larger is slower, without the
//! treatments that cannot be judged.

use super::rule::{CellData, Revision};
use crate::experiment::model::Better;
use crate::stats::linear_model::{Layout, SlotEffect, Slots, slot_spread};
use crate::stats::log_ratio::log_ratio;

/// The part of a cell that can be modelled.
#[derive(Debug)]
pub(super) struct Columns {
    /// `arms[c]`: which arm of the cell column `c` is.
    pub(super) arms: Vec<usize>,
    /// `treatments[c]`, without gaps; the base's is 0.
    pub(super) treatments: Vec<usize>,
    /// `y[r][c]`, natural logarithm, larger is slower.
    pub(super) y: Vec<Vec<f64>>,
    /// `slots[r][c]` and what they do, where that can be told from treatments.
    slots: Option<(Vec<Vec<usize>>, SlotEffect)>,
}

impl Columns {
    /// The model of these columns.
    pub(super) fn layout(&self) -> Layout<'_> {
        self.layout_with(&self.treatments)
    }

    /// The same with other treatments than those of the arms.
    pub(super) fn layout_with<'a>(&'a self, treatments: &'a [usize]) -> Layout<'a> {
        let slots = self.slots.as_ref();
        Layout {
            treatments,
            slots: slots.map(|(places, effect)| Slots {
                places,
                effect: *effect,
            }),
        }
    }

    /// Whether every slot has an effect of its own.
    pub(super) fn has_slot_effects(&self) -> bool {
        matches!(self.slots, Some((_, SlotEffect::Each)))
    }

    /// The column of an arm, if it can be judged.
    pub(super) fn of(&self, arm: usize) -> Option<usize> {
        self.arms.iter().position(|&other| other == arm)
    }

    /// All rounds of one column.
    pub(super) fn values(&self, column: usize) -> Vec<f64> {
        self.y.iter().map(|row| row[column]).collect()
    }
}

/// A treatment that cannot be judged in this cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    /// The treatment, by the cell's own numbers.
    pub(super) treatment: usize,
    /// Index of the arm that showed it.
    arm: usize,
    reason: String,
}

impl Fault {
    /// The reason for a reader of `subject`'s judgement: another arm is named.
    pub(super) fn reason_for(&self, data: &CellData, subject: usize) -> String {
        if self.arm == subject {
            self.reason.clone()
        } else {
            format!("`{}`: {}", data.arms[self.arm].name, self.reason)
        }
    }
}

/// Builds the columns, and lists the treatments that are left out.
///
/// An arm that broke an expectation takes every copy of its treatment with it:
/// the copies are the same program in the same environment.
///
/// # Errors
/// One line that says why nothing in this cell can be judged.
pub(super) fn columns(
    data: &CellData,
    revision: Revision,
) -> Result<(Columns, Vec<Fault>), String> {
    check_shape(data)?;
    let base = &data.arms[data.base];
    let mut faults: Vec<Fault> = Vec::new();
    for (arm, reason) in &data.invalid {
        let Some(copy) = data.arms.get(*arm) else {
            return Err(format!("arm number {arm} does not exist"));
        };
        faults.push(Fault {
            treatment: copy.treatment,
            arm: *arm,
            reason: reason.clone(),
        });
    }
    let is_out = |faults: &[Fault], arm: usize| {
        let treatment = data.arms[arm].treatment;
        faults.iter().any(|fault| fault.treatment == treatment)
    };
    // A counter that is zero everywhere is equal everywhere; a single zero has no logarithm.
    let all_zero = (0..data.arms.len())
        .filter(|&arm| !is_out(&faults, arm))
        .all(|arm| data.rounds.iter().all(|row| row[arm] == 0.0));
    if !all_zero {
        for arm in 0..data.arms.len() {
            if is_out(&faults, arm) {
                continue;
            }
            if let Some(reason) = no_logarithm(data, arm) {
                faults.push(Fault {
                    treatment: data.arms[arm].treatment,
                    arm,
                    reason,
                });
            }
        }
    }
    if let Some(fault) = faults.iter().find(|one| one.treatment == base.treatment) {
        let nobody = usize::MAX;
        let reason = fault.reason_for(data, nobody);
        return Err(format!("the base cannot be judged: {reason}"));
    }
    let arms: Vec<usize> = (0..data.arms.len())
        .filter(|&arm| !is_out(&faults, arm))
        .collect();
    let columns = Columns {
        treatments: without_gaps(data, &arms),
        y: logarithms(data, &arms, all_zero),
        slots: usable_slots(data, &arms, revision),
        arms,
    };
    Ok((columns, faults))
}

fn check_shape(data: &CellData) -> Result<(), String> {
    let arms = data.arms.len();
    if data.base >= arms {
        return Err("the base is not among the arms".into());
    }
    for (index, row) in data.rounds.iter().enumerate() {
        if row.len() != arms {
            let got = row.len();
            return Err(format!(
                "round {} has {got} values, expected {arms}",
                index + 1
            ));
        }
    }
    Ok(())
}

fn no_logarithm(data: &CellData, arm: usize) -> Option<String> {
    let (round, value) =
        data.rounds
            .iter()
            .enumerate()
            .find_map(|(round, row)| match row[arm] {
                value if value.is_finite() && value > 0.0 => None,
                value => Some((round + 1, value)),
            })?;
    Some(format!(
        "{} is {value} in the {} complete round, and a ratio needs positive numbers",
        data.metric,
        ordinal(round),
    ))
}

fn ordinal(n: usize) -> String {
    let ending = match (n % 10, n % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{n}{ending}")
}

/// Renumbers the treatments of `arms`: the base's first, the others as they come.
fn without_gaps(data: &CellData, arms: &[usize]) -> Vec<usize> {
    let mut seen = vec![data.arms[data.base].treatment];
    arms.iter()
        .map(|&arm| {
            let treatment = data.arms[arm].treatment;
            seen.iter()
                .position(|&other| other == treatment)
                .unwrap_or_else(|| {
                    seen.push(treatment);
                    seen.len() - 1
                })
        })
        .collect()
}

/// All logarithms are taken relative to one value of the base, so that equal
/// values give exactly equal numbers, and nothing is lost to a large common part.
fn logarithms(data: &CellData, arms: &[usize], all_zero: bool) -> Vec<Vec<f64>> {
    let sign = match data.better {
        Better::Higher => -1.0,
        Better::Lower => 1.0,
    };
    let reference = data.rounds.first().map_or(1.0, |row| row[data.base]);
    data.rounds
        .iter()
        .map(|row| {
            arms.iter()
                .map(|&arm| match log_ratio(row[arm], reference) {
                    Some(ratio) if !all_zero => sign * ratio,
                    _ => 0.0,
                })
                .collect()
        })
        .collect()
}

/// Slots enter an order that lost no column: each by itself in complete balanced squares, their
/// slope where arms stand in every slot equally often to within one.
fn usable_slots(
    data: &CellData,
    arms: &[usize],
    revision: Revision,
) -> Option<(Vec<Vec<usize>>, SlotEffect)> {
    if arms.len() != data.arms.len() || data.slots.len() != data.rounds.len() {
        return None;
    }
    let spread = slot_spread(&data.slots, arms.len())?;
    let balanced = data.balanced && spread == 0;
    let effect = revision.slot_effect(arms.len(), data.rounds.len(), balanced)?;
    (spread <= 1).then(|| (data.slots.clone(), effect))
}
