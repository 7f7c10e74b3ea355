//! The positive control as a user writes it, and what its slow-down can reach.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::model::{Experiment, Metric, Rusage};

/// A control arm: an arm with an injected slow-down, which the rule must find.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Control {
    /// The arm that is slowed down: the base, since the rule compares with it.
    pub of: String,
    /// By how much its time grows, in percent, or `auto`: the smallest slow-down that
    /// fails the gate nine times in ten.
    #[serde(default)]
    pub slow_down_pct: SlowDownPct,
}

impl Control {
    /// Whether the size is chosen when the plan is sealed.
    #[must_use]
    pub fn is_auto(&self) -> bool {
        matches!(self.slow_down_pct, SlowDownPct::Auto(_))
    }
}

/// Size of the injected slow-down.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum SlowDownPct {
    /// Chosen when the plan is sealed.
    Auto(Auto),
    /// Percent of the time.
    Pct(f64),
}

/// The word `auto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Auto {
    /// Chosen when the plan is sealed.
    Auto,
}

impl Default for SlowDownPct {
    fn default() -> Self {
        SlowDownPct::Auto(Auto::Auto)
    }
}

/// The name of the control arm of an arm.
#[must_use]
pub fn control_name(of: &str) -> String {
    format!("{of}-control")
}

/// The clock behind a metric: it decides how an attempt has to be slowed down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// The program's own, somewhere inside the attempt.
    Inside,
    /// Wall-clock time of the whole attempt.
    Wall,
    /// CPU time of the whole attempt.
    Cpu,
}

/// The clock of a metric; `None` for a size and for system time, which no slow-down moves.
#[must_use]
pub fn clock(name: &str, metric: &Metric) -> Option<Clock> {
    match metric.rusage {
        Some(Rusage::WallSeconds) => Some(Clock::Wall),
        Some(Rusage::UserSeconds | Rusage::CpuSeconds) => Some(Clock::Cpu),
        Some(Rusage::SystemSeconds | Rusage::PeakRssBytes) => None,
        None if metric.unit_of(name) == "B" => None,
        None => Some(Clock::Inside),
    }
}

/// The clocks of the gated metrics, each once.
#[must_use]
pub fn gated_clocks(experiment: &Experiment) -> Vec<Clock> {
    let gated = experiment.metrics.iter().filter(|(_, metric)| metric.gate);
    let mut clocks = Vec::new();
    for clock in gated.filter_map(|(name, metric)| clock(name, metric)) {
        if !clocks.contains(&clock) {
            clocks.push(clock);
        }
    }
    clocks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(metrics: &str) -> Experiment {
        let text = format!(
            "schema: 1\nname: t\nquestion: q\ncommand: x\nnulls: all\n\
             arms: {{ base: {{ binary: a }}, main: {{ binary: b }} }}\nmetrics:\n{metrics}"
        );
        serde_yaml::from_str(&text).unwrap()
    }

    #[test]
    fn a_rate_a_time_and_cpu_time_can_be_slowed_down_and_a_size_cannot() {
        let experiment = experiment(
            "  decode_tok_s: { json: a, better: higher, gate: true }\n\
             \x20 pass_ms: { regex: '(.)', better: lower, gate: true }\n\
             \x20 wall: { rusage: wall_seconds, better: lower, gate: true }\n\
             \x20 user: { rusage: user_seconds, better: lower }\n\
             \x20 peak_bytes: { json: b, better: lower, gate: true }\n\
             \x20 system: { rusage: system_seconds, better: lower, gate: true }\n",
        );
        let clocks: Vec<Option<Clock>> = experiment
            .metrics
            .iter()
            .map(|(name, metric)| clock(name, metric))
            .collect();
        let inside = Some(Clock::Inside);
        let (wall, cpu) = (Some(Clock::Wall), Some(Clock::Cpu));
        assert_eq!(clocks, [inside, inside, wall, cpu, None, None]);
        // CPU time is not gated, so nothing has to be spun for it.
        assert_eq!(gated_clocks(&experiment), [Clock::Inside, Clock::Wall]);
    }
}
