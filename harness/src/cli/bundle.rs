//! `bench-run bundle`: packs a sealed plan with its arms for a machine without repository or
//! toolchain, runs it there within given minutes, and brings the record home.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};

use super::preparing::Preparing;
use super::progress::Progress;
use super::run::{Started, Stay, measure_in, open_guard};
use super::surroundings::Surroundings;
use super::{dispatch, project, report_files, this_host, version};
use crate::analysis::from_record::analyse;
use crate::analysis::looks;
use crate::bundle::error::BundleError;
use crate::bundle::merge::{self, Merged};
use crate::bundle::open::{self, Opened, Opener};
use crate::bundle::pack::{self, Contents};
use crate::bundle::{layout, logs, stay};
use crate::execute::signal::{self, Interrupt, TIME_IS_OVER};
use crate::exit_code;
use crate::guard::interface::GuardError;
use crate::record::error::RecordError;
use crate::record::format::{Host, Plan, SCHEMA, Session};
use crate::record::reader::{self, Record};
use crate::record::session_file;
use crate::record::sessions::{self, Ruling};
use crate::record::store::{self, PLAN_FILE, RecordDir};
use crate::session::error::SessionError;
use crate::session::memory;
use crate::session::observer::Observer as _;
use crate::session::prepare;
use crate::source::cache_root::CacheRoot;

/// This very program, also when its file has been replaced by a newer one meanwhile.
const ITSELF: &str = "/proc/self/exe";

/// The label under which nothing is known of a machine.
const UNKNOWN_HOST: &str = "unknown";

/// Time that is kept for ending an attempt and packing its output, at most.
const TIDYING: Duration = Duration::from_secs(5);

/// More minutes than this are a slip: four weeks.
const MOST_MINUTES: f64 = 40_320.0;

/// `bench-run bundle`.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct BundleArgs {
    /// What to do with a bundle; without it a new one is packed
    #[command(subcommand)]
    pub action: Option<Action>,
    /// What to pack.
    #[command(flatten)]
    pub pack: Option<PackArgs>,
}

/// What is done with a bundle.
#[derive(Debug, Clone, Subcommand)]
pub enum Action {
    /// Measure on this machine, as many rounds as end in time; the same command goes on
    Run(RunArgs),
    /// Check a record that a bundle left and copy it to where records lie
    Merge(MergeArgs),
}

/// `bench-run bundle EXPERIMENT -o OUT`.
#[derive(Debug, Clone, Args)]
pub struct PackArgs {
    /// The experiment file (YAML)
    pub file: PathBuf,
    /// Folder to make, or a file that ends in .tar
    #[arg(long, short, value_name = "OUT")]
    pub output: PathBuf,
    /// A file or folder of the project that attempts read, relative to its root; may be repeated
    #[arg(long, value_name = "PATH")]
    pub with: Vec<PathBuf>,
    /// Plan this many rounds instead of the file's
    #[arg(long, value_name = "N")]
    pub rounds: Option<u32>,
    /// Name of the machine that will measure, under which its noise is known
    #[arg(long, value_name = "LABEL")]
    pub host: Option<String>,
    /// No progress on standard error
    #[arg(long, short)]
    pub quiet: bool,
}

/// `bench-run bundle run`.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// The bundle's folder
    pub folder: PathBuf,
    /// End before this many minutes are over, with whole rounds [default: when all are measured]
    #[arg(long, value_name = "M", value_parser = minutes)]
    pub minutes: Option<f64>,
    /// The record's folder, made or gone on with [default: record in the bundle]
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// Name of this machine in records and reports [default: made from the processor]
    #[arg(long, value_name = "LABEL")]
    pub host: Option<String>,
    /// No progress, no table; warnings and errors only
    #[arg(long, short)]
    pub quiet: bool,
}

/// `bench-run bundle merge`.
#[derive(Debug, Clone, Args)]
pub struct MergeArgs {
    /// The record that came back
    pub record: PathBuf,
    /// Also check that it is a record of this bundle, and that the bundle is as it was packed
    #[arg(long, value_name = "FOLDER")]
    pub bundle: Option<PathBuf>,
    /// Folder of the records [default: results in the project of the current folder]
    #[arg(long, value_name = "DIR")]
    pub results: Option<PathBuf>,
}

fn minutes(text: &str) -> Result<f64, String> {
    let minutes: Option<f64> = text.parse().ok();
    minutes
        .filter(|minutes| *minutes > 0.0 && *minutes <= MOST_MINUTES)
        .ok_or_else(|| format!("expected minutes above 0 and up to {MOST_MINUTES}, got {text}"))
}

/// Packs, runs or merges.
///
/// # Errors
/// Whatever keeps it from that; a record that was begun stays and can be gone on with.
pub fn run(arguments: &BundleArgs) -> anyhow::Result<i32> {
    match (&arguments.action, &arguments.pack) {
        (Some(Action::Run(arguments)), _) => run_here(arguments),
        (Some(Action::Merge(arguments)), _) => bring_home(arguments),
        (None, Some(arguments)) => pack_up(arguments),
        (None, None) => Err(SessionError::Usage(
            "expected an experiment file and -o, or `run` or `merge`, got nothing".into(),
        )
        .into()),
    }
}

