//! What is wrong with an experiment file: one entry per fault, all of them at once.
//!
//! An entry is data (place, key path, expected, got, hint); the text is made in
//! one place, so that every error of every check reads alike.

use std::fmt;
use std::path::{Path, PathBuf};

/// A place in the file; both numbers count from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Column.
    pub column: usize,
}

impl Position {
    /// The first character: for faults of the file as a whole.
    pub const START: Position = Position { line: 1, column: 1 };
}

/// One fault, or one warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Where.
    pub position: Position,
    /// Key path such as `arms.main.requires`; empty for the file as a whole.
    pub key: String,
    /// What should stand there.
    pub expected: String,
    /// What stands there.
    pub got: String,
    /// The nearest known key, or what to do.
    pub hint: Option<String>,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.position.line, self.position.column)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        write!(f, "expected {}, got {}", self.expected, self.got)?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

/// Every fault of one file, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostics {
    /// The file, as it was named to the loader.
    pub path: PathBuf,
    /// At least one.
    pub entries: Vec<Diagnostic>,
}

impl Diagnostics {
    /// The entries of `path`, sorted by place; faults of one place keep their order.
    #[must_use]
    pub(crate) fn new(path: &Path, mut entries: Vec<Diagnostic>) -> Self {
        entries.sort_by_key(|entry| entry.position);
        entries.dedup();
        Diagnostics {
            path: path.to_owned(),
            entries,
        }
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, entry) in self.entries.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{}:{entry}", self.path.display())?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

/// The known word nearest to `word`, if it is near enough to be a typing error.
#[must_use]
pub(crate) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Jaro-Winkler prefers a common beginning; 0.8 accepts two slips in a short
    // key (`retrys`, `artefacts`) and refuses unrelated words.
    const NEAR_ENOUGH: f64 = 0.8;
    let folded = word.to_lowercase();
    known
        .map(|candidate| {
            let likeness = strsim::jaro_winkler(&folded, &candidate.to_lowercase());
            (likeness, candidate)
        })
        .filter(|(likeness, _)| *likeness >= NEAR_ENOUGH)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// `did you mean …?`, where something is near enough.
#[must_use]
pub(crate) fn did_you_mean<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    nearest(word, known).map(|candidate| format!("did you mean `{candidate}`?"))
}

/// `` `a`, `b` `` or `none`: a list of names inside a sentence.
#[must_use]
pub(crate) fn names<'a>(list: impl Iterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = list.map(|name| format!("`{}`", printable(name))).collect();
    if quoted.is_empty() {
        "none".into()
    } else {
        quoted.join(", ")
    }
}

/// `text` on one line, without control characters, cut to a readable length.
#[must_use]
pub fn printable(text: &str) -> String {
    const LONGEST: usize = 60;
    let mut shown = String::new();
    for (count, character) in text.chars().enumerate() {
        if count == LONGEST {
            shown.push('…');
            break;
        }
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_key_and_an_unrelated_word_none() {
        let known = ["retries", "rounds", "expect", "artifacts"];
        assert_eq!(nearest("retrys", known.into_iter()), Some("retries"));
        assert_eq!(nearest("artefacts", known.into_iter()), Some("artifacts"));
        assert_eq!(nearest("Rounds", known.into_iter()), Some("rounds"));
        assert_eq!(nearest("colour", known.into_iter()), None);
    }

    #[test]
    fn shown_text_has_one_line_and_an_end() {
        assert_eq!(printable("a\nb\u{1b}[1m"), "a\\nb\\u{1b}[1m");
        assert_eq!(printable(&"x".repeat(100)).chars().count(), 61);
    }
}
