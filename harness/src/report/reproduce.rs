//! How to do it again: every command comes from the sealed plan.

use std::fmt::Write as _;

use indexmap::IndexMap;
use serde::Serialize;

use super::escape::one_line;
use super::{method, words};
use crate::experiment::matrix::Cell;
use crate::experiment::template::{self, ARGS_NAME};
use crate::record::format::{Plan, PlannedArm, PlannedBuild};

/// How to do it again.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reproduce {
    /// The whole measurement.
    pub command: String,
    /// What the setup steps made, as a shell would make it at the project's root; empty
    /// without any.
    pub setup: String,
    /// Each arm by hand, as a shell would run it at the root of its checkout.
    pub by_hand: String,
    /// Variables of the caller that attempts may see: their values are not recorded.
    pub passed_env: Vec<String>,
}

pub(crate) fn reproduce(plan: &Plan) -> Reproduce {
    let mut by_hand = String::new();
    let own = plan.arms.iter().filter(|arm| arm.null_of.is_none());
    for (number, arm) in own.enumerate() {
        if number > 0 {
            by_hand.push('\n');
        }
        by_hand.push_str(&arm_commands(plan, arm));
    }
    Reproduce {
        command: method::command(plan),
        setup: setup_commands(plan),
        by_hand,
        passed_env: plan.experiment.pass_env.clone(),
    }
}

/// One command per thing that was made, with what it was.
fn setup_commands(plan: &Plan) -> String {
    let mut text = String::new();
    for (index, fixture) in plan.fixtures.iter().enumerate() {
        let cells: Vec<String> = fixture.cells.iter().map(|id| one_line(id)).collect();
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(
            text,
            "# {} for {}: {}",
            fixture.step,
            cells.join(", "),
            words::fixture(fixture)
        );
        let mut command = fixture.command.clone();
        if fixture.place.is_none() {
            let out = place(plan, index);
            let _ = writeln!(text, "mkdir -p {}", quote(&out));
            command = command.replace("{out}", &out);
        }
        let step = plan.experiment.setup.get(&fixture.step);
        let arm = step.and_then(|step| step.arm.as_ref());
        let arm = arm.unwrap_or(&plan.experiment.base);
        let build = plan.arms.iter().find(|planned| planned.name == *arm);
        let build = build.and_then(|arm| plan.builds.get(arm.build?));
        for (name, path) in build.map(artifact_variables).unwrap_or_default() {
            command = command.replace(&format!("{{{name}}}"), &path);
        }
        let env = step.map(|step| env_words(&step.env)).unwrap_or_default();
        let words = env.into_iter().chain([one_line(&command)]);
        let _ = writeln!(text, "{}", words.collect::<Vec<_>>().join(" "));
    }
    text
}

/// Where a fixture lies for somebody who makes it by hand at the project's root.
fn place(plan: &Plan, index: usize) -> String {
    let fixture = &plan.fixtures[index];
    if let Some(place) = &fixture.place {
        return place.strip_prefix("{repo}/").unwrap_or(place).to_owned();
    }
    let before = plan.fixtures[..index].iter();
    match before.filter(|other| other.step == fixture.step).count() {
        0 => format!("setup/{}", fixture.step),
        number => format!("setup/{}-{}", fixture.step, number + 1),
    }
}

/// Checkout, build and one attempt per cell of one arm.
fn arm_commands(plan: &Plan, arm: &PlannedArm) -> String {
    let mut text = format!("# {}", one_line(&arm.name));
    if !arm.label.is_empty() && arm.label != arm.name {
        // Writing to a String cannot fail, here and below.
        let _ = write!(text, ": {}", one_line(&arm.label));
    }
    text.push('\n');
    if let Some(slow_down) = &arm.slow_down {
        // Everything else is as in the arm that it slows down.
        let words = slow_down.words().join(" ");
        let _ = writeln!(text, "# the same command behind: bench-run {words}");
        return text;
    }
    let Some(build) = arm.build.and_then(|index| plan.builds.get(index)) else {
        text.push_str("# its build failed\n");
        return text;
    };
    text.push_str(&build_commands(plan, arm, build));
    for cell in &plan.cells {
        text.push_str(&attempt_command(plan, arm, build, cell));
        text.push('\n');
    }
    text
}

