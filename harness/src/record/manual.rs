//! docs/RECORD_FORMAT.md names every field that is stored.

use std::collections::BTreeSet;

use serde_json::Value;

use super::example;
use super::format::{Attempt, GuardSummary, Outcome, PlannedFixture, Session};

const MANUAL: &str = include_str!("../../../docs/RECORD_FORMAT.md");

/// Objects whose keys are the user's or the machine's own names, or documented elsewhere.
const FREE_KEYS: [&str; 8] = [
    "experiment",
    "toolchain",
    "values",
    "env",
    "requires",
    "facts",
    "metrics",
    "fields",
];

fn keys(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                found.insert(key.clone());
                if !FREE_KEYS.contains(&key.as_str()) {
                    keys(inner, found);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| keys(item, found)),
        _ => {}
    }
}

#[test]
fn every_stored_field_is_in_the_manual() {
    let mut plan = example::plan();
    let mut rows = example::attempts(&plan);
    plan.fixtures.push(PlannedFixture {
        step: "text".into(),
        cells: vec!["256".into()],
        command: "make {out}".into(),
        place: Some("{repo}/text".into()),
        tree_sha256: "0".repeat(64),
        files: 1,
        bytes: 1,
    });
    rows[0].guard = GuardSummary {
        gpu_clock_mhz: Some(1.0),
        gpu_temperature_c: Some(1.0),
        gpu_power_w: Some(1.0),
        gpu_slowed_by: vec!["heat".into()],
        ..rows[0].guard.clone()
    };
    plan.arms[0].args = Some("--slow".into());
    rows[0].session = 2;
    let session = Session {
        passed_env_check: Some("0000".into()),
        ..Session::default()
    };
    let mut found = BTreeSet::new();
    keys(&serde_json::to_value(session).unwrap(), &mut found);
    keys(&serde_json::to_value(&plan).unwrap(), &mut found);
    keys(&serde_json::to_value(example::host()).unwrap(), &mut found);
    keys(&serde_json::to_value(&rows[0]).unwrap(), &mut found);
    assert!(found.len() > 50, "{found:?}");
    for key in found {
        assert!(
            MANUAL.contains(&format!("`{key}`")),
            "`{key}` is not in the manual"
        );
    }
}

#[test]
fn every_outcome_is_in_the_manual() {
    let reason = || "why".to_owned();
    let row = example::attempts(&example::plan()).remove(0);
    for outcome in [
        Outcome::Ok,
        Outcome::Rejected { reason: reason() },
        Outcome::Failed { reason: reason() },
        Outcome::TimedOut { limit_seconds: 1 },
        Outcome::Invalid { reason: reason() },
    ] {
        let row = Attempt {
            outcome,
            ..row.clone()
        };
        let stored = serde_json::to_value(&row).unwrap();
        let kind = stored["outcome"]["kind"].as_str().unwrap();
        assert!(MANUAL.contains(&format!("| `{kind}` |")), "{kind}");
    }
}
