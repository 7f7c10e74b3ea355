//! Where `bench-run guard` writes: a directory of attempts, and lines about them.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A line about a machine that is still not quiet is repeated this often.
const REMIND: Duration = Duration::from_secs(60);

/// Where the attempts print.
pub(super) struct Outputs {
    directory: PathBuf,
    /// Kept whatever happens, because the caller named a log.
    keep: bool,
}

impl Outputs {
    /// A new directory: beside the log, else in the temporary directory.
    pub(super) fn create(log: Option<&Path>) -> io::Result<Self> {
        let name = format!("{}-{}", now("%Y%m%dT%H%M%SZ"), std::process::id());
        let directory = if let Some(log) = log {
            let mut beside = log.as_os_str().to_owned();
            beside.push(".attempts");
            PathBuf::from(beside).join(name)
        } else {
            std::env::temp_dir().join(format!("bench-run-guard-{name}"))
        };
        // Others must not read or prepare what lies in a temporary directory.
        std::fs::DirBuilder::new()
            .recursive(log.is_some())
            .mode(0o700)
            .create(&directory)?;
        Ok(Outputs {
            directory,
            keep: log.is_some(),
        })
    }

    /// Where these outputs are.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Prints the clean attempt's output.
    pub(super) fn pass_on(&self, clean: Option<u64>) {
        if let Some(attempt) = clean {
            // A reader that has gone is its own business: the command has run.
            let _ = copy(
                &output_path(&self.directory, attempt, "stdout"),
                &mut io::stdout().lock(),
            );
            let _ = copy(
                &output_path(&self.directory, attempt, "stderr"),
                &mut io::stderr().lock(),
            );
        }
    }

    /// Removes the outputs unless somebody may want to look at them.
    pub(super) fn close(self, worth_keeping: bool, log: &mut Log) {
        if !self.keep && !worth_keeping {
            let _ = std::fs::remove_dir_all(&self.directory);
        } else if std::fs::remove_dir(&self.directory).is_err() {
            // It could not be removed because it is not empty.
            let place = self.directory.display();
            log.line(&format!("every attempt's output is in {place}"));
        }
    }
}

pub(super) fn copy(from: &Path, to: &mut dyn Write) -> io::Result<()> {
    io::copy(&mut File::open(from)?, to)?;
    to.flush()
}

fn now(format: &str) -> String {
    jiff::Timestamp::now().strftime(format).to_string()
}

/// The guard's own lines.
#[derive(Default)]
pub(super) struct Log {
    file: Option<File>,
    reminded: Option<Instant>,
}

impl Log {
    pub(super) fn open(path: Option<&Path>) -> io::Result<Self> {
        let append = |path| OpenOptions::new().create(true).append(true).open(path);
        Ok(Log {
            file: path.map(append).transpose()?,
            reminded: None,
        })
    }

    pub(super) fn line(&mut self, text: &str) {
        let line = format!("[{}] guard: {text}\n", now("%Y-%m-%dT%H:%M:%SZ"));
        // A log that cannot be written must not stop a measurement.
        let _ = io::stderr().write_all(line.as_bytes());
        if let Some(file) = &mut self.file {
            let _ = file.write_all(line.as_bytes());
        }
    }

    /// Passes on what changed; a machine that stays busy is mentioned once a minute.
    pub(super) fn line_now_and_then(&mut self, text: &str) {
        let repeated =
            text.starts_with("not idle") && self.reminded.is_some_and(|at| at.elapsed() < REMIND);
        if !repeated {
            self.line(text);
            self.reminded = Some(Instant::now());
        }
    }
}

/// The file of one attempt and stream.
pub(super) fn output_path(directory: &Path, attempt: u64, stream: &str) -> PathBuf {
    directory.join(format!("attempt-{attempt}.{stream}"))
}
