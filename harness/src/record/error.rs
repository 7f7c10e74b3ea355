//! What can be wrong with a record, each naming the file, what was expected and what was found.

use std::io;
use std::path::{Path, PathBuf};

/// A record that cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The operating system refused an operation.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, such as `create`.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A row could not be stored, most often because the disk is full.
    #[error(
        "cannot append row {} to {}: {source}; the {rows} rows before it are intact",
        rows + 1,
        path.display()
    )]
    Append {
        /// The file of rows.
        path: PathBuf,
        /// Rows that are safely stored.
        rows: u64,
        /// Why it failed.
        source: io::Error,
    },
    /// An earlier append failed in a way that leaves the end of the file unknown.
    #[error("{} had a write error; open the record again before appending", path.display())]
    Poisoned {
        /// The file of rows.
        path: PathBuf,
    },
    /// Two runs must not append to one record.
    #[error("{} is being written by another run", path.display())]
    Busy {
        /// The file of rows.
        path: PathBuf,
    },
    /// A directory that lacks one of the record's files.
    #[error("{} is not a complete record: {file} is missing", directory.display())]
    Missing {
        /// The directory.
        directory: PathBuf,
        /// Name of the file that is not there.
        file: &'static str,
    },
    /// Written by another version of the program.
    #[error("{}: expected schema 1 to {newest}, got {got}{}", at(path, *line), if got > newest {
        " (written by a newer bench-run)"
    } else {
        ""
    })]
    Schema {
        /// The file.
        path: PathBuf,
        /// 1-based line in a file of rows.
        line: Option<usize>,
        /// The newest schema that this program reads.
        newest: u32,
        /// The schema found.
        got: u32,
    },
    /// Not the JSON that the format asks for.
    #[error("{}: {message}", at(path, *line))]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// 1-based line in a file of rows.
        line: Option<usize>,
        /// What is wrong.
        message: String,
    },
    /// The plan is not the one that was sealed.
    #[error(
        "{} was changed after it was sealed: expected SHA-256 {expected}, got {got}",
        path.display()
    )]
    PlanChanged {
        /// The plan's file.
        path: PathBuf,
        /// The hash beside it.
        expected: String,
        /// The hash of its bytes.
        got: String,
    },
    /// A row that belongs to another run.
    #[error("{}: row of another plan: expected {expected}, got {got}", at(path, Some(*line)))]
    OtherPlan {
        /// The file of rows.
        path: PathBuf,
        /// 1-based line.
        line: usize,
        /// Tag of this record's plan.
        expected: String,
        /// Tag in the row.
        got: String,
    },
    /// A record that was begun on another kind of machine.
    #[error(
        "{} was begun on another kind of machine: expected {fact} `{expected}`, got `{got}`; go on \
         there, or begin another record here",
        directory.display()
    )]
    OtherMachine {
        /// The record.
        directory: PathBuf,
        /// Name of the fact that differs.
        fact: &'static str,
        /// What the first machine has.
        expected: String,
        /// What this one has.
        got: String,
    },
    /// A value that cannot be stored: it would not be read back as it is.
    #[error("cannot store this {what}: {reason}")]
    Unstorable {
        /// `row`, `plan` or `host`.
        what: &'static str,
        /// Which value, and why.
        reason: String,
    },
    /// A word that cannot be part of a directory's name.
    #[error(
        "{what} `{got}` cannot be part of a file name: expected letters, digits, `-`, `_`, `.`"
    )]
    Name {
        /// What the word is.
        what: &'static str,
        /// The word.
        got: String,
    },
}

fn at(path: &Path, line: Option<usize>) -> String {
    match line {
        Some(line) => format!("{}:{line}", path.display()),
        None => path.display().to_string(),
    }
}

/// Turns an I/O error into one that says what was tried on which path.
pub(crate) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RecordError {
    let path = path.to_path_buf();
    move |source| RecordError::Io {
        action,
        path,
        source,
    }
}
