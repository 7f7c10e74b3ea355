//! Collects the faults of one file and knows where each key path stands.
//!
//! A check names a key path and never a line. A fault that only follows from an
//! earlier one (a name missing in a list that could not be read) is dropped.

use std::collections::HashMap;

use super::diagnostic::{Diagnostic, Position};
use super::key_path;
use super::tree::{Node, Value};

/// More errors than this help nobody, and a hostile file could make millions.
const MAX_ERRORS: usize = 200;

/// Where a key and its value stand.
#[derive(Debug, Clone, Copy)]
struct Place {
    key: Position,
    value: Position,
}

/// The faults found so far.
#[derive(Debug, Default)]
pub(crate) struct Report {
    places: HashMap<String, Place>,
    faulty: Vec<String>,
    pub(crate) errors: Vec<Diagnostic>,
    pub(crate) warnings: Vec<Diagnostic>,
}

impl Report {
    /// An empty report that knows the places of `root`.
    pub(crate) fn new(root: &Node) -> Self {
        let mut report = Report::default();
        report.remember("", root.position, root);
        report
    }

    fn remember(&mut self, path: &str, key: Position, node: &Node) {
        let value = node.position;
        self.places.insert(path.to_owned(), Place { key, value });
        match &node.value {
            Value::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.remember(&key_path::item(path, index), item.position, item);
                }
            }
            Value::Map(entries) => {
                for entry in entries {
                    let path = key_path::child(path, &entry.key);
                    self.remember(&path, entry.position, &entry.node);
                }
            }
            _ => {}
        }
    }

    /// From now on, faults below `path` are taken for consequences.
    pub(crate) fn mark_faulty(&mut self, path: &str) {
        self.faulty.push(path.to_owned());
    }

    /// Whether something stands at `path` in the file.
    pub(crate) fn contains(&self, path: &str) -> bool {
        self.places.contains_key(path)
    }

    /// Whether there are so many errors that further ones are dropped.
    pub(crate) fn is_full(&self) -> bool {
        self.errors.len() >= MAX_ERRORS
    }

    /// Whether `path`, or what it lies in, is already known to be wrong.
    pub(crate) fn is_faulty(&self, path: &str) -> bool {
        self.faulty
            .iter()
            .any(|faulty| key_path::is_within(path, faulty))
    }

    /// Whether something at, above or below `path` is known to be wrong.
    pub(crate) fn is_touched(&self, path: &str) -> bool {
        self.faulty
            .iter()
            .any(|faulty| key_path::is_within(path, faulty) || key_path::is_within(faulty, path))
    }

    /// An error about the value at `path`.
    pub(crate) fn value(&mut self, path: &str, expected: &str, got: &str, hint: Option<String>) {
        if !self.is_full() && !self.is_faulty(path) {
            let position = self.place(path).value;
            self.errors
                .push(diagnostic(position, path, expected, got, hint));
        }
    }

    /// An error about the key at `path`, or about what is missing under it.
    pub(crate) fn key(&mut self, path: &str, expected: &str, got: &str, hint: Option<String>) {
        if !self.is_full() && !self.is_faulty(path) {
            let position = self.place(path).key;
            self.errors
                .push(diagnostic(position, path, expected, got, hint));
        }
    }

    /// Something that is allowed and most likely not meant.
    pub(crate) fn warn(&mut self, path: &str, expected: &str, got: &str, hint: Option<String>) {
        if !self.is_touched(path) {
            let position = self.place(path).value;
            self.warnings
                .push(diagnostic(position, path, expected, got, hint));
        }
    }

    /// The place of `path`, or of the nearest thing above it that stands in the file.
    fn place(&self, path: &str) -> Place {
        let mut path = path;
        loop {
            if let Some(place) = self.places.get(path) {
                return *place;
            }
            path = path.rfind(['.', '[']).map_or("", |end| &path[..end]);
            if path.is_empty() {
                let start = Position::START;
                let root = Place {
                    key: start,
                    value: start,
                };
                return self.places.get("").copied().unwrap_or(root);
            }
        }
    }
}

fn diagnostic(
    position: Position,
    key: &str,
    expected: &str,
    got: &str,
    hint: Option<String>,
) -> Diagnostic {
    Diagnostic {
        position,
        key: key.to_owned(),
        expected: expected.to_owned(),
        got: got.to_owned(),
        hint,
    }
}
