//! What the templates print: a record and its analysis as text and tables.
//!
//! Everything here is spelling. Numbers come from the analysis, which uses
//! complete rounds only; attempts that were disturbed or broke are counted and
//! listed with their reason, never with a value.

use serde::Serialize;

use super::method::{self, Fact, Method};
use super::outcomes::{self, Outcomes};
use super::reproduce::{self, Reproduce};
use super::table::{self, MetricSection};
use super::words;
use crate::analysis::model::{Analysis, JudgedClaim};
use crate::experiment::matrix;
use crate::record::format::{Plan, PlannedArm, PlannedBuild};
use crate::record::reader::Record;
use crate::verdict::rule::Judgement;

/// Digits of a hash that readers see; enough to tell two builds apart at a glance.
const SHORT_HASH: usize = 12;

/// A whole report, ready for a template.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReportModel {
    /// The experiment's name.
    pub name: String,
    /// What was asked.
    pub question: String,
    /// The gate in one word.
    pub gate: &'static str,
    /// The gate in one sentence.
    pub gate_sentence: String,
    /// One per gated judgement; all of them where nothing is gated.
    pub verdicts: Vec<VerdictLine>,
    /// What became of the positive control, one sentence per cell and metric that must find it.
    pub controls: Vec<ControlLine>,
    /// One per published effect and cell that it is about.
    pub claims: Vec<ClaimLine>,
    /// Things the reader must know.
    pub notes: Vec<String>,
    /// Every arm and null arm.
    pub arms: Vec<ArmLine>,
    /// What machine this was.
    pub environment: Vec<Fact>,
    /// How it was measured and decided.
    pub method: Method,
    /// Cells that were not run.
    pub skipped: Vec<SkippedLine>,
    /// One section per metric.
    pub metrics: Vec<MetricSection>,
    /// What became of the attempts.
    pub outcomes: Outcomes,
    /// How to do it again.
    pub reproduce: Reproduce,
    /// Where the raw rows and the plots lie, relative to the report.
    pub data: String,
}

/// One verdict.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VerdictLine {
    /// The candidate arm.
    pub candidate: String,
    /// The cell.
    pub cell: String,
    /// The metric.
    pub metric: String,
    /// In one or a few words.
    pub verdict: &'static str,
    /// Change of the metric with its interval; empty when nothing was estimated.
    pub change: String,
    /// What is proven, what is not, and what would settle it.
    pub sentence: String,
}

/// What became of the positive control in one cell and metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ControlLine {
    /// The cell.
    pub cell: String,
    /// In one sentence.
    pub sentence: String,
}

/// One cell that belongs to the question and was not run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SkippedLine {
    /// The cell.
    pub cell: String,
    /// Why, in the experiment's words.
    pub reason: String,
}

/// What became of a published effect.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClaimLine {
    /// The cell.
    pub cell: String,
    /// In one or two words.
    pub verdict: &'static str,
    /// Who said what, and what was measured.
    pub sentence: String,
}

/// One arm.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArmLine {
    /// Its name.
    pub name: String,
    /// What readers call it.
    pub label: String,
    /// Full commit; empty for a prebuilt program.
    pub commit: String,
    /// The first digits of the commit, with `+ patch` or `+ changes`.
    pub source: String,
    /// The first digits of the hash over its code.
    pub code: String,
    /// The first digits of the build's key.
    pub key: String,
    /// The artifact's own version line.
    pub receipt: String,
    /// The arm that this one repeats; empty for an arm of its own.
    pub null_of: String,
    /// `NAME=value` words of its own environment, then its own arguments.
    pub env: Vec<String>,
    /// The end of the build's log, where the build failed.
    pub build_failure: Option<String>,
}

