//! Progress: on a terminal a bar with what is left, the medians so far, the noise band; elsewhere, as in
//! the log of a CI, the same as a line now and then.
//!
//! Drawn and written between attempts only, so that it disturbs no measurement. With `--quiet`
//! nothing but warnings is written.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::record::format::{Attempt, Outcome, Plan};
use crate::session::observer::Observer;
use crate::stats::quantile::{median, range};
use crate::unit;

/// The least time between two lines of a log.
const BETWEEN_LINES: Duration = Duration::from_secs(15);

/// Writes to standard error.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    show: Show,
    started: Option<Instant>,
    done_before: usize,
}

/// How it is shown.
#[derive(Debug)]
enum Show {
    /// A bar, on a terminal.
    Bar,
    /// Lines, elsewhere; the last was written then, or the first may be written that much later.
    Lines(Instant),
    /// Warnings only.
    Nothing,
}

impl Progress {
    /// A bar on a terminal, lines elsewhere, neither when `quiet`.
    #[must_use]
    pub fn new(quiet: bool) -> Self {
        let (show, target) = if quiet {
            (Show::Nothing, ProgressDrawTarget::hidden())
        } else if std::io::stderr().is_terminal() {
            (Show::Bar, ProgressDrawTarget::stderr_with_hz(4))
        } else {
            (Show::Lines(Instant::now()), ProgressDrawTarget::hidden())
        };
        let bar = ProgressBar::with_draw_target(None, target);
        bar.set_style(spinner());
        Progress {
            bar,
            show,
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
        if !matches!(self.show, Show::Nothing) {
            self.always(text);
        }
    }

    fn always(&self, text: &str) {
        // Nobody can be told that standard error cannot be written.
        let _ = self.bar.suspend(|| writeln!(std::io::stderr(), "{text}"));
    }

    /// What goes on now: beside the bar, or as a line if it is time for one.
    fn now(&mut self, text: String) {
        match &mut self.show {
            Show::Bar => {
                self.bar.set_message(text);
                self.bar.tick();
            }
            Show::Lines(last) => {
                if due(last, Instant::now()) {
                    self.always(&text);
                }
            }
            Show::Nothing => {}
        }
    }
}

/// Whether it is time for a line; if so, the next one has its time to wait.
fn due(last: &mut Instant, now: Instant) -> bool {
    let due = now.duration_since(*last) >= BETWEEN_LINES;
    if due {
        *last = now;
    }
    due
}

impl Observer for Progress {
    fn preparing(&mut self, arm: &str, step: &str) {
        self.now(format!("{arm}: {}", first_words(step, 90)));
    }

    fn warning(&mut self, text: &str) {
        self.always(&format!("warning: {text}"));
    }

