//! How it was measured and decided, from the sealed plan and the rows.

use serde::Serialize;

use crate::analysis::from_record::rule;
use crate::analysis::model::Analysis;
use crate::experiment::model::{Experiment, GuardKind, OnUndecided, Rusage};
use crate::plan::looks::level;
use crate::record::format::Plan;
use crate::record::reader::Record;
use crate::record::sessions::KIND;
use crate::stats::linear_model::SlotEffect;
use crate::unit;
use crate::verdict::rule::NoiseModel;

/// A named fact.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fact {
    /// What.
    pub name: String,
    /// How much or which.
    pub value: String,
}

/// How it was measured and decided.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Method {
    /// SHA-256 of the sealed plan.
    pub plan_sha256: String,
    /// When it was sealed.
    pub sealed_at: String,
    /// Version line of the program.
    pub tool: String,
    /// The command that produced the record.
    pub command: String,
    /// SHA-256 of the experiment file.
    pub experiment_sha256: String,
    /// How sure the intervals are, such as `95 %`.
    pub confidence: String,
    /// One sentence each.
    pub steps: Vec<String>,
    /// What each metric is read from.
    pub sources: Vec<Fact>,
}

/// The machine and the tools, in reading order.
pub(crate) fn environment(record: &Record) -> Vec<Fact> {
    let mut facts = vec![fact("host", &record.host.label)];
    for (name, value) in record.host.facts.iter().chain(&record.plan.toolchain) {
        facts.push(fact(name, value));
    }
    facts
}

fn fact(name: &str, value: &str) -> Fact {
    Fact {
        name: name.to_owned(),
        value: value.to_owned(),
    }
}

pub(crate) fn method(record: &Record, analysis: &Analysis) -> Method {
    let plan = &record.plan;
    let experiment = &plan.experiment;
    let alpha = level(experiment.verdict.alpha, plan.stages().len());
    Method {
        plan_sha256: record.plan_sha256.clone(),
        sealed_at: plan.sealed_at.clone(),
        tool: plan.tool.clone(),
        command: command(plan),
        experiment_sha256: plan.experiment_sha256.clone(),
        confidence: unit::value(rounded((1.0 - alpha) * 100.0)) + " %",
        steps: vec![
            order_step(record),
            priming_step(record),
            guard_step(record),
            expect_step(experiment),
            rule_step(experiment, analysis),
        ]
        .into_iter()
        .chain(stages_step(plan))
        .chain(sessions_step(record))
        .chain(noise_steps(experiment, analysis))
        .collect(),
        sources: sources(experiment),
    }
}

/// The command that runs the plan's experiment.
pub(crate) fn command(plan: &Plan) -> String {
    let rounds = plan.rounds_option;
    let option = rounds.map_or_else(String::new, |rounds| format!(" --rounds {rounds}"));
    // A file that begins with a dash would be taken for an option.
    let dash = plan.experiment_path.starts_with('-');
    format!(
        "bench-run {}{}{option}",
        if dash { "./" } else { "" },
        shell_words::quote(&plan.experiment_path)
    )
}

fn order_step(record: &Record) -> String {
    let plan = &record.plan;
    let arms = plan.arms.iter().filter(|arm| arm.build.is_some()).count();
    let rounds = plan.experiment.rounds as usize;
    let slots = match rule(plan).revision.slot_effect(arms, rounds, plan.balanced) {
        Some(SlotEffect::Each) => {
            "the order is a complete balanced square, so slot effects are part of the model"
        }
        Some(SlotEffect::Slope) => "a drift over the slots of a round is part of the model",
        None => "the order is not a complete square, so slot effects are not part of the model",
    };
    format!(
        "{}{} of {} attempts per cell, every arm and null arm once a round, interleaved in a seeded \
         order (seed {}); {slots}.",
        if plan.stages().len() > 1 {
            "Up to "
        } else {
            ""
        },
        counted(plan.experiment.rounds as usize, "round"),
        arms,
        plan.experiment.seed,
    )
}

