//! Reads the machine: processes, cumulative counters, clocks and temperatures.
//!
//! One process, one monotonic clock. The roots of procfs and sysfs are parameters, so
//! that tests bring a machine of their own. Whatever a machine does not offer is absent,
//! never an error: virtual machines show neither clocks nor temperatures.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::gpu::Gpu;
use super::policy::{Counters, Observation};
use crate::execute::{process_table, sys};

/// Reads everything the policy looks at.
#[derive(Debug)]
pub struct Sampler {
    proc: PathBuf,
    gpu: Option<Box<dyn Gpu>>,
    start: Instant,
    throttle_files: Vec<PathBuf>,
    clock_files: Vec<PathBuf>,
    temperature_files: Vec<PathBuf>,
}

/// Drivers whose temperatures are those of the processor or the GPU.
const THERMAL_DRIVERS: [&str; 5] = ["coretemp", "k10temp", "zenpower", "cpu_thermal", "amdgpu"];

impl Sampler {
    /// A sampler of the machine below these roots; `gpu` is the GPU that is guarded.
    #[must_use]
    pub fn new(proc: &Path, sys: &Path, gpu: Option<Box<dyn Gpu>>) -> Self {
        let processors = processors(sys);
        let below = |name: &str| -> Vec<PathBuf> {
            let files = processors.iter().map(|directory| directory.join(name));
            files.filter(|file| file.exists()).collect()
        };
        let mut throttle_files = below("thermal_throttle/core_throttle_count");
        throttle_files.extend(below("thermal_throttle/package_throttle_count"));
        Sampler {
            proc: proc.to_owned(),
            gpu,
            start: Instant::now(),
            throttle_files,
            clock_files: below("cpufreq/scaling_cur_freq"),
            temperature_files: temperature_files(sys),
        }
    }

    /// Time since the sampler was made, on the monotonic clock.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Every process, every GPU holder and the CPUs' work.
    #[must_use]
    pub fn observe(&self) -> Observation {
        // The holders first: one that comes later is in the table, one that goes is not.
        let gpu = self.gpu.as_deref();
        let holders = gpu.map(Gpu::holders).unwrap_or_default();
        let at = self.now();
        let busy_ticks = self.stat().busy_ticks;
        Observation {
            at,
            processes: process_table::read(&self.proc),
            holders,
            holders_may_hide: gpu.is_some_and(Gpu::holders_may_hide),
            busy_ticks,
            gpu: gpu.map(Gpu::reading).unwrap_or_default(),
        }
    }

    /// The counters that only grow.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let stat = self.stat();
        Counters {
            at: self.now(),
            busy_ticks: stat.busy_ticks,
            steal_ticks: stat.steal_ticks,
            own_cpu: sys::own_cpu_time(),
            cpu_pressure_us: self.cpu_pressure_us(),
            throttle_events: self
                .throttle_files
                .iter()
                .filter_map(|file| number(file))
                .sum(),
            gpu_held_down_ns: self.gpu.as_ref().and_then(|gpu| gpu.reading().held_down_ns),
        }
    }

    /// Processors that are online; at least one.
    #[must_use]
    pub fn cpus(&self) -> u32 {
        self.stat().cpus.max(1)
    }

    /// Clock of the fastest running processor in MHz.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "kHz stay below 2^53")]
    pub fn clock_mhz(&self) -> Option<f64> {
        let kilohertz = self
            .clock_files
            .iter()
            .filter_map(|file| number(file))
            .max()?;
        Some(kilohertz as f64 / 1e3)
    }

    /// The highest temperature of processor and GPU in °C.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "millidegrees stay below 2^53")]
    pub fn temperature_c(&self) -> Option<f64> {
        let files = self.temperature_files.iter();
        let millidegrees = files.filter_map(|file| number(file)).max()?;
        Some(millidegrees as f64 / 1e3)
    }

    /// Load average of the last minute; 0 where unknown.
    #[must_use]
    pub fn load_1min(&self) -> f64 {
        std::fs::read_to_string(self.proc.join("loadavg"))
            .ok()
            .and_then(|text| text.split_ascii_whitespace().next()?.parse().ok())
            .unwrap_or(0.0)
    }

    fn stat(&self) -> Stat {
        std::fs::read_to_string(self.proc.join("stat"))
            .map(|text| Stat::parse(&text))
            .unwrap_or_default()
    }

    fn cpu_pressure_us(&self) -> Option<u64> {
        let text = std::fs::read_to_string(self.proc.join("pressure/cpu")).ok()?;
        let some = text.lines().find(|line| line.starts_with("some "))?;
        some.rsplit_once("total=")?.1.trim().parse().ok()
    }
}

