//! From a look at the machine to what makes it noisy and how to mend it. Pure.

use serde::Serialize;

use super::snapshot::{NvidiaGpu, Snapshot};
use crate::unit;

/// More load than this share of the processors before anything is measured is somebody else's work.
const MAX_LOAD_SHARE: f64 = 0.2;
/// Tasks that waited for a CPU in more of the last minute than this, in percent, had company.
const MAX_PRESSURE_PCT: f64 = 10.0;
/// Share of all CPU time since boot that a hypervisor may have taken, in percent.
const MAX_STEAL_PCT: f64 = 0.5;
/// A processor this near to its limit slows down as soon as it works, in °C.
const MIN_HEADROOM_C: f64 = 10.0;

/// How a question about the machine was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nothing to mend.
    Quiet,
    /// It will be seen in the numbers.
    Noisy,
    /// It may be seen in some programs' numbers.
    Doubtful,
    /// The machine does not tell.
    Unknown,
}

/// One question about the machine with its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub subject: &'static str,
    /// The answer in one word.
    pub state: State,
    /// What was found; empty where the machine does not tell.
    pub found: String,
    /// What it does to a measurement; empty where it does nothing.
    pub effect: &'static str,
    /// What to do about it; changes of the machine are commands for its owner.
    pub mend: Option<&'static str>,
}

impl Finding {
    /// For a reader of a record: what was found, what it does, what to do.
    #[must_use]
    pub fn sentence(&self) -> String {
        let mend = self
            .mend
            .map_or_else(String::new, |mend| format!("; {mend}"));
        format!("{}: {}{mend}", self.found, self.effect)
    }
}

/// Every question, in reading order, with its answer.
#[must_use]
pub fn findings(machine: &Snapshot) -> Vec<Finding> {
    let mut all = vec![
        governor(machine),
        boost(machine),
        smt(machine),
        load(machine),
        pressure(machine),
        temperature(machine),
        throttling(machine),
        swap(machine),
        huge_pages(machine),
        steal(machine),
        hypervisor(machine),
        quota(machine),
        battery(machine),
        amd_gpu(machine),
    ];
    all.extend(machine.nvidia_gpus.iter().flatten().map(nvidia_gpu));
    all
}

/// An answer that needs nothing done.
fn quiet(subject: &'static str, found: impl Into<String>) -> Finding {
    Finding {
        subject,
        state: State::Quiet,
        found: found.into(),
        effect: "",
        mend: None,
    }
}

fn unknown(subject: &'static str) -> Finding {
    Finding {
        state: State::Unknown,
        ..quiet(subject, "")
    }
}

fn noisy(
    subject: &'static str,
    found: String,
    effect: &'static str,
    mend: Option<&'static str>,
) -> Finding {
    Finding {
        subject,
        state: State::Noisy,
        found,
        effect,
        mend,
    }
}

fn governor(machine: &Snapshot) -> Finding {
    let subject = "governor";
    let mut others = machine
        .governors
        .iter()
        .filter(|name| *name != "performance");
    match others.next() {
        Some(other) => noisy(
            subject,
            format!("frequency governor is {other}"),
            "the clock follows the load",
            Some("mend with `cpupower frequency-set -g performance`"),
        ),
        None if machine.governors.is_empty() => unknown(subject),
        None => quiet(subject, "performance"),
    }
}

fn boost(machine: &Snapshot) -> Finding {
    match machine.boost {
        Some(true) => noisy(
            "boost",
            "boost is on".into(),
            "the clock depends on temperature and on the other cores",
            Some(
                "mend with `echo 0 >/sys/devices/system/cpu/cpufreq/boost` (Intel: \
                 `echo 1 >…/intel_pstate/no_turbo`)",
            ),
        ),
        Some(false) => quiet("boost", "off"),
        None => unknown("boost"),
    }
}

fn smt(machine: &Snapshot) -> Finding {
    match machine.smt {
        Some(true) => noisy(
            "SMT",
            "SMT is on".into(),
            "two threads share a core",
            Some("mend with `echo off >/sys/devices/system/cpu/smt/control`"),
        ),
        Some(false) => quiet("SMT", "off"),
        None => unknown("SMT"),
    }
}

#[expect(clippy::cast_precision_loss, reason = "processors are few")]
fn load(machine: &Snapshot) -> Finding {
    let Some(load) = machine.load_1min else {
        return unknown("load");
    };
    if load <= MAX_LOAD_SHARE * machine.cpus as f64 {
        return quiet("load", unit::value(load));
    }
    noisy(
        "load",
        format!(
            "load average is {load:.2} on {} processors before the measurement",
            machine.cpus
        ),
        "somebody else works here",
        Some("stop what runs, or let the guard wait"),
    )
}