    fn sealed(&mut self, plan: &Plan, done: usize, left: usize) {
        let total = done + left;
        self.line(&format!(
            "plan sealed: {} arms × {} cells × {}{} rounds, {} attempts with priming{}",
            plan.arms.iter().filter(|arm| arm.build.is_some()).count(),
            plan.cells.len(),
            if plan.stages().len() > 1 {
                "up to "
            } else {
                ""
            },
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
        self.now(format!("waiting: {}", first_words(why, 80)));
    }

    fn starting(&mut self, cell: &str, arm: &str, round: u32) {
        self.bar.set_prefix(attempt(cell, arm, round));
        self.bar.tick();
    }

    fn recorded(&mut self, plan: &Plan, attempts: &[Attempt], left: usize) {
        let Some(newest) = attempts.last() else {
            return;
        };
        if let Some(why) = trouble(&newest.outcome) {
            let place = attempt(&newest.cell, &newest.arm, newest.round);
            self.line(&format!("{place}: {why}"));
        }
        // A round that is run again makes the run longer, an arm that is out shorter.
        self.bar.set_length((attempts.len() + left) as u64);
        self.bar.set_position(attempts.len() as u64);
        if matches!(self.show, Show::Nothing) {
            return;
        }
        let here = attempts.len() - self.done_before;
        let time = self.started.map_or(Duration::ZERO, |at| at.elapsed());
        let remaining = remaining(time, here, left);
        let so_far = medians(plan, attempts, &newest.cell);
        let place = match &self.show {
            Show::Lines(_) => format!(
                "{}/{} {}: ",
                attempts.len(),
                attempts.len() + left,
                attempt(&newest.cell, &newest.arm, newest.round)
            ),
            _ => String::new(),
        };
        self.now(format!("{place}{so_far} {remaining}"));
    }
}

fn attempt(cell: &str, arm: &str, round: u32) -> String {
    match round {
        0 => format!("{cell} {arm} priming"),
        round => format!("{cell} {arm} round {round}"),
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

fn trouble(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Ok => None,
        Outcome::Rejected { reason } => Some(format!("rejected, {reason}")),
        Outcome::Failed { reason } => Some(format!("failed, {reason}")),
        Outcome::Invalid { reason } => Some(format!("invalid, {reason}")),
        Outcome::TimedOut { limit_seconds } => Some(format!("killed after {limit_seconds} s")),
    }
}

/// `decode_tok_s: base 62.6  main 62.1 (−0.80 %)  base-null 62.5 (−0.31 % to +0.12 %) tok/s` for the
/// first gated metric of a cell: an arm's median and its change against the base, a null
/// arm's the range so far of its changes against the arm that it repeats.
fn medians(plan: &Plan, attempts: &[Attempt], cell: &str) -> String {
    let gated = plan
        .experiment
        .metrics
        .iter()
        .find(|(_, metric)| metric.gate);
    let Some((name, metric)) = gated.or_else(|| plan.experiment.metrics.iter().next()) else {
        return String::new();
    };
    let mut values: BTreeMap<&str, BTreeMap<(u32, u32), f64>> = BTreeMap::new();
    for row in attempts
        .iter()
        .filter(|row| row.cell == cell && row.round > 0 && row.outcome.is_ok())
    {
        if let Some(value) = row.metrics.get(name) {
            let of_arm = values.entry(&row.arm).or_default();
            of_arm.insert((row.round, row.round_try), *value);
        }
    }
    let median_of = |arm: &str| {
        let values: Vec<f64> = values.get(arm)?.values().copied().collect();
        median(&values)
    };
    let base = plan.experiment.base.as_str();
    let words = plan.arms.iter().filter_map(|arm| {
        let middle = median_of(&arm.name)?;
        let beside = match (&arm.null_of, median_of(base)) {
            (Some(of), _) => band_so_far(values.get(arm.name.as_str())?, values.get(of.as_str())),
            (None, Some(base_median)) if arm.name != base => {
                Some(unit::signed_pct((middle / base_median - 1.0) * 100.0))
            }
            _ => None,
        };
        let beside = beside.map_or_else(String::new, |text| format!(" ({text})"));
        Some(format!("{} {}{beside}", arm.name, unit::value(middle)))
    });
    format!(
        "{name}: {} {}",
        words.collect::<Vec<_>>().join("  "),
        metric.unit_of(name)
    )
}

/// The range of a null arm's changes against the arm that it repeats, try by try.
fn band_so_far(
    null: &BTreeMap<(u32, u32), f64>,
    of: Option<&BTreeMap<(u32, u32), f64>>,
) -> Option<String> {
    let changes: Vec<f64> = null
        .iter()
        .filter_map(|(place, value)| Some((value / of?.get(place)? - 1.0) * 100.0))
        .collect();
    let (low, high) = range(&changes)?;
    let (low, high) = (unit::signed_pct(low), unit::signed_pct(high));
    Some(format!("{low} to {high}"))
}

/// The time that `left` attempts will take if they are like the `here` of this session.
fn remaining(elapsed: Duration, here: usize, left: usize) -> String {
    if here == 0 || left == 0 {
        return String::new();
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts of attempts are far below 2^52"
    )]
    let seconds = elapsed.as_secs_f64() / here as f64 * left as f64;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::example;

    #[test]
    fn the_line_shows_medians_changes_and_the_noise_band() {
        let plan = example::plan();
        let mut rows = example::attempts(&plan);
        for row in &mut rows {
            let second = row.round == 2;
            let value = match row.arm.as_str() {
                "main" => 90.0,
                "base-null" if second => 101.0,
                "base-null" => 98.0,
                _ => 100.0,
            };
            row.metrics.insert("decode_tok_s".into(), value);
        }
        rows.retain(|row| row.arm != "sync");
        assert_eq!(
            medians(&plan, &rows, "256"),
            "decode_tok_s: base 100  base-null 98 (−2.00 % to +1.00 %)  main 90 (−10.00 %) tok/s"
        );
        assert_eq!(medians(&plan, &[], "256"), "decode_tok_s:  tok/s");
    }

    #[test]
    fn a_log_gets_a_line_now_and_then() {
        let start = Instant::now();
        let mut last = start;
        let times = [0, 14, 16, 20, 30, 32].map(|seconds| start + Duration::from_secs(seconds));
        let written = times.map(|time| due(&mut last, time));
        assert_eq!(written, [false, false, true, false, false, true]);
    }

    #[test]
    fn what_is_left_takes_as_long_as_what_was_done_here() {
        assert_eq!(remaining(Duration::from_secs(10), 4, 8), "· 20.0 s left");
        assert_eq!(remaining(Duration::from_secs(10), 0, 8), "");
    }
}
