//! The guard over a real machine: waits, samples and judges by the policy.

use std::time::{Duration, Instant};

use super::cpu::Compilers;
use super::gpu::{GpuSummary, Mean};
use super::interface::{Guard, GuardError, GuardVerdict};
use super::lock::Lock;
use super::policy::{self, Contention, Counters, IdleStreak, Limits, Observation, Own, Streak};
use super::sampler::Sampler;
use crate::execute::signal::Interrupt;
use crate::execute::sys;
use crate::record::format::GuardSummary;

/// Readings may take one part in this many of one core's time; on a machine with very
/// many processes fewer readings are taken.
const READING_SHARE: u32 = 200;

/// The look that ended an attempt serves the next one's beginning when that comes no later.
/// Reading every process is most of what a guard costs (two milliseconds for a hundred
/// processes), and who comes in this time is still there when the attempt is judged, or
/// was too short to matter.
const STILL_TRUE: Duration = Duration::from_millis(50);

/// How long to wait for a quiet machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Quiet time in a row.
    pub idle: Duration,
    /// Longest wait; `None` waits for ever.
    pub max_wait: Option<Duration>,
    /// True when `max_wait` covers all waits together, false when it covers each.
    pub together: bool,
    /// Time between two readings while waiting: a second, less in tests.
    pub tick: Duration,
}

/// Watches the processes, the counters and, as `rocm` or `cuda`, the GPU.
#[derive(Debug)]
pub struct MachineGuard {
    kind: &'static str,
    sampler: Sampler,
    compilers: Compilers,
    limits: Limits,
    own: Own,
    patience: Patience,
    interrupt: Interrupt,
    /// Held until the guard is dropped.
    _lock: Lock,
    /// Waited in all, against a budget for all waits.
    spent: Duration,
    /// Waited since the last attempt, for its row.
    waited: Duration,
    last: Option<Observation>,
    /// What the look that ended the last attempt saw, and when.
    at_end: Option<(Duration, Contention)>,
    attempt: Attempt,
}

/// What was seen during the current attempt.
#[derive(Debug, Default)]
struct Attempt {
    before: Counters,
    contended: Option<String>,
    samples: u32,
    load_1min: f64,
    clock: Mean,
    temperature_c: Option<f64>,
    gpu: GpuSummary,
    /// No reading before this moment.
    next: Option<Instant>,
}

/// The parts a guard is made of.
#[derive(Debug)]
pub struct Parts {
    /// `cpu`, `rocm` or `cuda`.
    pub kind: &'static str,
    /// What is read.
    pub sampler: Sampler,
    /// Who compiles.
    pub compilers: Compilers,
    /// What is allowed.
    pub limits: Limits,
    /// Which processes are ours.
    pub own: Own,
    /// How long to wait.
    pub patience: Patience,
    /// Ends waits early.
    pub interrupt: Interrupt,
    /// The measuring lock.
    pub lock: Lock,
}

impl MachineGuard {
    /// A guard made of these parts.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let waited = parts.lock.waited;
        MachineGuard {
            kind: parts.kind,
            sampler: parts.sampler,
            compilers: parts.compilers,
            limits: parts.limits,
            own: parts.own,
            patience: parts.patience,
            interrupt: parts.interrupt,
            _lock: parts.lock,
            spent: waited,
            waited,
            last: None,
            at_end: None,
            attempt: Attempt::default(),
        }
    }

    /// Reads the machine and says who disturbs, compared with the reading before.
    fn look(&mut self) -> Contention {
        let now = self.sampler.observe();
        let contention = policy::look(self.last.as_ref(), &now, self.own, &self.limits, &|comm| {
            self.compilers.is_compiler(comm)
        });
        self.last = Some(now);
        contention
    }

    fn note(&mut self, contention: &Contention) -> Option<String> {
        if self.attempt.contended.is_none() && !contention.is_clean() {
            self.attempt.contended = Some(contention.to_string());
        }
        self.attempt.contended.clone()
    }

    fn read_sensors(&mut self) {
        self.attempt.clock.add(self.sampler.clock_mhz());
        if let Some(last) = &self.last {
            self.attempt.gpu.add(&last.gpu);
        }
        let seen = self.attempt.temperature_c;
        let now = self.sampler.temperature_c();
        self.attempt.temperature_c = match (seen, now) {
            (Some(seen), Some(now)) => Some(seen.max(now)),
            (seen, now) => seen.or(now),
        };
    }

    /// Time left for a wait that began at `start`; `None` without a limit.
    fn left(&self, start: Instant) -> Option<Duration> {
        let before = if self.patience.together {
            self.spent
        } else {
            // The first wait of a run includes the lock.
            self.waited
        };
        self.patience
            .max_wait
            .map(|limit| limit.saturating_sub(before + start.elapsed()))
    }

    fn wait_for_streak(
        &mut self,
        start: Instant,
        tell: &mut dyn FnMut(&str),
    ) -> Result<(), GuardError> {
        let mut streak = IdleStreak::new(self.patience.idle);
        loop {
            let contention = self.look();
            let seen = contention.to_string();
            match streak.step(self.sampler.now(), contention.is_clean()) {
                Streak::Idle => return Ok(()),
                Streak::Growing => {}
                Streak::Broken(after) => {
                    tell(&format!(
                        "idle streak reset after {} s: {seen}",
                        after.as_secs()
                    ));
                }
                Streak::Busy => tell(&format!("not idle: {seen}")),
            }
            let left = self.left(start);
            if left == Some(Duration::ZERO) {
                return Err(GuardError::NeverIdle {
                    idle_seconds: self.patience.idle.as_secs(),
                    waited_seconds: start.elapsed().as_secs(),
                    last_seen: if contention.is_clean() {
                        "nobody, for too short a time".to_owned()
                    } else {
                        seen
                    },
                });
            }
            let tick = self.patience.tick;
            if self
                .interrupt
                .sleep(left.map_or(tick, |left| left.min(tick)))
            {
                let signal = self.interrupt.interrupted().unwrap_or(libc::SIGINT);
                return Err(GuardError::Interrupted { signal });
            }
        }
    }
}

