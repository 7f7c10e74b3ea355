//! Appends rows: one JSON line, synced, per attempt.
//!
//! The file is locked while a writer lives, so two runs never share a record. A
//! line counts only with its newline; what a kill left behind without one is
//! moved to a file of its own when the record is opened again. It is never
//! read as a row, even where it looks whole: nobody was told that it was stored.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Component, Path, PathBuf};

use super::error::{RecordError, io_error};
use super::format::{Attempt, SCHEMA};
use super::store::{RecordDir, stored_line, sync_directory, tag};

/// What a writer needs of a file, so that a full disk can be played in a test.
trait Sink {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()>;
    fn sync(&mut self) -> io::Result<()>;
    fn cut(&mut self, length: u64) -> io::Result<()>;
}

impl Sink for File {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }
    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)?;
        self.sync_data()
    }
}

/// Appends to one record and holds its lock.
pub struct Writer {
    appender: Appender<File>,
    plan_tag: String,
}

impl Writer {
    /// Opens the rows of a sealed record, creating the file if need be, and takes
    /// the lock. Read the record after this, not before: only then nobody else
    /// appends. The notes say what an earlier kill left behind.
    ///
    /// # Errors
    /// [`RecordError::Busy`] while another run writes; any error of the file system.
    pub fn open(
        directory: &RecordDir,
        plan_sha256: &str,
    ) -> Result<(Writer, Vec<String>), RecordError> {
        let path = directory.attempts_path();
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(&path)
            .map_err(io_error("open", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(RecordError::Busy { path }),
            Err(TryLockError::Error(error)) => return Err(io_error("lock", &path)(error)),
        }
        sync_directory(directory.path())?;
        let (length, rows, note) = cut_unfinished_line(&mut file, &path)?;
        let writer = Writer {
            appender: Appender {
                sink: file,
                path,
                length,
                rows,
                poisoned: false,
            },
            plan_tag: tag(plan_sha256).to_owned(),
        };
        Ok((writer, note.into_iter().collect()))
    }

    /// Stores one row; it is on disk when this returns.
    ///
    /// # Errors
    /// [`RecordError::Unstorable`] when the row would not be read back as it is
    /// or belongs to another plan; [`RecordError::Append`] when the disk is full
    /// or fails: the rows before it stay readable.
    pub fn append(&mut self, row: &Attempt) -> Result<(), RecordError> {
        let line = line_of(row, &self.plan_tag)?;
        self.appender.append(&line)
    }

    /// Rows stored so far, earlier runs included.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.appender.rows
    }
}

struct Appender<S> {
    sink: S,
    path: PathBuf,
    /// Bytes of whole rows.
    length: u64,
    rows: u64,
    poisoned: bool,
}

impl<S: Sink> Appender<S> {
    fn append(&mut self, line: &[u8]) -> Result<(), RecordError> {
        if self.poisoned {
            return Err(RecordError::Poisoned {
                path: self.path.clone(),
            });
        }
        if let Err(source) = self.sink.put(line).and_then(|()| self.sink.sync()) {
            // Half a line would hide the next row from every reader. Shortening
            // a file needs no space; where even that fails, nothing follows.
            self.poisoned = self.sink.cut(self.length).is_err();
            return Err(RecordError::Append {
                path: self.path.clone(),
                rows: self.rows,
                source,
            });
        }
        self.length += line.len() as u64;
        self.rows += 1;
        Ok(())
    }
}

/// The stored line of a row, after checking that it is read back as it is.
fn line_of(row: &Attempt, plan_tag: &str) -> Result<Vec<u8>, RecordError> {
    let unstorable = |reason: String| RecordError::Unstorable {
        what: "row",
        reason,
    };
    if row.schema != SCHEMA {
        return Err(unstorable(format!(
            "expected schema {SCHEMA}, got {}",
            row.schema
        )));
    }
    if row.plan != plan_tag {
        return Err(unstorable(format!(
            "expected plan {plan_tag}, got {}",
            row.plan
        )));
    }
    if let Some(outside) = row.output_files.iter().find(|file| !is_inside(file)) {
        return Err(unstorable(format!(
            "output file `{outside}` is not relative to the record"
        )));
    }
    // JSON has no NaN and no infinity: they would be stored as null.
    stored_line("row", row)
}

fn is_inside(file: &str) -> bool {
    !file.is_empty()
        && Path::new(file)
            .components()
            .all(|part| matches!(part, Component::Normal(_)))
}

