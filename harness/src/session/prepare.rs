//! From an experiment file to a plan: load, pin, build, compare, set up, order.
//!
//! Everything that can be wrong is found here, cheapest first, before any time is spent
//! on measuring.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use indexmap::IndexMap;

use crate::build::builder::{self, BuildRequest, Built};
use crate::build::error::BuildError;
use crate::build::identity::link_difference;
use crate::build::prebuilt;
use crate::build::progress::BuildProgress;
use crate::build::toolchain::Toolchain;
use crate::experiment::load::{self, Loaded};
use crate::experiment::matrix;
use crate::experiment::model::{
    Arm, Experiment, MAX_ROUNDS, MIN_ROUNDS, Nulls, Receipt, Submodules,
};
use crate::hash::sha256_hex;
use crate::plan::order;
use crate::record::format::{NoiseRule, Plan, PlannedArm, PlannedBuild, RuleRevision, SCHEMA};
use crate::source::cache_root::CacheRoot;
use crate::verdict::rule::{Moderation, NullCheck};

use super::command::Workplace;
use super::control;
use super::error::SessionError;
use super::fixtures;
use super::observer::Observer;
use super::pins::{self, Origin, Pinned};
use super::symbolic::Roots;
use super::treatment::{self, BuiltArm};

/// What is to be prepared, and the surroundings it may read.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The experiment file.
    pub file: &'a Path,
    /// The project's root: relative repositories start here, attempts run here.
    pub root: &'a Path,
    /// The file as a reader types it.
    pub experiment_path: &'a str,
    /// The harness's own cache.
    pub cache: &'a CacheRoot,
    /// Reads a variable of the caller's environment.
    pub variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// Version line of this program.
    pub tool: &'a str,
    /// Rounds instead of the file's.
    pub rounds: Option<u32>,
    /// Nothing but the base and a null arm of it, in one look: for calibration.
    pub only_base: bool,
    /// Ends a build when it becomes true.
    pub stop: Option<&'a AtomicBool>,
}

/// A plan that is ready to be sealed, and where its parts lie here.
#[derive(Debug)]
pub struct Prepared {
    /// What will be run.
    pub plan: Plan,
    /// Where things lie on this machine.
    pub workplace: Workplace,
}

/// Reads the file and resolves every pin; starts nothing.
///
/// # Errors
/// Every fault of the file at once, or every pin that cannot be resolved.
pub fn check(
    request: &Request<'_>,
    observer: &mut dyn Observer,
) -> Result<(Loaded, Pinned), SessionError> {
    let mut loaded = load::load(request.file)?;
    for warning in &loaded.warnings {
        observer.warning(&format!("{}: {warning}", request.experiment_path));
    }
    if let Some(rounds) = request.rounds {
        if !(MIN_ROUNDS..=MAX_ROUNDS).contains(&rounds) {
            return Err(SessionError::Usage(format!(
                "--rounds: expected {MIN_ROUNDS} to {MAX_ROUNDS}, got {rounds}"
            )));
        }
        if !loaded.experiment.looks.is_empty() {
            return Err(SessionError::Usage(
                "--rounds: expected an experiment with `rounds`, got one with `looks`".into(),
            ));
        }
        loaded.experiment.rounds = rounds;
    }
    if let Some(last) = loaded.experiment.looks.last() {
        loaded.experiment.rounds = *last;
    }
    if request.only_base {
        only_base(&mut loaded.experiment);
    }
    let pinned = pins::resolve(&loaded.experiment, request, observer)?;
    Ok((loaded, pinned))
}

fn only_base(experiment: &mut Experiment) {
    let base = experiment.base.clone();
    experiment.arms.retain(|name, _| *name == base);
    experiment.nulls = Nulls::Some(vec![base]);
    experiment.control = None;
    experiment.looks.clear();
    experiment.confirm = false;
}

