//! Who holds an AMD GPU: the kernel driver (KFD) keeps a directory per process.

use std::path::{Path, PathBuf};

use super::gpu::Gpu;

/// Names another directory of holders.
pub const KFD_VARIABLE: &str = "ROCM_GPU_GUARD_KFD_DIR";

/// Where the kernel keeps a directory named by pid for every process that opened the GPU,
/// below the root of sysfs.
const KFD_PROCESSES: &str = "class/kfd/kfd/proc";

/// The directory of holders: the one asked for, else the kernel's where it exists.
#[must_use]
pub fn kfd_directory(sys: &Path, asked: Option<&Path>) -> Option<PathBuf> {
    let directory = asked.map_or_else(|| sys.join(KFD_PROCESSES), Path::to_owned);
    directory.is_dir().then_some(directory)
}

/// An AMD GPU by its directory of holders. How it runs is among the machine's sensors.
#[derive(Debug)]
pub struct Kfd(pub PathBuf);

impl Gpu for Kfd {
    fn holders(&self) -> Vec<u32> {
        holders(&self.0)
    }
}

/// Pids of all holders, in ascending order; other names are skipped. Empty when the
/// directory is gone.
fn holders(directory: &Path) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut pids: Vec<u32> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    pids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_are_the_directories_named_by_a_pid() {
        let place = tempfile::tempdir().unwrap();
        for name in ["1234", "17", "notes", "12x"] {
            std::fs::create_dir(place.path().join(name)).unwrap();
        }
        assert_eq!(holders(place.path()), [17, 1234]);
        assert!(holders(&place.path().join("gone")).is_empty());
    }

    #[test]
    fn a_directory_that_was_asked_for_is_not_replaced_by_the_kernels() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(place.path().join(KFD_PROCESSES)).unwrap();
        assert!(kfd_directory(place.path(), None).is_some());
        assert!(kfd_directory(place.path(), Some(&place.path().join("no"))).is_none());
    }
}
