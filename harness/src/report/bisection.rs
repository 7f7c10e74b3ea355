//! The page of a bisection: every commit with its probability, every run with its change.

use std::fmt::Write as _;

use serde::Serialize;

use super::markdown::{self, TemplateError};
use super::method::{self, Fact};
use super::model::short_hash;
use super::plot::bisection as plot;
use super::plot::canvas::PlotError;
use super::plot::figure::Figure;
use super::words;
use crate::experiment::model::Better;
use crate::record::reader::Record;
use crate::unit;
use crate::verdict::change::own_pct;
use crate::verdict::rule::Estimate;

/// Beyond this many commits, those that were neither measured nor likely are left out of table
/// and picture; the JSON has them all.
const MOST_ROWS: usize = 60;

/// Less than this share is shown as 0.0 %.
const LEAST_SHOWN: f64 = 0.0005;

/// A search that has ended: what its page shows, and its JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// The command that searched.
    pub command: String,
    /// Name of the experiment.
    pub experiment: String,
    /// The commit that all others were measured against.
    pub good: String,
    /// The cell that shows the whole effect most clearly.
    pub cell: String,
    /// The metric that does.
    pub metric: String,
    /// Which way of it is better.
    pub better: Better,
    /// The probability at which the search ends.
    pub confidence: f64,
    /// The commits that are the answer; none where the runs were spent before.
    pub answer: Vec<String>,
    /// Probability that the first commit with the effect is among them; of the likeliest
    /// ones where there is no answer.
    pub probability: f64,
    /// Commits whose changes fit neither no effect nor the whole one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub misfits: Vec<String>,
    /// The line behind the good commit, oldest first; the last is the bad one.
    pub commits: Vec<Candidate>,
    /// What was measured, in order. The first is the bad commit.
    pub runs: Vec<Run>,
}

/// One commit of the line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Candidate {
    /// Full commit.
    pub id: String,
    /// First line of its message.
    pub summary: String,
    /// That it is the first with the effect.
    pub probability: f64,
    /// False for one that does not build or yields no numbers.
    pub measurable: bool,
}

/// One run at one commit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Run {
    /// 1-based.
    pub number: u32,
    /// Full commit.
    pub commit: String,
    /// SHA-256 of the run's sealed plan; `None` where nothing could be run.
    pub plan_sha256: Option<String>,
    /// The change against the good commit; `None` without one.
    pub estimate: Option<Estimate>,
    /// The code is the good commit's: there is no effect, and nothing was measured.
    pub identical: bool,
    /// What the verdict says, or why there is none.
    pub sentence: String,
}

impl Finding {
    /// The change of the bad commit, as readers see it.
    fn whole(&self) -> String {
        let whole = self.runs.first();
        whole.map_or_else(String::new, |run| self.change(run))
    }

    fn change(&self, run: &Run) -> String {
        match &run.estimate {
            _ if run.identical => "the very program of the good commit".to_owned(),
            Some(estimate) => words::estimate(self.better, estimate),
            None => "not measurable".to_owned(),
        }
    }

    fn runs_at<'a>(&'a self, id: &'a str) -> impl Iterator<Item = &'a Run> {
        self.runs.iter().filter(move |run| run.commit == id)
    }

    /// Places of the commits that table and picture show.
    pub(super) fn shown(&self) -> Vec<usize> {
        let is_shown = |candidate: &Candidate| {
            self.commits.len() <= MOST_ROWS
                || candidate.probability >= LEAST_SHOWN
                || self.runs_at(&candidate.id).next().is_some()
        };
        let commits = self.commits.iter().enumerate();
        let shown = commits.filter(|(_, commit)| is_shown(commit));
        shown.map(|(place, _)| place).collect()
    }

    /// Estimates of one commit, each with its interval; code equal to the good commit's has none.
    pub(super) fn estimates_at<'a>(&'a self, id: &'a str) -> impl Iterator<Item = &'a Estimate> {
        self.runs_at(id).filter_map(|run| run.estimate.as_ref())
    }

