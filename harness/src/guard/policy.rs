//! Clean or contended, and why: pure functions over readings of the machine.
//!
//! A process is *own* when it descends from the harness (a subreaper, so orphans of the
//! measured command do), when it is in the measured command's session or group, or
//! when it is the harness itself. The harness's ancestors (`cargo run` is one) are not
//! foreign either, but what else they started is.

use std::fmt;
use std::time::Duration;

use super::gpu::{GpuReading, Slowdown};
use crate::execute::process_table::{self, Process};

/// A compiler that used less of a core than this since the last look is idle:
/// `cargo run` of a server waits for days without disturbing anybody.
const IDLE_COMPILER_PCT: f64 = 1.0;
/// Time that the hypervisor may take away, in percent of one core. Beyond it an attempt
/// was not alone, whoever the other was.
const MAX_STEAL_PCT: f64 = 5.0;
/// Share of the time in which some task waited for a CPU, in percent, from which half
/// the allowed foreign CPU time is already too much: it collided with the measured one.
/// Alone it proves nothing, since a program with more threads than cores waits for itself.
const COLLISION_PRESSURE_PCT: f64 = 10.0;
/// Work that a GPU shows now and then although nobody uses it (a display, the driver's own
/// housekeeping), in percent of the time.
const MAX_HIDDEN_GPU_PCT: f64 = 5.0;
/// How many names a message lists.
const NAMED: usize = 5;

/// What is allowed, and how the machine counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Foreign CPU time, in percent of one core.
    pub max_foreign_cpu_pct: f64,
    /// Ticks per second in the readings.
    pub ticks_per_second: f64,
    /// Processors that are online.
    pub cpus: u32,
}

/// Which processes are ours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Own {
    /// The harness's pid.
    pub harness: u32,
    /// The outermost guard when this one runs inside it: its whole tree is ours.
    pub outer_guard: Option<u32>,
    /// Session and process group of the measured command.
    pub measured_session: Option<u32>,
    /// True while the measured command runs: a holder of the GPU that nobody here knows
    /// may then be the command itself.
    pub measuring: bool,
}

/// One reading of the whole machine.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observation {
    /// On the guard's monotonic clock.
    pub at: Duration,
    /// Every process, in order of pid.
    pub processes: Vec<Process>,
    /// Pids that hold the GPU.
    pub holders: Vec<u32>,
    /// Whether processes of another pid namespace may hold the GPU: unseen, or with a pid that
    /// is not among the processes.
    pub holders_may_hide: bool,
    /// Ticks in which any CPU worked, user, nice and system, since boot.
    pub busy_ticks: u64,
    /// How the GPU runs.
    pub gpu: GpuReading,
}

/// A process by id and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// Process id.
    pub pid: u32,
    /// Short name.
    pub comm: String,
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.pid, self.comm)
    }
}

/// Who disturbs at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Contention {
    /// Foreign holders of the GPU.
    pub foreign_gpu: Vec<Named>,
    /// Foreign compilers and linkers at work.
    pub compilers: Vec<Named>,
    /// Foreign CPU time in percent of one core, where it is beyond the limit.
    pub cpu_over_limit: Option<f64>,
    /// The busiest foreign processes with their share, where the limit is passed.
    pub hogs: Vec<(Named, f64)>,
    /// Share of the time in which the GPU worked for somebody who cannot be seen, in
    /// percent, where it is beyond what an idle one shows.
    pub hidden_gpu_work: Option<f64>,
    /// What slows the GPU down, a power cap left out.
    pub slowdowns: Vec<Slowdown>,
}

impl Contention {
    /// True when nobody disturbs.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.foreign_gpu.is_empty()
            && self.compilers.is_empty()
            && self.cpu_over_limit.is_none()
            && self.hidden_gpu_work.is_none()
            && self.slowdowns.is_empty()
    }
}