fn priming_step(record: &Record) -> String {
    let priming = record.attempts.iter().filter(|row| row.round == 0).count();
    let measured = record.attempts.len() - priming;
    let seconds: f64 = record
        .attempts
        .iter()
        .filter_map(|row| row.usage)
        .map(|usage| ns_to_seconds(usage.wall_ns))
        .sum();
    format!(
        "A fresh process per attempt, with a fixed environment and a random amount of padding in it: \
         {} and {} before them, one per cell and treatment, whose values are discarded; {} of process time.",
        counted(measured, "attempt"),
        counted(priming, "priming attempt"),
        unit::duration(seconds),
    )
}

fn guard_step(record: &Record) -> String {
    let guard = &record.plan.experiment.guard;
    let waited: f64 = record
        .attempts
        .iter()
        .map(|row| row.guard.waited_seconds)
        .sum();
    let kinds = seen_guards(record);
    if guard.kind == GuardKind::None {
        return "No guard watched the machine: foreign load was neither waited for nor noticed."
            .to_owned();
    }
    let waited = if waited > 0.0 {
        format!("{} waited in all", unit::duration(waited))
    } else {
        "no time was spent waiting".to_owned()
    };
    format!(
        "Guard {kinds}: {} without foreign load before each round, an attempt is rejected above \
         {} of one core of foreign CPU time; {waited}.",
        counted(
            usize::try_from(guard.idle_secs).unwrap_or(usize::MAX),
            "second"
        ),
        percent(guard.max_foreign_cpu_pct),
    )
}

/// The kinds of guard that the rows name, in order of appearance.
fn seen_guards(record: &Record) -> String {
    let mut kinds: Vec<&str> = Vec::new();
    for row in &record.attempts {
        if !kinds.contains(&row.guard.kind.as_str()) {
            kinds.push(&row.guard.kind);
        }
    }
    if kinds.is_empty() {
        return "(no attempt yet)".into();
    }
    kinds.join(", ")
}

fn expect_step(experiment: &Experiment) -> String {
    let expect = &experiment.expect;
    let mut checks: Vec<String> = vec![format!("exit status {}", expect.exit_status)];
    checks.extend(
        expect
            .json
            .iter()
            .map(|(field, want)| format!("{field}: {want}")),
    );
    for cell in &expect.cells {
        let when: Vec<String> = cell.when.iter().map(|(k, v)| format!("{k} {v}")).collect();
        let arms = match cell.arms.as_slice() {
            [] => String::new(),
            arms => format!(" in {}", arms.join(", ")),
        };
        let wants = cell.json.iter().map(|(k, v)| format!("{k}: {v}"));
        checks.extend(wants.map(|want| format!("{want} where {}{arms}", when.join(", "))));
    }
    if !expect.same_across_arms.is_empty() {
        checks.push(format!(
            "equal in all arms: {}",
            expect.same_across_arms.join(", ")
        ));
    }
    if expect.stdout_sha256.is_some() {
        checks.push("the hash of the whole output".into());
    }
    for (name, arm) in &experiment.arms {
        let wants = arm.requires.iter().map(|(k, v)| format!("{k}: {v}"));
        checks.extend(wants.map(|want| format!("{want} in {name}")));
    }
    format!(
        "Output is checked before any time is looked at: {}.",
        checks.join("; ")
    )
}

fn rule_step(experiment: &Experiment, analysis: &Analysis) -> String {
    let verdict = &experiment.verdict;
    let gated = analysis.judgements.iter().filter(|j| j.gated).count();
    let undecided = match verdict.undecided {
        OnUndecided::Fail => "an undecided cell does not pass",
        OnUndecided::Pass => "an undecided cell passes, with a note",
    };
    format!(
        "Rule, fixed before the run: a linear model of the logarithm per cell, with a round effect and \
         one effect per treatment; direction at α = {} with Holm over {}; gate at {}; {undecided}.",
        verdict.alpha,
        counted(gated, "gated comparison"),
        percent(verdict.threshold_pct),
    )
}

