//! What about this machine can make measurements noisy, as plain data.

use std::path::Path;

use super::reader::Reader;

/// Drivers whose temperatures are the processor's.
const PROCESSOR_SENSORS: [&str; 4] = ["coretemp", "k10temp", "zenpower", "cpu_thermal"];

/// One look at the machine; what it does not tell is `None` or empty.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// Frequency governors in use, each once.
    pub governors: Vec<String>,
    /// Whether the processor may run above its nominal clock.
    pub boost: Option<bool>,
    /// Whether threads share cores.
    pub smt: Option<bool>,
    /// Load average of the last minute.
    pub load_1min: Option<f64>,
    /// Processors that are online; at least one.
    pub cpus: usize,
    /// Share of the last minute in which some task waited for a CPU, in percent.
    pub cpu_pressure_pct: Option<f64>,
    /// Hottest sensor of the processor and the temperature at which it slows down, in °C.
    pub temperature_c: Option<(f64, Option<f64>)>,
    /// How often processors slowed down for heat since boot.
    pub throttle_events: Option<u64>,
    /// Bytes of swap in use.
    pub swap_used_bytes: Option<u64>,
    /// Setting of transparent huge pages: `always`, `madvise` or `never`.
    pub huge_pages: Option<String>,
    /// Share of all CPU time since boot that a hypervisor took away, in percent.
    pub steal_pct: Option<f64>,
    /// Whether a hypervisor runs below.
    pub is_virtual: Option<bool>,
    /// Processors that the control group allows.
    pub quota_cpus: Option<f64>,
    /// Whether all mains supplies are off.
    pub on_battery: bool,
    /// Processes that hold an AMD GPU; `None` without its driver.
    pub amd_gpu_holders: Option<usize>,
    /// NVIDIA GPUs; `None` where they were not asked.
    pub nvidia_gpus: Option<Vec<NvidiaGpu>>,
}

/// What an NVIDIA GPU says of itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NvidiaGpu {
    /// Its name.
    pub name: String,
    /// Processes that use it.
    pub holders: usize,
    /// Temperature in °C.
    pub temperature_c: Option<u32>,
    /// Why its clocks are held down, in words; empty when they are not.
    pub slowed_by: Vec<String>,
}

/// Looks at the machine whose `proc` and `sys` lie below `root`. NVIDIA GPUs are asked
/// elsewhere.
#[must_use]
pub fn look(root: &Path) -> Snapshot {
    read(&Reader::new(root))
}

/// As [`look`].
pub(super) fn read(reader: &Reader) -> Snapshot {
    Snapshot {
        governors: reader.of_all_processors("cpufreq/scaling_governor"),
        boost: boost(reader),
        smt: reader
            .number("sys/devices/system/cpu/smt/active")
            .map(|active| active == 1),
        load_1min: load(reader),
        cpus: cpus(reader),
        cpu_pressure_pct: pressure(reader),
        temperature_c: temperature(reader),
        throttle_events: throttle_events(reader),
        swap_used_bytes: swap_used(reader),
        huge_pages: reader.chosen("sys/kernel/mm/transparent_hugepage/enabled"),
        steal_pct: steal(reader),
        is_virtual: is_virtual(reader),
        quota_cpus: quota(reader),
        on_battery: on_battery(reader),
        amd_gpu_holders: amd_gpu_holders(reader),
        nvidia_gpus: None,
    }
}

/// Whether the processor may run above its nominal clock; `None` where it does not say.
pub(super) fn boost(reader: &Reader) -> Option<bool> {
    if let Some(value) = reader.number("sys/devices/system/cpu/cpufreq/boost") {
        return Some(value == 1);
    }
    let off = reader.number("sys/devices/system/cpu/intel_pstate/no_turbo")?;
    Some(off == 0)
}

/// Whether a hypervisor runs below; `None` where the processor does not say.
pub(super) fn is_virtual(reader: &Reader) -> Option<bool> {
    let flags = reader.field("proc/cpuinfo", "flags", ':')?;
    let mut flags = flags.split_ascii_whitespace();
    Some(flags.any(|flag| flag == "hypervisor"))
}

