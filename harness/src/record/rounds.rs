//! Pure: from the sealed plan and the rows so far to what comes next, and to the
//! complete rounds that may be analysed.
//!
//! Both answers come from replaying the rows, one after the other, through the
//! same small machine ([`super::cell_progress`]): a run that was killed has
//! nothing to restore but its rows, and the analysis cannot see rounds that the
//! run did not. Cells run one after the other; in each come first the priming
//! attempts, then the rounds. A plan with several stages goes through all cells once per
//! stage; which of them take part in the next is not decided here.
//!
//! What was decided, and why:
//! - A try of a round is dropped as a whole at its first attempt that is
//!   rejected, fails or times out, and the round starts again. Numbers of two
//!   tries are never mixed.
//! - A run that was killed goes on in the middle of its try, with the attempt
//!   that was lost. So the same program gives the same rows whether or not it
//!   was killed; the price is one round whose halves lie further apart.
//! - An attempt that breaks an expectation takes its whole treatment out of the
//!   cell; the others go on, also within the same try.
//! - An arm that fails every undisturbed try of a round (at least two, where
//!   retries allow; three are enough, however many are left) is out the same way, so that it cannot spend the retries of
//!   the others for ever.
//! - Otherwise a round without a clean try is lost, and the next one begins.
//!   More than half of the rounds lost ends the cell, as does the loss of the
//!   base or of the last candidate.
//! - A record that goes on in another session (another machine, or the same one started
//!   anew) drops the try that was under way, which is no fault of any arm, and primes again.
//! - Priming attempts are discarded whatever they print; a rejected one is
//!   repeated, for it may not have warmed anything.

use crate::plan::looks::{Kind, Stage};

use super::cell_progress::{CellProgress, Step};
use super::format::{Attempt, Plan};

/// What to run next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// A priming attempt: its row has round 0.
    Prime {
        /// Index into the plan's cells.
        cell: usize,
        /// Index into the plan's arms.
        arm: usize,
        /// 1-based try.
        round_try: u32,
        /// 0-based stage that it belongs to: its row has it as slot.
        stage: u32,
    },
    /// A measuring attempt.
    Run {
        /// Index into the plan's cells.
        cell: usize,
        /// Index into the plan's arms.
        arm: usize,
        /// 1-based round.
        round: u32,
        /// 1-based try of the whole round.
        round_try: u32,
        /// 0-based position in the round's planned order.
        slot: u32,
    },
    /// A stage is over: somebody who can judge has to say which cells take part in the
    /// next, by [`Progress::take_part`].
    Look {
        /// Index of the next stage.
        stage: usize,
    },
    /// Every cell is finished or has been ended.
    Done,
}

/// Which attempt of the plan; round 0 is a priming attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Index into the plan's cells.
    pub cell: usize,
    /// Index into the plan's arms.
    pub arm: usize,
    /// 1-based round, 0 for priming.
    pub round: u32,
    /// 1-based try of the round.
    pub round_try: u32,
    /// 0-based position in the round; of a priming attempt the 0-based stage.
    pub slot: u32,
}

impl Next {
    /// The attempt to run, if one is.
    #[must_use]
    pub fn place(self) -> Option<Place> {
        match self {
            Next::Prime {
                cell,
                arm,
                round_try,
                stage,
            } => Some(Place {
                cell,
                arm,
                round: 0,
                round_try,
                slot: stage,
            }),
            Next::Run {
                cell,
                arm,
                round,
                round_try,
                slot,
            } => Some(Place {
                cell,
                arm,
                round,
                round_try,
                slot,
            }),
            Next::Look { .. } | Next::Done => None,
        }
    }
}

/// A row that does not follow from the plan and the rows before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("row {row}: expected {expected}, got {got}")]
pub struct OutOfStep {
    /// 1-based row.
    pub row: usize,
    /// The attempt that had to come.
    pub expected: String,
    /// The attempt that is there.
    pub got: String,
}

/// One complete round of a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompleteRound {
    /// 1-based round.
    pub round: u32,
    /// The try that was clean.
    pub round_try: u32,
    /// Per arm of the plan, the index of its row; `None` for an arm that is out.
    pub attempts: Vec<Option<usize>>,
    /// Per arm of the plan, its 0-based slot; `None` for an arm that is out.
    pub slots: Vec<Option<u32>>,
}

/// One try of a round that was dropped as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DroppedTry {
    /// 1-based round.
    pub round: u32,
    /// 1-based try.
    pub round_try: u32,
    /// Index of the arm whose attempt was rejected, failed or timed out.
    pub arm: usize,
    /// Arm and reason, one line.
    pub reason: String,
}

