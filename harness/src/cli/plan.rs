//! `bench-run plan`: builds the arms and prints what would run, in which order.

use std::fmt::Write as _;

use super::arguments::PlanArgs;
use super::dispatch::print;
use super::preparing::Preparing;
use super::progress::Progress;
use super::surroundings::Surroundings;
use super::this_host;
use crate::analysis::reach::{Forecast, estimated_seconds, forecast, reach};
use crate::execute::signal;
use crate::experiment::model::Experiment;
use crate::history::known::KnownCell;
use crate::record::format::{Plan, PlannedFixture};
use crate::record::rounds;
use crate::report::words;
use crate::session::memory;
use crate::session::prepare;
use crate::unit;
use crate::verdict::foresight::WANTED;

/// Builds and prints.
///
/// # Errors
/// Whatever keeps a run from being planned.
pub fn run(arguments: &PlanArgs) -> anyhow::Result<i32> {
    let mut progress = Progress::new(arguments.quiet);
    let surroundings = Surroundings::new(&arguments.file)?;
    let preparing = Preparing::watch(signal::install()?);
    let request = surroundings.request(arguments.rounds, Some(preparing.stop()));
    let mut prepared = preparing.end(prepare::prepare(&request, &mut progress))?;
    let host = this_host::describe(arguments.host.as_deref());
    let known = memory::recall(
        &surroundings.cache,
        &host.label,
        &mut prepared.plan,
        &mut progress,
    );
    progress.finish();
    print(&describe(&prepared.plan, &known))
}

/// `setup weights: 3 files, 1.0 MiB, tree 1f…, for 256, 2048; made by fetch x`.
fn fixture_line(fixture: &PlannedFixture) -> String {
    format!(
        "setup {}: {}, for {}; made by {}",
        fixture.step,
        words::fixture(fixture),
        fixture.cells.join(", "),
        fixture.command,
    )
}

/// The matrix, what the gate needs, what this host's noise lets it see, and the order.
#[must_use]
pub fn describe(plan: &Plan, known: &[KnownCell]) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "{}: {}\n",
        plan.experiment.name, plan.experiment.question
    );
    out += &arms(plan);
    let experiment = &plan.experiment;
    let _ = writeln!(
        out,
        "\n{} {} × {}, gate {} %, α {}; {} attempts with priming, at most {} each",
        plan.cells.len(),
        if plan.cells.len() == 1 {
            "cell"
        } else {
            "cells"
        },
        bought(experiment),
        experiment.verdict.threshold_pct,
        experiment.verdict.alpha,
        rounds::Progress::new(plan).attempts_left(),
        unit::duration(std::time::Duration::from_secs(experiment.timeout_secs).as_secs_f64()),
    );
    for one in reach(plan) {
        let needs = one.noise.map_or_else(
            || "cannot be reached".to_owned(),
            |noise| {
                format!(
                    "needs noise of at most {} % per attempt: then an unchanged candidate passes \
                     in {} % of runs",
                    noise_pct(noise),
                    unit::value(100.0 * WANTED)
                )
            },
        );
        let _ = writeln!(
            out,
            "the gate on {} of {} {needs}",
            one.metric, one.candidate
        );
    }
    out.push_str(&outlook(plan, known));
    for fixture in &plan.fixtures {
        let _ = writeln!(out, "{}", fixture_line(fixture));
    }
    for (cell, rounds) in plan.cells.iter().zip(&plan.order) {
        let _ = writeln!(out, "\n{}", cell.id);
        for (number, slots) in rounds.iter().enumerate() {
            let names: Vec<&str> = slots
                .iter()
                .map(|arm| plan.arms[*arm].name.as_str())
                .collect();
            let _ = writeln!(out, "  round {:>2}  {}", number + 1, names.join("  "));
        }
    }
    for warning in &plan.warnings {
        let _ = writeln!(out, "\nwarning: {warning}");
    }
    out
}

/// What earlier runs of the same cells on this host foretell.
/// `5 rounds`, `up to 10 rounds with looks after 3, 6, 10, and as many to confirm a failure`.
fn bought(experiment: &Experiment) -> String {
    let mut text = match experiment.looks.as_slice() {
        [] => format!("{} rounds", experiment.rounds),
        looks => {
            let looks: Vec<String> = looks.iter().map(u32::to_string).collect();
            let rounds = experiment.rounds;
            format!(
                "up to {rounds} rounds with looks after {}",
                looks.join(", ")
            )
        }
    };
    if experiment.confirm {
        text += ", and as many to confirm a failure";
    }
    text
}

fn outlook(plan: &Plan, known: &[KnownCell]) -> String {
    let mut out = String::new();
    let forecasts = forecast(plan, known);
    if forecasts.is_empty() {
        out.push_str("this host's noise is not known yet: no earlier run of these cells\n");
    }
    for one in &forecasts {
        let _ = writeln!(out, "{}", forecast_line(one, plan.experiment.rounds));
    }
    if let Some(seconds) = estimated_seconds(plan, known) {
        let time = unit::duration(seconds);
        let _ = writeln!(out, "about {time}, as earlier attempts of these cells took");
    }
    out
}

fn forecast_line(one: &Forecast, rounds: u32) -> String {
    let percent = |part: f64| unit::value((100.0 * part).round());
    let verdict = match (one.gateable, one.power.rounds_to_pass) {
        (true, Some(enough)) if enough <= rounds => String::new(),
        (true, Some(more)) => format!("; {more} rounds would make it {} %", percent(WANTED)),
        (false, Some(more)) => format!(
            ": not gateable; {more} rounds would make it {} %",
            percent(WANTED)
        ),
        (_, None) => ": not gateable with any number of rounds".to_owned(),
    };
    format!(
        "{} of {} in {}: {} % of noise per attempt in {} earlier run{}: an unchanged candidate passes \
         in {} % of runs{verdict}",
        one.metric,
        one.candidate,
        one.cell,
        noise_pct(one.power.sigma),
        one.noise.runs,
        if one.noise.runs == 1 { "" } else { "s" },
        percent(one.power.pass_if_unchanged),
    )
}
/// A line per arm: what it is and the code that it runs.
fn arms(plan: &Plan) -> String {
    let mut out = String::new();
    for arm in &plan.arms {
        let build = arm.build.and_then(|index| plan.builds.get(index));
        let commit = build
            .and_then(|build| build.commit.as_deref())
            .unwrap_or("prebuilt");
        let code = build.map_or("did not build", |build| {
            &build.code_sha256[..build.code_sha256.len().min(16)]
        });
        let _ = writeln!(
            out,
            "  {:16} {commit:40}  code {code}  {}",
            arm.name, arm.label
        );
    }
    out
}

/// Noise on the logarithmic scale in percent, two decimals at most.
fn noise_pct(sigma: f64) -> String {
    unit::value((1e2 * unit::percent_of(sigma)).round() / 1e2)
}
