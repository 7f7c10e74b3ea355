//! What tells one stay on a machine from another.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::error::{BundleError, io_error};
use super::layout::BUNDLE_FILE;
use crate::hash::sha256_hex;

/// Enough to tell stays of one record apart, too few to find a machine by.
const DIGITS: usize = 8;

/// A mark that is another one after a restart of the machine and in another copy of the
/// bundle: there nothing is warm.
///
/// # Errors
/// The bundle cannot be looked at.
pub fn mark(folder: &Path) -> Result<String, BundleError> {
    let path = folder.join(BUNDLE_FILE);
    let file = std::fs::metadata(&path).map_err(io_error("read", &path))?;
    // Where the kernel does not tell, a copy of the bundle still does.
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let (inode, changed) = (file.ino(), (file.ctime(), file.ctime_nsec()));
    let text = format!("{boot} {} {inode} {changed:?}", file.dev());
    Ok(sha256_hex(text.as_bytes()).chars().take(DIGITS).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_copy_is_another_stay() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        for place in [&one, &other] {
            std::fs::create_dir(place).unwrap();
            std::fs::write(place.join(BUNDLE_FILE), "{}").unwrap();
        }
        assert_eq!(mark(&one).unwrap(), mark(&one).unwrap());
        assert_ne!(mark(&one).unwrap(), mark(&other).unwrap());
        assert!(mark(folder.path()).is_err());
    }
}
