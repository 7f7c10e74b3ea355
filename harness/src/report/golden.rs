//! Whole reports from known records: what a reader sees, byte for byte.

use super::example;
use super::model::ReportModel;
use super::{markdown, terminal};
use crate::analysis::model::{Analysis, GateOutcome, JudgedClaim};
use crate::experiment::model::Scalar;
use crate::record::format::{Attempt, Outcome};
use crate::record::reader::Record;
use crate::verdict::claim::ClaimVerdict;
use crate::verdict::rule::{OtherEstimators, Verdict};

const VERDICTS: [(Verdict, &str); 9] = [
    (Verdict::Regressed, "regressed"),
    (Verdict::SlowerWithinThreshold, "slower, within threshold"),
    (Verdict::SlowerSizeUndecided, "slower, size undecided"),
    (Verdict::Equivalent, "equivalent"),
    (Verdict::Improved, "improved"),
    (Verdict::NotSlower, "not slower"),
    (Verdict::Identical, "identical"),
    (Verdict::Unresolved, "unresolved"),
    (Verdict::Invalid, "invalid"),
];

fn model(record: &Record, analysis: &Analysis) -> ReportModel {
    ReportModel::new(record, analysis, example::STEM)
}

fn report(record: &Record) -> String {
    markdown::render(&model(record, &example::analysis(record))).unwrap()
}

/// The table lines of a report, each with its number of cells.
fn cells_per_table_line(text: &str) -> Vec<(usize, &str)> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        fenced ^= line.starts_with("```");
        if line.starts_with('|') && !fenced {
            lines.push((line.replace(r"\|", "").matches('|').count(), line));
        }
    }
    lines
}

/// Where a table's head and its rows differ in their number of cells, Markdown breaks.
fn assert_tables_are_whole(text: &str) {
    let mut expected = None;
    for line in text.lines() {
        if !line.starts_with('|') {
            expected = None;
            continue;
        }
        let [(count, _)] = cells_per_table_line(line)[..] else {
            continue;
        };
        assert_eq!(*expected.get_or_insert(count), count, "{line}");
    }
}

#[test]
fn the_example_run_reads_like_this() {
    let mut record = example::record();
    // A field more in the plan must not change what this test is about.
    record.plan_sha256 = "5ea1".repeat(16);
    let model = model(&record, &example::analysis(&record));
    insta::assert_snapshot!("report", markdown::render(&model).unwrap());
    insta::assert_snapshot!("ci_summary", markdown::ci_summary(&model).unwrap());
    insta::assert_snapshot!("terminal", terminal::table(&model, 130, false));
}

#[test]
fn the_same_record_gives_the_same_bytes() {
    let (first, second) = (example::record(), example::record());
    assert_eq!(report(&first), report(&second));
}

#[test]
fn every_kind_of_verdict_is_printed_everywhere() {
    let record = example::record();
    for (verdict, word) in VERDICTS {
        let mut analysis = example::analysis(&record);
        for judgement in &mut analysis.judgements {
            judgement.verdict = verdict;
            if verdict == Verdict::Invalid {
                judgement.estimate = None;
                judgement.power = None;
                judgement.others = None;
            }
        }
        let model = model(&record, &analysis);
        let text = markdown::render(&model).unwrap();
        assert!(text.contains(&format!("- **{word}** in `256`")), "{word}");
        assert!(text.contains(&format!("| **{word}** |")), "{word}");
        assert_tables_are_whole(&text);
        let summary = markdown::ci_summary(&model).unwrap();
        assert!(summary.contains(&format!("| **{word}** |")), "{word}");
        assert!(
            terminal::table(&model, 130, false).contains(&format!("┆ {word}")),
            "{word}"
        );
    }
}

#[test]
fn every_outcome_of_the_gate_has_its_word() {
    let record = example::record();
    for (gate, word) in [
        (GateOutcome::Pass, "pass"),
        (GateOutcome::Regressed, "regressed"),
        (GateOutcome::Undecided, "undecided"),
        (GateOutcome::Invalid, "invalid"),
    ] {
        let analysis = Analysis {
            gate,
            ..example::analysis(&record)
        };
        let text = markdown::render(&model(&record, &analysis)).unwrap();
        assert!(text.contains(&format!("**Gate: {word}.**")));
    }
}

