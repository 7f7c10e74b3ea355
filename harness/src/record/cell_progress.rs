//! The machine behind [`super::rounds`]: what has happened in one cell, and what
//! must happen next. The rules and their reasons stand there.

use crate::plan::looks::Stage;

use super::format::{Outcome, Plan};
use super::rounds::{CellRounds, CompleteRound, DroppedTry};

/// The attempt a cell asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// A priming attempt.
    Prime {
        arm: usize,
        round_try: u32,
        stage: u32,
    },
    /// A measuring attempt.
    Run(Run),
}

/// A measuring attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) arm: usize,
    pub(super) round: u32,
    pub(super) round_try: u32,
    pub(super) slot: u32,
}

/// One cell of a run.
#[derive(Debug, Clone)]
pub(super) struct CellProgress<'a> {
    plan: &'a Plan,
    cell: usize,
    order: &'a [Vec<usize>],
    base: usize,
    has_candidates: bool,
    /// Arms still to be primed, one per treatment.
    to_prime: std::collections::VecDeque<usize>,
    prime_try: u32,
    /// 0-based stage in which the cell takes part, or took part last.
    stage: u32,
    /// Rounds of that stage end before this 0-based one.
    until: usize,
    /// The first 0-based round of those that are counted together.
    counted_from: usize,
    /// 0-based current round.
    round: usize,
    round_try: u32,
    /// Clean attempts of the current try.
    current: Vec<Clean>,
    /// The tries of the current round that count against its retries.
    failures: Vec<Failure>,
    complete: Vec<CleanRound>,
    dropped: Vec<DroppedTry>,
    lost: Vec<u32>,
    out: Vec<(usize, String)>,
    stopped: Option<String>,
    /// A session began when nothing was left to run: what comes later needs priming.
    cold: bool,
}

/// An arm that failed undisturbed this often in one round will fail again: a program
/// that hangs must not take the time limit once more for every retry that is left.
const FAILURES_THAT_TELL: usize = 3;

/// A clean attempt.
#[derive(Debug, Clone, Copy)]
struct Clean {
    arm: usize,
    row: usize,
    slot: u32,
}

/// A round that was complete when it ended; arms may have gone out since.
#[derive(Debug, Clone)]
struct CleanRound {
    round: u32,
    round_try: u32,
    attempts: Vec<Clean>,
}

/// What ended a try.
#[derive(Debug, Clone, Copy)]
struct Failure {
    arm: usize,
    /// Something outside disturbed it: no fault of the arm.
    disturbed: bool,
}

impl<'a> CellProgress<'a> {
    /// A cell of which nothing has happened yet; `first` is the stage that it begins with.
    pub(super) fn new(plan: &'a Plan, cell: usize, first: Stage) -> Self {
        let position = plan
            .arms
            .iter()
            .position(|arm| arm.name == plan.experiment.base);
        let base = position.unwrap_or(usize::MAX);
        let mut progress = CellProgress {
            plan,
            cell,
            order: plan.order.get(cell).map_or(&[], Vec::as_slice),
            base,
            has_candidates: false,
            to_prime: std::collections::VecDeque::new(),
            prime_try: 1,
            stage: 0,
            until: first.until as usize,
            counted_from: 0,
            round: 0,
            round_try: 1,
            current: Vec::new(),
            failures: Vec::new(),
            complete: Vec::new(),
            dropped: Vec::new(),
            lost: Vec::new(),
            out: Vec::new(),
            stopped: position
                .is_none()
                .then(|| "the base is not among the arms".into()),
            cold: false,
        };
        let has_candidates = progress.candidates().next().is_some();
        progress.has_candidates = has_candidates;
        for (index, arm) in plan.arms.iter().enumerate() {
            if arm.build.is_none() {
                progress.take_out(index, "its build failed".into());
            }
        }
        progress.to_prime = progress.first_of_each_treatment();
        progress.settle();
        progress
    }

    /// Goes on with a further stage. Other cells may have run in between: `prime` asks for
    /// priming attempts as at the beginning.
    pub(super) fn enter(&mut self, number: u32, stage: Stage, prime: bool) {
        self.stage = number;
        self.round = stage.from as usize;
        self.until = stage.until as usize;
        self.counted_from = stage.counted_from as usize;
        if prime || std::mem::take(&mut self.cold) {
            self.to_prime = self.first_of_each_treatment();
        }
        self.settle();
    }