/// How the noise of each gated metric was estimated and checked.
fn noise_steps(experiment: &Experiment, analysis: &Analysis) -> Vec<String> {
    let gated = experiment.metrics.iter().filter(|(_, one)| one.gate);
    gated
        .filter_map(|(name, _)| {
            let mut judged = analysis.judgements.iter().filter(|j| j.metric == *name);
            noise_step(name, judged.find_map(|j| j.noise)?)
        })
        .collect()
}

fn noise_step(metric: &str, noise: NoiseModel) -> Option<String> {
    let mut parts = Vec::new();
    if noise.moderated_cells > 0 {
        parts.push(format!(
            "variances moderated over {} cells",
            noise.moderated_cells
        ));
    }
    if let Some(inflation) = noise.inflation {
        parts.push(format!(
            "checked by {} contrasts between copies of one program, {} of them from earlier \
             runs: standard errors times {inflation:.2}",
            noise.null_contrasts + noise.null_contrasts_before,
            noise.null_contrasts_before,
        ));
    }
    (!parts.is_empty()).then(|| format!("Noise of {metric}: {}.", parts.join("; ")))
}

/// How rounds were bought, where that was not all at once.
fn stages_step(plan: &Plan) -> Option<String> {
    let experiment = &plan.experiment;
    let stages = plan.stages();
    if stages.len() < 2 {
        return None;
    }
    let mut parts = Vec::new();
    if experiment.looks.len() > 1 {
        let looks: Vec<String> = experiment.looks.iter().map(u32::to_string).collect();
        parts.push(format!(
            "the run was looked at after {} rounds, and a cell that had its verdict was not run further",
            looks.join(", ")
        ));
    }
    if experiment.confirm {
        parts.push(format!(
            "a cell that failed was run again for {} fresh rounds, never pooled with the first: the \
             gate fails only if both do, and the second effect is reported",
            experiment.rounds
        ));
    }
    let text = format!(
        "{}; α is split equally over these {} stages, so each test is at {}.",
        parts.join("; "),
        stages.len(),
        unit::value(level(experiment.verdict.alpha, stages.len())),
    );
    let mut letters = text.chars();
    let first = letters.next()?;
    Some(first.to_uppercase().chain(letters).collect())
}

/// Where a bundle carried the run.
fn sessions_step(record: &Record) -> Option<String> {
    let number = record.sessions.len();
    let stays = match number {
        0 => return None,
        1 => "in one session on one machine".to_owned(),
        _ => format!(
            "in {number} sessions, each primed anew, on machines that agree in {}; every round \
             is of one session",
            KIND.join(", ")
        ),
    };
    Some(format!(
        "Packed as a bundle where it was built, and measured {stays}."
    ))
}

/// To two decimals, for readers.
fn rounded(pct: f64) -> f64 {
    (100.0 * pct).round() / 100.0
}

fn sources(experiment: &Experiment) -> Vec<Fact> {
    let source = |metric: &crate::experiment::model::Metric| {
        if let Some(field) = &metric.json {
            return format!("field {field} of the JSON on standard output");
        }
        if let Some(pattern) = &metric.regex {
            return format!("first group of {pattern} on standard output");
        }
        match metric.rusage {
            Some(Rusage::WallSeconds) => "wall-clock seconds from start to exit",
            Some(Rusage::UserSeconds) => "user CPU seconds",
            Some(Rusage::SystemSeconds) => "system CPU seconds",
            Some(Rusage::CpuSeconds) => "user and system CPU seconds",
            Some(Rusage::PeakRssBytes) => "peak resident bytes of the largest process",
            None => "nothing",
        }
        .to_owned()
    };
    let metrics = experiment.metrics.iter();
    metrics
        .map(|(name, metric)| fact(name, &source(metric)))
        .collect()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a sum of durations for readers; 2^53 ns are 104 days"
)]
fn ns_to_seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// `1 round`, `5 rounds`.
pub(crate) fn counted(count: usize, thing: &str) -> String {
    if count == 1 {
        format!("1 {thing}")
    } else {
        format!("{count} {thing}s")
    }
}

/// A limit in percent as it stands in the experiment.
pub(crate) fn percent(pct: f64) -> String {
    format!("{pct} %")
}