#[test]
fn the_value_of_an_attempt_that_was_not_used_is_nowhere() {
    let record = example::record();
    let outcomes = [
        Outcome::Rejected {
            reason: "rustc (pid 7) took 80 % of a core".into(),
        },
        Outcome::Failed {
            reason: "expected exit status 0, got 3".into(),
        },
        Outcome::TimedOut { limit_seconds: 600 },
        Outcome::Invalid {
            reason: "generated_tokens: expected 128, got 3".into(),
        },
    ];
    let mut rows = record.attempts.clone();
    for (number, outcome) in outcomes.into_iter().enumerate() {
        let mut row = record.attempts[3 + number].clone();
        row.round_try = 3;
        row.outcome = outcome;
        row.metrics.insert("decode_tok_s".into(), 98_765.4);
        rows.push(row);
    }
    let disturbed = example::record_of(record.plan.clone(), rows);
    let text = report(&disturbed);
    assert!(!text.contains("98765") && !text.contains("98,765"));
    for shown in [
        "| rejected | rustc (pid 7) took 80 % of a core |",
        "| failed | expected exit status 0, got 3 |",
        "| timed out | killed after 10 min 00 s |",
        "| invalid | generated_tokens: expected 128, got 3 |",
        "4 tries of a round were dropped",
    ] {
        assert!(text.contains(shown), "{shown}");
    }
    let results = |text: &str| {
        let (_, rest) = text.split_once("## Results").unwrap();
        rest.split_once("## Attempts").unwrap().0.to_owned()
    };
    assert_eq!(results(&text), results(&report(&record)));
}

#[test]
fn odd_names_and_texts_do_not_break_the_layout() {
    let mut record = example::record();
    let odd = "a|b <i>&`c`\n# d";
    record.plan.experiment.question = odd.into();
    record.plan.arms[2].name = odd.into();
    record.plan.arms[2].label = odd.into();
    record.plan.arms[2].env.insert("X".into(), odd.into());
    record.plan.builds[1].receipt = Some(odd.into());
    record.host.facts.insert(odd.into(), odd.into());
    for cell in &mut record.plan.cells {
        cell.id = format!("{odd}{}", cell.id);
        cell.values
            .insert("prompt_tokens".into(), Scalar::Text(odd.into()));
    }
    for row in &mut record.attempts {
        row.cell = format!("{odd}{}", row.cell);
        if row.arm == "main" {
            row.arm = odd.into();
        }
    }
    let mut rejected: Attempt = record.attempts[5].clone();
    rejected.round_try = 2;
    rejected.outcome = Outcome::Rejected { reason: odd.into() };
    record.attempts.push(rejected);
    let mut analysis = example::analysis(&record);
    analysis.gate_sentence = format!("`{odd}` is slower");
    analysis.notes.push(odd.into());
    let model = model(&record, &analysis);
    let text = markdown::render(&model).unwrap();
    let outside_fences: String = text.split("```").step_by(2).collect();
    assert!(!outside_fences.contains("<i>"), "{text}");
    assert!(!outside_fences.contains("\n# d"), "{text}");
    assert_tables_are_whole(&outside_fences);
    assert_tables_are_whole(&markdown::ci_summary(&model).unwrap());
    assert!(!terminal::table(&model, 100, false).contains("\n# d"));
}

#[test]
fn one_round_is_enough_for_a_report() {
    let mut record = example::record();
    record.attempts.retain(|row| row.round <= 1);
    record.plan.experiment.rounds = 1;
    let text = report(&record);
    assert!(text.contains("1 round of 4 attempts per cell"), "{text}");
    assert_tables_are_whole(&text);
}

#[test]
fn a_record_without_a_complete_round_says_so_and_links_no_plot() {
    let mut record = example::record();
    record.attempts.clear();
    let mut analysis = example::analysis(&record);
    for judgement in &mut analysis.judgements {
        judgement.verdict = Verdict::Invalid;
        judgement.others = None;
        judgement.power = None;
    }
    let text = markdown::render(&model(&record, &analysis)).unwrap();
    assert!(text.contains("| base | 0 | none | base |"), "{text}");
    assert!(!text.contains(".svg"), "{text}");
    assert_tables_are_whole(&text);
}

