//! `bench-run run`: prepare, measure, decide, report.

use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;

use super::arguments::RunArgs;
use super::preparing::Preparing;
use super::progress::Progress;
use super::report_files;
use super::surroundings::Surroundings;
use super::{dispatch, gate, this_host};
use crate::analysis::from_record::analyse;
use crate::analysis::looks;
use crate::analysis::model::Analysis;
use crate::execute::process::ProcessExecutor;
use crate::execute::signal::{self, Interrupt};
use crate::exit_code;
use crate::experiment::model::Guard as Settings;
use crate::guard::interface::Guard;
use crate::guard::open::{self, Options};
use crate::record::format::Host;
use crate::record::reader::{self, Record};
use crate::record::rounds::Next;
use crate::record::store::{self, RecordDir, SealedPlan};
use crate::session::error::SessionError;
use crate::session::memory;
use crate::session::observer::Observer as _;
use crate::session::prepare::{self, Prepared};
use crate::session::run::{self, Means};
use crate::session::watch::Watch;

/// Runs the experiment to its end, or as far as a signal lets it.
///
/// # Errors
/// Whatever keeps it from measuring; the record made so far stays and can be resumed.
pub fn run(arguments: &RunArgs) -> anyhow::Result<i32> {
    let surroundings = Surroundings::new(&arguments.file)?;
    let mut progress = Progress::new(arguments.quiet);
    let results = arguments
        .results
        .clone()
        .unwrap_or_else(|| surroundings.root.join("results"));
    store::check_writable(&results)?;
    let interrupt = signal::install()?;
    let preparing = Preparing::watch(interrupt);
    let request = surroundings.request(arguments.rounds, Some(preparing.stop()));
    let mut prepared = preparing.end(prepare::prepare(&request, &mut progress))?;
    let host = this_host::describe(arguments.host.as_deref());
    memory::recall(
        &surroundings.cache,
        &host.label,
        &mut prepared.plan,
        &mut progress,
    );
    for warning in &prepared.plan.warnings {
        progress.warning(warning);
    }
    let started = start(prepared, &host, &results, arguments.fresh, &mut progress)?;
    let command = format!("bench-run run {}", arguments.file.display());
    let record = measure(&started, &command, interrupt, &mut progress)?;
    progress.finish();
    let analysis = analyse(&record.plan, &record.attempts).map_err(SessionError::OutOfStep)?;
    if let Err(error) = memory::remember(&surroundings.cache, &record, &analysis) {
        progress.warning(&format!(
            "this run is not remembered for later ones: {error}"
        ));
    }
    tell(
        arguments,
        &mut progress,
        &surroundings.root,
        &record,
        &analysis,
    )?;
    Ok(if arguments.gate {
        gate::exit_code_of(analysis.gate)
    } else {
        exit_code::OK
    })
}

/// A sealed plan with its record, new or found again.
pub(super) struct Started {
    pub(super) sealed: SealedPlan,
    pub(super) directory: RecordDir,
    pub(super) workplace: crate::session::command::Workplace,
}

/// Finds the unfinished record of this very plan, else makes a new one.
fn start(
    prepared: Prepared,
    host: &Host,
    results: &Path,
    fresh: bool,
    progress: &mut Progress,
) -> Result<Started, SessionError> {
    let Prepared { plan, workplace } = prepared;
    if !fresh {
        let finished = |record: &Record| !matches!(looks::next(&record.plan, &record.attempts), Ok(next) if next != Next::Done);
        let found = store::find_resumable(results, &plan, &host.label, &finished)?;
        for skipped in &found.skipped {
            progress.warning(&format!(
                "passed over while looking for an unfinished record: {skipped}"
            ));
        }
        if let Some(record) = found.record {
            let sealed = store::seal(record.plan)?;
            return Ok(Started {
                sealed,
                directory: RecordDir::at(&record.dir),
                workplace,
            });
        }
    }
    let date = plan
        .sealed_at
        .get(..10)
        .unwrap_or(&plan.sealed_at)
        .to_owned();
    let sealed = store::seal(plan)?;
    let directory = store::create(results, (&date, &host.label), &sealed, host)?;
    Ok(Started {
        sealed,
        directory,
        workplace,
    })
}

/// Takes the guard and runs what is left of the plan.
pub(super) fn measure(
    started: &Started,
    command: &str,
    interrupt: Interrupt,
    progress: &mut Progress,
) -> anyhow::Result<Record> {
    let settings = &started.sealed.plan.experiment.guard;
    let mut guard = open_guard(settings, command, interrupt, progress)?;
    measure_in(started, Stay::ALONE, guard.as_mut(), interrupt, progress)
}

/// One stay on a machine.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stay {
    /// 1-based session.
    pub(super) session: u32,
    /// Nothing is begun that is not expected to end before.
    pub(super) until: Option<Instant>,
}

impl Stay {
    /// Of a run without a bundle: the only one, and as long as it takes.
    const ALONE: Stay = Stay {
        session: 1,
        until: None,
    };
}

/// Takes the guard, and with it the lock, or says why not.
pub(super) fn open_guard(
    settings: &Settings,
    command: &str,
    interrupt: Interrupt,
    progress: &mut Progress,
) -> Result<Box<dyn Guard>, SessionError> {
    let options = Options::from_env(command, interrupt).map_err(SessionError::Guard)?;
    open::open(settings, &options, &mut |line| progress.waiting(line)).map_err(SessionError::Guard)
}

/// Runs what is left of the plan under a guard.
pub(super) fn measure_in(
    started: &Started,
    stay: Stay,
    guard: &mut dyn Guard,
    interrupt: Interrupt,
    progress: &mut Progress,
) -> anyhow::Result<Record> {
    let mut executor = ProcessExecutor::new(interrupt)?;
    let mut watch = Watch::new(&started.sealed.plan, &started.workplace);
    let means = Means {
        workplace: &started.workplace,
        executor: &mut executor,
        guard,
        interrupt,
        session: stay.session,
        until: stay.until,
        subjects: &mut watch,
        observer: progress,
    };
    run::run(&started.sealed, &started.directory, means)?;
    Ok(reader::read(started.directory.path())?)
}

/// Prints the table and writes the report.
fn tell(
    arguments: &RunArgs,
    progress: &mut Progress,
    root: &Path,
    record: &Record,
    analysis: &Analysis,
) -> anyhow::Result<()> {
    if !arguments.quiet {
        dispatch::print(&report_files::table(record, analysis))?;
    }
    let shown = super::project::relative(&record.dir, root);
    let mut lines = vec![format!("record  {shown}")];
    if !arguments.no_report {
        let folder = arguments
            .reports
            .clone()
            .unwrap_or_else(|| report_files::default_folder(root));
        let report = report_files::published(progress, |with_record| {
            report_files::write(record, analysis, &folder, with_record)
        })
        .with_context(|| {
            format!(
                "everything is measured and on record in {shown}, but the report cannot be \
                 written (`bench-run report` makes it from the record)"
            )
        })?;
        if let Some(report) = report {
            let report = super::project::relative(&report, root);
            lines.push(format!("report  {report}"));
        }
    }
    if !arguments.quiet {
        dispatch::print(&format!("{}\n", lines.join("\n")))?;
    }
    Ok(())
}
