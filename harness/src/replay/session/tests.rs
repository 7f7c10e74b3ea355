//! Which rows are used, which belong together, and what is said about the others.

use std::path::Path;

use super::*;
use crate::replay::mapping;

fn mapping(more: &str) -> Mapping {
    let text = format!(
        "schema: 1\nname: x\nquestion: Is it as fast?\nmetrics: {{ v_ms: {{ better: lower, gate: true }} }}\n{more}"
    );
    mapping::parse(Path::new("m.yaml"), text.as_bytes()).unwrap()
}

fn paired(csv: &str, more: &str) -> Result<Session, String> {
    let sheet = Sheet::parse(Path::new("a.csv"), csv.as_bytes()).unwrap();
    pair(&sheet, &mapping(more)).map_err(|error| error.to_string())
}

const ROUNDS: &str = "arm,round,v_ms\nbase,1,10\nnew,1,11\nbase-null,1,12\n\
                      new,2,21\nbase,2,20\nbase-null,2,22\n";

#[test]
fn rows_in_any_order_are_paired_by_round_and_a_null_arm_shares_its_treatment() {
    let session = paired(ROUNDS, "").unwrap();
    let data = &session.data[0];
    let arms: Vec<(&str, usize)> = data
        .arms
        .iter()
        .map(|arm| (arm.name.as_str(), arm.treatment))
        .collect();
    assert_eq!(arms, [("base", 0), ("new", 1), ("base-null", 0)]);
    assert_eq!(data.rounds, [[10.0, 11.0, 12.0], [20.0, 21.0, 22.0]]);
    assert_eq!((data.cell.as_str(), session.notes.len()), ("all", 0));
}

const STATUS: &str = "columns: { status: { column: guard, used: [CLEAN] } }\n";

#[test]
fn a_refused_row_is_never_read_and_its_repeat_is_named() {
    let csv = "arm,round,guard,v_ms\nbase,1,CLEAN,10\nnew,1,REJECTED,not measured\n\
               new,1,CLEAN,12\nbase-null,1,CLEAN,10\n";
    let session = paired(csv, STATUS).unwrap();
    assert_eq!(session.data[0].rounds, [[10.0, 12.0, 10.0]]);
    assert_eq!(
        session.refused,
        [RefusedRow {
            line: 3,
            cell: "all".into(),
            round: "1".into(),
            arm: "new".into(),
            reason: "guard is `REJECTED`, only `CLEAN` is used".into(),
        }]
    );
    assert!(
        session.notes[0].contains("`new` was run again alone"),
        "{:?}",
        session.notes
    );
    assert_eq!((session.counts[1].ok, session.counts[1].rejected), (1, 1));
}

#[test]
fn a_round_without_every_arm_is_left_out_and_named() {
    let csv = "arm,round,guard,v_ms\nbase,1,CLEAN,10\nnew,1,CONTENDED,11\n\
               base,2,CLEAN,20\nnew,2,CLEAN,21\n";
    let session = paired(csv, STATUS).unwrap();
    assert_eq!(session.data[0].rounds, [[20.0, 21.0]]);
    let said = session.notes.join("\n");
    assert!(said.contains("round 1 of all is incomplete and not used: no used row of `new`"));
    assert!(said.contains("no null arm"), "{said}");
}

#[test]
fn two_used_rows_where_one_belongs_are_refused_with_both_lines() {
    let error = paired(&format!("{ROUNDS}new,2,23\n"), "").unwrap_err();
    assert!(
        error.starts_with(
            "a.csv:8:1: arm: expected one used row per arm, round and cell (line 5), \
             got a second one of `new` in round 2; name the columns"
        ),
        "{error}"
    );
}

#[test]
fn cells_are_told_by_columns_and_an_arm_that_a_cell_lacks_is_out_there_only() {
    let csv = "size,kind,arm,round,v_ms\n1,a,base,1,10\n1,a,new,1,11\n2,a,base,1,20\n";
    let session = paired(csv, "columns: { cell: [size, kind] }\n").unwrap();
    let cells: Vec<&str> = session.data.iter().map(|data| data.cell.as_str()).collect();
    assert_eq!(cells, ["1.a", "2.a"]);
    assert!(session.data[0].invalid.is_empty());
    assert_eq!(session.data[1].invalid[0].0, 1);
    assert!(session.data[1].rounds[0][1].is_nan());
}

#[test]
fn a_label_is_taken_apart_as_a_whole() {
    let more = "columns: { label: { column: label, pattern: '(?<arm>.+)-r(?<round>[0-9]+)' } }\n";
    let csv = "label,v_ms\nbase-r1,10\nnew-r1,11\nnew-r2,21\nbase-r2,20\n";
    let session = paired(csv, more).unwrap();
    assert_eq!(session.data[0].rounds, [[10.0, 11.0], [20.0, 21.0]]);
    let error = paired("label,v_ms\nbase-r1x,10\n", more).unwrap_err();
    assert!(
        error.starts_with("a.csv:2:1: label: expected text that matches"),
        "{error}"
    );
}

#[test]
fn every_bad_number_and_every_missing_column_is_named() {
    let error = paired("arm,round,v_ms\nbase,1,x\nnew,1,\n", "").unwrap_err();
    assert_eq!(
        error,
        "a.csv:2:8: v_ms: expected a number, got `x`\na.csv:3:7: v_ms: expected a number, got an empty field"
    );
    let error = paired("variant,v_ms\nbase,1\n", "").unwrap_err();
    assert_eq!(error.lines().count(), 2, "{error}");
}

#[test]
fn an_arm_that_never_appears_is_an_error() {
    let error = paired("arm,round,v_ms\nold,1,1\nnew,1,1\n", "").unwrap_err();
    assert!(
        error.contains("rows of the arm `base`, got rows of `old`, `new`"),
        "{error}"
    );
}

#[test]
fn arms_outside_the_comparison_are_counted_and_left_out() {
    let session = paired(ROUNDS, "arms: [base, new]\nnulls: {}\n").unwrap();
    assert_eq!(session.data[0].arms.len(), 2);
    assert!(
        session
            .notes
            .iter()
            .any(|note| note.contains("2 rows of arm base-null"))
    );
}
