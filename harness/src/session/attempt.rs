//! One attempt: start it, watch it, read what it printed, make its row.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use indexmap::IndexMap;

use crate::build::job;
use crate::execute::interface::{Ended, Executor, ProcessSpec};
use crate::guard::interface::Guard;
use crate::metric::expect;
use crate::metric::extract::{self, MAX_PARSED_BYTES, Refusal};
use crate::record::format::{Attempt, Outcome, SCHEMA, Usage};
use crate::record::rounds::Place;
use crate::record::store::{LOGS_DIRECTORY, SealedPlan};

use super::command::{self, Workplace};
use super::environment::padding_bytes;
use super::error::SessionError;

/// How much of a failed program's last line a row quotes: as much as a reader takes in.
const MOST_QUOTED_CHARS: usize = 200;

/// What runs attempts, and where.
pub struct Bench<'a> {
    /// The sealed plan.
    pub sealed: &'a SealedPlan,
    /// Where things lie.
    pub workplace: &'a Workplace,
    /// The record's folder.
    pub record: &'a Path,
    /// Starts processes.
    pub executor: &'a mut dyn Executor,
    /// Watches the machine.
    pub guard: &'a mut dyn Guard,
    /// The run's own clock.
    pub started: Instant,
    /// 1-based session that rows belong to.
    pub session: u32,
}

