//! Puts a report where it is read: Markdown, and beside it `data/<stem>/` with the
//! pictures and, where asked, the record itself.
//!
//! Markdown and pictures are made again whenever asked; the record's own files are
//! copied once and never replaced by something else. Everything is made and checked
//! before the first file is written.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::bisection::{self, Finding};
use super::markdown::{self, TemplateError};
use super::model::{ReportModel, default_stem, short_hash};
use super::plot::canvas::PlotError;
use super::plot::figure::figures;
use super::replay::{self, Inputs, ReplayModel};
use crate::analysis::model::Analysis;
use crate::record::reader::Record;
use crate::record::store::{ATTEMPTS_FILE, HOST_FILE, PLAN_FILE, SEAL_FILE, SESSIONS_FILE};
use crate::replay::judge::Judged;

/// A published report with its record is at most this large, in bytes.
pub const MAX_BYTES: usize = 1 << 20;

/// The record's own files. Logs are not published.
const RECORD_FILES: [&str; 5] = [
    PLAN_FILE,
    SEAL_FILE,
    HOST_FILE,
    SESSIONS_FILE,
    ATTEMPTS_FILE,
];

/// Why a report was not written.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The operating system refused an operation.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The template and the model do not fit together.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// A picture could not be drawn.
    #[error(transparent)]
    Plot(#[from] PlotError),
    /// Too much to commit.
    #[error(
        "the report and its record have {got} bytes, expected at most {MAX_BYTES}; the largest file is \
         {largest} with {largest_bytes} bytes: publish fewer rounds or cells, or keep the record in results/"
    )]
    TooLarge {
        /// Bytes of all files.
        got: usize,
        /// Name of the largest file.
        largest: String,
        /// Its size.
        largest_bytes: usize,
    },
    /// Something else was published under this name.
    #[error("{} was published with other content, expected the same bytes; it is not replaced", path.display())]
    Different {
        /// The published file.
        path: PathBuf,
    },
    /// A text that belongs to this machine or its user.
    #[error(
        "{file}:{line} holds `{text}`, expected no path or name of this machine in what is \
         published; write `${{VAR}}` in the experiment, or pass it by `pass_env`"
    )]
    Private {
        /// Name of the file.
        file: String,
        /// 1-based line.
        line: usize,
        /// The text.
        text: String,
    },
}

impl PublishError {
    /// Whether the record is fine and only must not be published as it is.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            PublishError::Private { .. } | PublishError::TooLarge { .. }
        )
    }
}

/// What to write, and where.
#[derive(Debug, Clone)]
pub struct Destination<'a> {
    /// The folder of the Markdown file.
    pub folder: &'a Path,
    /// Copy the record beside the pictures.
    pub with_record: bool,
    /// Texts that no published file may hold, such as the home directory.
    pub private: Vec<String>,
}

/// Writes the report of `record`; gives the path of its Markdown file.
///
/// The stem is `<name>-<host>-<date>`, with `-2` and so on where another record's
/// report has that name already.
///
/// # Errors
/// [`PublishError`]; nothing was written unless it is [`PublishError::Io`].
pub fn write(
    record: &Record,
    analysis: &Analysis,
    to: &Destination<'_>,
) -> Result<PathBuf, PublishError> {
    // A report names its plan's hash.
    let is_ours = |text: &str| text.contains(&record.plan_sha256);
    let stem = free_stem(&default_stem(record), to.folder, &is_ours);
    let data = to.folder.join("data").join(&stem);
    let text = markdown::render(&ReportModel::new(record, analysis, &stem))?;
    let mut files: Vec<(PathBuf, Vec<u8>)> = figures(record, analysis)?
        .into_iter()
        .map(|figure| (data.join(figure.file), figure.svg.into_bytes()))
        .collect();
    if to.with_record {
        files.extend(record_files(record, &data)?);
    }
    let report = to.folder.join(format!("{stem}.md"));
    files.push((report.clone(), text.into_bytes()));
    put(&files, to)?;
    Ok(report)
}

/// Writes the report of measurements made elsewhere; gives the path of its Markdown file.
/// With a record, the CSV and its mapping are copied beside the pictures.
///
/// # Errors
/// As [`write()`].
pub fn write_replay(
    judged: &Judged,
    inputs: &Inputs,
    to: &Destination<'_>,
) -> Result<PathBuf, PublishError> {
    let model = ReplayModel::new(judged, inputs);
    let data = to.folder.join(&model.data);
    let mut files: Vec<(PathBuf, Vec<u8>)> = replay::pictures(judged)?
        .into_iter()
        .map(|figure| (data.join(figure.file), figure.svg.into_bytes()))
        .collect();
    if to.with_record {
        for input in [&inputs.csv, &inputs.mapping] {
            let there = data.join(&input.file);
            refuse_other(&there, &input.bytes)?;
            files.push((there, input.bytes.clone()));
        }
    }
    let report = to.folder.join(format!("{}.md", replay::stem(judged)));
    files.push((
        report.clone(),
        markdown::render_replay(&model)?.into_bytes(),
    ));
    put(&files, to)?;
    Ok(report)
}