fn load(reader: &Reader) -> Option<f64> {
    let text = reader.line("proc/loadavg")?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

fn cpus(reader: &Reader) -> usize {
    let text = reader.text("proc/stat").unwrap_or_default();
    let lines = text.lines().filter(|line| line.starts_with("cpu"));
    lines.count().saturating_sub(1).max(1)
}

/// `some avg10=5.27 avg60=7.77 …`.
fn pressure(reader: &Reader) -> Option<f64> {
    let text = reader.text("proc/pressure/cpu")?;
    let some = text.lines().find(|line| line.starts_with("some "))?;
    let mut words = some.split_ascii_whitespace();
    words.find_map(|word| word.strip_prefix("avg60=")?.parse().ok())
}

#[expect(clippy::cast_precision_loss, reason = "millidegrees stay below 2^53")]
fn temperature(reader: &Reader) -> Option<(f64, Option<f64>)> {
    let degrees = |path: &str| Some(reader.number(path)? as f64 / 1e3);
    let mut hottest: Option<(f64, Option<f64>)> = None;
    for chip in reader.names("sys/class/hwmon") {
        let chip = format!("sys/class/hwmon/{chip}");
        let name = reader.line(&format!("{chip}/name")).unwrap_or_default();
        if !PROCESSOR_SENSORS.contains(&name.as_str()) {
            continue;
        }
        for file in reader.names(&chip) {
            let Some(sensor) = file
                .strip_suffix("_input")
                .filter(|s| s.starts_with("temp"))
            else {
                continue;
            };
            let Some(now) = degrees(&format!("{chip}/{file}")) else {
                continue;
            };
            let limit = ["max", "crit"]
                .iter()
                .find_map(|limit| degrees(&format!("{chip}/{sensor}_{limit}")));
            if hottest.is_none_or(|(before, _)| now > before) {
                hottest = Some((now, limit));
            }
        }
    }
    hottest
}

fn throttle_events(reader: &Reader) -> Option<u64> {
    let counts = reader.of_all_processors("thermal_throttle/package_throttle_count");
    // Each processor of a package tells the package's count.
    counts.iter().filter_map(|count| count.parse().ok()).max()
}

fn swap_used(reader: &Reader) -> Option<u64> {
    let total = reader.memory_bytes("SwapTotal")?;
    total.checked_sub(reader.memory_bytes("SwapFree")?)
}

fn steal(reader: &Reader) -> Option<f64> {
    let text = reader.text("proc/stat")?;
    let line = text.lines().find(|line| line.starts_with("cpu "))?;
    let ticks: Vec<f64> = line
        .split_ascii_whitespace()
        .skip(1)
        .take(8)
        .filter_map(|word| word.parse().ok())
        .collect();
    let total: f64 = ticks.iter().sum();
    Some(ticks.get(7)? / total.max(1.0) * 100.0)
}

/// A CPU quota of the control group makes a program pause in the middle.
fn quota(reader: &Reader) -> Option<f64> {
    let own = reader.text("proc/self/cgroup")?;
    let path = own
        .lines()
        .find_map(|line| line.strip_prefix("0::/"))?
        .trim();
    let text = reader.line(&format!("sys/fs/cgroup/{path}/cpu.max"))?;
    let (limit, period) = text.split_once(' ')?;
    let (limit, period): (f64, f64) = (limit.parse().ok()?, period.parse().ok()?);
    Some(limit / period)
}

fn on_battery(reader: &Reader) -> bool {
    let supplies = "sys/class/power_supply";
    let names = reader.names(supplies);
    let read = |name: &str, file: &str| reader.line(&format!("{supplies}/{name}/{file}"));
    let mains: Vec<&String> = names
        .iter()
        .filter(|name| read(name, "type").as_deref() == Some("Mains"))
        .collect();
    let is_off = |name: &&String| read(name, "online").as_deref() == Some("0");
    !mains.is_empty() && mains.iter().all(is_off)
}

fn amd_gpu_holders(reader: &Reader) -> Option<usize> {
    if !reader.exists("sys/class/kfd/kfd") {
        return None;
    }
    let holders = reader.names("sys/class/kfd/kfd/proc");
    let alive = holders
        .iter()
        .filter(|name| name.parse::<u32>().is_ok() && reader.exists(&format!("proc/{name}")));
    Some(alive.count())
}
