//! Which rounds the numbers beside a verdict are of, where a run has several stages. Pure.
//!
//! A comparison keeps the answer of the look that settled it, while its cell goes on for
//! another one's sake; and of a cell that is run again only what failed is judged again. So
//! one cell can have verdicts from several sets of rounds, and each is shown with its own.

use std::collections::BTreeSet;

use crate::plan::looks::Kind;
use crate::verdict::control::ControlCheck;
use crate::verdict::decide::Decision;
use crate::verdict::rule::{CellData, DecidedAt, Judgement};

/// The numbers of one (cell, metric) that one stage looked at.
#[derive(Debug, Clone, PartialEq)]
pub struct StageData {
    /// The stage.
    pub kind: Kind,
    /// Its numbers.
    pub data: CellData,
}

/// The numbers behind a decision.
#[derive(Debug)]
pub(super) struct Behind {
    /// One per (cell, metric): those of the last stage that judged it.
    pub(super) latest: Vec<CellData>,
    /// Every stage's, the latest too, of each (cell, metric) that was judged by several.
    pub(super) several: Vec<StageData>,
}

/// The stage that `decided_at` means; a run that has one look does not name it.
#[must_use]
pub fn stage_of(decided_at: Option<DecidedAt>) -> Kind {
    match decided_at {
        Some(DecidedAt::Confirmation { .. }) => Kind::Confirmation,
        Some(DecidedAt::Look { number, .. }) => Kind::Look(number),
        None => Kind::Look(1),
    }
}

/// The last stage that any of these judgements stems from.
#[must_use]
pub fn latest<'a>(judgements: impl Iterator<Item = &'a Judgement>) -> Option<Kind> {
    judgements.map(|one| stage_of(one.decided_at)).max()
}

/// The check of an arm that stands beside the numbers of `latest`: its own, or the first.
#[must_use]
pub fn check_beside<'a>(
    checks: impl Iterator<Item = &'a ControlCheck> + Clone,
    latest: Kind,
) -> Option<&'a ControlCheck> {
    let mut own = checks.clone();
    let own = own.find(|check| stage_of(check.looked_at) == latest);
    own.or_else(|| checks.into_iter().next())
}

/// Gathers the numbers of every (cell, metric) of `looked`, the last look's; `at` gives those
/// of any stage.
pub(super) fn behind(
    looked: &[CellData],
    decision: &Decision,
    at: &dyn Fn(Kind, &CellData) -> Option<CellData>,
) -> Behind {
    let mut behind = Behind {
        latest: Vec::new(),
        several: Vec::new(),
    };
    for data in looked {
        let stages = stages(data, decision);
        let mut stages = stages.into_iter().rev();
        let Some(last) = stages.next() else {
            behind.latest.push(data.clone());
            continue;
        };
        let latest = at(last, data).unwrap_or_else(|| data.clone());
        let mut others: Vec<StageData> = stages
            .filter_map(|kind| Some((kind, at(kind, data)?)))
            .filter(|(kind, data)| !is_same((*kind, data), (last, &latest)))
            .map(|(kind, data)| StageData { kind, data })
            .collect();
        if !others.is_empty() {
            others.push(StageData {
                kind: last,
                data: latest.clone(),
            });
        }
        behind.several.extend(others);
        behind.latest.push(latest);
    }
    behind
}

/// The stages that anything about a (cell, metric) stems from.
fn stages(data: &CellData, decision: &Decision) -> BTreeSet<Kind> {
    let of_data = |one: &&Judgement| one.cell == data.cell && one.metric == data.metric;
    let judged: Vec<&Judgement> = decision.judgements.iter().filter(of_data).collect();
    let Some(latest) = latest(judged.iter().copied()) else {
        return BTreeSet::new();
    };
    let stages = judged.iter().map(|one| stage_of(one.decided_at));
    let mut stages: BTreeSet<Kind> = stages.collect();
    for arm in &data.arms {
        let checks = decision.controls.iter();
        let checks = checks.filter(|one| {
            (&one.cell, &one.metric, &one.arm) == (&data.cell, &data.metric, &arm.name)
        });
        let check = check_beside(checks, latest);
        stages.extend(check.map(|check| stage_of(check.looked_at)));
    }
    stages
}

/// Looks see all rounds so far: with as many they saw the same ones.
fn is_same(a: (Kind, &CellData), b: (Kind, &CellData)) -> bool {
    let fresh = |kind| kind == Kind::Confirmation;
    fresh(a.0) == fresh(b.0) && a.1.rounds.len() == b.1.rounds.len()
}