impl fmt::Display for Contention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |names: &[Named]| {
            let mut texts: Vec<_> = names.iter().take(NAMED).map(Named::to_string).collect();
            if names.len() > NAMED {
                texts.push(format!("and {} more", names.len() - NAMED));
            }
            texts.join(", ")
        };
        write!(
            f,
            "foreign_gpu=[{}] compilers=[{}]",
            list(&self.foreign_gpu),
            list(&self.compilers)
        )?;
        if let Some(pct) = self.cpu_over_limit {
            let hogs: Vec<_> = self
                .hogs
                .iter()
                .map(|(name, pct)| format!("{name} {pct:.0}%"))
                .collect();
            write!(f, " foreign_cpu={pct:.0}% [{}]", hogs.join(", "))?;
        }
        if let Some(pct) = self.hidden_gpu_work {
            write!(f, " gpu_work={pct:.0}% [of another pid namespace]")?;
        }
        if !self.slowdowns.is_empty() {
            let words = self.slowdowns.iter().map(|slowdown| slowdown.word());
            let words: Vec<_> = words.collect();
            write!(f, " gpu_slowed_by=[{}]", words.join(", "))?;
        }
        Ok(())
    }
}

/// How a process is related to the harness.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kin {
    Own,
    Ancestor,
    Foreign,
}

fn kin(processes: &[Process], own: Own) -> Vec<Kin> {
    let root = own.outer_guard.unwrap_or(own.harness);
    let above = process_table::ancestors(processes, root);
    let is_ours = |pid: u32| pid == own.harness || pid == root;
    processes
        .iter()
        .map(|process| {
            let measured = own
                .measured_session
                .is_some_and(|id| process.session == id || process.group == id);
            let below = || process_table::ancestors(processes, process.pid);
            if is_ours(process.pid) || measured || below().into_iter().any(is_ours) {
                Kin::Own
            } else if process.pid <= 1 || above.contains(&process.pid) {
                Kin::Ancestor
            } else {
                Kin::Foreign
            }
        })
        .collect()
}

/// Who disturbs now. CPU shares need an earlier reading to compare with; without one
/// only GPU holders and compilers are looked at.
#[must_use]
pub fn look(
    earlier: Option<&Observation>,
    now: &Observation,
    own: Own,
    limits: &Limits,
    is_compiler: &dyn Fn(&str) -> bool,
) -> Contention {
    let kin = kin(&now.processes, own);
    let foreign: Vec<&Process> = now
        .processes
        .iter()
        .zip(&kin)
        .filter(|(process, kin)| **kin == Kin::Foreign && !process.is_dead())
        .map(|(process, _)| process)
        .collect();
    let seconds = earlier.map_or(0.0, |earlier| {
        now.at.saturating_sub(earlier.at).as_secs_f64()
    });
    let share = |process: &Process| -> Option<f64> {
        let before = same(earlier?, process)?;
        percent(
            process.cpu_ticks.saturating_sub(before.cpu_ticks),
            seconds,
            limits,
        )
    };
    let compilers = foreign
        .iter()
        .filter(|process| !process.kernel && is_compiler(&process.comm))
        .filter(|process| {
            matches!(process.state, 'R' | 'D')
                || share(process).is_none_or(|pct| pct >= IDLE_COMPILER_PCT)
        })
        .map(|process| named(process))
        .collect();
    let mut foreign_gpu: Vec<Named> = foreign
        .iter()
        .filter(|process| now.holders.contains(&process.pid))
        .map(|process| named(process))
        .collect();
    foreign_gpu.extend(hidden_holders(now, own));
    let slowdowns = now.gpu.slowdowns.iter().copied();
    let mut contention = Contention {
        foreign_gpu,
        compilers,
        hidden_gpu_work: hidden_gpu_work(now, own),
        slowdowns: slowdowns.filter(|slowdown| slowdown.disturbs()).collect(),
        ..Contention::default()
    };
    let Some(earlier) = earlier else {
        return contention;
    };
    let mut shares: Vec<(Named, f64)> = foreign
        .iter()
        .filter(|process| !process.kernel)
        .filter_map(|process| Some((named(process), share(process)?)))
        .filter(|(_, pct)| *pct > 0.0)
        .collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    let total = foreign_share(earlier, now, own, seconds, limits);
    let busiest = shares.first().map_or(0.0, |(_, pct)| *pct);
    if total.max(busiest) > limits.max_foreign_cpu_pct {
        contention.cpu_over_limit = Some(total.max(busiest));
        shares.truncate(3);
        contention.hogs = shares;
    }
    contention
}