fn pack_up(arguments: &PackArgs) -> anyhow::Result<i32> {
    let surroundings = Surroundings::new(&arguments.file)?;
    let mut progress = Progress::new(arguments.quiet);
    let is_tar = arguments.output.extension().is_some_and(|e| e == "tar");
    free(&arguments.output, is_tar)?;
    let preparing = Preparing::watch(signal::install()?);
    let request = surroundings.request(arguments.rounds, Some(preparing.stop()));
    let mut prepared = preparing.end(prepare::prepare(&request, &mut progress))?;
    let host = arguments.host.as_deref().unwrap_or(UNKNOWN_HOST);
    memory::recall(&surroundings.cache, host, &mut prepared.plan, &mut progress);
    // The machine that measures has values of its own: each session keeps their check.
    prepared.plan.passed_env_check = None;
    prepared.plan.warnings.extend(lonely(&prepared.plan));
    for warning in &prepared.plan.warnings {
        progress.warning(warning);
    }
    let sealed = store::seal(prepared.plan)?;
    let contents = Contents {
        sealed: &sealed,
        workplace: &prepared.workplace,
        program: Path::new(ITSELF),
        files: &arguments.with,
    };
    progress.finish();
    if is_tar {
        pack::pack_tar(&contents, &arguments.output)?;
    } else {
        pack::pack(&contents, &arguments.output)?;
    }
    let shown = arguments.output.display();
    dispatch::print(&format!("bundle  {shown}\nplan    {}\n", sealed.sha256))
}

/// Said before anything is built.
fn free(output: &Path, is_tar: bool) -> Result<(), SessionError> {
    let is_empty =
        |folder: &Path| std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none());
    if output.exists() && (is_tar || !is_empty(output)) {
        let (shown, what) = (output.display(), if is_tar { "file" } else { "folder" });
        return Err(SessionError::Usage(format!(
            "-o {shown}: expected a {what} that is not there yet, got one that is"
        )));
    }
    let above = std::path::absolute(output).unwrap_or_else(|_| output.to_owned());
    Ok(store::check_writable(
        above.parent().unwrap_or(Path::new("/")),
    )?)
}

/// A program that somebody else built may need files that nobody named.
fn lonely(plan: &Plan) -> Vec<String> {
    let prebuilt = |build: &usize| plan.builds[*build].commit.is_none();
    let arms = plan.arms.iter().filter(|arm| arm.null_of.is_none());
    arms.filter(|arm| arm.build.as_ref().is_some_and(prebuilt))
        .map(|arm| {
            let name = &arm.name;
            format!("arm `{name}` is a prebuilt program: it is packed without the files beside it")
        })
        .collect()
}

fn run_here(arguments: &RunArgs) -> anyhow::Result<i32> {
    let began = Instant::now();
    let interrupt = signal::install()?;
    let until = arguments.minutes.map(|minutes| {
        let given = Duration::from_secs_f64(60.0 * minutes);
        began + given - TIDYING.min(given / 10)
    });
    if let Some(until) = until {
        signal::alarm(until.saturating_duration_since(Instant::now()))?;
    }
    let mut progress = Progress::new(arguments.quiet);
    let opened = open::open(
        &arguments.folder,
        &Opener {
            variable: &|name| std::env::var_os(name),
            tool: version::LINE,
            program: Path::new(ITSELF),
        },
    )?;
    let default = || arguments.folder.join(layout::RECORD_FOLDER);
    let place = arguments.record.clone().unwrap_or_else(default);
    store::check_writable(&place)?;
    let host = this_host::describe(arguments.host.as_deref());
    let measured = stay_here(
        opened,
        &Here {
            bundle: &arguments.folder,
            place: &place,
            host: &host,
            is_guessed: arguments.host.is_none(),
            until,
            interrupt,
        },
        &mut progress,
    );
    progress.finish();
    match measured {
        Err(error) if is_time_over(&error) => {}
        measured => measured?,
    }
    tell(&place, arguments.quiet)
}

/// Where and how long a bundle is run.
struct Here<'a> {
    bundle: &'a Path,
    place: &'a Path,
    host: &'a Host,
    /// Nobody named the machine.
    is_guessed: bool,
    until: Option<Instant>,
    interrupt: Interrupt,
}

/// A processor says less of a rented machine than of one's own.
fn guessed(label: &str) -> String {
    format!(
        "this machine is called `{label}` after its processor, in this record for good; another \
         machine with that processor would share its reports' names and its history of noise: \
         `--host` names it"
    )
}