fn pressure(machine: &Snapshot) -> Finding {
    let Some(pct) = machine.cpu_pressure_pct else {
        return unknown("CPU pressure");
    };
    let found = format!(
        "tasks waited for a CPU in {} % of the last minute",
        unit::value(pct)
    );
    if pct <= MAX_PRESSURE_PCT {
        return quiet("CPU pressure", found);
    }
    Finding {
        state: State::Doubtful,
        ..noisy(
            "CPU pressure",
            found,
            "there are more runnable tasks than processors",
            Some("stop what runs, or let the guard wait"),
        )
    }
}

fn temperature(machine: &Snapshot) -> Finding {
    let Some((now, limit)) = machine.temperature_c else {
        return unknown("temperature");
    };
    let found = match limit {
        Some(limit) => format!("processor at {now:.0} °C of {limit:.0} °C"),
        None => format!("processor at {now:.0} °C"),
    };
    if limit.is_none_or(|limit| now + MIN_HEADROOM_C <= limit) {
        return quiet("temperature", found);
    }
    noisy(
        "temperature",
        found,
        "it slows down as soon as it works",
        Some("let it cool, clean its fans, or limit its power"),
    )
}

fn throttling(machine: &Snapshot) -> Finding {
    match machine.throttle_events {
        None => unknown("throttling"),
        Some(0) => quiet("throttling", "none since boot"),
        Some(events) => Finding {
            state: State::Doubtful,
            ..noisy(
                "throttling",
                format!("the processor slowed down for heat {events} times since boot"),
                "it may do so again; the guard drops rounds in which it does",
                Some("improve its cooling, or limit its power"),
            )
        },
    }
}

#[expect(clippy::cast_precision_loss, reason = "for readers, four digits")]
fn swap(machine: &Snapshot) -> Finding {
    match machine.swap_used_bytes {
        None => unknown("swap"),
        Some(0) => quiet("swap", "none in use"),
        Some(used) => noisy(
            "swap",
            format!("{} of swap in use", unit::bytes(used as f64)),
            "memory was short",
            Some("mend with `swapoff -a && swapon -a`"),
        ),
    }
}

fn huge_pages(machine: &Snapshot) -> Finding {
    let subject = "transparent huge pages";
    match machine.huge_pages.as_deref() {
        None => unknown(subject),
        Some("always") => Finding {
            state: State::Doubtful,
            ..noisy(
                subject,
                "transparent huge pages are set to always".into(),
                "whether a program gets them depends on how fragmented memory is",
                Some(
                    "for programs that ask for them by themselves: \
                     `echo madvise >/sys/kernel/mm/transparent_hugepage/enabled`",
                ),
            )
        },
        Some(setting) => quiet(subject, setting),
    }
}

fn steal(machine: &Snapshot) -> Finding {
    let Some(share) = machine.steal_pct else {
        return unknown("stolen time");
    };
    let found = format!("the hypervisor has taken {share:.1} % of the CPU time since boot");
    if share <= MAX_STEAL_PCT {
        return quiet("stolen time", found);
    }
    noisy(
        "stolen time",
        found,
        "other guests compete",
        Some("use dedicated processors"),
    )
}

fn hypervisor(machine: &Snapshot) -> Finding {
    match machine.is_virtual {
        None => unknown("hypervisor"),
        Some(false) => quiet("hypervisor", "none"),
        Some(true) => noisy(
            "hypervisor",
            "virtual machine".into(),
            "clocks, caches and neighbours cannot be seen from inside",
            Some("expect a wider noise band and use more rounds"),
        ),
    }
}

fn quota(machine: &Snapshot) -> Finding {
    match machine.quota_cpus {
        None => quiet("CPU quota", "none"),
        Some(cpus) => noisy(
            "CPU quota",
            format!("the control group allows {cpus:.1} processors"),
            "programs are paused when they use more",
            Some("mend by raising cpu.max"),
        ),
    }
}

fn battery(machine: &Snapshot) -> Finding {
    match machine.on_battery {
        false => quiet("power supply", "mains, or none to tell"),
        true => noisy(
            "power supply",
            "running on battery".into(),
            "clocks are held down",
            Some("plug it in"),
        ),
    }
}

