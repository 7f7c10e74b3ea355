//! Reads a record and checks it before anybody draws a conclusion from it.
//!
//! Refused: a plan that is not the sealed one, rows of another plan, of a newer
//! schema, about arms or cells that the plan does not know, and rows that stand
//! twice. Fields this version does not know are passed over: within one schema
//! number fields are only added, and none changes the meaning of another.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::error::{RecordError, io_error};
use super::format::{Attempt, Host, Plan, SCHEMA, Session};
use super::session_file;
use super::store::{ATTEMPTS_FILE, HOST_FILE, PLAN_FILE, SEAL_FILE, SealedPlan, tag};
use crate::hash::sha256_hex;

/// A whole record, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Where it was read from.
    pub dir: PathBuf,
    /// What was decided before the first attempt.
    pub plan: Plan,
    /// SHA-256 of the plan's stored bytes.
    pub plan_sha256: String,
    /// The machine.
    pub host: Host,
    /// Every attempt, in the order in which they ran.
    pub attempts: Vec<Attempt>,
    /// The stays on machines, of a run that a bundle carried; else none.
    pub sessions: Vec<Session>,
    /// Things found while reading that the reader must know.
    pub notes: Vec<String>,
}

/// Reads and checks the record in `directory`.
///
/// # Errors
/// A file is missing, unreadable, corrupt (with its line), of a newer schema, or
/// does not belong to the sealed plan.
pub fn read(directory: &Path) -> Result<Record, RecordError> {
    let (sealed, host) = read_sealed(directory)?;
    let path = directory.join(ATTEMPTS_FILE);
    // A record killed before its first attempt has no rows yet.
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(io_error("read", &path)(error)),
    };
    let sessions = session_file::read(directory)?;
    let (attempts, note) = read_rows(&path, &bytes, &sealed, sessions.len())?;
    Ok(Record {
        dir: directory.to_path_buf(),
        plan: sealed.plan,
        plan_sha256: sealed.sha256,
        host,
        attempts,
        sessions,
        notes: note.into_iter().collect(),
    })
}

/// Reads only what was fixed before the first attempt: the plan, checked
/// against its seal, and the host.
///
/// # Errors
/// As [`read`].
pub fn read_sealed(directory: &Path) -> Result<(SealedPlan, Host), RecordError> {
    let sealed = read_plan(directory)?;
    let host_bytes = read_file(directory, HOST_FILE)?;
    let host_path = directory.join(HOST_FILE);
    check_schema(&host_path, &host_bytes)?;
    let host = parse(&host_path, &host_bytes)?;
    Ok((sealed, host))
}

/// Reads the plan, checked against its seal.
///
/// # Errors
/// As [`read`].
pub fn read_plan(directory: &Path) -> Result<SealedPlan, RecordError> {
    let plan_path = directory.join(PLAN_FILE);
    let bytes = read_file(directory, PLAN_FILE)?;
    let seal = read_file(directory, SEAL_FILE)?;
    // The schema comes first: a newer program may seal in another way.
    check_schema(&plan_path, &bytes)?;
    let expected = String::from_utf8_lossy(&seal);
    let expected = expected.split_whitespace().next().unwrap_or_default();
    let got = sha256_hex(&bytes);
    if expected != got {
        return Err(RecordError::PlanChanged {
            path: plan_path,
            expected: expected.to_owned(),
            got,
        });
    }
    let plan: Plan = parse(&plan_path, &bytes)?;
    Ok(SealedPlan {
        plan,
        bytes,
        sha256: got,
    })
}

fn read_file(directory: &Path, file: &'static str) -> Result<Vec<u8>, RecordError> {
    let path = directory.join(file);
    fs::read(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => RecordError::Missing {
            directory: directory.to_path_buf(),
            file,
        },
        _ => io_error("read", &path)(error),
    })
}

fn parse<T: DeserializeOwned>(path: &Path, bytes: &[u8]) -> Result<T, RecordError> {
    serde_json::from_slice(bytes).map_err(|error| RecordError::Corrupt {
        path: path.to_path_buf(),
        line: None,
        message: error.to_string(),
    })
}

/// The one field that every version has.
#[derive(Deserialize)]
struct SchemaOnly {
    schema: u32,
}

fn check_schema(path: &Path, bytes: &[u8]) -> Result<(), RecordError> {
    let SchemaOnly { schema } = parse(path, bytes)?;
    known_schema(path, None, schema)
}

fn known_schema(path: &Path, line: Option<usize>, got: u32) -> Result<(), RecordError> {
    if (1..=SCHEMA).contains(&got) {
        return Ok(());
    }
    Err(RecordError::Schema {
        path: path.to_path_buf(),
        line,
        newest: SCHEMA,
        got,
    })
}