impl ReportModel {
    /// Spells out `record` and its `analysis`. `stem` names the report's files: raw
    /// data and plots lie in `data/<stem>/`. An empty one means [`default_stem`].
    #[must_use]
    pub fn new(record: &Record, analysis: &Analysis, stem: &str) -> ReportModel {
        let plan = &record.plan;
        let mut notes = analysis.notes.clone();
        for note in record
            .notes
            .iter()
            .chain(&plan.warnings)
            .chain(&record.host.warnings)
            .chain(record.sessions.iter().flat_map(|session| &session.warnings))
        {
            if !notes.contains(note) {
                notes.push(note.clone());
            }
        }
        ReportModel {
            name: plan.experiment.name.clone(),
            question: plan.experiment.question.clone(),
            gate: words::gate(analysis.gate),
            gate_sentence: analysis.gate_sentence.clone(),
            verdicts: verdict_lines(&analysis.judgements),
            controls: control_lines(analysis),
            claims: analysis.claims.iter().map(claim_line).collect(),
            notes,
            arms: plan.arms.iter().map(|arm| arm_line(plan, arm)).collect(),
            environment: method::environment(record),
            method: method::method(record, analysis),
            skipped: skipped_lines(plan),
            metrics: table::sections(&plan.experiment.metrics, analysis),
            outcomes: outcomes::outcomes(record, analysis),
            reproduce: reproduce::reproduce(plan),
            data: match stem {
                "" => format!("data/{}", default_stem(record)),
                stem => format!("data/{stem}"),
            },
        }
    }
}

/// What a report's files are called: `<name>-<host>-<date>`, or the very name of
/// the directory where the record was published under such a one.
#[must_use]
pub fn default_stem(record: &Record) -> String {
    let plan = &record.plan;
    let date = plan.sealed_at.get(..10).unwrap_or(&plan.sealed_at);
    let stem = format!("{}-{}-{date}", plan.experiment.name, record.host.label);
    let directory = record.dir.file_name().unwrap_or_default().to_string_lossy();
    if directory.starts_with(&stem) {
        directory.into_owned()
    } else {
        stem
    }
}

fn skipped_lines(plan: &Plan) -> Vec<SkippedLine> {
    let skipped = matrix::skipped(&plan.experiment).into_iter();
    skipped
        .map(|skipped| SkippedLine {
            cell: skipped.cell.id,
            reason: skipped.reason,
        })
        .collect()
}

/// What decides comes first: gated judgements, or all where none is gated.
pub(crate) fn verdict_lines(judgements: &[Judgement]) -> Vec<VerdictLine> {
    let any_gated = judgements.iter().any(|j| j.gated);
    judgements
        .iter()
        .filter(|j| j.gated || !any_gated)
        .map(|j| VerdictLine {
            candidate: j.candidate.clone(),
            cell: j.cell.clone(),
            metric: j.metric.clone(),
            verdict: words::verdict(j.verdict),
            change: j
                .estimate
                .as_ref()
                .map(|estimate| words::estimate(j.better, estimate))
                .unwrap_or_default(),
            sentence: j.sentence.clone(),
        })
        .collect()
}

fn control_lines(analysis: &Analysis) -> Vec<ControlLine> {
    let checks = analysis.controls.iter();
    checks
        .map(|check| ControlLine {
            cell: check.cell.clone(),
            sentence: check.sentence.clone(),
        })
        .collect()
}

fn claim_line(claim: &JudgedClaim) -> ClaimLine {
    ClaimLine {
        cell: claim.cell.clone(),
        verdict: words::claim(claim.verdict),
        sentence: claim.sentence.clone(),
    }
}

fn arm_line(plan: &Plan, arm: &PlannedArm) -> ArmLine {
    let build = arm.build.and_then(|index| plan.builds.get(index));
    let of_build = |get: &dyn Fn(&PlannedBuild) -> String| build.map(get).unwrap_or_default();
    ArmLine {
        name: arm.name.clone(),
        label: arm.label.clone(),
        commit: of_build(&|b| b.commit.clone().unwrap_or_default()),
        source: of_build(&source),
        code: of_build(&|b| short_hash(&b.code_sha256)),
        key: of_build(&|b| short_hash(&b.key)),
        receipt: of_build(&|b| b.receipt.clone().unwrap_or_default()),
        null_of: arm.null_of.clone().unwrap_or_default(),
        env: reproduce::env_words(&arm.env)
            .into_iter()
            .chain(arm.args.clone())
            .collect(),
        build_failure: arm.build_failure.clone(),
    }
}

fn source(build: &PlannedBuild) -> String {
    let commit = build.commit.as_deref().map_or_else(
        || "prebuilt".to_owned(),
        |commit| commit.get(..SHORT_HASH).unwrap_or(commit).to_owned(),
    );
    match (build.dirty, &build.patch_sha256) {
        (true, _) => format!("{commit} + uncommitted changes"),
        (false, Some(patch)) => format!("{commit} + patch {}", short_hash(patch)),
        (false, None) => commit,
    }
}

/// The first digits of a hash.
pub(crate) fn short_hash(hash: &str) -> String {
    hash.get(..SHORT_HASH).unwrap_or(hash).to_owned()
}