/// Writes the page of a search; `stem` is what its files are called where no other search's
/// are, `records` are those of its
/// runs, each with the folder that it is copied to.
///
/// # Errors
/// As [`write()`].
pub fn write_bisection(
    finding: &Finding,
    records: &[(String, &Record)],
    stem: &str,
    to: &Destination<'_>,
) -> Result<PathBuf, PublishError> {
    // Every search begins with a run at its bad end.
    let first = records
        .first()
        .map(|(_, record)| short_hash(&record.plan_sha256));
    let is_ours = |text: &str| first.as_ref().is_some_and(|first| text.contains(first));
    let stem = &free_stem(stem, to.folder, &is_ours);
    let data = to.folder.join("data").join(stem);
    let figure = bisection::figure(finding)?;
    let mut json = serde_json::to_vec_pretty(finding).map_err(TemplateError::from)?;
    json.push(b'\n');
    let mut files = vec![
        (data.join(figure.file), figure.svg.into_bytes()),
        (data.join("search.json"), json),
    ];
    if to.with_record {
        for (folder, record) in records {
            files.extend(record_files(record, &data.join(folder))?);
        }
    }
    let report = to.folder.join(format!("{stem}.md"));
    if let Some((_, record)) = records.first() {
        let text = bisection::Page::new(finding, record, stem).render()?;
        files.push((report.clone(), text.into_bytes()));
    }
    put(&files, to)?;
    Ok(report)
}

/// Checks everything, then writes everything.
fn put(files: &[(PathBuf, Vec<u8>)], to: &Destination<'_>) -> Result<(), PublishError> {
    if to.with_record {
        check_size(files)?;
    }
    check_private(files, &to.private)?;
    for (path, bytes) in files {
        let folder = path.parent().unwrap_or(to.folder);
        fs::create_dir_all(folder).map_err(failed("create", folder))?;
        write_file(path, bytes)?;
    }
    Ok(())
}

/// A record's file that is there already must be the same.
fn refuse_other(there: &Path, bytes: &[u8]) -> Result<(), PublishError> {
    if fs::read(there).is_ok_and(|old| old != bytes) {
        return Err(PublishError::Different {
            path: there.to_owned(),
        });
    }
    Ok(())
}

/// The first of `first`, `first-2`, … that no page in `folder` has, or one that is ours by its
/// text: the page of something else is not replaced.
pub fn free_stem(first: &str, folder: &Path, is_ours: &dyn Fn(&str) -> bool) -> String {
    let mut stem = first.to_owned();
    let mut number = 1_u32;
    loop {
        match fs::read_to_string(folder.join(format!("{stem}.md"))) {
            Ok(text) if !is_ours(&text) => {}
            _ => return stem,
        }
        number += 1;
        stem = format!("{first}-{number}");
    }
}

/// The record's own files at their new place. One that is there already must be the same.
fn record_files(record: &Record, data: &Path) -> Result<Vec<(PathBuf, Vec<u8>)>, PublishError> {
    let mut files = Vec::new();
    for name in RECORD_FILES {
        let from = record.dir.join(name);
        let to = data.join(name);
        let bytes = match fs::read(&from) {
            Ok(bytes) => bytes,
            // No attempt was made yet, or no bundle was used: still a record.
            Err(error)
                if [ATTEMPTS_FILE, SESSIONS_FILE].contains(&name)
                    && error.kind() == io::ErrorKind::NotFound =>
            {
                continue;
            }
            Err(error) => return Err(failed("read", &from)(error)),
        };
        refuse_other(&to, &bytes)?;
        files.push((to, bytes));
    }
    Ok(files)
}

fn check_size(files: &[(PathBuf, Vec<u8>)]) -> Result<(), PublishError> {
    let got = files.iter().map(|(_, bytes)| bytes.len()).sum();
    let largest = files.iter().max_by_key(|(_, bytes)| bytes.len());
    match largest {
        Some((path, bytes)) if got > MAX_BYTES => Err(PublishError::TooLarge {
            got,
            largest: name_of(path),
            largest_bytes: bytes.len(),
        }),
        _ => Ok(()),
    }
}

fn check_private(files: &[(PathBuf, Vec<u8>)], private: &[String]) -> Result<(), PublishError> {
    for (path, bytes) in files {
        let content = String::from_utf8_lossy(bytes);
        for (number, line) in content.lines().enumerate() {
            let found = private
                .iter()
                .find(|text| !text.is_empty() && line.contains(*text));
            if let Some(text) = found {
                return Err(PublishError::Private {
                    file: name_of(path),
                    line: number + 1,
                    text: text.clone(),
                });
            }
        }
    }
    Ok(())
}

