//! What processor this is, from the operating system.

use crate::device_profile::DeviceProfile;

/// Describes the processor as the engine uses it, with `threads` threads.
pub(super) fn profile(threads: usize) -> DeviceProfile {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    DeviceProfile {
        backend: "cpu".to_owned(),
        name: processor_name(&cpuinfo).unwrap_or_else(|| "unknown processor".to_owned()),
        architecture: std::env::consts::ARCH.to_owned(),
        units: threads,
        memory_bytes: total_memory_bytes(&meminfo),
        bandwidth_bytes_per_second: None,
    }
}

/// Threads to use when none are asked for: the cores that this process may run on.
pub(super) fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn processor_name(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo
        .lines()
        .find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn total_memory_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables_are_understood() {
        let cpuinfo = "processor\t: 0\nmodel name\t: A CPU @ 2 GHz\nflags\t: x\n";
        assert_eq!(processor_name(cpuinfo).as_deref(), Some("A CPU @ 2 GHz"));
        assert_eq!(
            total_memory_bytes("MemTotal:  16 kB\nMemFree: 1 kB\n"),
            Some(16_384)
        );
        assert_eq!(total_memory_bytes("nothing"), None);
    }
}
