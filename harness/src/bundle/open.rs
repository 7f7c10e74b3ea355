//! From a bundle to what a session runs, every hash checked before anything starts.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use indexmap::IndexMap;

use super::error::{BundleError, io_error};
use super::layout::{self, Manifest, PROGRAM_FILE, ROOT_FOLDER};
use crate::build::environment::filled;
use crate::build::{artifact, builder, library};
use crate::hash::sha256_file;
use crate::record::format::{PlannedArtifact, PlannedBuild};
use crate::record::reader;
use crate::record::store::{PLAN_FILE, SealedPlan};
use crate::session::command::Workplace;
use crate::session::symbolic::Roots;
use crate::setup::tree;

/// A bundle that is what was packed.
#[derive(Debug)]
pub struct Opened {
    /// The plan.
    pub sealed: SealedPlan,
    /// Where its parts lie here.
    pub workplace: Workplace,
    /// What is different on this machine.
    pub warnings: Vec<String>,
}

/// Who opens a bundle.
#[derive(Clone, Copy)]
pub struct Opener<'a> {
    /// Reads a variable of the caller's environment.
    pub variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// Version line of this program.
    pub tool: &'a str,
    /// This very program.
    pub program: &'a Path,
}

/// Checks the bundle in `folder` and says where everything lies.
///
/// # Errors
/// Anything is missing, or is not what was packed; a library that this machine lacks.
pub fn open(folder: &Path, opener: &Opener<'_>) -> Result<Opened, BundleError> {
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let manifest = layout::manifest(&folder)?;
    let sealed = checked(&folder, &manifest)?;
    let got = sha256_file(opener.program).map_err(io_error("read", opener.program))?;
    if (opener.tool, &got) != (sealed.plan.tool.as_str(), &manifest.program_sha256) {
        return Err(BundleError::OtherProgram {
            expected: format!("{} with sha256 {}", manifest.tool, manifest.program_sha256),
            got: format!("{} with sha256 {got}", opener.tool),
        });
    }
    let plan = &sealed.plan;
    let passed = plan.experiment.pass_env.iter();
    let home = (opener.variable)("HOME").map(PathBuf::from);
    let root = folder.join(ROOT_FOLDER);
    let roots = [
        Some((root.clone(), "{repo}")),
        Some((folder.clone(), "{bundle}")),
        home.map(|home| (home, "{home}")),
    ];
    let workplace = Workplace {
        root,
        artifact_dirs: (0..plan.builds.len())
            .map(|build| layout::artifacts(&folder, build))
            .collect(),
        fixtures: manifest.fixtures.iter().map(|at| folder.join(at)).collect(),
        passed_env: passed
            .filter_map(|name| Some((name.clone(), (opener.variable)(name)?)))
            .collect(),
        roots: Roots::new(roots.into_iter().flatten()),
    };
    let warnings = libraries(&sealed, &workplace)?;
    Ok(Opened {
        sealed,
        workplace,
        warnings,
    })
}

/// The plan of the bundle, if everything that was packed is as it was.
///
/// # Errors
/// Anything is missing, or is not what was packed.
pub fn checked(folder: &Path, manifest: &Manifest) -> Result<SealedPlan, BundleError> {
    let sealed = reader::read_plan(folder)?;
    same(
        &folder.join(PLAN_FILE),
        &manifest.plan_sha256,
        &sealed.sha256,
    )?;
    let program = folder.join(PROGRAM_FILE);
    let got = sha256_file(&program).map_err(io_error("read", &program))?;
    same(&program, &manifest.program_sha256, &got)?;
    for (number, build) in sealed.plan.builds.iter().enumerate() {
        let place = layout::artifacts(folder, number);
        builder::unchanged(build, &place).map_err(|unlike| BundleError::Artifact {
            folder: place.clone(),
            unlike,
        })?;
    }
    let fixtures = sealed.plan.fixtures.iter().zip(&manifest.fixtures);
    for (fixture, at) in fixtures {
        same_tree(&folder.join(at), &fixture.tree_sha256)?;
    }
    for file in &manifest.files {
        same_tree(
            &folder.join(ROOT_FOLDER).join(&file.path),
            &file.tree_sha256,
        )?;
    }
    Ok(sealed)
}

fn same_tree(path: &Path, expected: &str) -> Result<(), BundleError> {
    let tree = tree::read(path).map_err(io_error("read", path))?;
    same(path, expected, &tree.sha256)
}

fn same(path: &Path, expected: &str, got: &str) -> Result<(), BundleError> {
    if expected == got {
        return Ok(());
    }
    Err(BundleError::Changed {
        path: path.to_owned(),
        expected: expected.to_owned(),
        got: got.to_owned(),
    })
}

/// Libraries come from this machine. One that is missing would fail every attempt; another
/// file than at packing is the same for all arms, and worth knowing.
fn libraries(sealed: &SealedPlan, workplace: &Workplace) -> Result<Vec<String>, BundleError> {
    let mut others: IndexMap<String, ()> = IndexMap::new();
    let plan = &sealed.plan;
    for arm in plan.arms.iter().filter(|arm| arm.null_of.is_none()) {
        let Some(number) = arm.build else { continue };
        let (build, place) = (&plan.builds[number], &workplace.artifact_dirs[number]);
        let env = filled(&arm.env, place);
        for planned in &build.artifacts {
            for soname in other_libraries(planned, build, place, &env)? {
                others.insert(soname, ());
            }
        }
    }
    let names: Vec<&str> = others.keys().map(String::as_str).collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    Ok(vec![format!(
        "libraries of this machine that are other files than where the bundle was packed, the \
         same ones for all arms: {}",
        names.join(", ")
    )])
}

fn other_libraries(
    planned: &PlannedArtifact,
    build: &PlannedBuild,
    place: &Path,
    env: &IndexMap<String, String>,
) -> Result<Vec<String>, BundleError> {
    let file = place.join(&planned.path);
    let inspected = artifact::inspect(&file, &planned.path)?;
    let loader = build
        .artifacts
        .iter()
        .filter_map(|one| artifact::inspect(&place.join(&one.path), &one.path).ok())
        .find_map(|one| one.interpreter);
    let mut others = Vec::new();
    for loaded in library::loaded(&file, &inspected, loader.as_deref(), env)? {
        let known = planned
            .libraries
            .iter()
            .find(|known| known.soname == loaded.planned.soname);
        let found_there = known.is_none_or(|known| known.sha256.is_some());
        if loaded.path.is_none() && found_there {
            return Err(BundleError::Library {
                artifact: planned.path.clone(),
                soname: loaded.planned.soname,
            });
        }
        if known.is_none_or(|known| known.sha256 != loaded.planned.sha256) {
            others.push(loaded.planned.soname);
        }
    }
    Ok(others)
}
