//! One demand: look whether it was met before, else run the command and keep what it left.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use indexmap::IndexMap;

use super::demand::Demand;
use super::error::{IoContext as _, SetupError};
use super::store::{Fixture, KeyInputs, Manifest, Store};
use super::tree;
use crate::build::error::LogEnd;
use crate::build::job::{self, Ended, Job};
use crate::experiment::template::OUT_NAME;
use crate::source::cache_root::CacheRoot;

/// Set for every process of a step, with the folder it works in as value: how leftover
/// processes of a killed run are recognised.
const FOLDER_VARIABLE: &str = "BENCH_RUN_SETUP";

/// How much of an answer is copied into the log; a path needs a line.
const MOST_ANSWER_BYTES: u64 = 1 << 20;

/// How much of a failed step's log an error carries.
const LOG_TAIL_LINES: usize = 30;

/// The artifacts that a step may run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Programs {
    /// Placeholder → path.
    pub places: IndexMap<String, String>,
    /// SHA-256 of every file.
    pub sha256: Vec<String>,
}

/// What is to be made, and with what.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// Where results are kept.
    pub cache: &'a CacheRoot,
    /// The project's root: the command runs here.
    pub root: &'a Path,
    /// What is to be made.
    pub demand: &'a Demand<'a>,
    /// The artifacts that its command may name.
    pub programs: &'a Programs,
    /// What the command sees beside its own variables.
    pub environment: &'a IndexMap<String, OsString>,
    /// Reads a variable of the caller's environment.
    pub variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// Ends the command when it becomes true.
    pub stop: Option<&'a AtomicBool>,
}

/// Makes what is asked for, or finds what was made before; `tell` gets a line now and then.
///
/// # Errors
/// [`SetupError`]; what was there before is left as it is.
pub fn fixture(request: &Request<'_>, tell: &mut dyn FnMut(&str)) -> Result<Fixture, SetupError> {
    let inputs = inputs(request)?;
    let key = inputs.key();
    let store = Store::new(request.cache);
    let _lock = store.lock(&key, &mut || {
        tell("waiting for the same step of another run")
    })?;
    tell("looking for what was made before");
    if let Some(found) = store.find(&key)? {
        return Ok(found);
    }
    job::kill_leftovers(FOLDER_VARIABLE, &store.partial(&key));
    let partial = store.start(&key)?;
    match make(request, inputs, &store, &partial, tell) {
        Ok(manifest) => store.finish(&key, manifest),
        Err(error) => {
            store.abandon(&key)?;
            Err(error)
        }
    }
}

fn inputs(request: &Request<'_>) -> Result<KeyInputs, SetupError> {
    let demand = request.demand;
    let step = demand.step;
    let mut inputs = BTreeMap::new();
    let program = own_program(request)?;
    for path in step.inputs.iter().chain(&program) {
        let file = request.root.join(path);
        let tree = tree::read(&file).doing("read the input", &file)?;
        inputs.insert(path.to_string_lossy().into_owned(), tree.sha256);
    }
    let artifacts = match demand.runs_artifacts() {
        true => request.programs.sha256.clone(),
        false => Vec::new(),
    };
    Ok(KeyInputs {
        schema: KeyInputs::schema(),
        root: request.root.to_owned(),
        command: step.command.clone(),
        values: demand.values.clone().into_iter().collect(),
        prints: step.prints.is_some(),
        env: step.env.clone().into_iter().collect(),
        inputs,
        artifacts,
    })
}

/// The program, where it is a file of the project: a changed script makes something else.
fn own_program(request: &Request<'_>) -> Result<Option<PathBuf>, SetupError> {
    let words = words(request, Path::new("out"))?;
    let program = words.first().map(PathBuf::from).unwrap_or_default();
    let of_project = program.is_relative()
        && program.components().count() > 1
        && request.root.join(&program).is_file();
    Ok(of_project.then_some(program))
}

fn words(request: &Request<'_>, out: &Path) -> Result<Vec<String>, SetupError> {
    let mut others = request.programs.places.clone();
    others.insert(OUT_NAME.into(), out.to_string_lossy().into_owned());
    Ok(request.demand.words(&others)?)
}

