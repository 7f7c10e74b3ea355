//! `bench-run calibrate`: how often the rule errs and what it finds, on this very machine.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;

use super::dispatch::print;
use super::preparing::Preparing;
use super::progress::Progress;
use super::project;
use super::run::{Started, measure};
use super::surroundings::Surroundings;
use super::this_host;
use crate::analysis::calibration::{self, Calibration, RunFigures, Sizes};
use crate::analysis::looks;
use crate::execute::signal::{self, Interrupt};
use crate::exit_code;
use crate::record::format::{Host, Plan};
use crate::record::reader::{self, Record};
use crate::record::rounds::Next;
use crate::record::store::{self, RecordDir};
use crate::report::calibration::{self as page, Page};
use crate::report::publish::free_stem;
use crate::session::calibrate::{PILOTS, folder, plan};
use crate::session::error::SessionError;
use crate::session::prepare::{self, Prepared, Request};

/// `bench-run calibrate`.
#[derive(Debug, Clone, Args)]
pub struct CalibrateArgs {
    /// The experiment whose base is measured against itself
    pub file: PathBuf,
    /// How many runs, pilots not counted; more on record are used too
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,
    /// Folder of the records [default: results/calibration beside the experiment's project]
    #[arg(long, value_name = "DIR")]
    pub results: Option<PathBuf>,
    /// Folder of the page [default: docs/calibration in the project]
    #[arg(long, value_name = "DIR")]
    pub reports: Option<PathBuf>,
    /// Name of this machine [default: made from the processor]
    #[arg(long, value_name = "LABEL")]
    pub host: Option<String>,
    /// No progress; warnings and errors only
    #[arg(long, short)]
    pub quiet: bool,
}

/// Runs what is missing, then writes the page. The same command goes on after an interruption.
///
/// # Errors
/// Whatever keeps it from measuring; what is on record stays.
pub fn run(arguments: &CalibrateArgs) -> anyhow::Result<i32> {
    let surroundings = Surroundings::new(&arguments.file)?;
    let mut progress = Progress::new(arguments.quiet);
    let interrupt = signal::install()?;
    let preparing = Preparing::watch(interrupt);
    let request = Request {
        only_base: true,
        ..surroundings.request(None, Some(preparing.stop()))
    };
    let prepared = preparing.end(prepare::prepare(&request, &mut progress))?;
    let host = this_host::describe(arguments.host.as_deref());
    let name = prepared.plan.experiment.name.clone();
    let default = || surroundings.root.join("results/calibration");
    let results = arguments.results.clone().unwrap_or_else(default);
    let mut series = Series {
        prepared: &prepared,
        host: &host,
        results: results.join(format!("{name}-{}", host.label)),
        interrupt,
        progress: &mut progress,
    };
    let pilots = series.all(None, PILOTS)?;
    let figures: Vec<RunFigures> = pilots.iter().map(figures).collect::<Result<_, _>>()?;
    let sizes = calibration::sizes(&figures).context(
        "no pilot run could be judged, so nothing says how large a slow-down must be to be seen",
    )?;
    let runs = series.all(Some(sizes), arguments.runs)?;
    progress.finish();
    let folder = arguments.reports.clone();
    let folder = folder.unwrap_or_else(|| surroundings.root.join("docs/calibration"));
    let written = write(&folder, &host, sizes, &runs)?;
    let shown = project::relative(&written, &surroundings.root);
    print(&format!("calibration  {shown}\n"))?;
    Ok(exit_code::OK)
}

/// The runs of one calibration, each a record in a folder of its own.
struct Series<'a> {
    prepared: &'a Prepared,
    host: &'a Host,
    results: PathBuf,
    interrupt: Interrupt,
    progress: &'a mut Progress,
}

