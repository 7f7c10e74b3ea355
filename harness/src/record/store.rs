//! The directory of a record: creating it, sealing the plan, finding it again.
//!
//! A directory is never used twice except to resume the very plan it holds.
//! Small files are written aside, synced and renamed, so that a kill at any
//! moment leaves either no file or a whole one.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::aside::{self, Aside};
use super::error::{RecordError, io_error};
use super::format::{Host, Plan};
use super::reader::{self, Record};
use crate::experiment::control::Control;
use crate::hash::sha256_hex;

/// The sealed plan.
pub const PLAN_FILE: &str = "plan.json";
/// SHA-256 of the plan's bytes.
pub const SEAL_FILE: &str = "plan.sha256";
/// The machine.
pub const HOST_FILE: &str = "host.json";
/// One line per session, of a run that a bundle carried.
pub const SESSIONS_FILE: &str = "sessions.jsonl";
/// One line per attempt.
pub const ATTEMPTS_FILE: &str = "attempts.jsonl";
/// Standard output and error of the attempts.
pub const LOGS_DIRECTORY: &str = "logs";

/// Hex digits of the plan's hash that every row carries.
const TAG_DIGITS: usize = 16;

/// A plan with the bytes that are stored and their hash: fixed from here on.
#[derive(Debug, Clone, PartialEq)]
pub struct SealedPlan {
    /// What was decided before the first attempt.
    pub plan: Plan,
    /// The bytes of `plan.json`.
    pub bytes: Vec<u8>,
    /// SHA-256 of `bytes`, 64 hex digits: the plan's hash.
    pub sha256: String,
}

impl SealedPlan {
    /// What every row carries of the hash.
    #[must_use]
    pub fn tag(&self) -> &str {
        tag(&self.sha256)
    }
}

/// What a row carries of a plan's hash: its first 16 digits.
#[must_use]
pub fn tag(plan_sha256: &str) -> &str {
    plan_sha256.get(..TAG_DIGITS).unwrap_or(plan_sha256)
}

/// Fixes a plan: its stored bytes and their hash.
///
/// # Errors
/// [`RecordError::Unstorable`] when the plan would not be read back as it is,
/// because it holds a number that is not finite, for example.
pub fn seal(plan: Plan) -> Result<SealedPlan, RecordError> {
    let bytes = stored_bytes("plan", &plan)?;
    let sha256 = sha256_hex(&bytes);
    Ok(SealedPlan {
        plan,
        bytes,
        sha256,
    })
}

/// A hash that is equal for two plans of the same measurement: everything in
/// the plan counts but the moment of sealing, the planner's warnings, what programs say of
/// themselves, which may differ from call to call, and what earlier runs had measured by then.
///
/// # Errors
/// [`RecordError::Unstorable`] as for [`seal`].
pub fn identity(plan: &Plan) -> Result<String, RecordError> {
    let mut bare = plan.clone();
    bare.sealed_at.clear();
    bare.warnings.clear();
    for build in &mut bare.builds {
        build.receipt = None;
    }
    if let Some(noise) = &mut bare.noise {
        noise.null_history.clear();
    }
    let sized_by_history = bare
        .experiment
        .control
        .as_ref()
        .is_some_and(Control::is_auto);
    for arm in bare.arms.iter_mut().filter(|_| sized_by_history) {
        if let Some(slow_down) = &mut arm.slow_down {
            slow_down.pct = 0.0;
            arm.label.clear();
        }
    }
    Ok(sha256_hex(&stored_bytes("plan", &bare)?))
}

/// The directory of one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordDir {
    path: PathBuf,
}

impl RecordDir {
    /// A directory that is there already.
    #[must_use]
    pub fn at(path: &Path) -> RecordDir {
        RecordDir {
            path: path.to_path_buf(),
        }
    }

    /// The directory itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file of rows.
    #[must_use]
    pub fn attempts_path(&self) -> PathBuf {
        self.path.join(ATTEMPTS_FILE)
    }
}

