//! A record's rows at its looks: which cells go on, and what the whole run says. Pure.
//!
//! A look is taken by the run and again by every later reading of the rows, from the same
//! rows by the same function: so a killed run resumes as if nothing had happened, and a
//! report cannot see another course of the run than the run did.

use crate::plan::looks::{Kind, Stage};
use crate::record::format::{Attempt, Plan};
use crate::record::rounds::{self, CellRounds, Next, OutOfStep, Progress};
use crate::verdict::decide::Decision;
use crate::verdict::rule::CellData;
use crate::verdict::sequence::Sequence;

use super::from_record::{self, cell_data};
use super::stage_data::{self, Behind, StageData};

/// The looks of a run so far.
#[derive(Debug, Clone)]
pub struct Looks<'a> {
    plan: &'a Plan,
    stages: Vec<Stage>,
    sequence: Sequence,
    /// Whether a cell was run again.
    confirming: Vec<bool>,
}

/// The answer of a whole run.
#[derive(Debug)]
pub struct Outcome {
    /// What was decided.
    pub decision: Decision,
    /// The numbers of the last look, one per (cell, metric).
    pub looked: Vec<CellData>,
    /// The numbers behind what was decided last, one per (cell, metric).
    pub data: Vec<CellData>,
    /// Those of every stage, where several judged a (cell, metric).
    pub stages: Vec<StageData>,
}

/// Reasons outside a cell why an arm, by its index, cannot be judged.
pub type Reasons = [(usize, String)];

impl<'a> Looks<'a> {
    /// Nothing has been looked at yet.
    #[must_use]
    pub fn new(plan: &'a Plan) -> Self {
        let stages = plan.stages();
        let looks = stages.iter().filter(|stage| is_look(stage)).count();
        let looks = u32::try_from(looks).unwrap_or(u32::MAX);
        Looks {
            plan,
            sequence: Sequence::new(from_record::rule(plan), looks),
            confirming: vec![false; plan.cells.len()],
            stages,
        }
    }

    /// Looks at what the stage before `stage` gave; says which cells take part in `stage`.
    #[must_use]
    pub fn judge(&mut self, attempts: &[Attempt], cells: &[CellRounds], stage: usize) -> Vec<bool> {
        let last = self.look(attempts, cells, stage.saturating_sub(1), &[]).0;
        let confirms = self.stages.get(stage).is_some_and(|stage| !is_look(stage));
        let takes_part = |cell: &CellRounds| {
            let id = &self.plan.cells[cell.cell].id;
            cell.stopped.is_none()
                && if confirms {
                    self.sequence.fails(id)
                } else {
                    self.sequence.is_open(id, &last)
                }
        };
        let answer: Vec<bool> = cells.iter().map(takes_part).collect();
        if confirms {
            self.confirming.clone_from(&answer);
        }
        answer
    }

    /// What the run says when it has come to `stage`.
    #[must_use]
    pub fn finish(
        mut self,
        attempts: &[Attempt],
        cells: &[CellRounds],
        stage: usize,
        reasons: &Reasons,
    ) -> Outcome {
        let at_look = self.looked_at(stage).1;
        let (last, looked) = self.look(attempts, cells, stage, reasons);
        let mut again = Vec::new();
        if let Some(stage) = self.stages.iter().find(|stage| !is_look(stage)) {
            let confirming = cells.iter().filter(|cell| self.confirming[cell.cell]);
            again = all_data(self.plan, attempts, confirming, stage, reasons);
        }
        let confirmation = (!again.is_empty()).then_some(again.as_slice());
        let (plan, stages) = (self.plan, self.stages);
        let mut decision = self.sequence.finish(last, confirmation);
        from_record::withdraw_invalid(&mut decision.judgements, &looked);
        let at = |kind: Kind, of: &CellData| {
            if kind == at_look.kind {
                return Some(of.clone());
            }
            let stage = stages.iter().find(|stage| stage.kind == kind)?;
            let cell = cells
                .iter()
                .filter(|one| plan.cells[one.cell].id == of.cell);
            let mut data = all_data(plan, attempts, cell, stage, reasons).into_iter();
            data.find(|data| data.metric == of.metric)
        };
        let Behind { latest, several } = stage_data::behind(&looked, &decision, &at);
        Outcome {
            decision,
            looked,
            data: latest,
            stages: several,
        }
    }

    /// The look of `stage`, or the last one before it, with its number.
    fn looked_at(&self, stage: usize) -> (u32, Stage) {
        let looks = self.stages.iter().take(stage + 1).rev();
        let looked = looks.into_iter().find_map(|stage| match stage.kind {
            Kind::Look(number) => Some((number, *stage)),
            Kind::Confirmation => None,
        });
        looked.unwrap_or((1, self.stages[0]))
    }

    /// Takes the look of `stage`, or of the last one before it.
    fn look(
        &mut self,
        attempts: &[Attempt],
        cells: &[CellRounds],
        stage: usize,
        reasons: &Reasons,
    ) -> (Decision, Vec<CellData>) {
        let (number, stage) = self.looked_at(stage);
        let data = all_data(self.plan, attempts, cells.iter(), &stage, reasons);
        (self.sequence.look(number, &data), data)
    }
}

/// What comes next after these rows.
///
/// # Errors
/// Rows that do not follow from the plan.
pub fn next(plan: &Plan, attempts: &[Attempt]) -> Result<Next, OutOfStep> {
    Ok(progress(plan, attempts)?.next())
}

/// How many attempts are left if all of them are clean; 0 only when nothing comes next.
///
/// # Errors
/// As [`next`].
pub fn left(plan: &Plan, attempts: &[Attempt]) -> Result<usize, OutOfStep> {
    let progress = progress(plan, attempts)?;
    Ok(match progress.next() {
        Next::Done => 0,
        _ => progress.attempts_left().max(1),
    })
}

fn progress<'a>(plan: &'a Plan, attempts: &[Attempt]) -> Result<Progress<'a>, OutOfStep> {
    let mut looks = Looks::new(plan);
    rounds::replay(plan, attempts, &mut |rows, cells, stage| {
        looks.judge(rows, cells, stage)
    })
}

fn is_look(stage: &Stage) -> bool {
    matches!(stage.kind, Kind::Look(_))
}

fn all_data<'c>(
    plan: &Plan,
    attempts: &[Attempt],
    cells: impl Iterator<Item = &'c CellRounds>,
    stage: &Stage,
    reasons: &Reasons,
) -> Vec<CellData> {
    let mut data = Vec::new();
    for rounds in cells {
        for (name, metric) in &plan.experiment.metrics {
            data.push(cell_data(
                plan,
                attempts,
                (rounds, stage),
                (name, metric),
                reasons,
            ));
        }
    }
    data
}