impl Series<'_> {
    /// So many runs, and those on record beyond them: a page does not get poorer.
    fn all(&mut self, sizes: Option<Sizes>, runs: u32) -> anyhow::Result<Vec<Record>> {
        let mut all = Vec::new();
        for number in 1.. {
            let found = record_in(&self.results.join(folder(sizes, number)))?;
            if number > runs && !found.as_ref().is_some_and(is_finished) {
                break;
            }
            all.push(self.one(sizes, number, runs, found)?);
        }
        Ok(all)
    }

    /// The finished record of one run, of which `found` is there; the rest is measured now.
    fn one(
        &mut self,
        sizes: Option<Sizes>,
        number: u32,
        of: u32,
        found: Option<Record>,
    ) -> anyhow::Result<Record> {
        let folder = folder(sizes, number);
        let planned = plan(&self.prepared.plan, sizes, number);
        let (sealed, directory) = match found {
            Some(record) => {
                self.belongs_here(&record, &planned)?;
                if is_finished(&record) {
                    return Ok(record);
                }
                (store::seal(record.plan)?, RecordDir::at(&record.dir))
            }
            None => {
                let sealed = store::seal(planned)?;
                let date = sealed
                    .plan
                    .sealed_at
                    .get(..10)
                    .unwrap_or("undated")
                    .to_owned();
                let names = (date.as_str(), self.host.label.as_str());
                let place = self.results.join(&folder);
                let directory = store::create(&place, names, &sealed, self.host)?;
                (sealed, directory)
            }
        };
        self.progress.line(&format!("{folder} of {of}"));
        let started = Started {
            sealed,
            directory,
            workplace: self.prepared.workplace.clone(),
        };
        measure(
            &started,
            "bench-run calibrate",
            self.interrupt,
            self.progress,
        )
    }

    /// Runs of another experiment, program or version of this one do not add up with these.
    fn belongs_here(&self, record: &Record, planned: &Plan) -> anyhow::Result<()> {
        if store::identity(&record.plan)? == store::identity(planned)? {
            return Ok(());
        }
        Err(SessionError::Usage(format!(
            "{}: expected a run that this calibration would make, got one of another experiment, \
             program or version of bench-run; move {} away",
            record.dir.display(),
            self.results.display()
        ))
        .into())
    }
}

/// The record in the folder of a run, if there is one.
fn record_in(place: &Path) -> anyhow::Result<Option<Record>> {
    let newest = store::record_directories(place)?.into_iter().next();
    Ok(newest.map(|path| reader::read(&path)).transpose()?)
}

fn is_finished(record: &Record) -> bool {
    matches!(looks::next(&record.plan, &record.attempts), Ok(Next::Done))
}

fn figures(record: &Record) -> Result<RunFigures, SessionError> {
    calibration::figures(&record.plan, &record.attempts).map_err(SessionError::OutOfStep)
}

fn write(folder: &Path, host: &Host, sizes: Sizes, runs: &[Record]) -> anyhow::Result<PathBuf> {
    let last = runs.last().context("--runs: expected at least 1, got 0")?;
    let figures: Vec<RunFigures> = runs.iter().map(figures).collect::<Result<_, _>>()?;
    let summary: Calibration = calibration::summary(&last.plan, sizes, &figures);
    let page = Page::new(&summary, last, host);
    let stem = free_stem(&host.label, folder, &|text| page.has_subject_of(text));
    let page = page.named(&stem);
    let data = folder.join("data").join(&stem);
    fs::create_dir_all(&data).with_context(|| format!("cannot create {}", data.display()))?;
    let write = |path: &Path, text: &str| {
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    let json = serde_json::to_string_pretty(&summary).context("cannot write the figures")?;
    write(&data.join("calibration.json"), &format!("{json}\n"))?;
    for figure in page::figures(&summary).context("cannot draw")? {
        write(&data.join(figure.file), &figure.svg)?;
    }
    let path = folder.join(format!("{stem}.md"));
    write(&path, &page.render().context("cannot render the page")?)?;
    Ok(path)
}