/// Makes a new sealed record `<date>-<host>`, or `<date>-<host>-2` and so on where the
/// name is taken. It is filled aside and renamed, so that a kill at any moment leaves
/// either no record or a sealed one.
///
/// # Errors
/// A date or label that cannot be part of a file name; any error of writing.
pub fn create(
    results_root: &Path,
    (date, host_label): (&str, &str),
    sealed: &SealedPlan,
    host: &Host,
) -> Result<RecordDir, RecordError> {
    check_name("date", date)?;
    check_name("host label", host_label)?;
    aside::sweep(results_root);
    let aside = Aside::new(results_root)?;
    fill(aside.path(), sealed, host)?;
    let path = rename_to_free_name(aside.path(), results_root, &format!("{date}-{host_label}"))?;
    sync_directory(results_root)?;
    Ok(RecordDir { path })
}

/// Makes a new sealed record in the folder `path`, which must be missing or empty; as whole
/// as by [`create`].
///
/// # Errors
/// A folder that holds something; any error of writing.
pub fn create_at(path: &Path, sealed: &SealedPlan, host: &Host) -> Result<RecordDir, RecordError> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let root = path.parent().unwrap_or(Path::new("/"));
    aside::sweep(root);
    let aside = Aside::new(root)?;
    fill(aside.path(), sealed, host)?;
    fs::rename(aside.path(), &path).map_err(io_error("create", &path))?;
    sync_directory(root)?;
    Ok(RecordDir { path })
}

/// Puts what every record begins with into a folder that has no name yet.
fn fill(folder: &Path, sealed: &SealedPlan, host: &Host) -> Result<(), RecordError> {
    let logs = folder.join(LOGS_DIRECTORY);
    fs::create_dir_all(&logs).map_err(io_error("create", &logs))?;
    write_new(&folder.join(HOST_FILE), &stored_bytes("host", host)?)?;
    write_new(&folder.join(PLAN_FILE), &sealed.bytes)?;
    write_new(&folder.join(SEAL_FILE), seal_line(sealed).as_bytes())
}

/// What stands in [`SEAL_FILE`], as `sha256sum` writes it.
pub(crate) fn seal_line(sealed: &SealedPlan) -> String {
    format!("{}  {PLAN_FILE}\n", sealed.sha256)
}

/// Whether records can be made below `results_root`: makes a folder with a file in it there,
/// or in the nearest folder above that exists, and takes it away again.
///
/// # Errors
/// Any error of making them.
pub fn check_writable(results_root: &Path) -> Result<(), RecordError> {
    let absolute = std::path::absolute(results_root).unwrap_or_else(|_| results_root.into());
    let mut above = absolute.ancestors().filter(|folder| folder.exists());
    let aside = Aside::new(above.next().unwrap_or(results_root))?;
    write_new(&aside.path().join(HOST_FILE), b"{}")
}

pub(super) fn rename_to_free_name(
    aside: &Path,
    root: &Path,
    stem: &str,
) -> Result<PathBuf, RecordError> {
    let mut number = 1_u32;
    loop {
        let name = match number {
            1 => stem.to_owned(),
            _ => format!("{stem}-{number}"),
        };
        let path = root.join(name);
        // Asked first: renaming onto an empty folder would replace it.
        if path.exists() {
            number += 1;
            continue;
        }
        match fs::rename(aside, &path) {
            Ok(()) => return Ok(path),
            // Another run took the name in between.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => number += 1,
            Err(error) => return Err(io_error("create", &path)(error)),
        }
    }
}

/// What [`find_resumable`] found.
#[derive(Debug)]
pub struct Resumable {
    /// The newest unfinished record of this plan on this host.
    pub record: Option<Record>,
    /// Directories that could not be read and were passed over, with the reason.
    pub skipped: Vec<RecordError>,
}

/// Looks for an unfinished record of the same plan on the same host.
///
/// Plans are compared by [`identity`]. `finished` tells whether nothing is left
/// to run. Unreadable directories do not stop the search: they are reported.
///
/// # Errors
/// The results directory cannot be listed; `plan` cannot be stored.
pub fn find_resumable(
    results_root: &Path,
    plan: &Plan,
    host_label: &str,
    finished: &dyn Fn(&Record) -> bool,
) -> Result<Resumable, RecordError> {
    let wanted = identity(plan)?;
    let mut skipped = Vec::new();
    for path in record_directories(results_root)? {
        match reader::read_sealed(&path) {
            Ok((sealed, host)) => {
                if host.label != host_label || identity(&sealed.plan)? != wanted {
                    continue;
                }
            }
            Err(error) => {
                skipped.push(error);
                continue;
            }
        }
        match reader::read(&path) {
            // What a bundle carried goes on there.
            Ok(record) if finished(&record) || !record.sessions.is_empty() => {}
            Ok(record) => {
                return Ok(Resumable {
                    record: Some(record),
                    skipped,
                });
            }
            Err(error) => skipped.push(error),
        }
    }
    Ok(Resumable {
        record: None,
        skipped,
    })
}