/// What became of one cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellRounds {
    /// Index into the plan's cells.
    pub cell: usize,
    /// The complete rounds, in order.
    pub complete: Vec<CompleteRound>,
    /// Tries that were dropped, in order.
    pub dropped: Vec<DroppedTry>,
    /// 1-based rounds without a clean try.
    pub lost: Vec<u32>,
    /// Arms that are out of this cell, and why. Their treatment's other copies
    /// are not run either and are not listed.
    pub out: Vec<(usize, String)>,
    /// Why the cell was ended before its last round; it cannot be judged.
    pub stopped: Option<String>,
    /// True when nothing more will run in this cell.
    pub finished: bool,
}

impl CellRounds {
    /// The arms that cannot be judged in this cell, by index into the plan's
    /// arms, with the reason: those that are out, and every other candidate of a
    /// cell that was ended.
    #[must_use]
    pub fn invalid(&self, plan: &Plan) -> Vec<(usize, String)> {
        let mut invalid = self.out.clone();
        if let Some(reason) = &self.stopped {
            let is_candidate = |index: &usize| {
                let arm = &plan.arms[*index];
                arm.null_of.is_none() && arm.name != plan.experiment.base
            };
            let listed = |index: &usize| self.out.iter().any(|(out, _)| out == index);
            let others = (0..plan.arms.len()).filter(|index| is_candidate(index) && !listed(index));
            invalid.extend(others.map(|index| (index, reason.clone())));
        }
        invalid
    }
}

/// The run so far. Feed it rows; ask it what comes next.
#[derive(Debug, Clone)]
pub struct Progress<'a> {
    plan: &'a Plan,
    stages: Vec<Stage>,
    /// Index of the stage that runs.
    stage: usize,
    /// Whether a cell takes part in it.
    taking_part: Vec<bool>,
    cells: Vec<CellProgress<'a>>,
    rows: usize,
    /// 1-based session of what comes next.
    session: u32,
}

/// Says which cells take part in a stage: called with the rows so far, what became of the
/// cells, and the index of the stage.
pub type Judge<'j> = dyn FnMut(&[Attempt], &[CellRounds], usize) -> Vec<bool> + 'j;

impl<'a> Progress<'a> {
    /// A run of which nothing has happened yet.
    #[must_use]
    pub fn new(plan: &'a Plan) -> Self {
        let stages = plan.stages();
        let cells = 0..plan.cells.len();
        Progress {
            plan,
            stage: 0,
            taking_part: vec![true; plan.cells.len()],
            cells: cells
                .map(|cell| CellProgress::new(plan, cell, stages[0]))
                .collect(),
            stages,
            rows: 0,
            session: 1,
        }
    }

    /// What to run next.
    #[must_use]
    pub fn next(&self) -> Next {
        let step = |cell: &CellProgress| cell.step().map(|step| (cell.cell(), step));
        match self.cells.iter().find_map(step) {
            None if self.stage + 1 < self.stages.len() => Next::Look {
                stage: self.stage + 1,
            },
            None => Next::Done,
            Some((
                cell,
                Step::Prime {
                    arm,
                    round_try,
                    stage,
                },
            )) => Next::Prime {
                cell,
                arm,
                round_try,
                stage,
            },
            Some((cell, Step::Run(run))) => Next::Run {
                cell,
                arm: run.arm,
                round: run.round,
                round_try: run.round_try,
                slot: run.slot,
            },
        }
    }

    /// Answers [`Next::Look`]: which cells take part in the next stage. At any other moment
    /// it does nothing.
    pub fn take_part(&mut self, cells: &[bool]) {
        let Next::Look { stage } = self.next() else {
            return;
        };
        self.stage = stage;
        self.taking_part = cells.to_vec();
        let number = u32::try_from(stage).unwrap_or(u32::MAX);
        let prime = self.cells.len() > 1;
        let chosen = self.cells.iter_mut().zip(cells).filter(|(_, part)| **part);
        for (cell, _) in chosen {
            cell.enter(number, self.stages[stage], prime);
        }
    }

    /// Asks `judge` as long as nothing but its answer is missing. `attempts` are the rows so
    /// far.
    pub fn look(&mut self, attempts: &[Attempt], judge: &mut Judge<'_>) {
        while let Next::Look { stage } = self.next() {
            let answer = judge(attempts, &self.cells(), stage);
            self.take_part(&answer);
        }
    }

    /// Index of the stage that runs, or ran last.
    #[must_use]
    pub fn stage(&self) -> usize {
        self.stage
    }

    /// What comes next belongs to this 1-based session; an earlier one, or the one that is
    /// under way, changes nothing.
    pub fn enter_session(&mut self, session: u32) {
        if session <= self.session {
            return;
        }
        self.session = session;
        if self.rows > 0 {
            self.cells.iter_mut().for_each(CellProgress::enter_session);
        }
    }

