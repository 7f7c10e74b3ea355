//! Reads an experiment file and reports everything that is wrong with it at once.
//!
//! Bytes → text → tree with places → held against the schema → checks across
//! keys → typed read by serde_yaml. Nothing is looked up outside the file: paths,
//! revisions and variables are checked when they are used.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use super::diagnostic::{Diagnostic, Diagnostics, Position, printable};
pub use super::expand::expand_env;
use super::model::Experiment;
use super::report::Report;
use super::{grammar, meaning, schema, tree};
use crate::hash::sha256_hex;

/// Longest experiment file in bytes.
pub const MAX_BYTES: u64 = 1 << 20;

/// An experiment that was read and found to be in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// The experiment, defaults filled in.
    pub experiment: Experiment,
    /// SHA-256 of the file's bytes.
    pub bytes_sha256: String,
    /// The file, as it was named.
    pub path: PathBuf,
    /// Things that are allowed and most likely not meant.
    pub warnings: Vec<Diagnostic>,
}

/// Reads and checks the file at `path`.
///
/// # Errors
/// Every fault of the file, each with its place, key, expected and got.
pub fn load(path: &Path) -> Result<Loaded, Diagnostics> {
    let bytes = read(path)?;
    load_bytes(path, &bytes)
}

/// Checks `bytes`, the content of a file that is called `path` in messages.
///
/// # Errors
/// As [`load`].
pub fn load_bytes(path: &Path, bytes: &[u8]) -> Result<Loaded, Diagnostics> {
    let kind = Kind {
        noun: "an experiment",
        page: "docs/EXPERIMENT_FORMAT.md",
        schema: &schema::schema(),
    };
    let (experiment, warnings) = document(path, bytes, kind, meaning::check)?;
    Ok(Loaded {
        experiment,
        bytes_sha256: sha256_hex(bytes),
        path: path.to_owned(),
        warnings,
    })
}

/// What a definition file defines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind<'a> {
    /// As messages call it, such as `an experiment`.
    pub(crate) noun: &'a str,
    /// The page that describes it.
    pub(crate) page: &'a str,
    /// The JSON Schema of its type.
    pub(crate) schema: &'a serde_json::Value,
}

/// Reads one YAML document as a `T`: `meaning` checks what the schema cannot say. Gives
/// the warnings beside it.
///
/// # Errors
/// As [`load`].
pub(crate) fn document<T: DeserializeOwned + PartialEq>(
    path: &Path,
    bytes: &[u8],
    kind: Kind<'_>,
    meaning: impl Fn(&T, &mut Report),
) -> Result<(T, Vec<Diagnostic>), Diagnostics> {
    let one = |diagnostic| Diagnostics::new(path, vec![diagnostic]);
    let text = text(bytes).map_err(one)?;
    let (root, faults) = tree::parse(text);
    let Some(root) = root.filter(|root| root.value != tree::Value::Null) else {
        return Err(Diagnostics::new(path, or_empty(faults, kind)));
    };
    // Only without anchors: a reader that follows them could be made to work for ever.
    let mut faults = faults;
    if faults.is_empty() {
        faults.extend(second_opinion(text));
    }
    let mut report = Report::new(&root);
    report.errors = faults;
    let repaired = grammar::check(kind.schema, &root, &mut report);
    // Succeeds always while schema and types agree; if they ever do not, the
    // typed read below says so.
    let checked = serde_json::from_value::<T>(repaired).ok();
    if let Some(checked) = &checked {
        meaning(checked, &mut report);
    }
    if !report.errors.is_empty() {
        return Err(Diagnostics::new(path, report.errors));
    }
    let read = serde_yaml::from_str(text).map_err(|error| one(typed(&error, kind.noun)))?;
    if checked.is_some_and(|checked| checked != read) {
        let got = "a file that two YAML readers read differently".to_owned();
        let hint = "write it plainer: quote text, avoid block scalars".to_owned();
        return Err(one(fault(Position::START, "plain YAML", got, Some(hint))));
    }
    report.warnings.sort_by_key(|warning| warning.position);
    Ok((read, report.warnings))
}

