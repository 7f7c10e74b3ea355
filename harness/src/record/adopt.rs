//! Taking in a record that was made elsewhere.

use std::fs;
use std::path::Path;

use super::aside::{self, Aside};
use super::error::{RecordError, io_error};
use super::store::{
    ATTEMPTS_FILE, HOST_FILE, PLAN_FILE, RecordDir, SEAL_FILE, SESSIONS_FILE, check_name,
    rename_to_free_name, sync_directory, write_new,
};

/// Copies the record `from`, that was made elsewhere, below `results_root`, under a name as
/// [`super::store::create`] gives; `logs` puts the output files into the folder that becomes the record.
///
/// # Errors
/// A label that cannot be part of a file name; any error of copying.
pub(crate) fn adopt<E: From<RecordError>>(
    results_root: &Path,
    (date, host_label): (&str, &str),
    from: &Path,
    logs: &dyn Fn(&Path) -> Result<(), E>,
) -> Result<RecordDir, E> {
    check_name("date", date)?;
    check_name("host label", host_label)?;
    aside::sweep(results_root);
    let aside = Aside::new(results_root)?;
    let files = [
        PLAN_FILE,
        SEAL_FILE,
        HOST_FILE,
        SESSIONS_FILE,
        ATTEMPTS_FILE,
    ];
    for file in files.iter().filter(|file| from.join(file).exists()) {
        copy_new(&from.join(file), &aside.path().join(file))?;
    }
    logs(aside.path())?;
    let path = rename_to_free_name(aside.path(), results_root, &format!("{date}-{host_label}"))?;
    sync_directory(results_root)?;
    Ok(RecordDir::at(&path))
}

fn copy_new(from: &Path, to: &Path) -> Result<(), RecordError> {
    let bytes = fs::read(from).map_err(io_error("read", from))?;
    write_new(to, &bytes)
}