/// The directories below `results_root` that hold a plan, newest first; none where there is no
/// such folder. One that is still being put together, or was when a kill came, is no record.
///
/// # Errors
/// The folder cannot be listed.
pub fn record_directories(results_root: &Path) -> Result<Vec<PathBuf>, RecordError> {
    let entries = match fs::read_dir(results_root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io_error("list", results_root)(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(io_error("list", results_root))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if aside::is_aside(&name) {
            continue;
        }
        let plan = path.join(PLAN_FILE);
        if let Ok(metadata) = fs::metadata(&plan) {
            found.push((metadata.modified().ok(), path));
        }
    }
    found.sort();
    Ok(found.into_iter().rev().map(|(_, path)| path).collect())
}

/// Indented JSON with a final newline; map order is kept, so equal values give
/// equal bytes. Refuses what would not be read back as it is.
pub(crate) fn stored_bytes<T>(what: &'static str, value: &T) -> Result<Vec<u8>, RecordError>
where
    T: Serialize + DeserializeOwned + PartialEq,
{
    let unstorable = |reason: String| RecordError::Unstorable { what, reason };
    let mut bytes = serde_json::to_vec_pretty(value).map_err(|e| unstorable(e.to_string()))?;
    bytes.push(b'\n');
    let back: T = serde_json::from_slice(&bytes)
        .map_err(|e| unstorable(format!("it cannot be read back: {e}")))?;
    if back == *value {
        Ok(bytes)
    } else {
        Err(unstorable("it is not read back as it was".into()))
    }
}

/// One line of JSON, for files of lines. Refuses what would not be read back as it is.
pub(super) fn stored_line<T>(what: &'static str, value: &T) -> Result<Vec<u8>, RecordError>
where
    T: Serialize + DeserializeOwned + PartialEq,
{
    let unstorable = |reason: String| RecordError::Unstorable { what, reason };
    let mut line = serde_json::to_vec(value).map_err(|e| unstorable(e.to_string()))?;
    let back: T = serde_json::from_slice(&line)
        .map_err(|e| unstorable(format!("it cannot be read back: {e}")))?;
    if back != *value {
        return Err(unstorable("it is not read back as it was".into()));
    }
    line.push(b'\n');
    Ok(line)
}

/// Writes a file that must not exist yet: aside, synced, then renamed.
pub(crate) fn write_new(path: &Path, bytes: &[u8]) -> Result<(), RecordError> {
    if path.exists() {
        return Err(io_error("create", path)(
            io::ErrorKind::AlreadyExists.into(),
        ));
    }
    let aside = path.with_extension("part");
    let mut file = File::create(&aside).map_err(io_error("create", &aside))?;
    file.write_all(bytes)
        .and_then(|()| file.sync_all())
        .map_err(io_error("write", path))?;
    fs::rename(&aside, path).map_err(io_error("create", path))?;
    sync_directory(path.parent().unwrap_or(Path::new(".")))
}

/// Makes new names in a directory survive a power cut.
pub(crate) fn sync_directory(path: &Path) -> Result<(), RecordError> {
    File::open(path)
        .and_then(|directory| directory.sync_all())
        .map_err(io_error("sync", path))
}

pub(super) fn check_name(what: &'static str, word: &str) -> Result<(), RecordError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !word.is_empty() && !word.starts_with('.') && word.chars().all(plain) {
        return Ok(());
    }
    Err(RecordError::Name {
        what,
        got: word.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::format::NullContrast;
    use super::*;
    use crate::record::example;

    fn made(root: &Path, label: &str) -> Result<(RecordDir, SealedPlan), RecordError> {
        let sealed = seal(example::plan())?;
        let directory = create(root, ("2026-03-01", label), &sealed, &example::host())?;
        Ok((directory, sealed))
    }

    #[test]
    fn a_directory_is_never_used_twice() {
        let root = tempfile::tempdir().unwrap();
        let names: Vec<String> = (0..3)
            .map(|_| made(root.path(), "epyc-2c").unwrap().0)
            .map(|d| d.path().file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        let expected = [
            "2026-03-01-epyc-2c",
            "2026-03-01-epyc-2c-2",
            "2026-03-01-epyc-2c-3",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_folder_that_somebody_made_is_left_alone() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("2026-03-01-epyc-2c")).unwrap();
        let (directory, _) = made(root.path(), "epyc-2c").unwrap();
        assert!(directory.path().ends_with("2026-03-01-epyc-2c-2"));
    }

    #[test]
    fn a_record_that_was_never_finished_making_is_no_record() {
        let root = tempfile::tempdir().unwrap();
        let (directory, sealed) = made(root.path(), "epyc-2c").unwrap();
        fs::rename(directory.path(), root.path().join(".new-1")).unwrap();
        let found = find_resumable(root.path(), &sealed.plan, "epyc-2c", &|_| false).unwrap();
        assert!(found.record.is_none() && found.skipped.is_empty());
    }

    #[test]
    fn a_label_with_a_slash_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let error = made(root.path(), "a/../b").unwrap_err();
        assert!(error.to_string().contains("host label `a/../b`"), "{error}");
    }

    #[test]
    fn the_hash_is_that_of_the_stored_bytes() {
        let root = tempfile::tempdir().unwrap();
        let (directory, sealed) = made(root.path(), "epyc-2c").unwrap();
        let file = directory.path().join(PLAN_FILE);
        assert_eq!(crate::hash::sha256_file(&file).unwrap(), sealed.sha256);
        assert_eq!(sealed.tag().len(), 16);
    }

    #[test]
    fn a_plan_with_a_number_that_is_not_finite_cannot_be_sealed() {
        let mut plan = example::plan();
        plan.experiment.verdict.alpha = f64::NAN;
        let error = seal(plan).unwrap_err();
        assert!(
            error.to_string().starts_with("cannot store this plan"),
            "{error}"
        );
    }

    #[test]
    fn the_moment_of_sealing_warnings_and_earlier_runs_do_not_count_for_identity() {
        let plan = example::plan();
        let mut later = plan.clone();
        later.sealed_at = "2026-03-02T00:00:00Z".into();
        later.warnings.push("the governor is powersave".into());
        later.builds[0].receipt = Some("12:03:59".into());
        let noise = later.noise.as_mut().unwrap();
        let contrast = NullContrast { t: 0.5, df: 4.0 };
        let history = &mut noise.null_history;
        history.insert("decode_tok_s".into(), vec![contrast]);
        assert_eq!(identity(&plan).unwrap(), identity(&later).unwrap());
        later.experiment.seed += 1;
        assert_ne!(identity(&plan).unwrap(), identity(&later).unwrap());
    }

    #[test]
    fn an_unfinished_record_of_the_same_plan_and_host_is_found() {
        let root = tempfile::tempdir().unwrap();
        let written = example::store(root.path(), &example::plan(), &[]);
        let mut later = example::plan();
        later.sealed_at = "2026-03-02T00:00:00Z".into();
        let label = example::host().label;

        let found = find_resumable(root.path(), &later, &label, &|_| false).unwrap();
        assert_eq!(found.record.unwrap().dir, written.path());
        let done = find_resumable(root.path(), &later, &label, &|_| true).unwrap();
        assert!(done.record.is_none());
        let elsewhere = find_resumable(root.path(), &later, "other", &|_| false).unwrap();
        assert!(elsewhere.record.is_none());
        later.experiment.rounds += 1;
        let other = find_resumable(root.path(), &later, &label, &|_| false).unwrap();
        assert!(other.record.is_none());
    }

    #[test]
    fn a_search_passes_over_a_broken_directory_and_says_so() {
        let root = tempfile::tempdir().unwrap();
        let broken = example::store(root.path(), &example::plan(), &[]);
        fs::write(broken.path().join(PLAN_FILE), "{}").unwrap();
        let whole = example::store(root.path(), &example::plan(), &[]);
        let label = example::host().label;
        let found = find_resumable(root.path(), &example::plan(), &label, &|_| false).unwrap();
        assert_eq!(found.record.unwrap().dir, whole.path());
        let none = find_resumable(root.path(), &example::plan(), &label, &|_| true).unwrap();
        assert_eq!(none.skipped.len(), 1);
    }
}