    /// The answer in one sentence, or two.
    fn answer(&self) -> String {
        let mut text = self.first();
        if !self.misfits.is_empty() {
            let odd: Vec<&str> = self.misfits.iter().map(|id| short(id)).collect();
            text.push_str(&format!(
                "; but the change measured at {} is neither none nor the whole: more than one \
                 commit may have changed it, and a search up to there (`--bad`) finds the first",
                odd.join(", ")
            ));
        }
        text
    }

    fn first(&self) -> String {
        let share = unit::value((1000.0 * self.probability).round() / 10.0);
        match &self.answer[..] {
            [] => format!(
                "not found within {} runs; the likeliest has {share} %",
                self.runs.len()
            ),
            [one] => format!("first commit with the effect ({share} %): {one}"),
            several => format!(
                "first commit with the effect, among those that nothing can tell apart \
                 ({share} %): {}",
                several.join(" ")
            ),
        }
    }

    /// Every candidate with its probability, for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(
            out,
            "{} of {}: {} at {}, {} commits, {} runs\n",
            self.metric,
            self.cell,
            self.whole(),
            short(self.commits.last().map_or("", |commit| &commit.id)),
            self.commits.len(),
            self.runs.len()
        );
        for commit in &self.commits {
            let _ = writeln!(
                out,
                "{:>6.1} %  {}  {:24}  {}",
                100.0 * commit.probability,
                short(&commit.id),
                self.seen(commit),
                commit.summary
            );
        }
        let _ = writeln!(out, "\n{}", self.answer());
        out
    }

    /// How often a commit was measured, and its mean change.
    fn seen(&self, commit: &Candidate) -> String {
        if !commit.measurable {
            return "not measurable".to_owned();
        }
        let deltas: Vec<f64> = self
            .runs_at(&commit.id)
            .filter(|run| run.estimate.is_some() || run.identical)
            .map(|run| run.estimate.map_or(0.0, |estimate| estimate.delta))
            .collect();
        if deltas.is_empty() {
            return String::new();
        }
        #[expect(clippy::cast_precision_loss, reason = "a handful of runs")]
        let mean = deltas.iter().sum::<f64>() / deltas.len() as f64;
        let change = unit::signed_pct(own_pct(self.better, mean));
        format!("{} × {change}", deltas.len())
    }
}

/// The first digits of a commit.
#[must_use]
pub fn short(id: &str) -> &str {
    id.get(..10).unwrap_or(id)
}

