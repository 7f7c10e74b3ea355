//! What the replay's template prints: a judged session from elsewhere as text and tables.

use serde::Serialize;

use super::model::{VerdictLine, verdict_lines};
use super::plot::canvas::PlotError;
use super::plot::figure::{Figure, Subject, comparisons};
use super::table::{self, MetricSection};
use super::words;
use crate::analysis::model::ArmCounts;
use crate::hash::sha256_hex;
use crate::replay::judge::Judged;
use crate::replay::session::RefusedRow;
use crate::unit;
use crate::verdict::named_rule::{NamedRule, NamedVerdict, Outcome};

/// The files that a replay was made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inputs {
    /// The measurements.
    pub csv: Input,
    /// The mapping of their columns.
    pub mapping: Input,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// Its name without folders.
    pub file: String,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// A whole report, ready for the template.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReplayModel {
    /// The mapping's name.
    pub name: String,
    /// What was asked.
    pub question: String,
    /// Who measured; empty where the mapping does not say.
    pub source: String,
    /// Our gate in one word.
    pub gate: &'static str,
    /// Our gate in one sentence.
    pub gate_sentence: String,
    /// One per gated judgement; all of them where nothing is gated.
    pub verdicts: Vec<VerdictLine>,
    /// Things the reader must know.
    pub notes: Vec<String>,
    /// Such as `1 %`.
    pub threshold: String,
    /// How sure our intervals are, such as `95 %`.
    pub confidence: String,
    /// One section per named rule.
    pub named: Vec<NamedSection>,
    /// Where the rules contradict each other.
    pub disagreements: Vec<String>,
    /// One section per metric.
    pub metrics: Vec<MetricSection>,
    /// What became of the rows.
    pub counts: Vec<ArmCounts>,
    /// Rows that were not used.
    pub refused: Vec<RefusedRow>,
    /// The measurements' file.
    pub csv: InputLine,
    /// The mapping's file.
    pub mapping: InputLine,
    /// The command that makes the page again.
    pub command: String,
    /// Where the files and the plots lie, relative to the report.
    pub data: String,
}

/// A file as the report names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InputLine {
    /// Its name.
    pub file: String,
    /// Its hash.
    pub sha256: String,
}

/// One named rule with its answers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NamedSection {
    /// The rule.
    pub name: &'static str,
    /// What it asks, in one sentence.
    pub meaning: &'static str,
    /// One per comparison.
    pub rows: Vec<NamedRow>,
}

/// One answer of a named rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NamedRow {
    /// The cell.
    pub cell: String,
    /// The candidate.
    pub candidate: String,
    /// The metric.
    pub metric: String,
    /// Complete rounds.
    pub rounds: usize,
    /// The change with the range of the paired changes.
    pub change: String,
    /// The same of the null arms.
    pub null: String,
    /// What the rule says.
    pub outcome: &'static str,
    /// What our rule says.
    pub ours: &'static str,
}

impl ReplayModel {
    /// Spells out `judged`.
    #[must_use]
    pub fn new(judged: &Judged, inputs: &Inputs) -> ReplayModel {
        let (mapping, analysis) = (&judged.mapping, &judged.analysis);
        let mut metrics = table::sections(&mapping.report_metrics(), analysis);
        for section in &mut metrics {
            section.drift = false;
        }
        let data = format!("data/{}", stem(judged));
        let csv = format!("docs/benchmark_results/{data}/{}", inputs.csv.file);
        ReplayModel {
            name: mapping.name.clone(),
            question: mapping.question.clone(),
            source: mapping.source.clone().unwrap_or_default(),
            gate: words::gate(analysis.gate),
            gate_sentence: analysis.gate_sentence.clone(),
            verdicts: verdict_lines(&analysis.judgements),
            notes: analysis.notes.clone(),
            threshold: unit::value(mapping.verdict.threshold_pct) + " %",
            confidence: unit::value((1.0 - mapping.verdict.alpha) * 100.0) + " %",
            named: mapping
                .rules
                .iter()
                .map(|rule| named_section(*rule, judged))
                .collect(),
            disagreements: judged.disagreements.clone(),
            metrics,
            counts: analysis.counts.clone(),
            refused: judged.refused.clone(),
            csv: input_line(&inputs.csv),
            mapping: input_line(&inputs.mapping),
            command: format!("bench-run replay {} --publish", shell_words::quote(&csv)),
            data,
        }
    }
}

/// What the files of a replay's report are called.
#[must_use]
pub fn stem(judged: &Judged) -> String {
    format!("replay-{}", judged.mapping.name)
}

/// The pictures of a replay.
///
/// # Errors
/// [`PlotError`] only by a fault of this program.
pub fn pictures(judged: &Judged) -> Result<Vec<Figure>, PlotError> {
    let metrics = judged.mapping.report_metrics();
    let first = judged.analysis.data.first();
    let arms = first.map_or(&[][..], |data| &data.arms);
    let subject = Subject {
        metrics: &metrics,
        arms: arms
            .iter()
            .map(|arm| (arm.name.as_str(), arm.null_of.as_deref()))
            .collect(),
        base: &judged.mapping.base,
    };
    comparisons(&subject, &judged.analysis)
}

fn input_line(input: &Input) -> InputLine {
    InputLine {
        file: input.file.clone(),
        sha256: sha256_hex(&input.bytes),
    }
}

fn named_section(rule: NamedRule, judged: &Judged) -> NamedSection {
    let answers = judged.named.iter().filter(|one| one.rule == rule);
    NamedSection {
        name: rule.name(),
        meaning: match rule {
            NamedRule::Adr0007 => {
                "The median of the paired changes may lose at most the threshold; a larger loss \
                 that lies within the range of the null arms is inside null."
            }
            NamedRule::RatioOfMedians => {
                "The candidate's median may lose at most the threshold against the base's median; \
                 null arms are shown and change nothing."
            }
        },
        rows: answers.map(|one| named_row(one, judged)).collect(),
    }
}

fn named_row(one: &NamedVerdict, judged: &Judged) -> NamedRow {
    let mut ours = judged.analysis.judgements.iter();
    let ours = ours
        .find(|j| (&j.cell, &j.candidate, &j.metric) == (&one.cell, &one.candidate, &one.metric));
    NamedRow {
        cell: one.cell.clone(),
        candidate: one.candidate.clone(),
        metric: one.metric.clone(),
        rounds: one.rounds,
        change: spread(one.change, one.range),
        null: one.null.map_or_else(
            || "no null arm".into(),
            |null| spread(null.change, null.range),
        ),
        outcome: match one.outcome {
            Outcome::Within => "within threshold",
            Outcome::InsideNull => "inside null",
            Outcome::Beyond => "beyond threshold",
        },
        ours: ours.map_or("n/a", |ours| words::verdict(ours.verdict)),
    }
}

/// Such as `−1.19 % (−1.39 %..−0.86 %)`; the arguments are shares.
fn spread(change: f64, (low, high): (f64, f64)) -> String {
    let pct = |share: f64| unit::signed_pct(100.0 * share);
    format!("{} ({}..{})", pct(change), pct(low), pct(high))
}
