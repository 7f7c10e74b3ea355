//! The words and the environment of one attempt, from the plan and where things lie here.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use indexmap::IndexMap;

use crate::experiment::matrix::Cell;
use crate::experiment::template::{self, ARGS_NAME, TemplateError};
use crate::record::format::{Plan, PlannedArm, PlannedBuild};

use super::environment::environment;
use super::symbolic::Roots;

/// This very program, also when its file has been replaced by a newer one meanwhile: in a
/// child before its `exec` the link still leads to the program that runs.
const ITSELF: &str = "/proc/self/exe";

/// What an attempt needs that no record may hold: where things lie on this machine.
#[derive(Debug, Clone, Default)]
pub struct Workplace {
    /// Working directory of every attempt: the project's root.
    pub root: PathBuf,
    /// For each build of the plan, the folder that holds its copied artifacts.
    pub artifact_dirs: Vec<PathBuf>,
    /// For each fixture of the plan, where it lies.
    pub fixtures: Vec<PathBuf>,
    /// The variables of the caller that the experiment passes through.
    pub passed_env: Vec<(String, OsString)>,
    /// What stands in a record for this machine's folders.
    pub roots: Roots,
}

/// A command line that is ready to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyCommand {
    /// Program and arguments.
    pub argv: Vec<OsString>,
    /// The whole environment.
    pub env: Vec<(OsString, OsString)>,
}

/// Fills the experiment's command for one cell and arm.
///
/// # Errors
/// A placeholder that has no value; the loader has checked all of them before.
pub fn ready(
    plan: &Plan,
    workplace: &Workplace,
    cell: &Cell,
    arm: &PlannedArm,
    padding: u32,
) -> Result<ReadyCommand, TemplateError> {
    let vars = variables(plan, workplace, cell, arm);
    let argv = template::fill(&plan.experiment.command, &vars)?;
    let mut env = IndexMap::new();
    for (name, value) in &arm.env {
        env.insert(name.clone(), template::fill_value(value, &vars)?);
    }
    let brake = arm.slow_down.as_ref().map(|slow_down| {
        let words = slow_down.words().into_iter().map(OsString::from);
        std::iter::once(OsString::from(ITSELF)).chain(words)
    });
    let argv = argv.into_iter().map(OsString::from);
    Ok(ReadyCommand {
        argv: brake.into_iter().flatten().chain(argv).collect(),
        env: environment(&workplace.passed_env, &env, padding),
    })
}

/// The values of all placeholders for one cell and arm.
fn variables(
    plan: &Plan,
    workplace: &Workplace,
    cell: &Cell,
    arm: &PlannedArm,
) -> IndexMap<String, String> {
    let mut vars: IndexMap<String, String> = cell
        .values
        .iter()
        .map(|(name, value)| (name.clone(), value.to_string()))
        .collect();
    // A null arm and a control arm run the very line of the arm that they repeat.
    let control = plan.experiment.control.as_ref();
    let braked = control.filter(|_| arm.slow_down.is_some());
    let repeated = arm.null_of.as_ref().or(braked.map(|control| &control.of));
    let name = repeated.unwrap_or(&arm.name);
    vars.insert("arm".into(), name.clone());
    vars.insert(ARGS_NAME.into(), arm.args.clone().unwrap_or_default());
    for (fixture, place) in plan.fixtures.iter().zip(&workplace.fixtures) {
        if fixture.cells.contains(&cell.id) {
            let place = place.to_string_lossy().into_owned();
            vars.insert(fixture.step.clone(), place);
        }
    }
    let Some(index) = arm.build else { return vars };
    let (Some(build), Some(dir)) = (plan.builds.get(index), workplace.artifact_dirs.get(index))
    else {
        return vars;
    };
    vars.extend(artifact_variables(build, dir));
    vars
}

/// The placeholders for what a build left, with the paths of the copies in `dir`.
pub(super) fn artifact_variables(build: &PlannedBuild, dir: &Path) -> IndexMap<String, String> {
    let mut vars = IndexMap::new();
    vars.insert("artifact_dir".into(), dir.to_string_lossy().into_owned());
    for (number, artifact) in build.artifacts.iter().enumerate() {
        let path = dir.join(&artifact.path).to_string_lossy().into_owned();
        if number == 0 {
            vars.insert("artifact".into(), path.clone());
        }
        let name = artifact.path.rsplit('/').next().unwrap_or(&artifact.path);
        vars.insert(format!("artifact:{name}"), path);
    }
    vars
}
