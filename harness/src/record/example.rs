//! A small made-up run for tests: three arms, a null arm, two cells, five rounds.
//!
//! Values come from a fixed formula, so every test sees the same numbers.

use std::path::Path;

use indexmap::IndexMap;

use super::format::{
    ArtifactKind, Attempt, GuardSummary, Host, NoiseRule, Outcome, Plan, PlannedArm,
    PlannedArtifact, PlannedBuild, PlannedLibrary, RuleRevision, SCHEMA, Usage,
};
use super::rounds::Next;
use super::store::{RecordDir, create, seal};
use super::writer::Writer;
use crate::experiment::matrix::Cell;
use crate::experiment::model::{Experiment, Scalar};

/// The experiment as a user would write it.
pub(crate) const EXPERIMENT: &str = r#"
schema: 1
name: window
question: Does the pipelined loop lose to the old one once the window is full?
source: { repo: . }
build: { command: cargo build --release --locked, artifacts: [target/release/decode] }
arms:
  base: { rev: v1, label: old loop }
  main: { rev: v2, label: pipelined loop, requires: { lookahead_steps: '> 0' } }
  sync: { rev: v2, label: pipelined loop forced to wait, env: { FORCE_SYNC: "1" } }
nulls: [base]
cells:
  matrix: { prompt_tokens: [256, 2048] }
command: "{artifact} -p 'a b' --prompt-tokens {prompt_tokens} --json"
metrics:
  decode_tok_s: { json: decode_tok_s, better: higher, gate: true }
  peak_bytes: { rusage: peak_rss_bytes, better: lower }
expect: { json: { generated_tokens: 128 } }
rounds: 5
verdict: { threshold_pct: 1.0 }
"#;

pub(crate) fn plan() -> Plan {
    let experiment: Experiment = serde_yaml::from_str(EXPERIMENT).unwrap();
    let cells = [256, 2048].map(|tokens| Cell {
        id: tokens.to_string(),
        values: [("prompt_tokens".to_owned(), Scalar::Int(tokens))].into(),
    });
    let order: Vec<Vec<usize>> = (0..5)
        .map(|round| (0..4).map(|slot| (slot + round) % 4).collect())
        .collect();
    let label = |name: &str| experiment.arms[name].label.clone().unwrap_or_default();
    let arm = |name: &str, of: &str, build: usize, treatment: usize| PlannedArm {
        name: name.into(),
        label: label(of),
        null_of: (name != of).then(|| of.into()),
        build: Some(build),
        build_failure: None,
        treatment,
        args: None,
        env: experiment.arms[of].env.clone(),
        requires: experiment.arms[of].requires.clone(),
        slow_down: None,
    };
    Plan {
        schema: SCHEMA,
        tool: "bench-run 0.1.0".into(),
        experiment_sha256: crate::hash::sha256_hex(EXPERIMENT.as_bytes()),
        experiment_path: "experiments/window.yaml".into(),
        rounds_option: None,
        passed_env_check: None,
        sealed_at: "2026-03-01T10:00:00Z".into(),
        builds: vec![build('1'), build('2')],
        arms: vec![
            arm("base", "base", 0, 0),
            arm("base-null", "base", 0, 0),
            arm("main", "main", 1, 1),
            arm("sync", "sync", 1, 2),
        ],
        cells: cells.to_vec(),
        fixtures: vec![],
        order: vec![order.clone(), order],
        balanced: false,
        toolchain: [("rustc".to_owned(), "rustc 1.89.0".to_owned())].into(),
        noise: Some(NoiseRule {
            moderate_from_cells: 8,
            largest_prior: 2.0,
            check_from_contrasts: 10,
            largest_inflation: 2.0,
            unequal_noise: true,
            revision: RuleRevision::Third,
            null_history: IndexMap::new(),
        }),
        warnings: vec![],
        experiment,
    }
}

fn build(digit: char) -> PlannedBuild {
    let hex = |length| digit.to_string().repeat(length);
    PlannedBuild {
        commit: Some(hex(40)),
        dirty: false,
        patch_sha256: None,
        key: format!("ab{}", hex(62)),
        artifacts: vec![PlannedArtifact {
            path: "target/release/decode".into(),
            file_sha256: format!("fe{}", hex(62)),
            code_sha256: format!("c0{}", hex(62)),
            bytes: 1_234_567,
            kind: ArtifactKind::ElfDynamic,
            libraries: vec![PlannedLibrary {
                soname: "libc.so.6".into(),
                sha256: Some("e".repeat(64)),
            }],
        }],
        code_sha256: format!("c0de{}", hex(60)),
        receipt: Some(format!("decode 0.1.0 ({})", hex(40))),
    }
}

