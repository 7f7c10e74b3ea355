//! The run: ask what comes next, do it, put it on record, until nothing does.

use std::time::{Duration, Instant};

use crate::analysis::looks::Looks;
use crate::execute::interface::Executor;
use crate::execute::signal::Interrupt;
use crate::guard::interface::{Guard, GuardError};
use crate::record::format::Attempt;
use crate::record::reader;
use crate::record::rounds::{self, CellRounds, Place};
use crate::record::store::{RecordDir, SealedPlan};
use crate::record::writer::Writer;

use super::attempt::{self, Bench};
use super::budget::{Upcoming, may_begin};
use super::command::Workplace;
use super::error::SessionError;
use super::observer::Observer;
use super::watch::Subjects;

/// What a run needs beside its plan.
pub struct Means<'a> {
    /// Where things lie.
    pub workplace: &'a Workplace,
    /// Starts processes.
    pub executor: &'a mut dyn Executor,
    /// Watches the machine; its lock is held for the whole run.
    pub guard: &'a mut dyn Guard,
    /// Asked between attempts whether to stop.
    pub interrupt: Interrupt,
    /// 1-based session; 1 unless a bundle carries the run.
    pub session: u32,
    /// Nothing is begun that is not expected to end before.
    pub until: Option<Instant>,
    /// Whether programs and fixtures still are the plan's; asked around every attempt.
    pub subjects: &'a mut dyn Subjects,
    /// Told how it goes.
    pub observer: &'a mut dyn Observer,
}

/// Runs what is left of `sealed` into `directory`, or as many rounds as end in time.
///
/// # Errors
/// A record that cannot be written, a machine that never becomes quiet, a program that is
/// no longer the plan's, a signal. The record stays whole, and the same call resumes it.
pub fn run(
    sealed: &SealedPlan,
    directory: &RecordDir,
    means: Means<'_>,
) -> Result<(), SessionError> {
    let Means {
        workplace,
        executor,
        guard,
        interrupt,
        session,
        until,
        subjects,
        observer,
    } = means;
    let (mut writer, notes) = Writer::open(directory, &sealed.sha256)?;
    notes.iter().for_each(|note| observer.warning(note));
    // Read while the writer holds the record: another run of the same plan may have
    // added rows while this one waited for the machine.
    let mut attempts = reader::read(directory.path())?.attempts;
    let mut looks = Looks::new(&sealed.plan);
    let mut judge = |rows: &[Attempt], cells: &[CellRounds], stage| looks.judge(rows, cells, stage);
    let mut progress =
        rounds::replay(&sealed.plan, &attempts, &mut judge).map_err(SessionError::OutOfStep)?;
    progress.enter_session(session);
    observer.sealed(&sealed.plan, attempts.len(), progress.attempts_left());
    let started = started(&attempts);
    let mut bench = Bench {
        sealed,
        workplace,
        record: directory.path(),
        executor,
        guard,
        started,
        session,
    };
    let resumed_at = attempts.len();
    while let Some(place) = progress.next().place() {
        let done = attempts.len();
        not_interrupted(interrupt, done)?;
        let fresh = !attempts[resumed_at..]
            .last()
            .is_some_and(|last| same_round(last, place));
        let upcoming = Upcoming {
            cell: &sealed.plan.cells[place.cell].id,
            session,
            attempts: progress.attempts_to_next_round(),
        };
        if fresh && !ends_in_time(until, upcoming, &attempts) {
            return Ok(());
        }
        let build = sealed.plan.arms[place.arm].build;
        let row = match subjects.before(build)? {
            Some(reason) => bench.not_started(place, reason),
            None => {
                wait(bench.guard, fresh, observer).map_err(|error| of_guard(error, done))?;
                observer.starting(
                    upcoming.cell,
                    &sealed.plan.arms[place.arm].name,
                    place.round,
                );
                let row = bench.attempt(place, &attempts)?;
                // Cut short by a signal, the attempt is no row.
                not_interrupted(interrupt, done)?;
                // Changed meanwhile, nobody knows which program the numbers belong to.
                match subjects.after(build)? {
                    Some(reason) => attempt::failed(row, reason),
                    None => row,
                }
            }
        };
        writer.append(&row)?;
        progress.apply(&row).map_err(SessionError::OutOfStep)?;
        attempts.push(row);
        progress.look(&attempts, &mut judge);
        observer.recorded(&sealed.plan, &attempts, progress.attempts_left());
    }
    Ok(())
}

/// The start of the run's own clock, earlier than now when rows are on record.
fn started(attempts: &[Attempt]) -> Instant {
    let elapsed = attempts
        .last()
        .map_or(0.0, |row| row.session_seconds + seconds_of(row));
    let elapsed = Duration::try_from_secs_f64(elapsed).unwrap_or_default();
    Instant::now()
        .checked_sub(elapsed)
        .unwrap_or_else(Instant::now)
}

fn not_interrupted(interrupt: Interrupt, done: usize) -> Result<(), SessionError> {
    match interrupt.interrupted() {
        Some(signal) => Err(SessionError::Interrupted { signal, done }),
        None => Ok(()),
    }
}

fn ends_in_time(until: Option<Instant>, upcoming: Upcoming<'_>, attempts: &[Attempt]) -> bool {
    let left = |until: Instant| until.saturating_duration_since(Instant::now());
    until.is_none_or(|until| may_begin(upcoming, attempts, left(until).as_secs_f64()))
}