/// Holders of the GPU whose pid is nobody's here. Where pids mean the same to everybody, such
/// a holder is gone; in a pid namespace of its own it may be anybody, the measured command
/// included, and is told from that by the time: before and after the command it is foreign.
fn hidden_holders(now: &Observation, own: Own) -> Vec<Named> {
    if !now.holders_may_hide || own.measuring {
        return Vec::new();
    }
    let is_here = |pid: u32| process_table::find(&now.processes, pid).is_some();
    let hidden = now.holders.iter().filter(|pid| !is_here(**pid));
    hidden
        .map(|pid| Named {
            pid: *pid,
            comm: "(of another pid namespace)".to_owned(),
        })
        .collect()
}

/// Work of a GPU that nobody here holds, for holders that the driver does not even list.
fn hidden_gpu_work(now: &Observation, own: Own) -> Option<f64> {
    if !now.holders_may_hide || own.measuring || !now.holders.is_empty() {
        return None;
    }
    now.gpu.busy_pct.filter(|pct| *pct > MAX_HIDDEN_GPU_PCT)
}

/// What all CPUs did beyond our own processes, less the error of counting in ticks.
/// Finds processes that came and went between two readings too.
fn foreign_share(
    earlier: &Observation,
    now: &Observation,
    own: Own,
    seconds: f64,
    limits: &Limits,
) -> f64 {
    if seconds <= 0.0 {
        return 0.0;
    }
    let busy = now.busy_ticks.saturating_sub(earlier.busy_ticks);
    let ours = own_ticks(now, own).saturating_sub(own_ticks(earlier, own));
    let beyond = as_f64(busy.saturating_sub(ours)) - tick_error(limits);
    (beyond / limits.ticks_per_second / seconds * 100.0).max(0.0)
}

/// CPU ticks of our own processes with their collected children. An ancestor counts
/// without children: it collects others than us.
fn own_ticks(observation: &Observation, own: Own) -> u64 {
    let kin = kin(&observation.processes, own);
    observation
        .processes
        .iter()
        .zip(kin)
        .map(|(process, kin)| match kin {
            Kin::Own => process.cpu_ticks + process.waited_cpu_ticks,
            Kin::Ancestor => process.cpu_ticks,
            Kin::Foreign => 0,
        })
        .sum()
}

/// Uncertainty of a difference of tick counts summed over all CPUs, in ticks: each CPU is
/// read one tick too low or too high at either end, independently of the others.
fn tick_error(limits: &Limits) -> f64 {
    1.0 + 2.0 * f64::from(limits.cpus).sqrt()
}

fn same<'a>(earlier: &'a Observation, process: &Process) -> Option<&'a Process> {
    process_table::find(&earlier.processes, process.pid)
        .filter(|before| before.started_ticks == process.started_ticks)
}

fn named(process: &Process) -> Named {
    Named {
        pid: process.pid,
        comm: process.comm.clone(),
    }
}

fn percent(ticks: u64, seconds: f64, limits: &Limits) -> Option<f64> {
    (seconds > 0.0).then(|| as_f64(ticks) / limits.ticks_per_second / seconds * 100.0)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "ticks and microseconds since boot stay below 2^53"
)]
fn as_f64(count: u64) -> f64 {
    count as f64
}

/// Counts the quiet time: a state machine over readings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdleStreak {
    needed: Duration,
    quiet_since: Option<Duration>,
}

/// What a reading did to the streak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Streak {
    /// Quiet long enough.
    Idle,
    /// Quiet, but not long enough yet.
    Growing,
    /// Broken after this much quiet time.
    Broken(Duration),
    /// Not quiet, as before.
    Busy,
}

impl IdleStreak {
    /// A streak that has to last `needed`.
    #[must_use]
    pub fn new(needed: Duration) -> Self {
        IdleStreak {
            needed,
            quiet_since: None,
        }
    }

    /// Takes a reading at time `at`.
    pub fn step(&mut self, at: Duration, quiet: bool) -> Streak {
        match (quiet, self.quiet_since) {
            (false, Some(since)) => {
                self.quiet_since = None;
                Streak::Broken(at.saturating_sub(since))
            }
            (false, None) => Streak::Busy,
            (true, since) => {
                let since = *self.quiet_since.insert(since.unwrap_or(at));
                if at.saturating_sub(since) >= self.needed {
                    Streak::Idle
                } else {
                    Streak::Growing
                }
            }
        }
    }
}