fn read(path: &Path) -> Result<Vec<u8>, Diagnostics> {
    let whole_file = |expected: &str, got: String| {
        let diagnostic = fault(Position::START, expected, got, None);
        Diagnostics::new(path, vec![diagnostic])
    };
    let readable = |error: std::io::Error| whole_file("a readable file", error.to_string());
    // Asked before opening: opening a named pipe would wait for a writer.
    let metadata = std::fs::metadata(path).map_err(readable)?;
    if !metadata.is_file() {
        let got = if metadata.is_dir() {
            "a directory"
        } else {
            "something else"
        };
        return Err(whole_file("a regular file", got.into()));
    }
    let file = std::fs::File::open(path).map_err(readable)?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(readable)?;
    if bytes.len() as u64 > MAX_BYTES {
        let got = format!("{} bytes", metadata.len().max(MAX_BYTES + 1));
        return Err(whole_file(
            &format!("a file of at most {MAX_BYTES} bytes"),
            got,
        ));
    }
    Ok(bytes)
}

/// The bytes as text, without a byte order mark.
fn text(bytes: &[u8]) -> Result<&str, Diagnostic> {
    let utf8 = bytes.utf8_chunks().next();
    let valid = utf8.as_ref().map_or("", |chunk| chunk.valid());
    let invalid = utf8.as_ref().map_or(&[][..], |chunk| chunk.invalid());
    if let Some(byte) = invalid.first() {
        let hint = "save the file as UTF-8".to_owned();
        let got = format!("the byte 0x{byte:02x}");
        return Err(fault(end_of(valid), "UTF-8 text", got, Some(hint)));
    }
    let text = valid.strip_prefix('\u{feff}').unwrap_or(valid);
    // Readers of YAML 1.1 and 1.2 do not agree whether the separators end a line.
    let unprintable = |c: char| match c {
        '\n' | '\r' | '\t' => false,
        '\u{2028}' | '\u{2029}' => true,
        other => other.is_control(),
    };
    if let Some(at) = text.find(unprintable) {
        let got = text[at..]
            .chars()
            .next()
            .map(|c| c.escape_default().to_string());
        let got = format!("the character {}", got.unwrap_or_default());
        return Err(fault(end_of(&text[..at]), "printable text", got, None));
    }
    Ok(text)
}

/// The place right after `text`.
fn end_of(text: &str) -> Position {
    let last_line = text.rsplit('\n').next().unwrap_or(text);
    Position {
        line: text.matches('\n').count() + 1,
        column: last_line.chars().count() + 1,
    }
}

fn or_empty(faults: Vec<Diagnostic>, kind: Kind<'_>) -> Vec<Diagnostic> {
    if !faults.is_empty() {
        return faults;
    }
    let hint = format!("{} has a complete example", kind.page);
    let got = "an empty file".to_owned();
    vec![fault(Position::START, kind.noun, got, Some(hint))]
}

/// A syntax error that the parser with places let pass.
fn second_opinion(text: &str) -> Option<Diagnostic> {
    let error = serde_yaml::from_str::<serde_yaml::Value>(text).err()?;
    let mut diagnostic = typed(&error, "YAML");
    diagnostic.hint = Some(tree::QUOTES_HINT.into());
    Some(diagnostic)
}

/// A fault that only the typed read saw.
fn typed(error: &serde_yaml::Error, expected: &str) -> Diagnostic {
    let position = error.location().map_or(Position::START, |place| Position {
        line: place.line(),
        column: place.column(),
    });
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or_default();
    let got = format!("an error ({})", printable(what));
    fault(position, expected, got, None)
}

fn fault(position: Position, expected: &str, got: String, hint: Option<String>) -> Diagnostic {
    Diagnostic {
        position,
        key: String::new(),
        expected: expected.to_owned(),
        got,
        hint,
    }
}