/// Runs the command and looks at what it left.
fn make(
    request: &Request<'_>,
    inputs: KeyInputs,
    store: &Store,
    partial: &Path,
    tell: &mut dyn FnMut(&str),
) -> Result<Manifest, SetupError> {
    let out = partial.join("out");
    let log = store.trial_log(&inputs.key());
    let started = Instant::now();
    run(request, partial, &log, tell)?;
    let seconds = started.elapsed().as_secs_f64();
    let place = match request.demand.step.prints {
        Some(_) => Some(printed(request, &partial.join("answer"), &log)?),
        None => None,
    };
    tell("hashing what was made");
    let made = place.as_deref().unwrap_or(&out);
    let tree = tree::read(made).doing("read", made)?;
    if tree.files.is_empty() {
        return Err(SetupError::NothingMade { log: end_of(&log) });
    }
    Ok(Manifest {
        inputs,
        place,
        tree,
        seconds,
    })
}

fn run(
    request: &Request<'_>,
    partial: &Path,
    log: &Path,
    tell: &mut dyn FnMut(&str),
) -> Result<(), SetupError> {
    let step = request.demand.step;
    let mut words = words(request, &partial.join("out"))?;
    let program = words.first().cloned().unwrap_or_default();
    if let Some(first) = words.first_mut()
        && first.contains('/')
    {
        // Relative to the project, from wherever this program was started.
        *first = request.root.join(&program).to_string_lossy().into_owned();
    }
    let answer = partial.join("answer");
    let environment = environment(request, partial);
    let job = Job {
        words: words.into_iter().map(OsString::from).collect(),
        environment: &environment,
        folder: request.root,
        log,
        answer: step.prints.map(|_| answer.as_path()),
        timeout: Duration::from_secs(step.timeout_secs),
        stop: request.stop,
    };
    let ended = job::run(&job, &mut |elapsed, last_line| {
        tell(&format!("running for {} s: {last_line}", elapsed.as_secs()));
    });
    job::kill_leftovers(FOLDER_VARIABLE, partial);
    if step.prints.is_some() && ended.is_ok() {
        append(&answer, log).doing("keep the log", log)?;
    }
    let ended = ended.map_err(|source| SetupError::NotStarted { program, source })?;
    match ended {
        Ended::Exited(status) if status.success() => Ok(()),
        Ended::Exited(status) => Err(SetupError::Failed {
            status: status.to_string(),
            log: end_of(log),
        }),
        Ended::TimedOut => Err(SetupError::TimedOut {
            limit_seconds: step.timeout_secs,
            log: end_of(log),
        }),
        Ended::Stopped => Err(SetupError::Interrupted),
    }
}

/// An answer belongs to the log too: it may say why there is none.
fn append(answer: &Path, log: &Path) -> std::io::Result<()> {
    let mut from = File::open(answer)?.take(MOST_ANSWER_BYTES);
    let mut to = File::options().append(true).open(log)?;
    std::io::copy(&mut from, &mut to).map(drop)
}

/// What builds see, then what the step declares and what it may see of the caller's.
fn environment(request: &Request<'_>, partial: &Path) -> IndexMap<String, OsString> {
    let step = request.demand.step;
    let mut environment = request.environment.clone();
    environment.insert("LANG".into(), "C.UTF-8".into());
    environment.insert(FOLDER_VARIABLE.into(), partial.into());
    for (name, value) in &step.env {
        environment.insert(name.clone(), value.into());
    }
    for name in &step.pass_env {
        if let Some(value) = (request.variable)(name) {
            environment.insert(name.clone(), value);
        }
    }
    environment
}

/// The path in the last line of the answer that is not blank.
fn printed(request: &Request<'_>, answer: &Path, log: &Path) -> Result<PathBuf, SetupError> {
    let line = job::last_line(answer).doing("read", answer)?;
    let refused = |got: String| SetupError::NoPath {
        got,
        log: end_of(log),
    };
    let place = request.root.join(&line);
    if line.is_empty() {
        Err(refused("nothing".into()))
    } else if place.exists() {
        Ok(place)
    } else {
        Err(refused(format!("`{line}`, which does not exist")))
    }
}

fn end_of(log: &Path) -> LogEnd {
    LogEnd {
        path: log.to_owned(),
        tail: job::last_lines(log, LOG_TAIL_LINES),
    }
}
