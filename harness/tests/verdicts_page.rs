//! docs/VERDICTS.md shows data and verdicts; here the rule is asked whether they belong together.

use std::collections::BTreeMap;

use bench_run::experiment::model::Better;
use bench_run::report::words;
use bench_run::verdict::decide::decide;
use bench_run::verdict::rule::{ArmCopy, CellData, Moderation, NullCheck, Revision, Rule};

const PAGE: &str = include_str!("../../docs/VERDICTS.md");

fn rule() -> Rule {
    Rule {
        revision: Revision::CURRENT,
        threshold_pct: 1.0,
        alpha: 0.05,
        min_rounds: 3,
        moderation: Some(Moderation::DEFAULT),
        null_check: Some(NullCheck::DEFAULT),
        unequal_noise: true,
        null_history: BTreeMap::new(),
    }
}

/// The rounds of every table of runs, with the quoted verdict that follows it.
fn examples() -> Vec<(Vec<Vec<f64>>, String)> {
    let mut found = Vec::new();
    let mut rounds: Vec<Vec<f64>> = Vec::new();
    let mut lines = PAGE.lines();
    while let Some(line) = lines.next() {
        if line == "| round | base | base-null | main |" {
            lines.next();
            rounds.clear();
        } else if line.starts_with("> **") {
            found.push((std::mem::take(&mut rounds), line[2..].to_owned()));
        } else if line.starts_with("| ") {
            let cells: Vec<f64> = line
                .split('|')
                .filter_map(|cell| cell.trim().parse().ok())
                .collect();
            if let [_, values @ ..] = &cells[..] {
                rounds.push(values.to_vec());
            }
        }
    }
    found
}

fn cell(rounds: Vec<Vec<f64>>) -> CellData {
    let arm = |name: &str, treatment, of: Option<&str>| ArmCopy {
        name: name.into(),
        treatment,
        null_of: of.map(Into::into),
        declared: of.is_none(),
        injected: None,
    };
    // Whole numbers are the page's bytes, all else its tokens per second.
    let counter = rounds.iter().flatten().all(|value| value.fract() == 0.0);
    let (metric, unit, better) = if counter {
        ("peak_bytes", "B", Better::Lower)
    } else {
        ("decode_tok_s", "tok/s", Better::Higher)
    };
    CellData {
        cell: "all".into(),
        metric: metric.into(),
        better,
        unit: unit.into(),
        gated: true,
        arms: vec![
            arm("base", 0, None),
            arm("base-null", 0, Some("base")),
            arm("main", 1, None),
        ],
        base: 0,
        slots: vec![vec![0, 1, 2]; rounds.len()],
        rounds,
        balanced: false,
        invalid: vec![],
    }
}

#[test]
fn every_example_of_the_page_is_what_the_rule_says() {
    let examples = examples();
    assert_eq!(examples.len(), 5);
    for (rounds, quoted) in examples {
        let judged = decide(&[cell(rounds)], &rule()).remove(0);
        let said = format!(
            "**{}**: {}",
            words::verdict(judged.verdict),
            judged.sentence
        );
        assert_eq!(quoted, said);
    }
}

#[test]
fn the_noisy_example_would_alarm_whoever_compares_medians() {
    let (rounds, _) = examples().remove(3);
    let judged = decide(&[cell(rounds)], &rule()).remove(0);
    assert!(judged.others.unwrap().ratio_of_medians > judged.tau);
}

#[test]
fn every_verdict_has_a_row_on_the_page() {
    use bench_run::verdict::rule::Verdict;
    for verdict in [
        Verdict::Regressed,
        Verdict::SlowerWithinThreshold,
        Verdict::SlowerSizeUndecided,
        Verdict::Equivalent,
        Verdict::Improved,
        Verdict::NotSlower,
        Verdict::Identical,
        Verdict::Unresolved,
        Verdict::Invalid,
    ] {
        let row = format!("\n| {} | ", words::verdict(verdict));
        assert!(PAGE.contains(&row), "no row for {verdict:?}");
    }
}