/// Moves what follows the last newline to a file of its own. Gives the length of
/// the whole rows, their number, and what to tell.
fn cut_unfinished_line(
    file: &mut File,
    path: &Path,
) -> Result<(u64, u64, Option<String>), RecordError> {
    let mut bytes = Vec::new();
    let size = file.metadata().map_err(io_error("read", path))?.len();
    file.seek(SeekFrom::Start(0))
        .and_then(|_| io::Read::take(&mut *file, size).read_to_end(&mut bytes))
        .map_err(io_error("read", path))?;
    let rows = bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
    let end = bytes
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    if end == bytes.len() {
        return Ok((end as u64, rows, None));
    }
    let aside = save_aside(path, &bytes[end..])?;
    file.cut(end as u64).map_err(io_error("shorten", path))?;
    let note = format!(
        "the last line of {} was cut off by an earlier kill: its {} bytes are now in {}, its attempt is run again",
        path.display(),
        bytes.len() - end,
        aside.display(),
    );
    Ok((end as u64, rows, Some(note)))
}

/// Stores `bytes` in the first free `attempts.cut-<n>` beside the rows.
fn save_aside(path: &Path, bytes: &[u8]) -> Result<PathBuf, RecordError> {
    let mut number = 1_u32;
    loop {
        let aside = path.with_extension(format!("cut-{number}"));
        match File::create_new(&aside) {
            Ok(mut file) => {
                file.write_all(bytes)
                    .and_then(|()| file.sync_all())
                    .map_err(io_error("write", &aside))?;
                sync_directory(path.parent().unwrap_or(Path::new(".")))?;
                return Ok(aside);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // Cut off before the rows were shortened last time: the same bytes.
                if fs::read(&aside).is_ok_and(|there| there == bytes) {
                    return Ok(aside);
                }
                number += 1;
            }
            Err(error) => return Err(io_error("create", &aside)(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::format::Outcome;
    use crate::record::{example, reader, store};

    fn record(rows: &[Attempt]) -> (tempfile::TempDir, RecordDir, String) {
        let root = tempfile::tempdir().unwrap();
        let directory = example::store(root.path(), &example::plan(), rows);
        let sha256 = store::seal(example::plan()).unwrap().sha256;
        (root, directory, sha256)
    }

    #[test]
    fn rows_are_read_back_as_they_were() {
        let rows = example::attempts(&example::plan());
        let (_root, directory, _) = record(&rows);
        let back = reader::read(directory.path()).unwrap();
        assert_eq!(back.attempts, rows);
        assert!(back.notes.is_empty());
    }

    #[test]
    fn a_second_writer_is_refused_while_the_first_lives() {
        let (_root, directory, sha256) = record(&[]);
        let first = Writer::open(&directory, &sha256).unwrap();
        let error = Writer::open(&directory, &sha256).err().unwrap();
        assert!(matches!(error, RecordError::Busy { .. }), "{error}");
        drop(first);
        assert!(Writer::open(&directory, &sha256).is_ok());
    }

    #[test]
    fn an_unfinished_line_is_moved_aside_when_the_record_is_opened_again() {
        let rows = example::attempts(&example::plan());
        let (_root, directory, sha256) = record(&rows[..2]);
        let path = directory.attempts_path();
        let whole = fs::read(&path).unwrap();
        // Every byte but the newline arrived: still not a row.
        let mut torn = whole.clone();
        torn.extend(serde_json::to_vec(&rows[2]).unwrap());
        fs::write(&path, &torn).unwrap();

        let read = reader::read(directory.path()).unwrap();
        assert_eq!(read.attempts.len(), 2);
        assert!(read.notes[0].contains("last line"), "{:?}", read.notes);

        let (mut writer, notes) = Writer::open(&directory, &sha256).unwrap();
        assert_eq!(notes.len(), 1);
        assert_eq!(writer.rows(), 2);
        assert_eq!(fs::read(&path).unwrap(), whole);
        let aside = fs::read(directory.path().join("attempts.cut-1")).unwrap();
        assert_eq!(aside, torn[whole.len()..]);

        writer.append(&rows[2]).unwrap();
        let read = reader::read(directory.path()).unwrap();
        assert_eq!(read.attempts, rows[..3]);
    }

    #[test]
    fn cut_at_any_byte_the_record_keeps_every_finished_row() {
        let rows = example::attempts(&example::plan());
        let (_root, directory, sha256) = record(&rows[..2]);
        let path = directory.attempts_path();
        let whole = fs::read(&path).unwrap();
        let first_end = whole.iter().position(|b| *b == b'\n').unwrap() + 1;
        for length in (0..whole.len()).step_by(101) {
            fs::write(&path, &whole[..length]).unwrap();
            let (mut writer, _) = Writer::open(&directory, &sha256).unwrap();
            let kept = usize::from(length >= first_end);
            assert_eq!(writer.rows(), kept as u64, "cut at {length}");
            writer.append(&rows[kept]).unwrap();
            drop(writer);
            let read = reader::read(directory.path()).unwrap();
            assert_eq!(read.attempts, rows[..=kept], "cut at {length}");
        }
    }

    #[test]
    fn a_value_that_is_not_finite_is_not_stored() {
        let mut row = example::attempts(&example::plan()).remove(0);
        row.metrics.insert("decode_tok_s".into(), f64::INFINITY);
        let (_root, directory, sha256) = record(&[]);
        let (mut writer, _) = Writer::open(&directory, &sha256).unwrap();
        let error = writer.append(&row).unwrap_err();
        assert!(
            error.to_string().starts_with("cannot store this row"),
            "{error}"
        );
        assert_eq!(fs::metadata(directory.attempts_path()).unwrap().len(), 0);
    }

    #[test]
    fn a_row_of_another_plan_or_with_a_path_outside_is_not_stored() {
        let (_root, directory, sha256) = record(&[]);
        let (mut writer, _) = Writer::open(&directory, &sha256).unwrap();
        let row = example::attempts(&example::plan()).remove(0);
        let mut other = row.clone();
        other.plan = "0123456789abcdef".into();
        assert!(writer.append(&other).is_err());
        for path in ["/etc/passwd", "../elsewhere", ""] {
            let mut outside = row.clone();
            outside.output_files = vec![path.into()];
            assert!(writer.append(&outside).is_err(), "{path}");
        }
    }

    #[test]
    fn a_multi_line_reason_stays_on_one_line() {
        let (_root, directory, sha256) = record(&[]);
        let (mut writer, _) = Writer::open(&directory, &sha256).unwrap();
        let mut row = example::attempts(&example::plan()).remove(0);
        row.outcome = Outcome::Failed {
            reason: "first\nsecond \u{1f980}".into(),
        };
        writer.append(&row).unwrap();
        let back = reader::read(directory.path()).unwrap();
        assert_eq!(back.attempts, [row]);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_is_an_error_that_names_the_file() {
        let (_root, directory, sha256) = record(&[]);
        let path = directory.attempts_path();
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/full", &path).unwrap();
        let (mut writer, _) = Writer::open(&directory, &sha256).unwrap();
        let row = example::attempts(&example::plan()).remove(0);
        let text = writer.append(&row).unwrap_err().to_string();
        assert!(text.contains("attempts.jsonl"), "{text}");
        assert!(text.contains("No space left on device"), "{text}");
        assert!(text.contains("0 rows before it are intact"), "{text}");
    }

    /// Takes `room` bytes, then is full.
    struct SmallDisk {
        stored: Vec<u8>,
        room: usize,
        can_cut: bool,
    }

    impl Sink for SmallDisk {
        fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
            let fits = bytes.len().min(self.room - self.stored.len());
            self.stored.extend_from_slice(&bytes[..fits]);
            if fits == bytes.len() {
                Ok(())
            } else {
                Err(io::ErrorKind::StorageFull.into())
            }
        }
        fn sync(&mut self) -> io::Result<()> {
            Ok(())
        }
        fn cut(&mut self, length: u64) -> io::Result<()> {
            if self.can_cut {
                self.stored.truncate(usize::try_from(length).unwrap());
                Ok(())
            } else {
                Err(io::ErrorKind::Other.into())
            }
        }
    }

    fn small_disk(can_cut: bool) -> Appender<SmallDisk> {
        Appender {
            sink: SmallDisk {
                stored: Vec::new(),
                room: 10,
                can_cut,
            },
            path: "attempts.jsonl".into(),
            length: 0,
            rows: 0,
            poisoned: false,
        }
    }

    #[test]
    fn half_a_line_is_taken_back_when_the_disk_fills_up() {
        let mut appender = small_disk(true);
        appender.append(b"seven!\n").unwrap();
        let error = appender.append(b"eight!!\n").unwrap_err();
        assert!(
            matches!(error, RecordError::Append { rows: 1, .. }),
            "{error}"
        );
        assert_eq!(appender.sink.stored, b"seven!\n");
        // Space was made: the next row goes on where the last whole one ended.
        appender.append(b"ab\n").unwrap();
        assert_eq!(appender.sink.stored, b"seven!\nab\n");
    }

    #[test]
    fn nothing_follows_half_a_line_that_could_not_be_taken_back() {
        let mut appender = small_disk(false);
        appender.append(b"seven!\n").unwrap();
        assert!(appender.append(b"eight!!\n").is_err());
        let error = appender.append(b"\n").unwrap_err();
        assert!(matches!(error, RecordError::Poisoned { .. }), "{error}");
    }
}