/// All rows that end in a newline, and a note about a last one that does not.
fn read_rows(
    path: &Path,
    bytes: &[u8],
    sealed: &SealedPlan,
    sessions: usize,
) -> Result<(Vec<Attempt>, Option<String>), RecordError> {
    let end = bytes
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    let note = (end < bytes.len()).then(|| {
        format!(
            "the last line of {ATTEMPTS_FILE} is cut off after {} bytes and is not a row",
            bytes.len() - end
        )
    });
    let mut check = RowCheck::new(path, sealed, sessions);
    let mut rows = Vec::new();
    for (index, line) in bytes[..end]
        .split_inclusive(|byte| *byte == b'\n')
        .enumerate()
    {
        let row: Attempt = parse_row(path, index + 1, line)?;
        check.check(index + 1, &row)?;
        rows.push(row);
    }
    Ok((rows, note))
}

pub(super) fn parse_row<T: DeserializeOwned>(
    path: &Path,
    line: usize,
    bytes: &[u8],
) -> Result<T, RecordError> {
    // A newer row need not look like ours: say that, not what does not fit.
    if let Ok(SchemaOnly { schema }) = serde_json::from_slice(bytes) {
        known_schema(path, Some(line), schema)?;
    }
    serde_json::from_slice(bytes).map_err(|error| corrupt(path, line, error.to_string()))
}

pub(super) fn corrupt(path: &Path, line: usize, message: String) -> RecordError {
    RecordError::Corrupt {
        path: path.to_path_buf(),
        line: Some(line),
        message,
    }
}

/// A row's place in the run: cell, round, try, arm, and for a priming attempt the stage and
/// the session.
type Place = (usize, u32, u32, usize, (u32, u32));

/// Checks rows against the plan.
struct RowCheck<'a> {
    path: &'a Path,
    plan_tag: &'a str,
    cells: HashMap<&'a str, usize>,
    arms: HashMap<&'a str, usize>,
    /// The last session that a row may name.
    sessions: usize,
    seen: HashSet<Place>,
}

impl<'a> RowCheck<'a> {
    fn new(path: &'a Path, sealed: &'a SealedPlan, sessions: usize) -> Self {
        let plan = &sealed.plan;
        let ids = plan.cells.iter().map(|cell| cell.id.as_str());
        let names = plan.arms.iter().map(|arm| arm.name.as_str());
        RowCheck {
            path,
            plan_tag: tag(&sealed.sha256),
            cells: ids.enumerate().map(|(i, id)| (id, i)).collect(),
            arms: names.enumerate().map(|(i, name)| (name, i)).collect(),
            sessions: sessions.max(1),
            seen: HashSet::new(),
        }
    }

