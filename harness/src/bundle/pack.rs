//! From a prepared experiment to a bundle: a folder that is whole or not there.

use std::fs;
use std::path::{Component, Path, PathBuf};

use super::error::{BundleError, io_error};
use super::layout::{self, BUNDLE_FILE, Manifest, PROGRAM_FILE, PackedFile, ROOT_FOLDER, SCHEMA};
use crate::build::collect;
use crate::hash::sha256_file;
use crate::record::aside::Aside;
use crate::record::store::{PLAN_FILE, SEAL_FILE, SealedPlan, seal_line, write_new};
use crate::session::command::Workplace;
use crate::setup::tree;

/// What goes into a bundle.
#[derive(Debug, Clone, Copy)]
pub struct Contents<'a> {
    /// The sealed plan.
    pub sealed: &'a SealedPlan,
    /// Where its parts lie here.
    pub workplace: &'a Workplace,
    /// This very program.
    pub program: &'a Path,
    /// Files and folders of the project that attempts read, relative to its root.
    pub files: &'a [PathBuf],
}

/// Packs into the folder `to`, which must be missing or empty.
///
/// # Errors
/// A file that is to be packed does not exist; any error of copying.
pub fn pack(contents: &Contents<'_>, to: &Path) -> Result<(), BundleError> {
    let to = std::path::absolute(to).unwrap_or_else(|_| to.to_owned());
    let aside = Aside::new(to.parent().unwrap_or(Path::new("/")))?;
    fill(contents, aside.path())?;
    fs::rename(aside.path(), &to).map_err(io_error("create", &to))
}

/// Packs into a tar file, whose only folder is called like the file.
///
/// # Errors
/// As [`pack`]; a file that is there already.
pub fn pack_tar(contents: &Contents<'_>, to: &Path) -> Result<(), BundleError> {
    let to = std::path::absolute(to).unwrap_or_else(|_| to.to_owned());
    let aside = Aside::new(to.parent().unwrap_or(Path::new("/")))?;
    let folder = aside.path().join("bundle");
    fs::create_dir(&folder).map_err(io_error("create", &folder))?;
    fill(contents, &folder)?;
    let written = aside.path().join("bundle.tar");
    let mut file = fs::File::create(&written).map_err(io_error("create", &written))?;
    let mut archive = tar::Builder::new(&mut file);
    archive.mode(tar::HeaderMode::Deterministic);
    archive
        .append_dir_all(to.file_stem().unwrap_or_default(), &folder)
        .and_then(|()| archive.finish())
        .map_err(io_error("write", &to))?;
    drop(archive);
    file.sync_all().map_err(io_error("write", &to))?;
    // Unlike a rename, a link replaces nothing.
    fs::hard_link(&written, &to).map_err(io_error("create", &to))
}

fn fill(contents: &Contents<'_>, folder: &Path) -> Result<(), BundleError> {
    let Contents {
        sealed, workplace, ..
    } = contents;
    write_new(&folder.join(PLAN_FILE), &sealed.bytes)?;
    write_new(&folder.join(SEAL_FILE), seal_line(sealed).as_bytes())?;
    let program = folder.join(PROGRAM_FILE);
    fs::copy(contents.program, &program).map_err(io_error("copy", contents.program))?;
    for (number, build) in sealed.plan.builds.iter().enumerate() {
        let to = layout::artifacts(folder, number);
        for artifact in &build.artifacts {
            let from = workplace.artifact_dirs[number].join(&artifact.path);
            collect::copy(&from, &to.join(&artifact.path))?;
        }
    }
    let root = folder.join(ROOT_FOLDER);
    fs::create_dir(&root).map_err(io_error("create", &root))?;
    let files = contents.files.iter();
    let manifest = Manifest {
        schema: SCHEMA,
        tool: sealed.plan.tool.clone(),
        program_sha256: sha256_file(&program).map_err(io_error("read", &program))?,
        plan_sha256: sealed.sha256.clone(),
        fixtures: fixtures(workplace, folder)?,
        files: files
            .map(|path| project_file(path, &workplace.root, &root))
            .collect::<Result<_, _>>()?,
    };
    let bytes = serde_json::to_vec_pretty(&manifest)
        .map_err(|error| io_error("write", &folder.join(BUNDLE_FILE))(error.into()))?;
    Ok(write_new(&folder.join(BUNDLE_FILE), &bytes)?)
}

/// Copies what the setup steps made, under its own name: a command may look at that.
fn fixtures(workplace: &Workplace, folder: &Path) -> Result<Vec<PathBuf>, BundleError> {
    let places = workplace.fixtures.iter().enumerate();
    places
        .map(|(number, place)| {
            let name = place.file_name().unwrap_or_default();
            let inside = Path::new("fixtures").join(number.to_string()).join(name);
            collect::copy(place, &folder.join(&inside))?;
            Ok(inside)
        })
        .collect()
}

fn project_file(path: &Path, from: &Path, to: &Path) -> Result<PackedFile, BundleError> {
    let refused = |got| BundleError::With {
        path: path.to_owned(),
        root: from.to_owned(),
        got,
    };
    let inside = |part: Component<'_>| matches!(part, Component::Normal(_));
    if path.as_os_str().is_empty() || !path.components().all(inside) {
        return Err(refused("a path that leads elsewhere"));
    }
    let file = from.join(path);
    if !file.exists() {
        return Err(refused("nothing"));
    }
    let copied = to.join(path);
    collect::copy(&file, &copied)?;
    let tree = tree::read(&copied).map_err(io_error("read", &copied))?;
    Ok(PackedFile {
        path: path.to_owned(),
        tree_sha256: tree.sha256,
    })
}
