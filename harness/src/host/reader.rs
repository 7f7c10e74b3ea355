//! Small files of procfs and sysfs below a root that tests can replace.

use std::path::{Path, PathBuf};

/// Reads below one root; what is missing is `None`.
#[derive(Debug, Clone)]
pub(super) struct Reader {
    root: PathBuf,
}

impl Reader {
    pub(super) fn new(root: &Path) -> Self {
        Reader {
            root: root.to_owned(),
        }
    }

    /// The whole file.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.root.join(path)).ok()
    }

    /// The file's text without surrounding white space; `None` when nothing is left.
    pub(super) fn line(&self, path: &str) -> Option<String> {
        let text = self.text(path)?.trim().to_owned();
        (!text.is_empty()).then_some(text)
    }

    /// The file's only number.
    pub(super) fn number(&self, path: &str) -> Option<u64> {
        self.line(path)?.parse().ok()
    }

    /// The value of the first line `name : value` or `name=value`.
    pub(super) fn field(&self, path: &str, name: &str, separator: char) -> Option<String> {
        self.text(path)?.lines().find_map(|line| {
            let (key, value) = line.split_once(separator)?;
            let value = value.trim().trim_matches('"');
            (key.trim() == name && !value.is_empty()).then(|| value.to_owned())
        })
    }

    /// A field of /proc/meminfo in bytes.
    pub(super) fn memory_bytes(&self, name: &str) -> Option<u64> {
        let text = self.field("proc/meminfo", name, ':')?;
        let kib: u64 = text.strip_suffix(" kB")?.trim().parse().ok()?;
        Some(kib * 1024)
    }

    /// The word in brackets of a file such as `always [madvise] never`.
    pub(super) fn chosen(&self, path: &str) -> Option<String> {
        let text = self.text(path)?;
        let (_, rest) = text.split_once('[')?;
        Some(rest.split_once(']')?.0.to_owned())
    }

    /// Names in a directory, sorted.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.root.join(path)) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    pub(super) fn exists(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// Different texts of one file in all online processors, in order of appearance.
    pub(super) fn of_all_processors(&self, file: &str) -> Vec<String> {
        let mut values: Vec<String> = Vec::new();
        for name in self.names("sys/devices/system/cpu") {
            let is_processor = name
                .strip_prefix("cpu")
                .is_some_and(|digits| digits.parse::<u32>().is_ok());
            if is_processor
                && let Some(value) = self.line(&format!("sys/devices/system/cpu/{name}/{file}"))
                && !values.contains(&value)
            {
                values.push(value);
            }
        }
        values
    }
}