/// The lines of /proc/stat about CPUs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Stat {
    busy_ticks: u64,
    steal_ticks: u64,
    cpus: u32,
}

impl Stat {
    fn parse(text: &str) -> Self {
        let mut stat = Stat::default();
        for line in text.lines().take_while(|line| line.starts_with("cpu")) {
            let mut words = line.split_ascii_whitespace();
            if words.next() != Some("cpu") {
                stat.cpus += 1;
                continue;
            }
            // user nice system idle iowait irq softirq steal …; interrupts are left out,
            // since the measured program's own input and output cause them.
            let ticks: Vec<u64> = words.map(|word| word.parse().unwrap_or(0)).collect();
            stat.busy_ticks = ticks.iter().take(3).sum();
            stat.steal_ticks = ticks.get(7).copied().unwrap_or(0);
        }
        stat
    }
}

fn number(file: &Path) -> Option<u64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

fn processors(sys: &Path) -> Vec<PathBuf> {
    directories(&sys.join("devices/system/cpu"), "cpu")
        .into_iter()
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            let digits = name.and_then(|name| name.strip_prefix("cpu"));
            digits.is_some_and(|digits| digits.parse::<u32>().is_ok())
        })
        .collect()
}

fn temperature_files(sys: &Path) -> Vec<PathBuf> {
    let drivers = directories(&sys.join("class/hwmon"), "hwmon");
    let mut files: Vec<PathBuf> = drivers
        .iter()
        .filter(|directory| {
            let name = std::fs::read_to_string(directory.join("name")).unwrap_or_default();
            THERMAL_DRIVERS.contains(&name.trim())
        })
        .flat_map(|directory| directories(directory, "temp"))
        .filter(|file| file.to_string_lossy().ends_with("_input"))
        .collect();
    if files.is_empty() {
        let zones = directories(&sys.join("class/thermal"), "thermal_zone");
        files = zones
            .iter()
            .filter(|zone| {
                let kind = std::fs::read_to_string(zone.join("type")).unwrap_or_default();
                kind.starts_with("x86_pkg") || kind.starts_with("cpu")
            })
            .map(|zone| zone.join("temp"))
            .collect();
    }
    files
}

/// Entries of a directory whose name starts so, in order.
fn directories(parent: &Path, prefix: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(parent) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_line_gives_work_and_steal_without_interrupts() {
        let text = "cpu  100 20 30 4000 5 66 77 8 9 0\ncpu0 1 2 3\ncpu1 1 2 3\nintr 5\n";
        let stat = Stat::parse(text);
        assert_eq!((stat.busy_ticks, stat.steal_ticks, stat.cpus), (150, 8, 2));
        assert_eq!(Stat::parse(""), Stat::default());
    }

    #[test]
    fn what_a_machine_lacks_is_absent() {
        let place = tempfile::tempdir().unwrap();
        let sampler = Sampler::new(place.path(), place.path(), None);
        assert_eq!(sampler.clock_mhz(), None);
        assert_eq!(sampler.temperature_c(), None);
        assert_eq!(sampler.counters().cpu_pressure_us, None);
        assert_eq!(sampler.cpus(), 1);
        assert!(sampler.observe().processes.is_empty());
    }

    #[test]
    fn clocks_temperatures_and_throttling_are_found_where_the_kernel_puts_them() {
        let place = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = place.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for (cpu, khz, events) in [("cpu0", "1500000\n", "3\n"), ("cpu1", "3600000\n", "4\n")] {
            let cpu = format!("devices/system/cpu/{cpu}");
            write(&format!("{cpu}/cpufreq/scaling_cur_freq"), khz);
            write(
                &format!("{cpu}/thermal_throttle/core_throttle_count"),
                events,
            );
        }
        write("devices/system/cpu/cpufreq/boost", "1");
        write("class/hwmon/hwmon0/name", "nvme\n");
        write("class/hwmon/hwmon0/temp1_input", "99000\n");
        write("class/hwmon/hwmon1/name", "k10temp\n");
        write("class/hwmon/hwmon1/temp1_input", "61500\n");
        write(
            "pressure/cpu",
            "some avg10=5.27 avg60=7.77 avg300=3.45 total=37877957\n",
        );
        write("loadavg", "1.21 0.71 0.52 1/95 21817\n");
        let sampler = Sampler::new(place.path(), place.path(), None);
        assert_eq!(sampler.clock_mhz(), Some(3600.0));
        assert_eq!(sampler.temperature_c(), Some(61.5));
        assert!((sampler.load_1min() - 1.21).abs() < 1e-12);
        let counters = sampler.counters();
        assert_eq!(counters.throttle_events, 7);
        assert_eq!(counters.cpu_pressure_us, Some(37_877_957));
    }
}
