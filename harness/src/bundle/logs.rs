//! A record's output files as one file while it travels: there are two an attempt.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};

use super::error::{BundleError, io_error};
use crate::record::store::{LOGS_DIRECTORY, write_new};

/// The output files of a record that travels.
pub const LOGS_FILE: &str = "logs.tar";

/// Packs `logs/` of the record into [`LOGS_FILE`] and removes it. A kill at any moment loses
/// nothing: files go only when the archive that holds them has its name.
///
/// # Errors
/// Any error of reading or writing.
pub fn pack(record: &Path) -> Result<(), BundleError> {
    let logs = record.join(LOGS_DIRECTORY);
    if !logs.exists() {
        return Ok(());
    }
    let (archive, aside) = (record.join(LOGS_FILE), record.join("logs.tar.new"));
    let files = loose(&logs)?;
    let file = File::create(&aside).map_err(io_error("create", &aside))?;
    let mut builder = tar::Builder::new(file);
    builder.mode(tar::HeaderMode::Deterministic);
    for file in &files {
        let name = Path::new(LOGS_DIRECTORY).join(file.file_name().unwrap_or_default());
        builder
            .append_path_with_name(file, name)
            .map_err(io_error("pack", file))?;
    }
    builder
        .into_inner()
        .and_then(|file| file.sync_all())
        .map_err(io_error("write", &aside))?;
    fs::rename(&aside, &archive).map_err(io_error("replace", &archive))?;
    fs::remove_dir_all(&logs).map_err(io_error("remove", &logs))
}

/// Puts the output files of `from`, packed or not, into `logs/` of `to`, beside what is there
/// already.
///
/// # Errors
/// The archive is damaged or holds something else than output files; any error of writing.
pub fn unpack(from: &Path, to: &Path) -> Result<(), BundleError> {
    let logs = to.join(LOGS_DIRECTORY);
    fs::create_dir_all(&logs).map_err(io_error("create", &logs))?;
    for file in loose(&from.join(LOGS_DIRECTORY))? {
        let place = logs.join(file.file_name().unwrap_or_default());
        if !place.exists() {
            let bytes = fs::read(&file).map_err(io_error("read", &file))?;
            write_new(&place, &bytes)?;
        }
    }
    let archive = from.join(LOGS_FILE);
    let file = match File::open(&archive) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened.map_err(io_error("open", &archive))?,
    };
    let mut reader = tar::Archive::new(io::BufReader::new(file));
    for entry in reader.entries().map_err(io_error("read", &archive))? {
        let mut entry = entry.map_err(io_error("read", &archive))?;
        let path = entry.path().map_err(io_error("read", &archive))?;
        let name = output_file(&path).filter(|_| entry.header().entry_type().is_file());
        let Some(name) = name else {
            return Err(BundleError::Unreadable {
                path: archive,
                reason: format!(
                    "expected files below {LOGS_DIRECTORY}/, got {}",
                    path.display()
                ),
            });
        };
        let place = logs.join(name);
        let mut bytes = Vec::new();
        entry
            .read_to_end(&mut bytes)
            .map_err(io_error("read", &archive))?;
        if !place.exists() {
            write_new(&place, &bytes)?;
        }
    }
    Ok(())
}

/// The files in a folder of output files, sorted; none where there is no such folder.
fn loose(logs: &Path) -> Result<Vec<PathBuf>, BundleError> {
    let entries = match fs::read_dir(logs) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed.map_err(io_error("list", logs))?,
    };
    let mut files = Vec::new();
    for entry in entries {
        files.push(entry.map_err(io_error("list", logs))?.path());
    }
    files.sort();
    Ok(files)
}

/// The name of a file right below `logs/`.
fn output_file(path: &Path) -> Option<PathBuf> {
    let parts: Vec<Component<'_>> = path.components().collect();
    match parts.as_slice() {
        [Component::Normal(folder), Component::Normal(name)] if *folder == LOGS_DIRECTORY => {
            Some(PathBuf::from(name))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("logs")).unwrap();
        for (name, text) in files {
            fs::write(folder.path().join("logs").join(name), text).unwrap();
        }
        folder
    }

    #[test]
    fn packed_and_unpacked_output_is_the_same_and_what_is_there_stays() {
        let record = record(&[("a.out", "one"), ("a.err", "")]);
        pack(record.path()).unwrap();
        assert!(!record.path().join("logs").exists());
        unpack(record.path(), record.path()).unwrap();
        let read = |name: &str| fs::read_to_string(record.path().join("logs").join(name)).unwrap();
        assert_eq!(
            (read("a.out").as_str(), read("a.err").as_str()),
            ("one", "")
        );
        fs::write(record.path().join("logs/b.out"), "two").unwrap();
        fs::write(record.path().join("logs/a.out"), "newer").unwrap();
        unpack(record.path(), record.path()).unwrap();
        assert_eq!(read("a.out"), "newer");
        pack(record.path()).unwrap();
        unpack(record.path(), record.path()).unwrap();
        assert_eq!(
            (read("a.out").as_str(), read("b.out").as_str()),
            ("newer", "two")
        );
    }

    #[test]
    fn an_archive_that_leads_elsewhere_is_refused() {
        for path in ["x", "logs/a/b", "other/a"] {
            let record = record(&[]);
            let file = File::create(record.path().join(LOGS_FILE)).unwrap();
            let mut builder = tar::Builder::new(file);
            let mut header = tar::Header::new_gnu();
            header.set_size(1);
            builder.append_data(&mut header, path, &b"x"[..]).unwrap();
            builder.finish().unwrap();
            drop(builder);
            let error = unpack(record.path(), record.path()).unwrap_err();
            assert!(
                error.to_string().contains("expected files below logs/"),
                "{error}"
            );
        }
    }
}
