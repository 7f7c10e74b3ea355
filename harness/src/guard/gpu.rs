//! What a GPU tells a guard: who holds it, how it runs, and what slows it down.

use std::collections::BTreeSet;
use std::fmt;

/// Why a GPU's clocks are lower than they could be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Slowdown {
    /// It is too hot.
    Heat,
    /// The power supply asked it to slow down.
    PowerBrake,
    /// The hardware slowed it down for a reason that it does not tell.
    Hardware,
    /// Another GPU of its group is slowed down.
    SyncBoost,
    /// It draws as much power as it may.
    PowerCap,
}

impl Slowdown {
    /// In a message and in a record.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Slowdown::Heat => "heat",
            Slowdown::PowerBrake => "power brake",
            Slowdown::Hardware => "hardware",
            Slowdown::SyncBoost => "sync boost",
            Slowdown::PowerCap => "power cap",
        }
    }

    /// Whether an attempt is disturbed by it. A power cap is where a heavy program runs all
    /// the time: that is the device's speed and the program's own doing.
    #[must_use]
    pub fn disturbs(self) -> bool {
        self != Slowdown::PowerCap
    }
}

/// How the GPUs of a machine run at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GpuReading {
    /// Clock of the fastest one's processors in MHz.
    pub clock_mhz: Option<f64>,
    /// The highest temperature in °C.
    pub temperature_c: Option<f64>,
    /// Power of all of them in watts.
    pub power_w: Option<f64>,
    /// Share of the last moment in which the busiest one worked, in percent.
    pub busy_pct: Option<f64>,
    /// What slows any of them down.
    pub slowdowns: BTreeSet<Slowdown>,
    /// Time for which they were slowed down by heat or hardware since the driver was
    /// loaded, in nanoseconds, summed.
    pub held_down_ns: Option<u64>,
}

/// The GPUs of a machine.
pub trait Gpu: fmt::Debug {
    /// Pids of all processes that hold one, in ascending order, each once.
    fn holders(&self) -> Vec<u32>;

    /// Whether processes of another pid namespace may hold one: they are left out, or stand
    /// there with a pid that is nobody's here.
    fn holders_may_hide(&self) -> bool {
        false
    }

    /// How they run.
    fn reading(&self) -> GpuReading {
        GpuReading::default()
    }
}

/// The readings of one attempt.
#[derive(Debug, Clone, Default)]
pub(super) struct GpuSummary {
    clock: Mean,
    power: Mean,
    pub(super) temperature_c: Option<f64>,
    pub(super) slowdowns: BTreeSet<Slowdown>,
}

impl GpuSummary {
    pub(super) fn add(&mut self, reading: &GpuReading) {
        self.clock.add(reading.clock_mhz);
        self.power.add(reading.power_w);
        self.temperature_c = match (self.temperature_c, reading.temperature_c) {
            (Some(seen), Some(now)) => Some(seen.max(now)),
            (seen, now) => seen.or(now),
        };
        self.slowdowns.extend(&reading.slowdowns);
    }

    pub(super) fn clock_mhz(&self) -> Option<f64> {
        self.clock.value()
    }

    pub(super) fn power_w(&self) -> Option<f64> {
        self.power.value()
    }
}

/// The mean of what could be read.
#[derive(Debug, Clone, Default)]
pub(super) struct Mean {
    sum: f64,
    count: u32,
}

impl Mean {
    pub(super) fn add(&mut self, value: Option<f64>) {
        if let Some(value) = value {
            self.sum += value;
            self.count += 1;
        }
    }

    pub(super) fn value(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / f64::from(self.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_mean_clock_and_power_the_highest_temperature_and_every_slowdown() {
        let mut summary = GpuSummary::default();
        assert_eq!((summary.clock_mhz(), summary.power_w()), (None, None));
        for (clock, degrees, watts, slowdown) in [
            (1000.0, 60.0, 300.0, Slowdown::PowerCap),
            (2000.0, 50.0, 500.0, Slowdown::Heat),
        ] {
            summary.add(&GpuReading {
                clock_mhz: Some(clock),
                temperature_c: Some(degrees),
                power_w: Some(watts),
                slowdowns: [slowdown].into(),
                ..GpuReading::default()
            });
        }
        summary.add(&GpuReading::default());
        assert_eq!(summary.clock_mhz(), Some(1500.0));
        assert_eq!(summary.power_w(), Some(400.0));
        assert_eq!(summary.temperature_c, Some(60.0));
        assert_eq!(summary.slowdowns.len(), 2);
    }
}