#[test]
fn an_arm_that_did_not_build_shows_the_end_of_its_log() {
    let mut record = example::record();
    record.plan.arms[3].build = None;
    record.plan.arms[3].build_failure = Some("error[E0308]: mismatched types\n```\n".into());
    let mut analysis = example::analysis(&record);
    // An arm that is out has no value in any round.
    for round in analysis.data.iter_mut().flat_map(|cell| &mut cell.rounds) {
        round[3] = f64::NAN;
    }
    for judgement in &mut analysis.judgements {
        if judgement.candidate == "sync" {
            judgement.estimate = None;
            judgement.others = None;
            judgement.verdict = Verdict::Invalid;
        }
    }
    let text = markdown::render(&model(&record, &analysis)).unwrap();
    assert!(
        text.contains("````text\nerror[E0308]: mismatched types\n```\n````"),
        "{text}"
    );
    assert!(text.contains("| sync | 0 | none | n/a |"), "{text}");
    assert!(text.contains("# sync: pipelined loop forced to wait\n# its build failed"));
    assert!(!text.contains("NaN"));
}

#[test]
fn estimators_on_both_sides_of_the_gate_are_named() {
    let record = example::record();
    let mut analysis = example::analysis(&record);
    analysis.judgements.truncate(1);
    let judgement = &mut analysis.judgements[0];
    judgement.estimate = Some(example::estimate(-(1.0_f64 - 0.0119).ln(), 0.0005));
    judgement.others = Some(OtherEstimators {
        median_paired: -(1.0_f64 - 0.0119).ln(),
        ratio_of_medians: -(1.0_f64 - 0.0091).ln(),
        hodges_lehmann: -(1.0_f64 - 0.0115).ln(),
    });
    let model = model(&record, &analysis);
    let note = &model.metrics[0].disagreements[0];
    assert!(note.contains("lie on both sides of the gate"), "{note}");
    assert!(note.contains("median of paired changes −1.19 %"), "{note}");
    assert!(note.contains("ratio of medians −0.91 %"), "{note}");
    assert!(terminal::table(&model, 130, false).contains("both sides of the gate"));
}

#[test]
fn a_narrow_terminal_gets_fewer_columns_and_the_same_numbers() {
    let record = example::record();
    let model = model(&record, &example::analysis(&record));
    for width in [200, 130, 100, 80] {
        let text = terminal::table(&model, width, false);
        assert!(text.contains("−1.22 % [−1.65, −0.79]"), "{width}: {text}");
        let boxed = text.lines().filter(|line| line.contains('│'));
        let widest = boxed.map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= usize::from(width), "{width}: {widest}");
    }
    assert!(!terminal::table(&model, 80, false).contains('\u{1b}'));
    assert!(terminal::table(&model, 80, true).contains('\u{1b}'));
}

#[test]
fn a_claim_has_a_column_and_a_sentence_and_no_claim_has_neither() {
    let record = example::record();
    let mut analysis = example::analysis(&record);
    let without = model(&record, &analysis);
    assert!(!markdown::render(&without).unwrap().contains("claim"));
    assert!(!terminal::table(&without, 200, false).contains("claim"));
    analysis.claims = vec![JudgedClaim {
        cell: "2048".into(),
        candidate: "main".into(),
        metric: "decode_tok_s".into(),
        change_pct: -1.3,
        source: "a release note".into(),
        verdict: ClaimVerdict::Confirmed,
        sentence: "A release note says it.".into(),
    }];
    let with = model(&record, &analysis);
    let text = markdown::render(&with).unwrap();
    assert_tables_are_whole(&text);
    assert!(text.contains("- **confirmed** in `2048`: A release note says it."));
    let rows: Vec<&str> = text
        .lines()
        .filter(|line| line.ends_with("| −1.30 %: confirmed |"))
        .collect();
    assert_eq!(rows.len(), 1, "{text}");
    assert!(rows[0].starts_with("|  | main |"), "{rows:?}");
    let table = terminal::table(&with, 200, false);
    assert!(table.contains("claim confirmed: 2048: A release note says it."));
    assert!(table.contains("−1.30 %: confirmed"), "{table}");
}
