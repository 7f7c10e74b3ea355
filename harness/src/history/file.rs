//! The file of one host and program: read whole, appended to under a lock.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use super::format::{PastRun, SCHEMA};
use crate::record::error::{RecordError, io_error};

/// The history of one program on one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryFile {
    path: PathBuf,
}

impl HistoryFile {
    /// The file of `family` on `host`, both safe in a file name, below `folder`. It need not exist.
    #[must_use]
    pub fn new(folder: &Path, host: &str, family: &str) -> Self {
        HistoryFile {
            path: folder.join(host).join(format!("{family}.jsonl")),
        }
    }

    /// Every run on file, the oldest first, and what was passed over: a line that is cut
    /// off, damaged, or of a newer version costs that line and nothing else.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub fn read(&self) -> Result<(Vec<PastRun>, Vec<String>), RecordError> {
        let text = match fs::read(&self.path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(io_error("read", &self.path)(error)),
        };
        let mut runs = Vec::new();
        let mut notes = Vec::new();
        for (index, line) in text.lines().enumerate() {
            match parse(line) {
                Ok(run) => runs.extend(run),
                Err(reason) => notes.push(format!(
                    "{}:{}: {reason}; the line is passed over",
                    self.path.display(),
                    index + 1
                )),
            }
        }
        Ok((runs, notes))
    }

    /// Adds a run, unless one of the same plan is there. Waits for another appender.
    ///
    /// # Errors
    /// The file cannot be made, locked or written.
    pub fn append(&self, run: &PastRun) -> Result<(), RecordError> {
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder).map_err(io_error("create", folder))?;
        }
        let failed = |action| io_error(action, &self.path);
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(&self.path)
            .map_err(failed("open"))?;
        file.lock().map_err(failed("lock"))?;
        let mut before = Vec::new();
        file.seek(SeekFrom::Start(0))
            .and_then(|_| file.read_to_end(&mut before))
            .map_err(failed("read"))?;
        let text = String::from_utf8_lossy(&before);
        let known = text.lines().filter_map(|line| parse(line).ok().flatten());
        if known.into_iter().any(|known| known.plan == run.plan) {
            return Ok(());
        }
        let mut line = serde_json::to_vec(run).map_err(|error| RecordError::Unstorable {
            what: "line of the history",
            reason: error.to_string(),
        })?;
        // A kill may have left half a line, which must not swallow this one.
        if before.last().is_some_and(|last| *last != b'\n') {
            line.insert(0, b'\n');
        }
        line.push(b'\n');
        file.write_all(&line)
            .and_then(|()| file.sync_data())
            .map_err(failed("append to"))
    }
}

/// A line's run; `None` for an empty line.
fn parse(line: &str) -> Result<Option<PastRun>, String> {
    if line.trim().is_empty() {
        return Ok(None);
    }
    let value: serde_json::Value =
        serde_json::from_str(line).map_err(|error| format!("not JSON: {error}"))?;
    match value.get("schema").and_then(serde_json::Value::as_u64) {
        Some(schema) if schema <= u64::from(SCHEMA) => {}
        Some(schema) => return Err(format!("expected schema 1 to {SCHEMA}, got {schema}")),
        None => return Err("expected a schema, got none".into()),
    }
    let run = serde_json::from_value(value).map_err(|error| error.to_string())?;
    Ok(Some(run))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(plan: &str) -> PastRun {
        PastRun {
            schema: SCHEMA,
            plan: plan.into(),
            sealed_at: "2026-03-01T10:00:00Z".into(),
            experiment: "window".into(),
            cells: vec![],
        }
    }

    #[test]
    fn runs_come_back_in_their_order_and_a_plan_stands_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = HistoryFile::new(folder.path(), "epyc-2c", "decode");
        assert_eq!(file.read().unwrap(), (vec![], vec![]));
        for plan in ["a", "b", "a"] {
            file.append(&run(plan)).unwrap();
        }
        assert_eq!(file.read().unwrap(), (vec![run("a"), run("b")], vec![]));
    }

    #[test]
    fn half_a_line_and_a_newer_one_cost_only_themselves() {
        let folder = tempfile::tempdir().unwrap();
        let file = HistoryFile::new(folder.path(), "epyc-2c", "decode");
        file.append(&run("a")).unwrap();
        let stored = fs::read_to_string(&file.path).unwrap();
        let newer = stored.replace("\"schema\":1", "\"schema\":2");
        fs::write(&file.path, format!("{stored}{newer}{{\"schema\":1,\"pl")).unwrap();
        file.append(&run("b")).unwrap();
        let (runs, notes) = file.read().unwrap();
        assert_eq!(runs, [run("a"), run("b")]);
        assert!(
            notes[0].contains("decode.jsonl:2: expected schema 1 to 1, got 2"),
            "{notes:?}"
        );
        assert!(notes[1].contains("decode.jsonl:3: not JSON"), "{notes:?}");
    }

    #[test]
    fn appenders_wait_for_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let file = HistoryFile::new(folder.path(), "epyc-2c", "decode");
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let file = &file;
                scope.spawn(move || {
                    for number in 0..5 {
                        file.append(&run(&format!("{worker}-{number}"))).unwrap();
                    }
                });
            }
        });
        let (runs, notes) = file.read().unwrap();
        assert_eq!((runs.len(), notes.len()), (20, 0));
    }
}
