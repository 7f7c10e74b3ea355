//! Looks and confirmation in a whole run, killed and resumed.

use std::path::Path;

use crate::fixture::{Project, stderr, stdout};

/// Two cells, whose program is `more` slower in the second one only.
fn project(extra: &str, keys: &str) -> Project {
    let project = Project::new();
    let base = project.commit_with(1000, "fast", "");
    let main = project.commit_with(1000, "slow", extra);
    let file = project.experiment(&base, &main, keys);
    let text = std::fs::read_to_string(&file).unwrap();
    let text = text.replace("command: '{artifact}'", "command: '{artifact} {n}'");
    std::fs::write(&file, text + "cells: { matrix: { n: [1, 2] } }\n").unwrap();
    project
}

/// Measured rounds of each cell, highest number.
fn rounds(project: &Project, record: &Path) -> [u64; 2] {
    ["1", "2"].map(|cell| {
        let rows = project.rows(record).into_iter();
        let rows = rows.map(|row| serde_json::from_str::<serde_json::Value>(&row).unwrap());
        rows.filter(|row| row["cell"] == cell)
            .filter_map(|row| row["round"].as_u64())
            .max()
            .unwrap()
    })
}

#[test]
fn a_cell_that_is_decided_stops_and_the_other_goes_on_to_the_last_look() {
    // In cell 2 the candidate lies just within the gate, too near for five rounds.
    let project = project(
        "[ \"$1\" = 2 ] && { rate=990; noise=$((noise + 2)); }",
        "looks: [3, 4, 5]\nverdict: { undecided: pass }\n",
    );
    let output = project.bench_run(&["x.yaml", "--gate"]);
    let shown = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{shown}{}", stderr(&output));
    let record = project.records().remove(0);
    assert_eq!(rounds(&project, &record), [3, 5]);
    assert!(
        shown.contains("Decided at look 1 of 3, after 3 rounds."),
        "{shown}"
    );
    assert!(
        shown.contains("Still open at look 3 of 3, after 5 rounds."),
        "{shown}"
    );
    let again = project.bench_run(&["report", record.to_str().unwrap(), "--table"]);
    assert!(
        stdout(&again).contains("Decided at look 1 of 3"),
        "{}",
        stdout(&again)
    );
}

#[test]
fn a_failing_cell_is_run_again_with_fresh_rounds_and_only_it() {
    let project = project("[ \"$1\" = 2 ] && rate=950", "rounds: 4\nconfirm: true\n");
    let output = project.bench_run(&["x.yaml", "--gate"]);
    let shown = stdout(&output);
    assert_eq!(output.status.code(), Some(10), "{shown}{}", stderr(&output));
    let record = project.records().remove(0);
    assert_eq!(rounds(&project, &record), [4, 8]);
    assert!(shown.contains("4 first rounds failed the gate"), "{shown}");
    assert!(shown.contains("these 4 fresh ones confirm it."), "{shown}");
}

#[test]
fn a_failure_that_does_not_come_back_does_not_fail_the_gate() {
    // Slower in its first nine runs only: priming, and the first rounds of both cells.
    let project = project(
        "[ \"$1\" = 2 ] && { echo x >> count; [ $(wc -l < count) -le 5 ] && rate=950; }",
        "rounds: 4\nconfirm: true\n",
    );
    let output = project.bench_run(&["x.yaml", "--gate"]);
    let shown = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{shown}{}", stderr(&output));
    assert!(shown.contains("do not confirm it."), "{shown}");
}

#[test]
fn a_run_with_looks_and_confirmation_that_is_killed_again_and_again_ends_with_the_same_rows() {
    let project = project(
        "[ \"$1\" = 2 ] && rate=950",
        "looks: [3, 4]\nconfirm: true\nenv: { NAP: '0.02' }\n",
    );
    let quietly = ["run", "x.yaml", "--quiet", "--no-report"];
    let whole = [&quietly[..], &["--results", "whole"]].concat();
    let whole = project.bench_run(&whole);
    assert!(whole.status.success(), "{}", stderr(&whole));
    let folder = std::fs::read_dir(project.root().join("whole"))
        .unwrap()
        .next();
    let expected = project.rows(&folder.unwrap().unwrap().path());
    let stored = || {
        let record = project.records().into_iter().next();
        let text = record.map(|one| std::fs::read_to_string(one.join("attempts.jsonl")));
        text.and_then(Result::ok)
            .map_or(0, |text| text.matches('\n').count())
    };
    let mut kills = 0;
    while stored() < expected.len() {
        let before = stored();
        let mut child = project.command(&quietly).spawn().unwrap();
        // Killed in the middle of whatever comes after some more rows.
        while stored() < (before + 7).min(expected.len()) && child.try_wait().unwrap().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
    }
    assert!(kills >= 4, "{kills}");
    assert_eq!(project.records().len(), 1);
    assert_eq!(project.rows(&project.records()[0]), expected);
}

#[test]
fn looks_that_cannot_be_meant_are_told_with_their_place() {
    for (keys, expected) in [
        (
            "looks: [3, 6]\nrounds: 5\n",
            "rounds: expected either `rounds` or `looks`, got both",
        ),
        ("looks: [5]\n", "looks: expected 2 to 10 looks, got 1"),
        (
            "looks: [6, 6]\n",
            "looks[1]: expected more rounds than at the look before (6), got 6",
        ),
        (
            "looks: [2, 6]\n",
            "looks[0]: expected 3 to 1000 rounds, got 2",
        ),
    ] {
        let project = Project::new();
        let (base, main) = (project.commit(1000), project.commit(950));
        project.experiment(&base, &main, keys);
        let check = project.bench_run(&["check", "x.yaml"]);
        assert_eq!(check.status.code(), Some(2));
        assert!(stderr(&check).contains(expected), "{}", stderr(&check));
    }
}