pub(crate) fn host() -> Host {
    Host {
        schema: SCHEMA,
        label: "epyc-2c".into(),
        facts: [
            ("processor", "AMD EPYC 9354, 2 cores"),
            ("memory", "16.0 GiB"),
            ("kernel", "Linux 6.8"),
        ]
        .map(|(name, fact)| (name.to_owned(), fact.to_owned()))
        .into(),
        warnings: vec![],
    }
}

/// All attempts of `plan`, priming ones first in each cell; none is disturbed.
pub(crate) fn attempts(plan: &Plan) -> Vec<Attempt> {
    let tag = seal(plan.clone()).unwrap().tag().to_owned();
    let mut rows = Vec::new();
    for (cell, order) in plan.order.iter().enumerate() {
        let treatment = |arm: usize| plan.arms[arm].treatment;
        let is_first = |arm: &usize| (0..*arm).all(|other| treatment(other) != treatment(*arm));
        for arm in (0..plan.arms.len()).filter(is_first) {
            rows.push(attempt(plan, &tag, (cell, 0, 0, arm), rows.len()));
        }
        for (round, arms) in order.iter().enumerate() {
            for (slot, arm) in arms.iter().enumerate() {
                rows.push(attempt(
                    plan,
                    &tag,
                    (cell, round + 1, slot, *arm),
                    rows.len(),
                ));
            }
        }
    }
    rows
}

/// One row at `place` = (cell, round, slot, arm), the `number`th of the run.
fn attempt(plan: &Plan, tag: &str, place: (usize, usize, usize, usize), number: usize) -> Attempt {
    let (cell, round, slot, arm) = place;
    let planned = &plan.arms[arm];
    let build = &plan.builds[planned.build.unwrap()];
    // A repeatable wobble within ±0.4 % of the arm's level.
    let wobble = ((number * 37 + 11) % 17) as f64 / 17.0 - 0.5;
    let level = [100.0, 100.0, 98.5, 60.0][arm % 4] / (1.0 + cell as f64);
    let padding = u32::try_from(number % 7).unwrap() * 16;
    let small = |count: usize| u32::try_from(count).unwrap();
    let second = number * 12;
    Attempt {
        schema: SCHEMA,
        plan: tag.to_owned(),
        cell: plan.cells[cell].id.clone(),
        arm: planned.name.clone(),
        commit: build.commit.clone(),
        code_sha256: build.code_sha256.clone(),
        round: small(round),
        round_try: 1,
        slot: small(slot),
        session: 1,
        started_at: format!(
            "2026-03-01T10:{:02}:{:02}.000Z",
            second / 60 % 60,
            second % 60
        ),
        session_seconds: second as f64,
        env_padding_bytes: padding,
        outcome: Outcome::Ok,
        metrics: [
            ("decode_tok_s".to_owned(), level * (1.0 + wobble * 0.008)),
            ("peak_bytes".to_owned(), 3e8 + wobble.abs() * 4096.0),
        ]
        .into(),
        fields: IndexMap::from([("generated_tokens".to_owned(), 128.into())]),
        usage: Some(Usage {
            wall_ns: 10_000_000_000,
            peak_rss_bytes: 300_000_000,
            exit_status: Some(0),
            ..Usage::default()
        }),
        guard: GuardSummary {
            kind: "cpu".into(),
            samples: 10,
            ..GuardSummary::default()
        },
        output_files: vec![format!("logs/{number:05}.stdout")],
    }
}

/// The row of what comes next, undisturbed, the `number`th of the run; none where nothing does.
pub(crate) fn row(plan: &Plan, next: Next, number: usize) -> Option<Attempt> {
    let place = next.place()?;
    let (round, slot) = (place.round as usize, place.slot as usize);
    let place = (place.cell, round, slot, place.arm);
    Some(attempt(plan, "", place, number))
}

/// Stores a sealed record below `root` with the program's own writer.
pub(crate) fn store(root: &Path, plan: &Plan, rows: &[Attempt]) -> RecordDir {
    let sealed = seal(plan.clone()).unwrap();
    let directory = create(root, ("2026-03-01", "epyc-2c"), &sealed, &host()).unwrap();
    let (mut writer, notes) = Writer::open(&directory, &sealed.sha256).unwrap();
    assert!(notes.is_empty(), "{notes:?}");
    for row in rows {
        writer.append(row).unwrap();
    }
    directory
}
