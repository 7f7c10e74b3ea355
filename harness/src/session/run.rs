//! The run: ask what comes next, do it, put it on record, until nothing does.

use std::time::{Duration, Instant};

use crate::execute::interface::Executor;
use crate::execute::signal::Interrupt;
use crate::guard::interface::{Guard, GuardError};
use crate::record::format::Attempt;
use crate::record::rounds::{Next, Progress};
use crate::record::store::{RecordDir, SealedPlan};
use crate::record::writer::Writer;

use super::attempt::{Bench, Place};
use super::command::Workplace;
use super::error::SessionError;
use super::observer::Observer;

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
    /// Told how it goes.
    pub observer: &'a mut dyn Observer,
}

/// Runs what is left of `sealed` into `directory`, whose rows so far are `attempts`.
/// Returns all rows.
///
/// # Errors
/// A record that cannot be written, a machine that never becomes quiet, a signal. The
/// record stays whole, and the same call resumes it.
pub fn run(
    sealed: &SealedPlan,
    directory: &RecordDir,
    mut attempts: Vec<Attempt>,
    means: Means<'_>,
) -> Result<Vec<Attempt>, SessionError> {
    let Means {
        workplace,
        executor,
        guard,
        interrupt,
        observer,
    } = means;
    let (mut writer, notes) = Writer::open(directory, &sealed.sha256)?;
    notes.iter().for_each(|note| observer.warning(note));
    let mut progress = Progress::new(&sealed.plan);
    for row in &attempts {
        progress.apply(row).map_err(SessionError::OutOfStep)?;
    }
    observer.sealed(&sealed.plan, attempts.len());
    let started = started(&attempts);
    let mut bench = Bench {
        sealed,
        workplace,
        record: directory.path(),
        executor,
        guard,
        started,
    };
    let resumed_at = attempts.len();
    while let Some(place) = place(&progress.next()) {
        let done = attempts.len();
        if let Some(signal) = interrupt.interrupted() {
            return Err(SessionError::Interrupted { signal, done });
        }
        let fresh = !attempts[resumed_at..]
            .last()
            .is_some_and(|last| same_round(last, place));
        let waited = wait(bench.guard, fresh, observer).map_err(|error| of_guard(error, done))?;
        let (cell, arm) = (
            &sealed.plan.cells[place.cell].id,
            &sealed.plan.arms[place.arm].name,
        );
        observer.starting(cell, arm, place.round);
        let row = bench.attempt(place, waited, &attempts)?;
        if let Some(signal) = interrupt.interrupted() {
            // The attempt was cut short by the signal: it is no row.
            return Err(SessionError::Interrupted { signal, done });
        }
        writer.append(&row)?;
        progress.apply(&row).map_err(SessionError::OutOfStep)?;
        attempts.push(row);
        observer.recorded(&sealed.plan, &attempts);
    }
    Ok(attempts)
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

fn seconds_of(row: &Attempt) -> f64 {
    row.usage.map_or(0.0, |usage| {
        Duration::from_nanos(usage.wall_ns).as_secs_f64()
    })
}

fn place(next: &Next) -> Option<Place> {
    match *next {
        Next::Prime {
            cell,
            arm,
            round_try,
        } => Some(Place {
            cell,
            arm,
            round: 0,
            round_try,
            slot: 0,
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
        Next::Done => None,
    }
}

/// One idle wait covers a round; priming attempts and a resumed run wait anew.
fn same_round(last: &Attempt, place: Place) -> bool {
    place.round > 0 && (last.round, last.round_try) == (place.round, place.round_try)
}

/// Waits for a quiet machine where a round begins, and takes the counters. An attempt that
/// would start on a machine that is not quiet waits too: nothing has run, nothing is lost.
fn wait(
    guard: &mut dyn Guard,
    fresh: bool,
    observer: &mut dyn Observer,
) -> Result<Duration, GuardError> {
    let mut waited = Duration::ZERO;
    if fresh {
        waited += guard.wait_idle(&mut |why| observer.waiting(why))?;
    }
    while let Some(who) = guard.begin() {
        observer.waiting(&who);
        waited += guard.wait_idle(&mut |why| observer.waiting(why))?;
    }
    Ok(waited)
}

fn of_guard(error: GuardError, done: usize) -> SessionError {
    match error {
        GuardError::Interrupted { signal } => SessionError::Interrupted { signal, done },
        other => SessionError::Guard(other),
    }
}