fn seconds_of(row: &Attempt) -> f64 {
    row.usage.map_or(0.0, |usage| {
        Duration::from_nanos(usage.wall_ns).as_secs_f64()
    })
}

/// One idle wait covers a round; priming attempts and a resumed run wait anew.
fn same_round(last: &Attempt, place: Place) -> bool {
    place.round > 0 && (last.round, last.round_try) == (place.round, place.round_try)
}

/// Waits for a quiet machine where a round begins, and takes the counters. An attempt that
/// would start on a machine that is not quiet waits too: nothing has run, nothing is lost.
fn wait(guard: &mut dyn Guard, fresh: bool, observer: &mut dyn Observer) -> Result<(), GuardError> {
    if fresh {
        guard.wait_idle(&mut |why| observer.waiting(why))?;
    }
    while let Some(who) = guard.begin() {
        observer.waiting(&who);
        guard.wait_idle(&mut |why| observer.waiting(why))?;
    }
    Ok(())
}

fn of_guard(error: GuardError, done: usize) -> SessionError {
    match error {
        GuardError::Interrupted { signal } => SessionError::Interrupted { signal, done },
        other => SessionError::Guard(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execute::interface::{Ended, ProcessSpec};
    use crate::execute::mock::{MockExecutor, MockRun};
    use crate::guard::scripted::ScriptedGuard;
    use crate::record::format::Usage;
    use crate::record::{example, store};
    use crate::session::observer::Silent;

    /// Programs that nobody writes to.
    struct Untouched;

    impl Subjects for Untouched {
        fn before(&mut self, _: Option<usize>) -> Result<Option<String>, SessionError> {
            Ok(None)
        }
        fn after(&mut self, _: Option<usize>) -> Result<Option<String>, SessionError> {
            Ok(None)
        }
    }

    const OUTPUT: &str = r#"{"decode_tok_s": 61.5, "generated_tokens": 128, "lookahead_steps": 9}"#;

    /// Runs what is left of the example; gives how many attempts that took.
    fn run_rest(sealed: &SealedPlan, directory: &RecordDir, guard: &mut ScriptedGuard) -> usize {
        run_until(None, sealed, directory, guard)
    }

    /// As [`run_rest`], as far as it ends in time.
    fn run_until(
        until: Option<Instant>,
        sealed: &SealedPlan,
        directory: &RecordDir,
        guard: &mut ScriptedGuard,
    ) -> usize {
        let usage = Usage {
            wall_ns: 1000,
            peak_rss_bytes: 4096,
            exit_status: Some(0),
            ..Usage::default()
        };
        let mut executor = MockExecutor::new(|_: &ProcessSpec, _| MockRun {
            ended: Ended::Exited(usage),
            ..MockRun::prints(OUTPUT, 0)
        });
        let workplace = Workplace {
            artifact_dirs: vec!["/a".into(), "/b".into()],
            ..Workplace::default()
        };
        let means = Means {
            workplace: &workplace,
            executor: &mut executor,
            guard,
            interrupt: Interrupt::never(),
            session: 1,
            until,
            subjects: &mut Untouched,
            observer: &mut Silent,
        };
        run(sealed, directory, means).unwrap();
        executor.calls()
    }

    #[test]
    fn a_run_goes_on_behind_the_rows_on_disk_and_then_does_nothing() {
        let root = tempfile::tempdir().unwrap();
        let plan = example::plan();
        let rows = example::attempts(&plan);
        let directory = example::store(root.path(), &plan, &rows[..rows.len() - 3]);
        let sealed = store::seal(plan).unwrap();
        let guard = &mut ScriptedGuard::default();
        assert_eq!(run_rest(&sealed, &directory, guard), 3);
        // As if another run had finished the record while this one waited for the machine.
        assert_eq!(run_rest(&sealed, &directory, guard), 0);
        let stored = reader::read(directory.path()).unwrap().attempts;
        assert_eq!(stored.len(), rows.len());
    }

    #[test]
    fn a_round_that_was_begun_is_ended_and_one_that_does_not_fit_is_not_begun() {
        let root = tempfile::tempdir().unwrap();
        let plan = example::plan();
        // Attempts of the example take 10 s each.
        let rows = example::attempts(&plan);
        let sealed = store::seal(plan).unwrap();
        let guard = &mut ScriptedGuard::default();
        // Three primed and a round of four; with two more a round is under way. Then four rounds
        // of the cell are left, and the next one would be primed first.
        for (stored, seconds, expected) in [(7, 30, 0), (7, 45, 16), (9, 25, 2), (9, 15, 0)] {
            let folder = root.path().join(format!("{stored}-{seconds}"));
            let directory = example::store(&folder, &sealed.plan, &rows[..stored]);
            let until = Some(Instant::now() + Duration::from_secs(seconds));
            let ran = run_until(until, &sealed, &directory, guard);
            assert_eq!(ran, expected, "{stored} attempts, {seconds} s");
        }
    }

    #[test]
    fn a_row_tells_all_that_its_guard_waited_for_the_lock_included() {
        let root = tempfile::tempdir().unwrap();
        let plan = example::plan();
        let directory = example::store(root.path(), &plan, &[]);
        let sealed = store::seal(plan).unwrap();
        let mut guard = ScriptedGuard::default();
        guard.waited_seconds = 7.5;
        run_rest(&sealed, &directory, &mut guard);
        let rows = reader::read(directory.path()).unwrap().attempts;
        let waited: Vec<f64> = rows.iter().map(|row| row.guard.waited_seconds).collect();
        assert_eq!(waited[..3], [7.5, 0.0, 0.0]);
    }
}