/// Writes aside and renames, so that a reader sees the old file or the new one.
fn write_file(path: &Path, bytes: &[u8]) -> Result<(), PublishError> {
    if fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    let aside = path.with_extension("part");
    fs::write(&aside, bytes)
        .and_then(|()| fs::rename(&aside, path))
        .map_err(failed("write", path))
}

fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PublishError {
    let path = path.to_path_buf();
    move |source| PublishError::Io {
        action,
        path,
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::reader;
    use crate::report::example::{analysis, stored};

    fn to(folder: &Path) -> Destination<'_> {
        Destination {
            folder,
            with_record: true,
            private: Vec::new(),
        }
    }

    #[test]
    fn a_published_record_can_be_read_and_gives_the_same_report() {
        let root = tempfile::tempdir().unwrap();
        let record = stored(root.path(), 0);
        let docs = root.path().join("docs");
        let report = write(&record, &analysis(&record), &to(&docs)).unwrap();
        assert_eq!(name_of(&report), "window-epyc-2c-2026-03-01.md");
        let first = fs::read(&report).unwrap();

        let data = docs.join("data/window-epyc-2c-2026-03-01");
        let again = reader::read(&data).unwrap();
        assert_eq!(again.attempts, record.attempts);
        let elsewhere = root.path().join("elsewhere");
        let second = write(&again, &analysis(&again), &to(&elsewhere)).unwrap();
        assert_eq!(fs::read(second).unwrap(), first);
        // Once more into the same place changes nothing.
        assert_eq!(
            write(&record, &analysis(&record), &to(&docs)).unwrap(),
            report
        );
        assert!(!data.join("logs").exists());
    }

    #[test]
    fn every_link_of_a_report_leads_to_a_file() {
        let root = tempfile::tempdir().unwrap();
        let record = stored(root.path(), 0);
        let report = write(&record, &analysis(&record), &to(root.path())).unwrap();
        let text = fs::read_to_string(report).unwrap();
        let links: Vec<&str> = text
            .split("](")
            .skip(1)
            .map(|rest| rest.split(')').next().unwrap())
            .filter(|link| !link.starts_with("../"))
            .collect();
        assert!(links.len() >= 7, "{links:?}");
        for link in links {
            assert!(root.path().join(link).is_file(), "{link}");
        }
    }

    #[test]
    fn another_record_of_the_day_gets_a_number() {
        let root = tempfile::tempdir().unwrap();
        let docs = root.path().join("docs");
        for (seed, name) in [
            (0, "window-epyc-2c-2026-03-01"),
            (1, "window-epyc-2c-2026-03-01-2"),
        ] {
            let record = stored(root.path(), seed);
            let report = write(&record, &analysis(&record), &to(&docs)).unwrap();
            assert_eq!(name_of(&report), format!("{name}.md"));
            assert!(docs.join("data").join(name).join(PLAN_FILE).is_file());
        }
    }

    #[test]
    fn published_rows_are_never_replaced_by_others() {
        let root = tempfile::tempdir().unwrap();
        let record = stored(root.path(), 0);
        let report = write(&record, &analysis(&record), &to(root.path())).unwrap();
        let before = fs::read(&report).unwrap();
        let rows = record.dir.join(ATTEMPTS_FILE);
        let text = fs::read_to_string(&rows).unwrap();
        fs::write(&rows, text.replacen("\"samples\":10", "\"samples\":11", 1)).unwrap();
        let changed = reader::read(&record.dir).unwrap();
        let error = write(&changed, &analysis(&changed), &to(root.path())).unwrap_err();
        assert!(
            error.to_string().contains("attempts.jsonl was published"),
            "{error}"
        );
        assert_eq!(fs::read(&report).unwrap(), before);
    }

    #[test]
    fn more_than_a_mebibyte_is_refused_before_anything_is_written() {
        let root = tempfile::tempdir().unwrap();
        let record = stored(root.path(), 0);
        let rows = record.dir.join(ATTEMPTS_FILE);
        let mut bytes = fs::read(&rows).unwrap();
        bytes.resize(MAX_BYTES, b'x');
        fs::write(&rows, bytes).unwrap();
        let docs = root.path().join("docs");
        let error = write(&record, &analysis(&record), &to(&docs)).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("at most 1048576"), "{text}");
        assert!(text.contains("attempts.jsonl with 1048576 bytes"), "{text}");
        assert!(!docs.exists());
    }

    #[test]
    fn a_path_of_this_machine_is_not_published() {
        let root = tempfile::tempdir().unwrap();
        let mut record = stored(root.path(), 0);
        record.notes.push("left in /home/somebody/x".into());
        let docs = root.path().join("docs");
        let destination = Destination {
            private: vec!["/home/somebody".to_owned()],
            ..to(&docs)
        };
        let error = write(&record, &analysis(&record), &destination).unwrap_err();
        assert!(
            error.to_string().contains("holds `/home/somebody`"),
            "{error}"
        );
        assert!(!docs.exists());
    }
}