    /// Goes on in another session: numbers of two sessions are never mixed in a round, and
    /// nothing is warm.
    pub(super) fn enter_session(&mut self) {
        if let Some(last) = self.current.last().map(|one| one.arm)
            && let Some(run) = self.next_run()
        {
            self.dropped.push(DroppedTry {
                round: run.round,
                round_try: run.round_try,
                arm: last,
                reason: "its session ended in the middle of the round".into(),
            });
            self.current.clear();
            self.round_try += 1;
        }
        self.prime_try = 1;
        match self.step() {
            Some(_) => self.to_prime = self.first_of_each_treatment(),
            None => self.cold = true,
        }
    }

    pub(super) fn cell(&self) -> usize {
        self.cell
    }

    /// `None` when nothing more will run here.
    pub(super) fn step(&self) -> Option<Step> {
        if self.stopped.is_some() {
            return None;
        }
        if let Some(&arm) = self.to_prime.front() {
            return Some(Step::Prime {
                arm,
                round_try: self.prime_try,
                stage: self.stage,
            });
        }
        self.next_run().map(Step::Run)
    }

    /// Takes in the row of the attempt that [`CellProgress::step`] asked for.
    pub(super) fn apply(&mut self, row: usize, outcome: &Outcome) {
        match self.step() {
            Some(Step::Prime { .. }) => self.primed(outcome),
            Some(Step::Run(run)) => self.ran(run, row, outcome),
            None => {}
        }
        self.settle();
    }

    pub(super) fn rounds(&self) -> CellRounds {
        CellRounds {
            cell: self.cell,
            complete: self.complete.iter().map(|one| self.per_arm(one)).collect(),
            dropped: self.dropped.clone(),
            lost: self.lost.clone(),
            out: self.out.clone(),
            stopped: self.stopped.clone(),
            finished: self.step().is_none(),
        }
    }

    /// Attempts left before this 0-based round if all of them are clean.
    pub(super) fn attempts_left(&self, before: usize) -> usize {
        if self.stopped.is_some() {
            return 0;
        }
        let runs = |round: &Vec<usize>| round.iter().filter(|&&arm| !self.is_out(arm)).count();
        let left = before.saturating_sub(self.round);
        let rounds = self.order.iter().skip(self.round).take(left);
        let rounds = rounds.map(runs).sum::<usize>();
        let done = self
            .current
            .iter()
            .filter(|one| !self.is_out(one.arm))
            .count();
        self.to_prime.len() + rounds.saturating_sub(done)
    }

    /// Attempts that must be clean before the round that comes next is complete.
    pub(super) fn attempts_to_next_round(&self) -> usize {
        let order = self.order.get(self.round).map_or(&[][..], Vec::as_slice);
        let runs = order.iter().filter(|&&arm| !self.is_out(arm)).count();
        self.to_prime.len() + runs.saturating_sub(self.current.len())
    }

    fn primed(&mut self, outcome: &Outcome) {
        let disturbed = matches!(outcome, Outcome::Rejected { .. });
        if disturbed && self.prime_try <= self.plan.experiment.retries {
            self.prime_try += 1;
        } else {
            self.prime_try = 1;
            self.to_prime.pop_front();
        }
    }

    fn ran(&mut self, run: Run, row: usize, outcome: &Outcome) {
        let name = &self.plan.arms[run.arm].name;
        let (disturbed, reason) = match outcome {
            Outcome::Ok => {
                self.current.push(Clean {
                    arm: run.arm,
                    row,
                    slot: run.slot,
                });
                return;
            }
            Outcome::Invalid { reason } => {
                self.take_out(run.arm, reason.clone());
                return;
            }
            Outcome::Rejected { reason } => (true, format!("`{name}` was rejected: {reason}")),
            Outcome::Failed { reason } => (false, format!("`{name}` failed: {reason}")),
            Outcome::TimedOut { limit_seconds } => (
                false,
                format!("`{name}` ran into the limit of {limit_seconds} s"),
            ),
        };
        self.dropped.push(DroppedTry {
            round: run.round,
            round_try: run.round_try,
            arm: run.arm,
            reason: reason.clone(),
        });
        self.failures.push(Failure {
            arm: run.arm,
            disturbed,
        });
        self.current.clear();
        self.round_try += 1;
        let tries = u32::try_from(self.failures.len()).unwrap_or(u32::MAX);
        let own = self
            .failures
            .iter()
            .filter(|one| !one.disturbed && one.arm == run.arm);
        if tries > self.plan.experiment.retries || own.count() >= FAILURES_THAT_TELL {
            self.retries_are_gone(run, &reason);
        }
    }