fn amd_gpu(machine: &Snapshot) -> Finding {
    match machine.amd_gpu_holders {
        None => quiet("AMD GPU", "no driver"),
        Some(0) => quiet("AMD GPU", "no process holds it"),
        Some(count) => noisy(
            "AMD GPU",
            format!("processes that hold the AMD GPU: {count}"),
            "they may use it at any moment",
            Some("stop them before measuring on it"),
        ),
    }
}

fn nvidia_gpu(gpu: &NvidiaGpu) -> Finding {
    let at = gpu
        .temperature_c
        .map_or_else(String::new, |degrees| format!(" at {degrees} °C"));
    if gpu.holders > 0 {
        return noisy(
            "NVIDIA GPU",
            format!("processes that hold the {}: {}", gpu.name, gpu.holders),
            "they may use it at any moment",
            Some("stop them before measuring on it"),
        );
    }
    if !gpu.slowed_by.is_empty() {
        return noisy(
            "NVIDIA GPU",
            format!(
                "the {}{at} is held down: {}",
                gpu.name,
                gpu.slowed_by.join(", ")
            ),
            "its clocks are not its own",
            Some("improve its cooling, or raise its power limit"),
        );
    }
    quiet(
        "NVIDIA GPU",
        format!("{}{at}, no process holds it", gpu.name),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(machine: &Snapshot, subject: &str) -> State {
        let all = findings(machine);
        let one = all.iter().find(|finding| finding.subject == subject);
        one.unwrap_or_else(|| panic!("no {subject}")).state
    }

    #[test]
    fn a_machine_that_tells_nothing_is_neither_quiet_nor_noisy() {
        let all = findings(&Snapshot::default());
        assert!(all.iter().all(|finding| finding.state != State::Noisy));
        for subject in ["governor", "boost", "SMT", "load", "temperature", "swap"] {
            assert_eq!(state(&Snapshot::default(), subject), State::Unknown);
        }
    }

    #[test]
    fn what_is_noisy_says_what_to_do() {
        let machine = Snapshot {
            governors: vec!["powersave".into()],
            boost: Some(true),
            load_1min: Some(1.0),
            cpus: 2,
            temperature_c: Some((91.0, Some(100.0))),
            throttle_events: Some(3),
            huge_pages: Some("always".into()),
            ..Snapshot::default()
        };
        for finding in findings(&machine) {
            let is_told = finding.mend.is_some() && !finding.effect.is_empty();
            let is_bad = matches!(finding.state, State::Noisy | State::Doubtful);
            assert_eq!(is_told, is_bad, "{finding:?}");
        }
        assert_eq!(state(&machine, "temperature"), State::Noisy);
        assert_eq!(state(&machine, "throttling"), State::Doubtful);
        assert_eq!(state(&machine, "transparent huge pages"), State::Doubtful);
    }

    #[test]
    fn limits_are_within() {
        let machine = |load, limit| Snapshot {
            load_1min: Some(load),
            cpus: 10,
            temperature_c: Some((50.0, limit)),
            ..Snapshot::default()
        };
        assert_eq!(state(&machine(2.0, Some(60.0)), "load"), State::Quiet);
        assert_eq!(state(&machine(2.1, None), "load"), State::Noisy);
        assert_eq!(
            state(&machine(0.0, Some(60.0)), "temperature"),
            State::Quiet
        );
        assert_eq!(
            state(&machine(0.0, Some(59.0)), "temperature"),
            State::Noisy
        );
        assert_eq!(state(&machine(0.0, None), "temperature"), State::Quiet);
    }

    #[test]
    fn a_gpu_is_noisy_when_others_hold_it_or_its_clocks_are_held_down() {
        let with = |gpu: NvidiaGpu| {
            let machine = Snapshot {
                nvidia_gpus: Some(vec![gpu]),
                ..Snapshot::default()
            };
            findings(&machine).pop().unwrap().sentence()
        };
        let gpu = NvidiaGpu {
            name: "H200".into(),
            temperature_c: Some(31),
            ..NvidiaGpu::default()
        };
        assert!(with(gpu.clone()).starts_with("H200 at 31 °C, no process"));
        let held = NvidiaGpu {
            holders: 2,
            ..gpu.clone()
        };
        assert!(with(held).starts_with("processes that hold the H200: 2: they"));
        let slow = NvidiaGpu {
            slowed_by: vec!["heat".into()],
            ..gpu
        };
        assert!(with(slow).contains("held down: heat: its clocks"));
    }
}