/// Counters that only grow, read before and after an attempt.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counters {
    /// On the guard's monotonic clock.
    pub at: Duration,
    /// Ticks in which any CPU worked, user, nice and system.
    pub busy_ticks: u64,
    /// Ticks that the hypervisor took away, over all CPUs.
    pub steal_ticks: u64,
    /// CPU time of the harness and everything it has collected, precise.
    pub own_cpu: Duration,
    /// Microseconds in which some task waited for a CPU.
    pub cpu_pressure_us: Option<u64>,
    /// Throttling events of all processors.
    pub throttle_events: u64,
    /// Nanoseconds for which heat or hardware held the GPU down.
    pub gpu_held_down_ns: Option<u64>,
}

/// What the counters say about an attempt.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Judgement {
    /// Why it is rejected, if it is.
    pub rejected: Option<String>,
    /// Foreign CPU time in percent of one core, as read.
    pub foreign_cpu_pct: f64,
    /// Time the hypervisor took away in percent of one core, as read.
    pub steal_pct: f64,
    /// True when a processor or the GPU throttled.
    pub throttled: bool,
}

/// Judges an attempt from the counters around it and from the first contended sample.
/// Works for attempts too short for a sample: what ticks cannot resolve is not held
/// against anybody.
#[must_use]
pub fn judge(
    before: &Counters,
    after: &Counters,
    contended: Option<&str>,
    limits: &Limits,
) -> Judgement {
    let seconds = after.at.saturating_sub(before.at).as_secs_f64();
    let ticks = |count: u64| as_f64(count) / limits.ticks_per_second;
    let error = tick_error(limits) / limits.ticks_per_second;
    let own = after.own_cpu.saturating_sub(before.own_cpu).as_secs_f64();
    let busy = ticks(after.busy_ticks.saturating_sub(before.busy_ticks));
    let foreign = (busy - own).max(0.0);
    let steal = ticks(after.steal_ticks.saturating_sub(before.steal_ticks));
    let throttled = after.throttle_events > before.throttle_events;
    let pct = |amount: f64| {
        if seconds > 0.0 {
            amount / seconds * 100.0
        } else {
            0.0
        }
    };
    let (foreign_sure, steal_sure) = (pct(foreign - error), pct(steal - error));
    let pressure = match (before.cpu_pressure_us, after.cpu_pressure_us) {
        (Some(before), Some(after)) => pct(as_f64(after.saturating_sub(before)) / 1e6),
        _ => 0.0,
    };
    let allowed = limits.max_foreign_cpu_pct;
    let mut reasons: Vec<String> = contended.map(str::to_owned).into_iter().collect();
    if foreign_sure > allowed {
        let got = pct(foreign);
        reasons.push(format!(
            "foreign CPU time {got:.0} % of a core, allowed {allowed:.0} %"
        ));
    } else if foreign_sure > allowed / 2.0 && pressure > COLLISION_PRESSURE_PCT {
        let got = pct(foreign);
        reasons.push(format!(
            "foreign CPU time {got:.0} % of a core while tasks waited for a CPU {pressure:.0} % of the time"
        ));
    }
    if steal_sure > MAX_STEAL_PCT {
        let got = pct(steal);
        reasons.push(format!(
            "the hypervisor took {got:.0} % of a core, allowed {MAX_STEAL_PCT:.0} %"
        ));
    }
    if throttled {
        let events = after.throttle_events - before.throttle_events;
        reasons.push(format!("the processor throttled ({events} events)"));
    }
    let held_down_ns = match (before.gpu_held_down_ns, after.gpu_held_down_ns) {
        (Some(before), Some(after)) => after.saturating_sub(before),
        _ => 0,
    };
    if held_down_ns > 0 {
        let milliseconds = as_f64(held_down_ns) / 1e6;
        reasons.push(format!(
            "heat or hardware held the GPU down for {milliseconds:.1} ms"
        ));
    }
    Judgement {
        rejected: (!reasons.is_empty()).then(|| reasons.join("; ")),
        foreign_cpu_pct: pct(foreign),
        steal_pct: pct(steal),
        throttled: throttled || held_down_ns > 0,
    }
}
