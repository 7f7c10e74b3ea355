//! What `run` and `report` share: the table for a terminal, and where reports go.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use super::progress::Progress;
use crate::analysis::model::Analysis;
use crate::record::reader::Record;
use crate::report::bisection::{Finding, date};
use crate::report::model::ReportModel;
use crate::report::publish::{self, Destination, PublishError};
use crate::report::terminal;
use crate::session::observer::Observer as _;

/// Columns of a table that is not written to a terminal.
const PLAIN_WIDTH: u16 = 110;

/// Where a project's reports lie.
#[must_use]
pub fn default_folder(root: &Path) -> PathBuf {
    root.join("docs/benchmark_results")
}

/// The table for a terminal, coloured where standard output is one.
#[must_use]
pub fn table(record: &Record, analysis: &Analysis) -> String {
    let (width, colours) = screen();
    terminal::table(&ReportModel::new(record, analysis, ""), width, colours)
}

/// Columns of standard output, and whether it shows colours.
#[must_use]
pub fn screen() -> (u16, bool) {
    let colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let width = comfy_table::Table::new().width().filter(|_| colours);
    (width.unwrap_or(PLAIN_WIDTH), colours)
}

/// Writes a report into `folder`, with the record's rows beside it where asked for;
/// returns the path of the Markdown file.
///
/// # Errors
/// A record that must not be published, any error of writing.
pub fn write(
    record: &Record,
    analysis: &Analysis,
    folder: &Path,
    with_record: bool,
) -> Result<PathBuf, PublishError> {
    publish::write(record, analysis, &destination(folder, with_record))
}

/// Writes the page of a search under `(folder, name)`, with the records of its runs where asked
/// for; returns the path of the Markdown file.
///
/// # Errors
/// As [`write()`].
pub fn write_bisection(
    finding: &Finding,
    records: &[(String, &Record)],
    (folder, name): (&Path, &str),
    with_record: bool,
) -> Result<PathBuf, PublishError> {
    let sealed = records.first();
    let stem = sealed.map_or_else(
        || name.to_owned(),
        |(_, record)| format!("{name}-{}-{}", record.host.label, date(record)),
    );
    publish::write_bisection(finding, records, &stem, &destination(folder, with_record))
}

/// Writes a report with its record, or without it where that must not be published as it is:
/// the measurement and its verdict are as good. `write` is told whether to copy the record.
///
/// # Errors
/// Any error of writing.
pub fn published(
    progress: &mut Progress,
    write: impl Fn(bool) -> Result<PathBuf, PublishError>,
) -> Result<Option<PathBuf>, PublishError> {
    for (with_record, what) in [
        (true, "the record is not copied beside the report"),
        (false, "there is no report file"),
    ] {
        match write(with_record) {
            Err(error) if error.is_refusal() => progress.warning(&format!("{what}: {error}")),
            result => return result.map(Some),
        }
    }
    Ok(None)
}

/// A folder for what is published, which holds nothing of where this user's files lie.
#[must_use]
pub fn destination(folder: &Path, with_record: bool) -> Destination<'_> {
    Destination {
        folder,
        with_record,
        private: private_texts(),
    }
}

/// What no published file may hold: where this user's files lie.
fn private_texts() -> Vec<String> {
    let folders = [
        std::env::current_dir().ok(),
        std::env::var_os("HOME").map(PathBuf::from),
    ];
    let texts = folders
        .into_iter()
        .flatten()
        .map(|path| path.to_string_lossy().into_owned());
    // A folder such as `/` stands in every path and tells nothing.
    texts.filter(|text| text.len() > 1).collect()
}
