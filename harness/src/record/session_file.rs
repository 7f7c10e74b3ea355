//! `sessions.jsonl`: one line per stay on a machine, replaced as a whole.

use std::fs;
use std::io;
use std::path::Path;

use super::error::{RecordError, io_error};
use super::format::Session;
use super::reader::{corrupt, parse_row};
use super::store::{SESSIONS_FILE, stored_line, sync_directory, write_new};

/// The sessions of the record `directory` in their order; none where there is no such file.
///
/// # Errors
/// A line that is no session, or not the one that has to come.
pub(super) fn read(directory: &Path) -> Result<Vec<Session>, RecordError> {
    let path = directory.join(SESSIONS_FILE);
    let bytes = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(io_error("read", &path))?,
    };
    let mut sessions: Vec<Session> = Vec::new();
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let number = sessions.len() + 1;
        let session: Session = parse_row(&path, number, line)?;
        if session.session as usize != number {
            let message = format!("expected session {number}, got {}", session.session);
            return Err(corrupt(&path, number, message));
        }
        sessions.push(session);
    }
    Ok(sessions)
}

/// Replaces the sessions of the record `directory`.
///
/// # Errors
/// Any error of writing; the file before stays whole.
pub fn write(directory: &Path, sessions: &[Session]) -> Result<(), RecordError> {
    let mut bytes = Vec::new();
    for session in sessions {
        bytes.extend(stored_line("session", session)?);
    }
    let path = directory.join(SESSIONS_FILE);
    let aside = path.with_extension("new");
    // Left by a kill between the two steps below.
    let _ = fs::remove_file(&aside);
    write_new(&aside, &bytes)?;
    fs::rename(&aside, &path).map_err(io_error("replace", &path))?;
    sync_directory(directory)
}

#[cfg(test)]
mod tests {
    use super::super::format::SCHEMA;
    use super::super::{example, reader};
    use super::*;

    fn session(number: u32) -> Session {
        Session {
            schema: SCHEMA,
            session: number,
            ..Session::default()
        }
    }

    #[test]
    fn sessions_are_read_back_and_rows_must_name_one_of_them() {
        let root = tempfile::tempdir().unwrap();
        let mut rows = example::attempts(&example::plan());
        rows[1].session = 2;
        let directory = example::store(root.path(), &example::plan(), &rows[..2]);
        let sessions = [session(1), session(2)];
        write(directory.path(), &sessions[..1]).unwrap();
        let error = reader::read(directory.path()).unwrap_err().to_string();
        assert!(
            error.contains("attempts.jsonl:2: expected a session up to 1, got 2"),
            "{error}"
        );
        write(directory.path(), &sessions).unwrap();
        assert_eq!(reader::read(directory.path()).unwrap().sessions, sessions);
        let text = fs::read_to_string(directory.path().join(SESSIONS_FILE)).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        fs::write(directory.path().join(SESSIONS_FILE), lines[1]).unwrap();
        let error = reader::read(directory.path()).unwrap_err().to_string();
        assert!(
            error.contains("sessions.jsonl:1: expected session 1, got 2"),
            "{error}"
        );
    }
}