/// Measures what is left, as one more session or as the one that ran last.
fn stay_here(opened: Opened, here: &Here<'_>, progress: &mut Progress) -> anyhow::Result<()> {
    let known = known(&opened, here.place)?;
    if let Some(known) = &known
        && looks::left(&known.plan, &known.attempts).map_err(SessionError::OutOfStep)? == 0
    {
        return Ok(());
    }
    for warning in &opened.warnings {
        progress.warning(warning);
    }
    let mut all = known
        .as_ref()
        .map_or_else(Vec::new, |known| known.sessions.clone());
    let session = session(&opened, here, &mut all)?;
    // Before the record: on a machine without what the guard watches none is begun.
    let settings = &opened.sealed.plan.experiment.guard;
    let mut guard = open_guard(settings, "bench-run bundle run", here.interrupt, progress)?;
    if known.is_none() {
        if here.is_guessed {
            progress.warning(&guessed(&here.host.label));
        }
        store::create_at(here.place, &opened.sealed, here.host)?;
    }
    session_file::write(here.place, &all)?;
    logs::unpack(here.place, here.place)?;
    let started = Started {
        sealed: opened.sealed,
        directory: RecordDir::at(here.place),
        workplace: opened.workplace,
    };
    let stay = Stay {
        session,
        until: here.until,
    };
    let measured = measure_in(&started, stay, guard.as_mut(), here.interrupt, progress);
    logs::pack(here.place)?;
    measured.map(|_| ())
}

/// The record that was begun, if one was.
fn known(opened: &Opened, place: &Path) -> Result<Option<Record>, BundleError> {
    if !place.join(PLAN_FILE).exists() {
        return Ok(None);
    }
    let record = reader::read(place)?;
    merge::same_plan(&opened.sealed.sha256, &record)?;
    Ok(Some(record))
}

/// The number of this session; a new one is put behind the others.
fn session(opened: &Opened, here: &Here<'_>, all: &mut Vec<Session>) -> Result<u32, BundleError> {
    let mut warnings = here.host.warnings.clone();
    warnings.extend(opened.warnings.clone());
    let mut this = Session {
        schema: SCHEMA,
        session: 0,
        stay: stay::mark(here.bundle)?,
        passed_env_check: prepare::passed_env_check(&opened.workplace.passed_env),
        started_at: jiff::Timestamp::now()
            .strftime("%Y-%m-%dT%H:%M:%SZ")
            .to_string(),
        facts: here.host.facts.clone(),
        warnings,
    };
    match sessions::decide(all, &this) {
        Ruling::GoOn(session) => Ok(session),
        Ruling::Begin(session) => {
            this.session = session;
            all.push(this);
            Ok(session)
        }
        Ruling::Refuse(difference) => Err(RecordError::OtherMachine {
            directory: here.place.to_owned(),
            fact: difference.fact,
            expected: difference.expected,
            got: difference.got,
        }
        .into()),
    }
}

fn is_time_over(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(
            SessionError::Interrupted {
                signal: TIME_IS_OVER,
                ..
            } | SessionError::Guard(GuardError::Interrupted {
                signal: TIME_IS_OVER
            })
        )
    )
}

/// What is on record, and whether anything is left.
fn tell(place: &Path, quiet: bool) -> anyhow::Result<i32> {
    if !place.join(PLAN_FILE).exists() {
        dispatch::print("the minutes were over before anything was measured\n")?;
        return Ok(exit_code::TRY_AGAIN);
    }
    let record = reader::read(place)?;
    let left = looks::left(&record.plan, &record.attempts).map_err(SessionError::OutOfStep)?;
    let done = record.attempts.len();
    let shown = place.display();
    if left > 0 {
        // No table: what is not decided yet would read like a verdict.
        dispatch::print(&format!(
            "record  {shown}: {done} attempts, {left} left; the same command goes on\n"
        ))?;
        return Ok(exit_code::TRY_AGAIN);
    }
    if !quiet {
        let analysis = analyse(&record.plan, &record.attempts).map_err(SessionError::OutOfStep)?;
        dispatch::print(&report_files::table(&record, &analysis))?;
    }
    dispatch::print(&format!("record  {shown}: {done} attempts, complete\n"))
}

fn bring_home(arguments: &MergeArgs) -> anyhow::Result<i32> {
    let root = project::root_of(Path::new("record"));
    let default = || root.join("results");
    let results = arguments.results.clone().unwrap_or_else(default);
    store::check_writable(&results)?;
    let merged = merge::merge(&arguments.record, &results, arguments.bundle.as_deref())?;
    let (place, word) = match &merged {
        Merged::New(place) => (place, "record"),
        Merged::Known(place) => (place, "merged already"),
    };
    let record = reader::read(place)?;
    let analysis = analyse(&record.plan, &record.attempts).map_err(SessionError::OutOfStep)?;
    let mut progress = Progress::new(false);
    let cache = CacheRoot::find(&|name| std::env::var_os(name)).map_err(SessionError::Source)?;
    if let Err(error) = memory::remember(&cache, &record, &analysis) {
        progress.warning(&format!(
            "this run is not remembered for later ones: {error}"
        ));
    }
    dispatch::print(&report_files::table(&record, &analysis))?;
    dispatch::print(&format!("{word}  {}\n", project::relative(place, &root)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_is_no_number_of_minutes() {
        assert_eq!(minutes("0.5"), Ok(0.5));
        for text in ["0", "-1", "nan", "inf", "9min", "50000", ""] {
            let error = minutes(text).unwrap_err();
            assert!(error.ends_with(&format!("got {text}")), "{error}");
        }
    }
}