impl Guard for MachineGuard {
    fn kind(&self) -> &'static str {
        self.kind
    }

    fn wait_idle(&mut self, tell: &mut dyn FnMut(&str)) -> Result<(), GuardError> {
        let start = Instant::now();
        // Shares are taken over the last seconds, not over a whole round before.
        self.last = None;
        self.at_end = None;
        let result = self.wait_for_streak(start, tell);
        let waited = start.elapsed();
        self.spent += waited;
        self.waited += waited;
        result
    }

    fn begin(&mut self) -> Option<String> {
        self.own.measured_session = None;
        self.own.measuring = false;
        let waited_load = self.sampler.load_1min();
        self.attempt = Attempt {
            load_1min: waited_load,
            ..Attempt::default()
        };
        let now = self.sampler.now();
        let mut contention = match self.at_end.take() {
            Some((at, seen)) if now.saturating_sub(at) <= STILL_TRUE => seen,
            _ => self.look(),
        };
        // Since the last reading the harness itself was at work; what counts now is
        // who is there. CPU time is judged from here on, and the GPU's share of work
        // still tells of the attempt before.
        contention.cpu_over_limit = None;
        contention.hidden_gpu_work = None;
        let contended = self.note(&contention);
        self.attempt.before = self.sampler.counters();
        contended
    }

    fn measured_group(&mut self, process_group: u32) {
        self.own.measured_session = Some(process_group);
        self.own.measuring = true;
    }

    fn sample(&mut self) -> Option<String> {
        let start = Instant::now();
        if self.attempt.next.is_some_and(|next| start < next) {
            return self.attempt.contended.clone();
        }
        self.attempt.samples += 1;
        let cpu_before = sys::own_cpu_time();
        let contention = self.look();
        self.read_sensors();
        // In CPU time: on a busy machine the wall clock would call a reading dear
        // exactly when readings matter.
        let cost = sys::own_cpu_time().saturating_sub(cpu_before);
        self.attempt.next = Some(start + cost * READING_SHARE);
        self.note(&contention)
    }

    fn end(&mut self) -> GuardVerdict {
        // The command and all that it left are gone.
        self.own.measuring = false;
        let after = self.sampler.counters();
        let mut contention = self.look();
        // The counters say it better over the whole attempt, and the GPU's work was ours.
        contention.cpu_over_limit = None;
        contention.hidden_gpu_work = None;
        self.note(&contention);
        self.at_end = Some((self.sampler.now(), contention));
        if self.attempt.samples == 0 {
            self.read_sensors();
        }
        let attempt = std::mem::take(&mut self.attempt);
        let contended = attempt.contended.as_deref();
        let judgement = policy::judge(&attempt.before, &after, contended, &self.limits);
        let waited = std::mem::take(&mut self.waited);
        let slowed_by = attempt.gpu.slowdowns.iter();
        GuardVerdict {
            rejected: judgement.rejected,
            summary: GuardSummary {
                kind: self.kind.to_owned(),
                waited_seconds: waited.as_secs_f64(),
                samples: attempt.samples,
                foreign_cpu_pct: judgement.foreign_cpu_pct,
                steal_pct: judgement.steal_pct,
                load_1min: attempt.load_1min,
                clock_mhz: attempt.clock.value(),
                temperature_c: attempt.temperature_c,
                throttled: judgement.throttled
                    || attempt.gpu.slowdowns.iter().any(|s| s.disturbs()),
                gpu_clock_mhz: attempt.gpu.clock_mhz(),
                gpu_temperature_c: attempt.gpu.temperature_c,
                gpu_power_w: attempt.gpu.power_w(),
                gpu_slowed_by: slowed_by
                    .map(|slowdown| slowdown.word().to_owned())
                    .collect(),
            },
        }
    }
}
