//! What about this machine makes measurements noisy, and how to mend it. Changes nothing.

use super::reader::Reader;
use crate::unit;

/// More load than this share of the processors before anything is measured is somebody else's work.
const MAX_LOAD_SHARE: f64 = 0.2;
/// Share of all CPU time since boot that a hypervisor may have taken, in percent.
const MAX_STEAL_PCT: f64 = 0.5;

/// Every warning, each with what to do about it.
pub(super) fn warnings(reader: &Reader) -> Vec<String> {
    let checks = [
        governor(reader),
        boost_warning(reader),
        smt(reader),
        load(reader),
        swap(reader),
        steal(reader),
        virtual_machine(reader),
        quota(reader),
        battery(reader),
        gpu_holders(reader),
    ];
    checks.into_iter().flatten().collect()
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
    Some(
        flags
            .split_ascii_whitespace()
            .any(|flag| flag == "hypervisor"),
    )
}

fn governor(reader: &Reader) -> Option<String> {
    let governors = reader.of_all_processors("cpufreq/scaling_governor");
    let other = governors
        .iter()
        .find(|governor| *governor != "performance")?;
    Some(format!(
        "frequency governor is {other}: the clock follows the load; \
         mend with `cpupower frequency-set -g performance`"
    ))
}

fn boost_warning(reader: &Reader) -> Option<String> {
    (boost(reader)?).then(|| {
        "boost is on: the clock depends on temperature and on the other cores; mend with \
         `echo 0 >/sys/devices/system/cpu/cpufreq/boost` (Intel: `echo 1 >…/intel_pstate/no_turbo`)"
            .to_owned()
    })
}

fn smt(reader: &Reader) -> Option<String> {
    (reader.number("sys/devices/system/cpu/smt/active")? == 1).then(|| {
        "SMT is on: two threads share a core; mend with \
         `echo off >/sys/devices/system/cpu/smt/control`"
            .to_owned()
    })
}

fn load(reader: &Reader) -> Option<String> {
    let text = reader.line("proc/loadavg")?;
    let load: f64 = text.split_ascii_whitespace().next()?.parse().ok()?;
    let cpus = reader.text("proc/stat")?;
    let cpus = cpus.lines().filter(|line| line.starts_with("cpu")).count();
    let cpus = f64::from(u32::try_from(cpus.saturating_sub(1).max(1)).ok()?);
    (load > MAX_LOAD_SHARE * cpus).then(|| {
        format!(
            "load average is {load:.2} on {cpus:.0} processors before the measurement; \
             stop what runs, or let the guard wait"
        )
    })
}

#[expect(clippy::cast_precision_loss, reason = "for readers, four digits")]
fn swap(reader: &Reader) -> Option<String> {
    let total = reader.memory_bytes("SwapTotal")?;
    let used = total.checked_sub(reader.memory_bytes("SwapFree")?)?;
    (used > 0).then(|| {
        let used = unit::bytes(used as f64);
        format!("{used} of swap in use: memory was short; mend with `swapoff -a && swapon -a`")
    })
}

fn steal(reader: &Reader) -> Option<String> {
    let text = reader.text("proc/stat")?;
    let line = text.lines().find(|line| line.starts_with("cpu "))?;
    let ticks: Vec<f64> = line
        .split_ascii_whitespace()
        .skip(1)
        .take(8)
        .filter_map(|word| word.parse().ok())
        .collect();
    let total: f64 = ticks.iter().sum();
    let share = ticks.get(7)? / total.max(1.0) * 100.0;
    (share > MAX_STEAL_PCT).then(|| {
        format!(
            "the hypervisor has taken {share:.1} % of the CPU time since boot: other guests \
             compete; use dedicated processors"
        )
    })
}

fn virtual_machine(reader: &Reader) -> Option<String> {
    is_virtual(reader)?.then(|| {
        "virtual machine: clocks, caches and neighbours cannot be seen from inside; \
         expect a wider noise band and use more rounds"
            .to_owned()
    })
}

/// A CPU quota of the control group makes a program pause in the middle.
fn quota(reader: &Reader) -> Option<String> {
    let own = reader.text("proc/self/cgroup")?;
    let path = own
        .lines()
        .find_map(|line| line.strip_prefix("0::/"))?
        .trim();
    let text = reader.line(&format!("sys/fs/cgroup/{path}/cpu.max"))?;
    let (limit, period) = text.split_once(' ')?;
    let (limit, period): (f64, f64) = (limit.parse().ok()?, period.parse().ok()?);
    let cpus = limit / period;
    Some(format!(
        "the control group allows {cpus:.1} processors: programs are paused when they use more; \
         mend by raising cpu.max"
    ))
}

fn battery(reader: &Reader) -> Option<String> {
    let supplies = "sys/class/power_supply";
    let names = reader.names(supplies);
    let read = |name: &str, file: &str| reader.line(&format!("{supplies}/{name}/{file}"));
    let mains: Vec<&String> = names
        .iter()
        .filter(|name| read(name, "type").as_deref() == Some("Mains"))
        .collect();
    let offline = !mains.is_empty()
        && mains
            .iter()
            .all(|name| read(name, "online").as_deref() == Some("0"));
    offline.then(|| "running on battery: clocks are held down; plug it in".to_owned())
}

fn gpu_holders(reader: &Reader) -> Option<String> {
    let holders = reader.names("sys/class/kfd/kfd/proc");
    let count = holders
        .iter()
        .filter(|name| name.parse::<u32>().is_ok() && reader.exists(&format!("proc/{name}")))
        .count();
    (count > 0).then(|| {
        format!("processes that hold the AMD GPU: {count}; stop them before measuring on it")
    })
}