    /// How many attempts must be clean before the round is complete that comes next, with the
    /// priming before it.
    #[must_use]
    pub fn attempts_to_next_round(&self) -> usize {
        let (Next::Prime { cell, .. } | Next::Run { cell, .. }) = self.next() else {
            return 0;
        };
        self.cells[cell].attempts_to_next_round()
    }

    /// Takes in the next row.
    ///
    /// # Errors
    /// [`OutOfStep`] when it is not the attempt that [`Progress::next`] asks for:
    /// the file was edited, or written by two runs at once.
    pub fn apply(&mut self, attempt: &Attempt) -> Result<(), OutOfStep> {
        let row = self.rows;
        self.enter_session(attempt.session);
        let next = self.next();
        let cell = match next {
            Next::Prime { cell, .. } | Next::Run { cell, .. } if self.fits(&next, attempt) => cell,
            _ => {
                return Err(OutOfStep {
                    row: row + 1,
                    expected: self.describe(&next),
                    got: describe_row(attempt),
                });
            }
        };
        self.rows += 1;
        self.cells[cell].apply(row, &attempt.outcome);
        Ok(())
    }

    /// What became of every cell so far.
    #[must_use]
    pub fn cells(&self) -> Vec<CellRounds> {
        let over = self.next() == Next::Done;
        let cells = self.cells.iter().map(CellProgress::rounds);
        let mut cells: Vec<CellRounds> = cells.collect();
        for cell in &mut cells {
            cell.finished &= over || cell.stopped.is_some() || !self.may_go_on(cell.cell);
        }
        cells
    }

    /// Whether a cell that has run all rounds of this stage may get more.
    fn may_go_on(&self, cell: usize) -> bool {
        let further = self.stages.iter().skip(self.stage + 1);
        let confirmed = |stage: &Stage| stage.kind == Kind::Confirmation;
        self.taking_part[cell] || further.clone().any(confirmed)
    }

    /// How many attempts are left if every one of them is clean, no cell is decided before
    /// the last look, and none is to be confirmed that is not yet; for an estimate of time.
    #[must_use]
    pub fn attempts_left(&self) -> usize {
        let before = match self.stages[self.stage].kind {
            Kind::Confirmation => self.stages[self.stage].until,
            Kind::Look(_) => self.plan.experiment.rounds,
        };
        let taking_part = self.cells.iter().zip(&self.taking_part);
        let left = |cell: &CellProgress<'_>| cell.attempts_left(before as usize);
        taking_part
            .filter(|(_, part)| **part)
            .map(|(cell, _)| left(cell))
            .sum()
    }

    fn fits(&self, next: &Next, attempt: &Attempt) -> bool {
        if attempt.session != self.session {
            return false;
        }
        let named = |cell: usize, arm: usize| {
            self.plan.cells[cell].id == attempt.cell && self.plan.arms[arm].name == attempt.arm
        };
        next.place().is_some_and(|place| {
            named(place.cell, place.arm)
                && (attempt.round, attempt.round_try, attempt.slot)
                    == (place.round, place.round_try, place.slot)
        })
    }

    fn describe(&self, next: &Next) -> String {
        let Some(place) = next.place() else {
            return "no further row".into();
        };
        let names = (
            self.plan.cells[place.cell].id.as_str(),
            self.plan.arms[place.arm].name.as_str(),
        );
        let at = (place.round, place.round_try, place.slot);
        position(names, at, self.session)
    }
}

/// The run after these rows.
///
/// # Errors
/// [`OutOfStep`] for the first row that does not follow from the plan.
pub fn replay<'a>(
    plan: &'a Plan,
    attempts: &[Attempt],
    judge: &mut Judge<'_>,
) -> Result<Progress<'a>, OutOfStep> {
    let mut progress = Progress::new(plan);
    for (row, attempt) in attempts.iter().enumerate() {
        progress.look(&attempts[..row], judge);
        progress.apply(attempt)?;
    }
    progress.look(attempts, judge);
    Ok(progress)
}

fn describe_row(attempt: &Attempt) -> String {
    position(
        (&attempt.cell, &attempt.arm),
        (attempt.round, attempt.round_try, attempt.slot),
        attempt.session,
    )
}

fn position(
    (cell, arm): (&str, &str),
    (round, round_try, slot): (u32, u32, u32),
    session: u32,
) -> String {
    let place = if round == 0 {
        // A priming attempt has the number of its stage in place of a slot.
        let stage = match slot {
            0 => String::new(),
            stage => format!(" of stage {}", stage + 1),
        };
        format!("priming attempt {round_try}{stage} of arm `{arm}` in cell `{cell}`")
    } else {
        format!("arm `{arm}` in slot {slot} of round {round}, try {round_try}, cell `{cell}`")
    };
    if session > 1 {
        format!("{place}, session {session}")
    } else {
        place
    }
}

#[cfg(test)]
mod tests;