    /// Either one arm is to blame, or the round is lost.
    fn retries_are_gone(&mut self, run: Run, last: &str) {
        if let Some(arm) = self.culprit() {
            self.failures.clear();
            let round = run.round;
            self.take_out(
                arm,
                format!("it failed in every undisturbed try of round {round}; last: {last}"),
            );
            return;
        }
        self.lost.push(run.round);
        self.next_round();
        // Rounds that are never looked at together do not make up for each other.
        let planned = self.plan.experiment.rounds as usize;
        let counted = |round: &&u32| **round as usize > self.counted_from;
        let lost = self.lost.iter().filter(counted).count();
        if lost * 2 > planned {
            self.stop(format!(
                "{lost} of {planned} rounds had no clean try; last: {last}"
            ));
        }
    }

    /// The arm that failed in all tries that were not disturbed, if there are
    /// two such tries, or as many as the retries allow.
    fn culprit(&self) -> Option<usize> {
        let mut failed = self.failures.iter().filter(|one| !one.disturbed);
        let arm = failed.next()?.arm;
        let further = failed.clone().count();
        let enough = further >= 1 || self.plan.experiment.retries == 0;
        (enough && failed.all(|one| one.arm == arm)).then_some(arm)
    }

    /// Takes an arm with all copies of its treatment out of the cell.
    fn take_out(&mut self, arm: usize, reason: String) {
        let treatment = self.plan.arms[arm].treatment;
        let is_base = |base: &super::format::PlannedArm| base.treatment == treatment;
        if self.plan.arms.get(self.base).is_some_and(is_base) {
            let name = &self.plan.arms[arm].name;
            self.stop(format!("the base is out: `{name}`: {reason}"));
        }
        if self.plan.arms[arm].slow_down.is_some() {
            // Without it nothing that is measured here could be trusted.
            let name = &self.plan.arms[arm].name;
            self.stop(format!("the control is out: `{name}`: {reason}"));
        }
        self.out.push((arm, reason));
        if self.has_candidates && self.candidates().next().is_none() {
            self.stop("no candidate is left".into());
        }
    }

    fn stop(&mut self, reason: String) {
        // The first reason is the cause; later ones follow from it.
        self.stopped.get_or_insert(reason);
    }

    /// Moves on when no arm of the current try is left to run.
    fn settle(&mut self) {
        while self.stopped.is_none()
            && self.to_prime.is_empty()
            && self.round < self.until
            && self.next_run().is_none()
        {
            let attempts = std::mem::take(&mut self.current);
            self.complete.push(CleanRound {
                round: whole(self.round + 1),
                round_try: self.round_try,
                attempts,
            });
            self.next_round();
        }
    }

    fn next_round(&mut self) {
        self.round += 1;
        self.round_try = 1;
        self.current.clear();
        self.failures.clear();
    }

    /// The first slot of the current try whose arm is in and has not run.
    fn next_run(&self) -> Option<Run> {
        let order = self
            .order
            .get(self.round)
            .filter(|_| self.round < self.until)?;
        let has_run = |arm: usize| self.current.iter().any(|one| one.arm == arm);
        order
            .iter()
            .enumerate()
            .find(|&(_, &arm)| !self.is_out(arm) && !has_run(arm))
            .map(|(slot, &arm)| Run {
                arm,
                round: whole(self.round + 1),
                round_try: self.round_try,
                slot: whole(slot),
            })
    }

    fn is_out(&self, arm: usize) -> bool {
        let Some(planned) = self.plan.arms.get(arm) else {
            return true;
        };
        self.out
            .iter()
            .any(|(other, _)| self.plan.arms[*other].treatment == planned.treatment)
    }

    fn candidates(&self) -> impl Iterator<Item = usize> {
        let base = self.plan.arms.get(self.base).map(|arm| arm.treatment);
        self.plan
            .arms
            .iter()
            .enumerate()
            .filter(move |(_, arm)| arm.null_of.is_none() && arm.slow_down.is_none())
            .filter(move |(_, arm)| Some(arm.treatment) != base)
            .map(|(index, _)| index)
            .filter(|&index| !self.is_out(index))
    }

    fn first_of_each_treatment(&self) -> std::collections::VecDeque<usize> {
        let arms = &self.plan.arms;
        (0..arms.len())
            .filter(|&index| !self.is_out(index))
            .filter(|&index| {
                let same = |arm: &super::format::PlannedArm| arm.treatment == arms[index].treatment;
                arms.iter().position(same) == Some(index)
            })
            .collect()
    }

    fn per_arm(&self, complete: &CleanRound) -> CompleteRound {
        let mut found = CompleteRound {
            round: complete.round,
            round_try: complete.round_try,
            attempts: vec![None; self.plan.arms.len()],
            slots: vec![None; self.plan.arms.len()],
        };
        for one in complete.attempts.iter().filter(|one| !self.is_out(one.arm)) {
            found.attempts[one.arm] = Some(one.row);
            found.slots[one.arm] = Some(one.slot);
        }
        found
    }
}

fn whole(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
