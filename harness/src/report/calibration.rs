//! The page of a calibration: what was promised, and what came of it.

use serde::Serialize;

use super::markdown::{self, TemplateError};
use super::method::{self, Fact};
use super::model::short_hash;
use super::plot::calibration as plots;
use super::plot::canvas::PlotError;
use super::plot::figure::Figure;
use crate::analysis::calibration::{Answers, Calibration};
use crate::record::format::Host;
use crate::record::reader::Record;
use crate::unit;

/// A page, ready for its template.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Page {
    host: String,
    /// What its files are called.
    stem: String,
    experiment: String,
    command: String,
    tool: String,
    date: String,
    code: String,
    environment: Vec<Fact>,
    runs: usize,
    rounds: u32,
    alpha: String,
    threshold: String,
    noise: String,
    detectable: String,
    detectable_later: String,
    same: Line,
    control: String,
    control_found: usize,
    control_of: usize,
    injected: Vec<Line>,
    verdicts: Vec<String>,
}

/// One row of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Line {
    what: String,
    size: String,
    judged: usize,
    invalid: usize,
    slower: String,
    faster: String,
    fails: String,
    passes: String,
    promised: String,
}

impl Page {
    /// Spells out a summary; `record` is any of its runs.
    #[must_use]
    pub fn new(summary: &Calibration, record: &Record, host: &Host) -> Self {
        let plan = &record.plan;
        let base = plan.builds.first();
        Page {
            host: host.label.clone(),
            stem: host.label.clone(),
            experiment: plan.experiment_path.clone(),
            command: format!(
                "bench-run calibrate {} --runs {}",
                shell_words::quote(&plan.experiment_path),
                summary.runs
            ),
            tool: plan.tool.clone(),
            date: plan.sealed_at.get(..10).unwrap_or_default().to_owned(),
            code: base
                .map(|build| short_hash(&build.code_sha256))
                .unwrap_or_default(),
            environment: method::environment(record),
            runs: summary.runs,
            rounds: summary.rounds,
            alpha: percent(100.0 * summary.alpha),
            threshold: percent(summary.threshold_pct),
            noise: percent(summary.noise_pct),
            detectable: percent(summary.detectable_pct),
            detectable_later: percent(summary.detectable_later_pct),
            same: line("the same program".into(), 0.0, &summary.same, None),
            control: percent(summary.control_pct),
            control_found: summary.control_found,
            control_of: summary.control_of,
            injected: summary
                .injected
                .iter()
                .map(|one| {
                    let what = format!("{} × detectable", one.multiple);
                    line(what, one.pct, &one.answers, one.promised)
                })
                .collect(),
            verdicts: verdicts(summary),
        }
    }

    /// The same page with its files called `stem`, in place of the host's label.
    #[must_use]
    pub fn named(self, stem: &str) -> Page {
        Page {
            stem: stem.to_owned(),
            ..self
        }
    }

    /// Whether `text`, a page, is about the same program measured by the same tool: runs of others
    /// do not add up, so that its numbers cannot be among these.
    #[must_use]
    pub fn has_subject_of(&self, text: &str) -> bool {
        let subject = format!("by {}; code `{}`", self.tool, self.code);
        text.contains(&format!("`{}`", self.experiment)) && text.contains(&subject)
    }

    /// The page as Markdown.
    ///
    /// # Errors
    /// [`TemplateError`] only when the embedded template is faulty.
    pub fn render(&self) -> Result<String, TemplateError> {
        markdown::calibration(self)
    }
}

/// The pictures of a page.
///
/// # Errors
/// [`PlotError`] only by a fault of this program.
pub fn figures(summary: &Calibration) -> Result<Vec<Figure>, PlotError> {
    plots::figures(summary)
}

/// What was to be shown, and whether it was: plain sentences, also where it was not.
fn verdicts(summary: &Calibration) -> Vec<String> {
    let same = &summary.same;
    let most = expected_alarms(summary);
    let alarms = format!(
        "False alarms: {} of {} comparisons of the program with itself were called slower and {} \
         faster; the rule allows {} of each kind on average.",
        same.slower,
        same.judged,
        same.faster,
        unit::value(most),
    );
    let share = share(summary.control_found, summary.control_of);
    let control = format!(
        "Positive control: {} of {} found ({share}).",
        summary.control_found, summary.control_of
    );
    vec![alarms, control]
}

/// Half of α, of the comparisons that were judged.
fn expected_alarms(summary: &Calibration) -> f64 {
    let expected = summary.alpha / 2.0 * count(summary.same.judged);
    (10.0 * expected).round() / 10.0
}

fn line(what: String, pct: f64, answers: &Answers, promised: Option<f64>) -> Line {
    let share = |hits: usize| format!("{hits} ({})", share(hits, answers.judged));
    Line {
        what,
        size: percent(pct),
        judged: answers.judged,
        invalid: answers.invalid,
        slower: share(answers.slower),
        faster: share(answers.faster),
        fails: share(answers.fails),
        passes: share(answers.passes),
        promised: promised.map_or_else(String::new, |chance| format!("{:.0} %", 100.0 * chance)),
    }
}

fn share(hits: usize, of: usize) -> String {
    if of == 0 {
        return "n/a".into();
    }
    format!("{:.0} %", 100.0 * count(hits) / count(of))
}

fn percent(pct: f64) -> String {
    format!("{} %", unit::value((100.0 * pct).round() / 100.0))
}

fn count(n: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts of runs")]
    let count = n as f64;
    count
}