    fn check(&mut self, line: usize, row: &Attempt) -> Result<(), RecordError> {
        if row.plan != self.plan_tag {
            return Err(RecordError::OtherPlan {
                path: self.path.to_path_buf(),
                line,
                expected: self.plan_tag.to_owned(),
                got: row.plan.clone(),
            });
        }
        let unknown = |what: &str, name: &str| {
            corrupt(self.path, line, format!("the plan has no {what} `{name}`"))
        };
        let Some(cell) = self.cells.get(row.cell.as_str()) else {
            return Err(unknown("cell", &row.cell));
        };
        let Some(arm) = self.arms.get(row.arm.as_str()) else {
            return Err(unknown("arm", &row.arm));
        };
        if row.session as usize > self.sessions {
            let (got, known) = (row.session, self.sessions);
            let message = format!("expected a session up to {known}, got {got}");
            return Err(corrupt(self.path, line, message));
        }
        let primed_for = if row.round == 0 {
            (row.slot, row.session)
        } else {
            (0, 0)
        };
        let place = (*cell, row.round, row.round_try, *arm, primed_for);
        if !self.seen.insert(place) {
            let round = match row.round {
                0 => "the priming".to_owned(),
                round => format!("round {round}"),
            };
            let message = format!(
                "arm `{}` stands twice in try {} of {round} of cell `{}`",
                row.arm, row.round_try, row.cell
            );
            return Err(corrupt(self.path, line, message));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::example;
    use crate::record::store::{RecordDir, seal};

    fn record() -> (tempfile::TempDir, RecordDir) {
        let root = tempfile::tempdir().unwrap();
        let plan = example::plan();
        let rows = example::attempts(&plan);
        let directory = example::store(root.path(), &plan, &rows);
        (root, directory)
    }

    /// Rewrites the file of rows line by line.
    fn edit_rows(directory: &RecordDir, edit: impl Fn(usize, &str) -> String) {
        let text = fs::read_to_string(directory.attempts_path()).unwrap();
        let lines = text.lines().enumerate();
        let edited: Vec<String> = lines.map(|(at, line)| edit(at + 1, line)).collect();
        fs::write(directory.attempts_path(), edited.join("\n") + "\n").unwrap();
    }

    fn refusal(directory: &RecordDir) -> String {
        read(directory.path()).unwrap_err().to_string()
    }

    #[test]
    fn an_edited_plan_is_refused() {
        let (_root, directory) = record();
        let path = directory.path().join(PLAN_FILE);
        let text = fs::read_to_string(&path).unwrap();
        let edited = text.replace("\"threshold_pct\": 1.0", "\"threshold_pct\": 5.0");
        assert_ne!(text, edited);
        fs::write(&path, edited).unwrap();
        let error = refusal(&directory);
        assert!(
            error.contains("plan.json was changed after it was sealed"),
            "{error}"
        );
    }

    #[test]
    fn a_plan_resealed_by_hand_does_not_match_its_rows() {
        let (_root, directory) = record();
        let mut plan = example::plan();
        plan.experiment.verdict.threshold_pct = 5.0;
        let sealed = seal(plan).unwrap();
        fs::write(directory.path().join(PLAN_FILE), &sealed.bytes).unwrap();
        fs::write(directory.path().join(SEAL_FILE), &sealed.sha256).unwrap();
        let error = refusal(&directory);
        assert!(
            error.contains("attempts.jsonl:1: row of another plan"),
            "{error}"
        );
    }

    #[test]
    fn a_newer_schema_is_refused_in_each_file() {
        for file in [PLAN_FILE, HOST_FILE] {
            let (_root, directory) = record();
            let path = directory.path().join(file);
            let text = fs::read_to_string(&path).unwrap();
            // Everything else may have changed, too: only the number is read.
            let newer = text
                .replacen("\"schema\": 1", "\"schema\": 2", 1)
                .replace("\"label\"", "\"name\"");
            fs::write(&path, &newer).unwrap();
            let seal = sha256_hex(&fs::read(directory.path().join(PLAN_FILE)).unwrap());
            fs::write(directory.path().join(SEAL_FILE), seal).unwrap();
            let error = refusal(&directory);
            assert!(
                error.contains(&format!("{file}: expected schema 1 to 1, got 2")),
                "{error}"
            );
        }
    }

    #[test]
    fn a_newer_row_is_refused_whether_or_not_it_looks_like_ours() {
        for newer in [r#"{"schema":2,"what":"ever"}"#, ""] {
            let (_root, directory) = record();
            edit_rows(&directory, |at, line| match at {
                2 if newer.is_empty() => line.replacen("\"schema\":1", "\"schema\":2", 1),
                2 => newer.to_owned(),
                _ => line.to_owned(),
            });
            let error = refusal(&directory);
            let expected = "attempts.jsonl:2: expected schema 1 to 1, got 2 (written by a newer";
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_corrupt_middle_line_is_named() {
        for damage in ["", "{", "\0\0\0", "null", "{\"schema\":1}"] {
            let (_root, directory) = record();
            edit_rows(&directory, |at, line| match at {
                3 => damage.to_owned(),
                _ => line.to_owned(),
            });
            let error = refusal(&directory);
            assert!(error.contains("attempts.jsonl:3: "), "{damage}: {error}");
        }
    }

    #[test]
    fn a_row_about_an_arm_or_cell_that_was_not_planned_is_refused() {
        for (from, to, named) in [
            ("\"arm\":\"base\"", "\"arm\":\"bass\"", "no arm `bass`"),
            ("\"cell\":\"", "\"cell\":\"x", "no cell `x"),
        ] {
            let (_root, directory) = record();
            edit_rows(&directory, |_, line| line.replace(from, to));
            let error = refusal(&directory);
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn a_row_that_stands_twice_is_refused() {
        // A priming attempt and a measuring one.
        for twice in [1, 4] {
            let (_root, directory) = record();
            edit_rows(&directory, |at, line| match at {
                at if at == twice => format!("{line}\n{line}"),
                _ => line.to_owned(),
            });
            let error = refusal(&directory);
            let expected = format!("attempts.jsonl:{}: arm `", twice + 1);
            assert!(error.contains(&expected), "{error}");
            assert!(error.contains("stands twice"), "{error}");
        }
    }

    #[test]
    fn an_added_field_is_passed_over() {
        let (_root, directory) = record();
        edit_rows(&directory, |_, line| {
            line.replacen('{', "{\"mood\":\"good\",", 1)
        });
        let rows = read(directory.path()).unwrap().attempts;
        assert_eq!(rows, example::attempts(&example::plan()));
    }

    #[test]
    fn a_missing_file_is_named_and_missing_rows_are_no_rows() {
        for file in [PLAN_FILE, SEAL_FILE, HOST_FILE] {
            let (_root, directory) = record();
            fs::remove_file(directory.path().join(file)).unwrap();
            let error = refusal(&directory);
            assert!(error.ends_with(&format!("{file} is missing")), "{error}");
        }
        let (_root, directory) = record();
        fs::remove_file(directory.attempts_path()).unwrap();
        assert!(read(directory.path()).unwrap().attempts.is_empty());
    }

    #[test]
    fn a_path_that_is_no_directory_is_not_a_record() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for path in [file.path(), Path::new("/no/such/directory")] {
            let error = read(path).unwrap_err();
            assert!(matches!(error, RecordError::Missing { .. }), "{error}");
        }
    }
}
