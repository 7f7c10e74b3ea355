//! Progress on a terminal: a bar with what is left, the medians so far, the noise band.
//!
//! Redrawn between attempts only, so that drawing disturbs no measurement. Off a
//! terminal, or with `--quiet`, nothing but warnings is written.
#![expect(
    clippy::print_stderr,
    reason = "warnings and progress go to standard error"
)]

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::experiment::model::Metric;
use crate::record::format::{Attempt, Outcome, Plan};
use crate::session::observer::Observer;
use crate::stats::quantile::median;
use crate::unit;

/// Draws on standard error.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    visible: bool,
    quiet: bool,
    started: Option<Instant>,
    done_before: usize,
}

impl Progress {
    /// A bar on a terminal, nothing elsewhere.
    #[must_use]
    pub fn new(quiet: bool) -> Self {
        let visible = !quiet && std::io::stderr().is_terminal();
        let target = if visible {
            ProgressDrawTarget::stderr_with_hz(4)
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(None, target);
        bar.set_style(spinner());
        Progress {
            bar,
            visible,
            quiet,
            started: None,
            done_before: 0,
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// A line that stays, above the bar.
    pub fn line(&self, text: &str) {
        if self.quiet {
            return;
        }
        self.always(text);
    }

    fn always(&self, text: &str) {
        self.bar.suspend(|| eprintln!("{text}"));
    }
}

impl Observer for Progress {
    fn preparing(&mut self, arm: &str, step: &str) {
        if self.visible {
            self.bar
                .set_message(format!("{arm}: {}", first_words(step, 90)));
            self.bar.tick();
        }
    }

    fn warning(&mut self, text: &str) {
        self.always(&format!("warning: {text}"));
    }

    fn sealed(&mut self, plan: &Plan, done: usize) {
        let total = planned_attempts(plan);
        self.line(&format!(
            "plan sealed: {} arms × {} cells × {} rounds, {} attempts with priming{}",
            plan.arms.iter().filter(|arm| arm.build.is_some()).count(),
            plan.cells.len(),
            plan.experiment.rounds,
            total,
            if done == 0 {
                String::new()
            } else {
                format!("; resuming after {done}")
            },
        ));
        self.bar.set_length(total as u64);
        self.bar.set_position(done as u64);
        self.bar.set_style(bar());
        self.started = Some(Instant::now());
        self.done_before = done;
    }

    fn waiting(&mut self, why: &str) {
        if self.visible {
            self.bar
                .set_message(format!("waiting: {}", first_words(why, 80)));
            self.bar.tick();
        }
    }

    fn starting(&mut self, cell: &str, arm: &str, round: u32) {
        if self.visible {
            let round = if round == 0 {
                "priming".to_owned()
            } else {
                format!("round {round}")
            };
            self.bar.set_prefix(format!("{cell} {arm} {round}"));
            self.bar.tick();
        }
    }

    fn recorded(&mut self, plan: &Plan, attempts: &[Attempt]) {
        let Some(newest) = attempts.last() else {
            return;
        };
        if let Some(why) = trouble(&newest.outcome) {
            let place = format!("{} {} round {}", newest.cell, newest.arm, newest.round);
            self.line(&format!("{place}: {why}"));
        }
        self.bar.set_position(attempts.len() as u64);
        if self.visible {
            let left = remaining(
                self.started,
                attempts.len() - self.done_before,
                planned_attempts(plan),
                attempts.len(),
            );
            self.bar
                .set_message(format!("{} {left}", medians(plan, attempts, &newest.cell)));
        }
    }
}

fn spinner() -> ProgressStyle {
    ProgressStyle::with_template("{spinner} {elapsed} {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner())
}

fn bar() -> ProgressStyle {
    ProgressStyle::with_template("{wide_bar:.cyan/blue} {pos}/{len} {prefix}\n{msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Attempts of a run without retries: all rounds and one priming attempt per treatment.
#[must_use]
pub fn planned_attempts(plan: &Plan) -> usize {
    let rounds: usize = plan.order.iter().flatten().map(Vec::len).sum();
    let mut treatments: Vec<usize> = plan
        .arms
        .iter()
        .filter(|arm| arm.build.is_some())
        .map(|arm| arm.treatment)
        .collect();
    treatments.sort_unstable();
    treatments.dedup();
    rounds + treatments.len() * plan.cells.len()
}

fn trouble(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Ok => None,
        Outcome::Rejected { reason } => Some(format!("rejected, {reason}")),
        Outcome::Failed { reason } => Some(format!("failed, {reason}")),
        Outcome::Invalid { reason } => Some(format!("invalid, {reason}")),
        Outcome::TimedOut { limit_seconds } => Some(format!("killed after {limit_seconds} s")),
    }
}

/// `main 62.1 (−0.8 %) base-null 62.9 (±0.1 %) tok/s` for the first gated metric of a cell.
fn medians(plan: &Plan, attempts: &[Attempt], cell: &str) -> String {
    let gated = plan
        .experiment
        .metrics
        .iter()
        .find(|(_, metric)| metric.gate);
    let Some((name, metric)) = gated.or_else(|| plan.experiment.metrics.iter().next()) else {
        return String::new();
    };
    let mut values: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for row in attempts
        .iter()
        .filter(|row| row.cell == cell && row.round > 0 && row.outcome.is_ok())
    {
        let arm = plan.arms.iter().position(|arm| arm.name == row.arm);
        if let (Some(arm), Some(value)) = (arm, row.metrics.get(name)) {
            values.entry(arm).or_default().push(*value);
        }
    }
    let of_arm: BTreeMap<usize, f64> = values
        .iter()
        .filter_map(|(arm, values)| Some((*arm, median(values)?)))
        .collect();
    let base = plan
        .arms
        .iter()
        .position(|arm| arm.name == plan.experiment.base);
    let base_median = base.and_then(|base| of_arm.get(&base).copied());
    let words = of_arm.iter().map(|(arm, median)| {
        let change = match base_median {
            Some(base_median) if Some(*arm) != base => {
                format!(
                    " ({})",
                    unit::signed_pct((median / base_median - 1.0) * 100.0)
                )
            }
            _ => String::new(),
        };
        format!("{} {}{change}", plan.arms[*arm].name, unit::value(*median))
    });
    format!(
        "{name}: {} {}",
        words.collect::<Vec<_>>().join("  "),
        unit_of(name, metric)
    )
}

fn unit_of<'a>(name: &'a str, metric: &'a Metric) -> &'a str {
    metric
        .unit
        .as_deref()
        .unwrap_or_else(|| unit::metric_unit(name))
}

fn remaining(started: Option<Instant>, done_here: usize, total: usize, done: usize) -> String {
    let elapsed = started
        .map_or(Duration::ZERO, |started| started.elapsed())
        .as_secs_f64();
    if done_here == 0 || done >= total {
        return String::new();
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts of attempts are far below 2^52"
    )]
    let seconds = elapsed / done_here as f64 * (total - done) as f64;
    format!("· {} left", unit::duration(seconds))
}

fn first_words(text: &str, most: usize) -> String {
    let line = text.lines().last().unwrap_or_default();
    if line.chars().count() <= most {
        line.to_owned()
    } else {
        line.chars().take(most - 1).chain(['…']).collect()
    }
}