/// Builds every arm, runs the setup steps and makes the plan.
///
/// # Errors
/// As [`check`]; a base that does not build; equal arms that should differ; a setup step
/// that leaves nothing to measure with.
pub fn prepare(
    request: &Request<'_>,
    observer: &mut dyn Observer,
) -> Result<Prepared, SessionError> {
    let (loaded, pinned) = check(request, observer)?;
    let experiment = loaded.experiment;
    let toolchain = Toolchain::detect(request.variable);
    let mut shop = Shop::new(request, &experiment, &toolchain);
    let built = shop.all(&pinned, observer)?;
    let Shop {
        mut builds,
        dirs,
        mut warnings,
        ..
    } = shop;
    let mut arrangement = treatment::arrange(&experiment, &built, &builds)?;
    nothing_to_compare(&arrangement.arms)?;
    control::append(&experiment, &mut arrangement.arms);
    warnings.extend(arrangement.warnings);
    warnings.extend(link_modes(&arrangement.arms, &builds));
    let cells = matrix::cells(&experiment);
    let roots = roots(request, prebuilt_folders(&builds, &dirs));
    // Some programs print their own path.
    for receipt in builds.iter_mut().filter_map(|build| build.receipt.as_mut()) {
        *receipt = roots.hide(receipt);
    }
    let (fixtures, fixture_places) = fixtures::make(
        &fixtures::Means {
            request,
            experiment: &experiment,
            cells: &cells,
            toolchain: &toolchain,
            built: &built,
            builds: &builds,
            dirs: &dirs,
            roots: &roots,
        },
        observer,
    )?;
    let (order, balanced) = orders(&experiment, &arrangement.arms, cells.len());
    let passed = experiment.pass_env.iter();
    let passed_env: Vec<(String, OsString)> = passed
        .filter_map(|name| Some((name.clone(), (request.variable)(name)?)))
        .collect();
    let plan = Plan {
        schema: SCHEMA,
        tool: request.tool.to_owned(),
        experiment_sha256: loaded.bytes_sha256,
        experiment_path: request.experiment_path.to_owned(),
        rounds_option: request.rounds,
        passed_env_check: passed_env_check(&passed_env),
        sealed_at: jiff::Timestamp::now()
            .strftime("%Y-%m-%dT%H:%M:%SZ")
            .to_string(),
        experiment,
        builds,
        arms: arrangement.arms,
        cells,
        fixtures,
        order,
        balanced,
        toolchain: toolchain.versions,
        noise: Some(noise_rule()),
        warnings,
    };
    let workplace = Workplace {
        root: request.root.to_owned(),
        artifact_dirs: dirs,
        fixtures: fixture_places,
        passed_env,
        roots,
    };
    Ok(Prepared { plan, workplace })
}

/// What new plans are sealed with; the verdict's own defaults.
fn noise_rule() -> NoiseRule {
    let (moderation, check) = (Moderation::DEFAULT, NullCheck::DEFAULT);
    NoiseRule {
        moderate_from_cells: moderation.from_cells,
        largest_prior: moderation.largest_prior,
        check_from_contrasts: check.from_contrasts,
        largest_inflation: check.limit,
        unequal_noise: true,
        revision: RuleRevision::Third,
        null_history: IndexMap::new(),
    }
}

/// The folders of this machine that output may name.
fn roots(request: &Request<'_>, prebuilt: impl IntoIterator<Item = PathBuf>) -> Roots {
    let home = (request.variable)("HOME").map(PathBuf::from);
    let known = [
        Some((request.root.to_owned(), "{repo}")),
        Some((request.cache.path().to_owned(), "{cache}")),
        home.map(|home| (home, "{home}")),
    ];
    let prebuilt = prebuilt.into_iter().map(|folder| (folder, "{prebuilt}"));
    Roots::new(known.into_iter().flatten().chain(prebuilt))
}

/// Where prebuilt programs lie: the plan knows their names and hashes, and no more.
fn prebuilt_folders(builds: &[PlannedBuild], dirs: &[PathBuf]) -> Vec<PathBuf> {
    let builds = builds.iter().zip(dirs);
    let prebuilt = builds.filter(|(build, _)| build.commit.is_none());
    prebuilt.map(|(_, folder)| folder.clone()).collect()
}

/// What a resumed run compares: other values would be another measurement, and the
/// values themselves (a home folder, a token) must not be recorded.
pub(crate) fn passed_env_check(passed: &[(String, OsString)]) -> Option<String> {
    const DIGITS: usize = 4;
    let mut bytes = Vec::new();
    for (name, value) in passed {
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(b'=');
        bytes.extend_from_slice(value.as_bytes());
        bytes.push(0);
    }
    let hash = sha256_hex(&bytes);
    (!passed.is_empty()).then(|| hash.chars().take(DIGITS).collect())
}

/// Builds arms one after the other; equal builds share an entry.
struct Shop<'a> {
    request: &'a Request<'a>,
    experiment: &'a Experiment,
    toolchain: &'a Toolchain,
    builds: Vec<PlannedBuild>,
    dirs: Vec<std::path::PathBuf>,
    warnings: Vec<String>,
}

