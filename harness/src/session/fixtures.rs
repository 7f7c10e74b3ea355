//! What the setup steps make: every demand met, or every reason why not.

use std::path::{Path, PathBuf};

use crate::build::toolchain::Toolchain;
use crate::experiment::matrix::Cell;
use crate::experiment::model::Experiment;
use crate::record::format::{PlannedBuild, PlannedFixture};
use crate::setup::demand::{self, Demand};
use crate::setup::error::SetupError;
use crate::setup::make::{self, Programs};

use super::error::SessionError;
use super::observer::Observer;
use super::prepare::Request;
use super::symbolic::Roots;
use super::treatment::BuiltArm;

/// What the steps may use.
pub(super) struct Means<'a> {
    pub(super) request: &'a Request<'a>,
    pub(super) experiment: &'a Experiment,
    pub(super) cells: &'a [Cell],
    pub(super) toolchain: &'a Toolchain,
    /// What became of every arm, in the experiment's order.
    pub(super) built: &'a [BuiltArm],
    pub(super) builds: &'a [PlannedBuild],
    /// For each build, the folder of its artifacts.
    pub(super) dirs: &'a [PathBuf],
    pub(super) roots: &'a Roots,
}

/// The fixtures for the plan, and where each lies here.
///
/// # Errors
/// [`SessionError::Setup`] with an entry per demand that was not met.
pub(super) fn make(
    means: &Means<'_>,
    observer: &mut dyn Observer,
) -> Result<(Vec<PlannedFixture>, Vec<PathBuf>), SessionError> {
    let (mut planned, mut places) = (Vec::new(), Vec::new());
    let mut faults = Vec::new();
    for demand in demand::demands(means.experiment, means.cells)? {
        match one(means, &demand, observer) {
            Ok((fixture, place)) => {
                planned.push(fixture);
                places.push(place);
            }
            Err(error @ SetupError::Interrupted) => {
                faults.push(fault(&demand, &error));
                break;
            }
            Err(error) => faults.push(fault(&demand, &error)),
        }
    }
    if faults.is_empty() {
        Ok((planned, places))
    } else {
        Err(SessionError::Setup(faults))
    }
}

fn one(
    means: &Means<'_>,
    demand: &Demand<'_>,
    observer: &mut dyn Observer,
) -> Result<(PlannedFixture, PathBuf), SetupError> {
    let programs = programs(means, demand)?;
    let request = make::Request {
        cache: means.request.cache,
        root: means.request.root,
        demand,
        programs: &programs,
        environment: means.toolchain.environment(),
        variable: means.request.variable,
        stop: means.request.stop,
    };
    let title = format!("setup {}", demand.name);
    let fixture = make::fixture(&request, &mut |step| observer.preparing(&title, step))?;
    let planned = PlannedFixture {
        step: demand.name.to_owned(),
        cells: demand.cells.clone(),
        command: demand.shown()?,
        place: demand
            .step
            .prints
            .map(|_| symbolic(&fixture.place, means.roots)),
        tree_sha256: fixture.tree.sha256,
        files: fixture.tree.files.len() as u64,
        bytes: fixture.tree.bytes,
    };
    Ok((planned, fixture.place))
}

/// A place without this machine's folders; of one outside all known roots its name only.
fn symbolic(place: &Path, roots: &Roots) -> String {
    let shown = roots.hide(&place.to_string_lossy());
    if shown.starts_with('/') {
        let name = place.file_name().unwrap_or_default().to_string_lossy();
        format!("…/{name}")
    } else {
        shown
    }
}

/// What the step may run: the artifacts of its arm, where it names any.
fn programs(means: &Means<'_>, demand: &Demand<'_>) -> Result<Programs, SetupError> {
    if !demand.runs_artifacts() {
        return Ok(Programs::default());
    }
    let arm = demand.step.arm.as_ref().unwrap_or(&means.experiment.base);
    let index = means.experiment.arms.get_index_of(arm);
    let Some(BuiltArm::Build(build)) = index.and_then(|index| means.built.get(index)) else {
        return Err(SetupError::NoProgram { arm: arm.clone() });
    };
    let (build, dir) = (&means.builds[*build], &means.dirs[*build]);
    Ok(Programs {
        places: super::command::artifact_variables(build, dir),
        sha256: build
            .artifacts
            .iter()
            .map(|artifact| artifact.file_sha256.clone())
            .collect(),
    })
}

fn fault(demand: &Demand<'_>, error: &SetupError) -> String {
    let cells = match demand.cells.as_slice() {
        [one] => format!("cell {one}"),
        several => format!("cells {}", several.join(", ")),
    };
    format!("setup step `{}` for {cells}: {error}", demand.name)
}