impl Bench<'_> {
    /// Runs one attempt and makes its row; `earlier` are the rows on record.
    ///
    /// # Errors
    /// Only faults of the harness's own side; whatever the command does is a row.
    pub fn attempt(&mut self, place: Place, earlier: &[Attempt]) -> Result<Attempt, SessionError> {
        let plan = &self.sealed.plan;
        let (cell, arm) = (&plan.cells[place.cell], &plan.arms[place.arm]);
        let padding = self.padding(place);
        let ready = command::ready(plan, self.workplace, cell, arm, padding)?;
        let files = self.output_files(&format!(
            "{}-r{}t{}s{}-{}",
            cell.id, place.round, place.round_try, place.slot, arm.name
        ));
        let spec = ProcessSpec {
            argv: ready.argv,
            env: ready.env,
            directory: self.workplace.root.clone(),
            timeout: Duration::from_secs(plan.experiment.timeout_secs),
            stdout: files.0.clone(),
            stderr: files.1.clone(),
            // More is a fault of the command, and reading it would disturb the machine.
            max_output_bytes: MAX_PARSED_BYTES,
        };
        let mut row = self.empty_row(place, padding);
        let (ended, guard) = self.watch(&spec)?;
        row.guard = guard.summary;
        row.output_files = [&files.0, &files.1]
            .iter()
            .map(|path| self.relative(path))
            .collect();
        self.judge(&mut row, place, &ended, &files.0, earlier);
        if let Outcome::Failed { reason } = &mut row.outcome {
            reason.push_str(&self.last_words(&files.1));
        }
        self.hide_folders(&mut row);
        // A crash or a wrong answer is the program's own on any machine; running out of
        // time need not be.
        let may_be_the_machine = matches!(row.outcome, Outcome::Ok | Outcome::TimedOut { .. });
        if let Some(who) = guard.rejected
            && may_be_the_machine
        {
            row.outcome = Outcome::Rejected { reason: who };
        }
        Ok(row)
    }

    /// The row of an attempt whose program is gone: nothing was run.
    #[must_use]
    pub fn not_started(&self, place: Place, reason: String) -> Attempt {
        failed(self.empty_row(place, self.padding(place)), reason)
    }

    fn padding(&self, place: Place) -> u32 {
        padding_bytes(
            self.sealed.plan.experiment.seed,
            place.cell,
            place.round,
            place.round_try,
            place.slot,
        )
    }

    /// Runs the process; the guard has taken its counters before and judges after.
    fn watch(
        &mut self,
        spec: &ProcessSpec,
    ) -> Result<(Ended, crate::guard::interface::GuardVerdict), SessionError> {
        let guard = std::cell::RefCell::new(&mut *self.guard);
        let ended = self
            .executor
            .run(
                spec,
                &mut |group| guard.borrow_mut().measured_group(group),
                &mut || guard.borrow_mut().sample(),
            )
            .map_err(|source| SessionError::Output {
                path: spec.stdout.display().to_string(),
                source,
            })?;
        let verdict = guard.borrow_mut().end();
        Ok((ended, verdict))
    }

    /// Fills in what became of the attempt. What its output means is decided in `metric`.
    fn judge(
        &self,
        row: &mut Attempt,
        place: Place,
        ended: &Ended,
        stdout: &Path,
        earlier: &[Attempt],
    ) {
        let plan = &self.sealed.plan;
        let (usage, outcome) = of_process(ended, plan.experiment.timeout_secs);
        row.usage = usage;
        row.outcome = outcome;
        let (Some(usage), Outcome::Ok) = (usage, &row.outcome) else {
            return;
        };
        let (cell, arm) = (&plan.cells[place.cell], &plan.arms[place.arm]);
        let extracted = extract::extract(&plan.experiment, cell, arm, stdout, &usage);
        row.fields = extracted.fields;
        let values = row.fields.values_mut();
        values.for_each(|value| self.workplace.roots.hide_in(value));
        match extracted.metrics {
            Ok(metrics) => row.metrics = metrics,
            Err(Refusal::Failed(reason)) => row.outcome = Outcome::Failed { reason },
            Err(Refusal::Invalid(reason)) => row.outcome = Outcome::Invalid { reason },
        }
        let expect = &plan.experiment.expect;
        if row.outcome.is_ok()
            && let Some(reason) = expect::differs(expect, &plan.experiment.base, row, earlier)
        {
            row.outcome = Outcome::Invalid { reason };
            row.metrics.clear();
        }
    }

    /// What a program that failed said last: usually why. A published record has no logs.
    fn last_words(&self, stderr: &Path) -> String {
        let line = job::last_line(stderr).unwrap_or_default();
        let line = line.chars().filter(|one| !one.is_control());
        let line: String = line.take(MOST_QUOTED_CHARS).collect();
        match line.as_str() {
            "" => String::new(),
            line => format!("; {} ends: {line}", self.relative(stderr)),
        }
    }

    /// A reason quotes what the program printed.
    fn hide_folders(&self, row: &mut Attempt) {
        let roots = &self.workplace.roots;
        match &mut row.outcome {
            Outcome::Rejected { reason }
            | Outcome::Failed { reason }
            | Outcome::Invalid { reason } => *reason = roots.hide(reason),
            Outcome::Ok | Outcome::TimedOut { .. } => {}
        }
    }

    fn empty_row(&self, place: Place, padding: u32) -> Attempt {
        let plan = &self.sealed.plan;
        let arm = &plan.arms[place.arm];
        let build = arm.build.and_then(|index| plan.builds.get(index));
        Attempt {
            schema: SCHEMA,
            plan: self.sealed.tag().to_owned(),
            cell: plan.cells[place.cell].id.clone(),
            arm: arm.name.clone(),
            commit: build.and_then(|build| build.commit.clone()),
            code_sha256: build
                .map(|build| build.code_sha256.clone())
                .unwrap_or_default(),
            round: place.round,
            round_try: place.round_try,
            slot: place.slot,
            session: self.session,
            started_at: now_milliseconds(),
            session_seconds: self.started.elapsed().as_secs_f64(),
            env_padding_bytes: padding,
            outcome: Outcome::Ok,
            metrics: IndexMap::new(),
            fields: IndexMap::new(),
            usage: None,
            guard: crate::record::format::GuardSummary::default(),
            output_files: Vec::new(),
        }
    }

    /// Two free file names below `logs/`; an attempt that a kill cut short left its own.
    fn output_files(&self, stem: &str) -> (PathBuf, PathBuf) {
        let logs = self.record.join(LOGS_DIRECTORY);
        let mut number = 1;
        loop {
            let name = if number == 1 {
                stem.to_owned()
            } else {
                format!("{stem}-again{number}")
            };
            let (out, err) = (
                logs.join(format!("{name}.out")),
                logs.join(format!("{name}.err")),
            );
            if !out.exists() && !err.exists() {
                return (out, err);
            }
            number += 1;
        }
    }

    fn relative(&self, path: &Path) -> String {
        path.strip_prefix(self.record)
            .unwrap_or(path)
            .to_string_lossy()
            .into_owned()
    }
}

/// The same attempt, failed for `reason`: none of its numbers may be used.
#[must_use]
pub fn failed(row: Attempt, reason: String) -> Attempt {
    Attempt {
        outcome: Outcome::Failed { reason },
        metrics: IndexMap::new(),
        ..row
    }
}

/// The outcome of a process that was not left to end by itself; one that was is `Ok` so far.
fn of_process(ended: &Ended, limit_seconds: u64) -> (Option<Usage>, Outcome) {
    let failed = |reason: String| Outcome::Failed { reason };
    match ended {
        Ended::NotStarted(reason) => (None, failed(format!("did not start: {reason}"))),
        Ended::TimedOut(usage) => (Some(*usage), Outcome::TimedOut { limit_seconds }),
        Ended::Stopped(usage, who) => (
            Some(*usage),
            Outcome::Rejected {
                reason: who.clone(),
            },
        ),
        Ended::OutputTooLarge(usage, bytes) => (
            Some(*usage),
            failed(format!(
                "printed {bytes} bytes, expected at most {MAX_PARSED_BYTES}"
            )),
        ),
        Ended::Exited(usage) => (Some(*usage), Outcome::Ok),
    }
}

/// Now, RFC 3339 in UTC with milliseconds.
fn now_milliseconds() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}