impl<'a> Shop<'a> {
    fn new(request: &'a Request<'a>, experiment: &'a Experiment, toolchain: &'a Toolchain) -> Self {
        Shop {
            request,
            experiment,
            toolchain,
            builds: Vec::new(),
            dirs: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// What became of every arm, in the experiment's order.
    fn all(
        &mut self,
        pinned: &Pinned,
        observer: &mut dyn Observer,
    ) -> Result<Vec<BuiltArm>, SessionError> {
        let arms = self.experiment.arms.iter().zip(&pinned.origins);
        arms.map(|((name, arm), origin)| self.arm(name, arm, origin, pinned, observer))
            .collect()
    }

    fn arm(
        &mut self,
        name: &str,
        arm: &Arm,
        origin: &Origin,
        pinned: &Pinned,
        observer: &mut dyn Observer,
    ) -> Result<BuiltArm, SessionError> {
        match self.build(name, arm, origin, pinned, observer) {
            Ok(built) => Ok(BuiltArm::Build(self.keep(name, built))),
            Err(error) if name == self.experiment.base => Err(SessionError::BaseBuild {
                arm: name.to_owned(),
                error: Box::new(error),
            }),
            Err(error) if error.is_the_arms_own() => {
                observer.warning(&format!("arm `{name}` is out: {error}"));
                // The message names a log on this machine; the record keeps its end only.
                let tail = error.log_tail().unwrap_or_default();
                let roots = roots(self.request, []);
                Ok(BuiltArm::Failed(roots.hide(tail)))
            }
            Err(error) => Err(SessionError::Build {
                arm: name.to_owned(),
                error: Box::new(error),
            }),
        }
    }

    fn build(
        &self,
        name: &str,
        arm: &Arm,
        origin: &Origin,
        pinned: &Pinned,
        observer: &mut dyn Observer,
    ) -> Result<Built, BuildError> {
        let mut run_env: IndexMap<String, String> = self.experiment.env.clone();
        run_env.extend(arm.env.clone());
        let recipe = self.experiment.build.as_ref();
        let (mirror, pin) = match origin {
            Origin::Binary(file) => {
                let allow_script = recipe.is_some_and(|build| build.allow_script);
                let mode = recipe.map_or(Receipt::Optional, |build| build.receipt);
                return prebuilt::prebuilt(file, allow_script, mode, &run_env, self.toolchain);
            }
            Origin::Pin { mirror, pin } => (&pinned.mirrors[*mirror], pin),
        };
        let build = recipe.ok_or(BuildError::NoArtifacts)?;
        let source = self.experiment.source.as_ref();
        let request = BuildRequest {
            cache: self.request.cache,
            mirror,
            pin,
            submodules: source.map_or(Submodules::default(), |source| source.submodules),
            build,
            command: arm.build_command.as_deref().unwrap_or(&build.command),
            run_env: &run_env,
            toolchain: self.toolchain,
            stop: self.request.stop,
        };
        builder::build(&request, &mut |step: BuildProgress| {
            observer.preparing(name, &step.to_string())
        })
    }

    /// The index of a build, an equal one being the same.
    fn keep(&mut self, name: &str, built: Built) -> usize {
        self.warnings.extend(
            built
                .warnings
                .iter()
                .map(|warning| format!("arm `{name}`: {warning}")),
        );
        // A program without a version of its own may say something else each time it is asked.
        let silent = |build: &PlannedBuild| PlannedBuild {
            receipt: None,
            ..build.clone()
        };
        let mut builds = self.builds.iter();
        if let Some(known) = builds.position(|known| silent(known) == silent(&built.planned)) {
            return known;
        }
        self.builds.push(built.planned);
        self.dirs.push(built.directory);
        self.builds.len() - 1
    }
}

fn nothing_to_compare(arms: &[PlannedArm]) -> Result<(), SessionError> {
    let built = arms.iter().filter(|arm| arm.build.is_some());
    let mut treatments: Vec<usize> = built.map(|arm| arm.treatment).collect();
    treatments.sort_unstable();
    treatments.dedup();
    let failures: Vec<String> = arms
        .iter()
        .filter_map(|arm| {
            Some(format!(
                "arm `{}` did not build:\n{}",
                arm.name,
                arm.build_failure.as_ref()?
            ))
        })
        .collect();
    if treatments.len() < 2 && !failures.is_empty() {
        return Err(SessionError::NothingToCompare(failures.join("\n")));
    }
    Ok(())
}

/// Arms that are linked differently differ for a reason that no commit gave.
fn link_modes(arms: &[PlannedArm], builds: &[PlannedBuild]) -> Option<String> {
    let first = builds.first()?;
    let others = builds.iter().enumerate().skip(1);
    let (other, difference) = others
        .into_iter()
        .find_map(|(index, build)| Some((index, link_difference(first, build)?)))?;
    let name = |index: usize| {
        arms.iter()
            .find(|arm| arm.build == Some(index))
            .map_or("?", |arm| arm.name.as_str())
    };
    Some(format!(
        "arms `{}` and `{}` are linked differently: {difference}; the difference measured may be \
         the linker's",
        name(0),
        name(other),
    ))
}

/// The order of every cell; arms that were not built have no slot.
pub(super) fn orders(
    experiment: &Experiment,
    arms: &[PlannedArm],
    cells: usize,
) -> (Vec<Vec<Vec<usize>>>, bool) {
    let running: Vec<usize> = (0..arms.len())
        .filter(|arm| arms[*arm].build.is_some())
        .collect();
    let mut all_balanced = true;
    let order = (0..cells).map(|cell| {
        let seed = order::cell_seed(experiment.seed, cell);
        let planned = experiment.rounds as usize;
        let (mut rounds, balanced) = order::order(running.len(), planned, seed);
        all_balanced &= balanced;
        if experiment.confirm {
            // An order of its own, as balanced as that of the first rounds.
            let seed = order::cell_seed(!experiment.seed, cell);
            rounds.extend(order::order(running.len(), planned, seed).0);
        }
        rounds
            .into_iter()
            .map(|slots| slots.into_iter().map(|slot| running[slot]).collect())
            .collect()
    });
    (order.collect(), all_balanced)
}
