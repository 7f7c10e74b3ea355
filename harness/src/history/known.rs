//! What the history says about a plan. Pure.

use indexmap::IndexMap;

use super::format::{PastCell, PastRun, workload};
use crate::record::format::{NullContrast, Plan};
use crate::stats::quantile::{median, quantile};

/// Most contrasts per metric that a plan is sealed with: they tell the inflation to 8 %,
/// and older ones tell of an older machine.
pub const MOST_CONTRASTS: usize = 100;

/// Which of the noise levels that were seen counts as a noisy run's.
const NOISY: f64 = 0.9;

/// What is known about one cell of a plan from runs of the same workload.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KnownCell {
    /// Seconds from one attempt to the next, waiting included; the median over runs.
    pub attempt_seconds: Option<f64>,
    /// Noise by metric.
    pub noise: IndexMap<String, KnownNoise>,
}

/// The noise of one metric in one cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KnownNoise {
    /// Standard deviation of one attempt, natural logarithm; the median over runs.
    pub sigma: f64,
    /// The same in a noisy run: nine in ten had no more.
    pub noisy: f64,
    /// Runs that it was seen in.
    pub runs: usize,
}

/// What is known about each cell of `plan`, in its order.
#[must_use]
pub fn cells(plan: &Plan, runs: &[PastRun]) -> Vec<KnownCell> {
    (0..plan.cells.len())
        .map(|cell| {
            let wanted = workload(plan, cell);
            let past = runs.iter().flat_map(|run| &run.cells);
            let past: Vec<&PastCell> = past.filter(|past| past.workload == wanted).collect();
            let names = plan.experiment.metrics.keys();
            let noise = names.filter_map(|name| Some((name.clone(), noise(&past, name)?)));
            let seconds = past
                .iter()
                .map(|past| past.attempt_seconds + past.waited_seconds);
            KnownCell {
                attempt_seconds: median(&seconds.collect::<Vec<_>>()),
                noise: noise.collect(),
            }
        })
        .collect()
}

fn noise(past: &[&PastCell], metric: &str) -> Option<KnownNoise> {
    let seen = past.iter().filter_map(|past| past.metrics.get(metric));
    let sigmas: Vec<f64> = seen.map(|seen| seen.sigma).collect();
    Some(KnownNoise {
        sigma: median(&sigmas)?,
        noisy: quantile(&sigmas, NOISY)?,
        runs: sigmas.len(),
    })
}

/// The newest contrasts of each metric of `plan`, the oldest first. Any workload of the
/// program counts: a contrast is in units of its own noise.
#[must_use]
pub fn contrasts(plan: &Plan, runs: &[PastRun]) -> IndexMap<String, Vec<NullContrast>> {
    let mut found = IndexMap::new();
    for name in plan.experiment.metrics.keys() {
        let cells = runs.iter().flat_map(|run| &run.cells);
        let seen = cells.filter_map(|cell| cell.metrics.get(name));
        let mut list: Vec<NullContrast> = seen
            .flat_map(|seen| seen.contrasts.iter().copied())
            .collect();
        list.drain(..list.len().saturating_sub(MOST_CONTRASTS));
        if !list.is_empty() {
            found.insert(name.clone(), list);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::format::{PastMetric, SCHEMA};
    use super::*;
    use crate::record::example;

    fn run(cell: &str, workload: &str, sigma: f64, contrasts: &[f64]) -> PastRun {
        let seen = PastMetric {
            sigma,
            df: 9.0,
            contrasts: contrasts
                .iter()
                .map(|&t| NullContrast { t, df: 4.0 })
                .collect(),
        };
        PastRun {
            schema: SCHEMA,
            plan: "a".into(),
            sealed_at: "2026-03-01T10:00:00Z".into(),
            experiment: "window".into(),
            cells: vec![PastCell {
                cell: cell.into(),
                workload: workload.into(),
                attempt_seconds: 2.0,
                waited_seconds: 0.5,
                metrics: [("decode_tok_s".to_owned(), seen)].into(),
            }],
        }
    }

    #[test]
    fn noise_and_time_come_from_the_same_workload_only() {
        let plan = example::plan();
        let same = workload(&plan, 1);
        let runs = [
            run("2048", &same, 0.010, &[]),
            run("2048", &same, 0.004, &[]),
            run("2048", &same, 0.006, &[]),
            run("2048", "another command", 0.5, &[]),
        ];
        let known = cells(&plan, &runs);
        assert_eq!(known[0], KnownCell::default());
        assert_eq!(known[1].attempt_seconds, Some(2.5));
        let noise = known[1].noise["decode_tok_s"];
        assert!((noise.sigma - 0.006).abs() < 1e-12 && noise.runs == 3);
        assert!(noise.noisy > noise.sigma, "{}", noise.noisy);
    }

    #[test]
    fn the_newest_contrasts_of_any_workload_are_taken() {
        let plan = example::plan();
        let many: Vec<f64> = (0..150).map(f64::from).collect();
        let runs = [
            run("x", "other", 0.01, &many),
            run("y", "more", 0.01, &[7.5]),
        ];
        let found = &contrasts(&plan, &runs)["decode_tok_s"];
        assert_eq!(found.len(), MOST_CONTRASTS);
        assert_eq!((found[0].t, found[99].t), (51.0, 7.5));
        assert!(!contrasts(&plan, &runs).contains_key("peak_bytes"));
    }
}