fn build_commands(plan: &Plan, arm: &PlannedArm, build: &PlannedBuild) -> String {
    let mut text = String::new();
    let Some(commit) = &build.commit else {
        let _ = writeln!(
            text,
            "# a prebuilt program with code hash {}",
            build.code_sha256
        );
        return text;
    };
    let _ = writeln!(text, "git checkout --detach {commit}");
    let defined = plan.experiment.arms.get(&arm.name);
    if build.dirty {
        text.push_str("# plus the uncommitted changes of the time, which are not recorded here\n");
    } else if let Some(patch) = defined.and_then(|arm| arm.patch.as_ref()) {
        let _ = writeln!(text, "git apply {}", quote(&patch.to_string_lossy()));
    }
    let common = plan.experiment.build.as_ref();
    let command = defined
        .and_then(|arm| arm.build_command.as_ref())
        .or(common.map(|build| &build.command));
    if let Some(command) = command {
        let env = common
            .map(|build| env_words(&build.env))
            .unwrap_or_default();
        let words = env
            .into_iter()
            .chain(["sh -euc".into(), quote(command.trim())]);
        let _ = writeln!(text, "{}", words.collect::<Vec<_>>().join(" "));
    }
    text
}

/// The command line of one attempt, with the arm's own environment in front.
fn attempt_command(plan: &Plan, arm: &PlannedArm, build: &PlannedBuild, cell: &Cell) -> String {
    let vars = variables(plan, arm, build, cell);
    let mut words = Vec::new();
    for (name, value) in &arm.env {
        let value = value.replace("{artifact_dir}", ".");
        words.push(format!("{name}={}", quote(&value)));
    }
    match template::fill(&plan.experiment.command, &vars) {
        Ok(filled) => words.extend(filled.iter().map(|word| quote(word))),
        // The loader has checked the command; an unfilled one still says what ran.
        Err(_) => words.push(one_line(&plan.experiment.command)),
    }
    words.join(" ")
}

/// The placeholders' values at the root of the arm's checkout.
fn variables(
    plan: &Plan,
    arm: &PlannedArm,
    build: &PlannedBuild,
    cell: &Cell,
) -> IndexMap<String, String> {
    let values = cell.values.iter();
    let mut vars: IndexMap<String, String> = values
        .map(|(name, value)| (name.clone(), value.to_string()))
        .collect();
    vars.insert("arm".into(), arm.name.clone());
    vars.insert(ARGS_NAME.into(), arm.args.clone().unwrap_or_default());
    for (index, fixture) in plan.fixtures.iter().enumerate() {
        if fixture.cells.contains(&cell.id) {
            vars.insert(fixture.step.clone(), place(plan, index));
        }
    }
    vars.extend(artifact_variables(build));
    vars
}

/// The placeholders of what a build left, relative to the root of its checkout.
fn artifact_variables(build: &PlannedBuild) -> IndexMap<String, String> {
    let mut vars = IndexMap::from([("artifact_dir".to_owned(), ".".to_owned())]);
    for (number, artifact) in build.artifacts.iter().enumerate() {
        let path = runnable(&artifact.path);
        let name = artifact.path.rsplit('/').next().unwrap_or(&artifact.path);
        vars.insert(format!("artifact:{name}"), path.clone());
        if number == 0 {
            vars.insert("artifact".into(), path);
        }
    }
    vars
}

/// A shell looks up a bare name in PATH; `./name` is the file.
fn runnable(path: &str) -> String {
    if path.contains('/') {
        path.to_owned()
    } else {
        format!("./{path}")
    }
}

/// `NAME=value` words, quoted for a shell.
pub(crate) fn env_words(env: &IndexMap<String, String>) -> Vec<String> {
    env.iter()
        .map(|(name, value)| format!("{name}={}", quote(value)))
        .collect()
}

fn quote(word: &str) -> String {
    shell_words::quote(word).into_owned()
}