/// A page, ready for its template.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Page {
    data: String,
    finding: Finding,
    answer: String,
    whole: String,
    bad: String,
    confidence: String,
    commits: Vec<CommitLine>,
    left_out: usize,
    runs: Vec<RunLine>,
    host: String,
    date: String,
    tool: String,
    environment: Vec<Fact>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct CommitLine {
    probability: String,
    commit: String,
    seen: String,
    summary: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct RunLine {
    number: u32,
    commit: String,
    change: String,
    plan: String,
    sentence: String,
}

impl Page {
    /// Spells out a search; `record` is any of its runs, `stem` what its files are called.
    #[must_use]
    pub fn new(finding: &Finding, record: &Record, stem: &str) -> Self {
        let shown = finding.shown();
        let bad = finding.commits.last();
        Page {
            data: format!("data/{stem}"),
            answer: finding.answer(),
            whole: finding.whole(),
            bad: short(bad.map_or("", |commit| &commit.id)).to_owned(),
            confidence: unit::value(100.0 * finding.confidence),
            left_out: finding.commits.len() - shown.len(),
            commits: shown
                .into_iter()
                .map(|place| commit_line(finding, &finding.commits[place]))
                .collect(),
            runs: finding
                .runs
                .iter()
                .map(|run| run_line(finding, run))
                .collect(),
            host: record.host.label.clone(),
            date: date(record).to_owned(),
            tool: record.plan.tool.clone(),
            environment: method::environment(record),
            finding: finding.clone(),
        }
    }

    /// The page as Markdown.
    ///
    /// # Errors
    /// [`TemplateError`] only when the embedded template is faulty.
    pub fn render(&self) -> Result<String, TemplateError> {
        markdown::bisection(self)
    }
}

/// The UTC date on which a record was sealed.
#[must_use]
pub fn date(record: &Record) -> &str {
    let sealed_at = &record.plan.sealed_at;
    sealed_at.get(..10).unwrap_or(sealed_at)
}

/// The picture of a page.
///
/// # Errors
/// [`PlotError`] only by a fault of this program.
pub fn figure(finding: &Finding) -> Result<Figure, PlotError> {
    plot::figure(finding)
}

fn commit_line(finding: &Finding, commit: &Candidate) -> CommitLine {
    CommitLine {
        probability: format!("{:.1} %", 100.0 * commit.probability),
        commit: short(&commit.id).to_owned(),
        seen: finding.seen(commit),
        summary: commit.summary.clone(),
    }
}

fn run_line(finding: &Finding, run: &Run) -> RunLine {
    RunLine {
        number: run.number,
        commit: short(&run.commit).to_owned(),
        change: finding.change(run),
        plan: run
            .plan_sha256
            .as_deref()
            .map(short_hash)
            .unwrap_or_default(),
        sentence: run.sentence.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    fn estimate(delta: f64) -> Estimate {
        Estimate {
            delta,
            standard_error: 0.004,
            degrees_of_freedom: 9.0,
            low: delta - 0.01,
            high: delta + 0.01,
            upper_bound: delta + 0.008,
            lower_bound: delta - 0.008,
        }
    }

    fn run(number: u32, commit: usize, delta: Option<f64>) -> Run {
        Run {
            number,
            commit: id(commit),
            plan_sha256: delta.map(|_| "5ea1".repeat(16)),
            estimate: delta.map(estimate),
            identical: false,
            sentence: "what the verdict says".into(),
        }
    }

    fn id(number: usize) -> String {
        format!("{number:040x}")
    }

    /// Ten commits; the seventh and the eighth cannot be told apart.
    fn finding() -> Finding {
        let share = |number| match number {
            7 => 0.40,
            8 => 0.5811,
            _ => 0.0189 / 8.0,
        };
        Finding {
            command: "bench-run bisect x.yaml --good a --bad b".into(),
            experiment: "window".into(),
            good: id(0),
            cell: "256".into(),
            metric: "decode_tok_s".into(),
            better: Better::Higher,
            confidence: 0.95,
            answer: vec![id(7), id(8)],
            probability: 0.9811,
            misfits: vec![],
            commits: (1..=10)
                .map(|number| Candidate {
                    id: id(number),
                    summary: format!("change | number {number}"),
                    probability: share(number),
                    measurable: number != 7,
                })
                .collect(),
            runs: vec![
                run(1, 10, Some(0.05)),
                run(2, 5, Some(0.001)),
                run(3, 7, None),
                run(4, 8, Some(0.052)),
                run(5, 6, Some(-0.002)),
                run(6, 6, Some(0.003)),
            ],
        }
    }

    #[test]
    fn a_search_reads_like_this() {
        let finding = finding();
        let page = Page::new(&finding, &example::record(), "bisect-window");
        insta::assert_snapshot!("bisection", page.render().unwrap());
        insta::assert_snapshot!("bisection_terminal", finding.text());
        insta::assert_snapshot!("bisection_svg", figure(&finding).unwrap().svg);
    }

    #[test]
    fn without_an_answer_the_likeliest_is_told() {
        let open = Finding {
            answer: vec![],
            probability: 0.61,
            ..finding()
        };
        let said = "not found within 6 runs; the likeliest has 61 %";
        assert!(open.text().ends_with(&format!("{said}\n")));
        let two_steps = Finding {
            misfits: vec![id(5)],
            ..finding()
        };
        let said = format!("at {} is neither none nor the whole", short(&id(5)));
        assert!(two_steps.text().contains(&said), "{}", two_steps.text());
    }

    #[test]
    fn a_long_line_shows_what_was_measured_or_is_likely() {
        let mut long = finding();
        let quiet = (11..=200).map(|number| Candidate {
            id: id(number),
            summary: "nothing".into(),
            probability: 0.0,
            measurable: true,
        });
        long.commits.extend(quiet);
        long.runs[0].commit = id(200);
        assert_eq!(long.shown().len(), 11);
        let page = Page::new(&long, &example::record(), "x").render().unwrap();
        assert!(page.contains("189 commits"), "{page}");
    }
}
