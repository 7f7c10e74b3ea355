//! Fake runs, killed and resumed: what [`super`] promises, told from the rows alone.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::record::example;
use crate::record::format::{GuardSummary, Outcome, SCHEMA};
use crate::stats::random::SplitMix64;

mod stages;

/// A plan of `rounds` rounds over base, its null arm, `main` and `sync`.
fn plan(rounds: usize, retries: u32) -> Plan {
    let mut plan = example::plan();
    plan.experiment.retries = retries;
    plan.experiment.rounds = u32::try_from(rounds).unwrap();
    let order = crate::plan::order::order(plan.arms.len(), rounds, 5).0;
    plan.order = vec![order.clone(), order];
    plan
}

fn row(plan: &Plan, next: Next, outcome: Outcome) -> Attempt {
    let place = next.place().unwrap();
    Attempt {
        schema: SCHEMA,
        plan: String::new(),
        cell: plan.cells[place.cell].id.clone(),
        arm: plan.arms[place.arm].name.clone(),
        commit: None,
        code_sha256: String::new(),
        round: place.round,
        round_try: place.round_try,
        slot: place.slot,
        session: 1,
        started_at: String::new(),
        session_seconds: 0.0,
        env_padding_bytes: 0,
        outcome,
        metrics: [("wall_s".to_owned(), 1.0)].into(),
        fields: [].into(),
        usage: None,
        guard: GuardSummary::default(),
        output_files: vec![],
    }
}

/// Plans of one stage never ask.
fn nobody(_: &[Attempt], _: &[CellRounds], stage: usize) -> Vec<bool> {
    panic!("asked about stage {stage}")
}

fn replay<'a>(plan: &'a Plan, attempts: &[Attempt]) -> Result<Progress<'a>, OutOfStep> {
    super::replay(plan, attempts, &mut nobody)
}

fn next(plan: &Plan, attempts: &[Attempt]) -> Result<Next, OutOfStep> {
    Ok(replay(plan, attempts)?.next())
}

fn complete(plan: &Plan, attempts: &[Attempt]) -> Result<Vec<CellRounds>, OutOfStep> {
    Ok(replay(plan, attempts)?.cells())
}

/// A fake program: what becomes of an attempt depends on nothing but its place.
type Fake<'a> = &'a dyn Fn(&Plan, Next) -> Outcome;

/// Runs on from `rows` to the end, asking anew before every attempt.
fn run_on(plan: &Plan, mut rows: Vec<Attempt>, fake: Fake<'_>) -> Vec<Attempt> {
    loop {
        match next(plan, &rows).unwrap() {
            Next::Done => return rows,
            step => rows.push(row(plan, step, fake(plan, step))),
        }
        assert!(rows.len() < 2000, "the run does not end");
    }
}

fn failed() -> Outcome {
    Outcome::Failed {
        reason: "exit status 1".into(),
    }
}

fn rejected() -> Outcome {
    Outcome::Rejected {
        reason: "rustc ran".into(),
    }
}

fn invalid() -> Outcome {
    Outcome::Invalid {
        reason: "wrapped is false, expected true".into(),
    }
}

fn is_arm(plan: &Plan, step: Next, name: &str) -> bool {
    matches!(step, Next::Run { arm, .. } if plan.arms[arm].name == name)
}

fn in_round(step: Next, wanted: u32) -> bool {
    matches!(step, Next::Run { round, .. } if round == wanted)
}

fn rounds_of(cell: &CellRounds) -> Vec<u32> {
    cell.complete.iter().map(|one| one.round).collect()
}

#[test]
fn a_clean_run_primes_each_treatment_once_and_runs_every_round() {
    let plan = plan(5, 2);
    let rows = run_on(&plan, vec![], &|_, _| Outcome::Ok);
    // Two cells of three treatments, and five rounds of four arms.
    assert_eq!(rows.len(), 2 * (3 + 5 * 4));
    let first: Vec<_> = rows
        .iter()
        .take(3)
        .map(|one| (one.round, one.arm.as_str()))
        .collect();
    assert_eq!(first, [(0, "base"), (0, "main"), (0, "sync")]);
    for cell in complete(&plan, &rows).unwrap() {
        assert_eq!(rounds_of(&cell), [1, 2, 3, 4, 5]);
        assert!(cell.finished && cell.stopped.is_none());
    }
    assert_eq!(Progress::new(&plan).attempts_left(), rows.len());
    assert_eq!(replay(&plan, &rows).unwrap().attempts_left(), 0);
}

#[test]
fn rows_follow_the_planned_order() {
    let plan = plan(3, 2);
    let rows = run_on(&plan, vec![], &|_, _| Outcome::Ok);
    for one in rows.iter().filter(|one| one.round > 0) {
        let planned = plan.order[0][one.round as usize - 1][one.slot as usize];
        assert_eq!(one.arm, plan.arms[planned].name);
    }
}

#[test]
fn a_rejected_attempt_drops_its_whole_try_at_once() {
    let plan = plan(3, 2);
    let once = |_: &Plan, step: Next| match step {
        Next::Run {
            cell: 0,
            round: 2,
            round_try: 1,
            slot: 2,
            ..
        } => rejected(),
        _ => Outcome::Ok,
    };
    let rows = run_on(&plan, vec![], &once);
    // Three attempts of the dropped try ran; its fourth did not.
    assert_eq!(rows.len(), 2 * (3 + 3 * 4) + 3);
    let cell = &complete(&plan, &rows).unwrap()[0];
    assert_eq!(rounds_of(cell), [1, 2, 3]);
    assert_eq!(cell.complete[1].round_try, 2);
    assert_eq!((cell.dropped[0].round, cell.dropped[0].round_try), (2, 1));
    assert!(cell.dropped[0].reason.ends_with("was rejected: rustc ran"));
}

#[test]
fn a_round_that_is_always_disturbed_is_lost_and_the_next_begins() {
    let plan = plan(5, 1);
    let noisy = |_: &Plan, step: Next| match step {
        Next::Run {
            round: 2, slot: 1, ..
        } => rejected(),
        _ => Outcome::Ok,
    };
    let cell = &complete(&plan, &run_on(&plan, vec![], &noisy)).unwrap()[0];
    assert_eq!(rounds_of(cell), [1, 3, 4, 5]);
    assert_eq!(
        (cell.lost.as_slice(), cell.dropped.len()),
        ([2].as_slice(), 2)
    );
    assert!(cell.out.is_empty(), "a disturbance is nobody's fault");
}

#[test]
fn more_than_half_of_the_rounds_lost_ends_the_cell() {
    let plan = plan(5, 0);
    let noisy = |_: &Plan, step: Next| match step {
        Next::Run {
            cell: 0, slot: 0, ..
        } => rejected(),
        _ => Outcome::Ok,
    };
    let cells = complete(&plan, &run_on(&plan, vec![], &noisy)).unwrap();
    assert_eq!(cells[0].lost, [1, 2, 3]);
    assert!(
        cells[0]
            .stopped
            .as_ref()
            .unwrap()
            .starts_with("3 of 5 rounds had no clean try")
    );
    let reasons = cells[0].invalid(&plan);
    assert_eq!(reasons.iter().map(|one| one.0).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(rounds_of(&cells[1]), [1, 2, 3, 4, 5]);
    assert!(cells[1].invalid(&plan).is_empty());
}

#[test]
fn an_arm_that_always_fails_is_out_and_the_others_go_on() {
    let plan = plan(4, 2);
    let broken = |plan: &Plan, step: Next| {
        if is_arm(plan, step, "sync") {
            failed()
        } else {
            Outcome::Ok
        }
    };
    let rows = run_on(&plan, vec![], &broken);
    let cell = &complete(&plan, &rows).unwrap()[0];
    assert_eq!(rounds_of(cell), [1, 2, 3, 4]);
    // Its three tries were spent once, in the first round only.
    let failures = rows.iter().filter(|one| one.outcome == failed()).count();
    assert_eq!(failures, 2 * 3);
    assert_eq!(cell.out.len(), 1);
    assert_eq!(plan.arms[cell.out[0].0].name, "sync");
    assert!(
        cell.out[0].1.contains("every undisturbed try of round 1"),
        "{}",
        cell.out[0].1
    );
    assert!(cell.complete.iter().all(|one| one.attempts[3].is_none()));
    assert!(
        cell.complete
            .iter()
            .all(|one| one.attempts[..3].iter().all(Option::is_some))
    );
}

#[test]
fn an_arm_that_starts_to_fail_late_is_taken_out_of_earlier_rounds_too() {
    let plan = plan(4, 1);
    let late = |plan: &Plan, step: Next| {
        if is_arm(plan, step, "main") && in_round(step, 3) {
            failed()
        } else {
            Outcome::Ok
        }
    };
    let cell = &complete(&plan, &run_on(&plan, vec![], &late)).unwrap()[0];
    assert_eq!(rounds_of(cell), [1, 2, 3, 4]);
    assert!(cell.complete.iter().all(|one| one.attempts[2].is_none()));
}

#[test]
fn a_disturbance_does_not_hide_an_arm_that_always_fails() {
    let plan = plan(3, 2);
    let mixed = |plan: &Plan, step: Next| match step {
        Next::Run {
            round: 1,
            round_try: 2,
            slot: 0,
            ..
        } => rejected(),
        _ if is_arm(plan, step, "main") => failed(),
        _ => Outcome::Ok,
    };
    let cell = &complete(&plan, &run_on(&plan, vec![], &mixed)).unwrap()[0];
    assert_eq!(cell.out.len(), 1);
    assert_eq!(rounds_of(cell), [1, 2, 3]);
}

#[test]
fn an_arm_that_fails_now_and_then_is_retried() {
    let plan = plan(3, 2);
    let flaky = |plan: &Plan, step: Next| match step {
        Next::Run { round_try: 1, .. } if is_arm(plan, step, "main") => failed(),
        _ => Outcome::Ok,
    };
    let cell = &complete(&plan, &run_on(&plan, vec![], &flaky)).unwrap()[0];
    assert!(cell.out.is_empty());
    assert_eq!(
        cell.complete
            .iter()
            .map(|one| one.round_try)
            .collect::<Vec<_>>(),
        [2, 2, 2]
    );
}

#[test]
fn an_invalid_attempt_takes_its_treatment_out_and_the_try_goes_on() {
    let plan = plan(3, 2);
    let wrong = |plan: &Plan, step: Next| {
        if is_arm(plan, step, "main") && in_round(step, 1) {
            invalid()
        } else {
            Outcome::Ok
        }
    };
    let rows = run_on(&plan, vec![], &wrong);
    let cell = &complete(&plan, &rows).unwrap()[0];
    assert_eq!(
        cell.out,
        [(2, "wrapped is false, expected true".to_owned())]
    );
    assert!(cell.dropped.is_empty());
    assert_eq!(cell.complete[0].round_try, 1);
    assert_eq!(rounds_of(cell), [1, 2, 3]);
    assert_eq!(
        rows.iter()
            .filter(|one| one.arm == "main" && one.round > 0)
            .count(),
        2
    );
}

#[test]
fn without_base_or_candidates_a_cell_ends() {
    let plan = plan(3, 2);
    let no_base = |plan: &Plan, step: Next| {
        if is_arm(plan, step, "base-null") {
            invalid()
        } else {
            Outcome::Ok
        }
    };
    let cell = &complete(&plan, &run_on(&plan, vec![], &no_base)).unwrap()[0];
    assert!(
        cell.stopped
            .as_ref()
            .unwrap()
            .starts_with("the base is out: `base-null`")
    );
    let no_candidate = |plan: &Plan, step: Next| {
        let candidate = is_arm(plan, step, "main") || is_arm(plan, step, "sync");
        if candidate { invalid() } else { Outcome::Ok }
    };
    let cell = &complete(&plan, &run_on(&plan, vec![], &no_candidate)).unwrap()[0];
    assert_eq!(cell.stopped.as_deref(), Some("no candidate is left"));
}

#[test]
fn an_arm_without_a_build_is_never_run() {
    let mut plan = plan(3, 2);
    plan.arms[3].build = None;
    let rows = run_on(&plan, vec![], &|_, _| Outcome::Ok);
    assert!(rows.iter().all(|one| one.arm != "sync"));
    let cell = &complete(&plan, &rows).unwrap()[0];
    assert_eq!(cell.invalid(&plan), [(3, "its build failed".to_owned())]);
    plan.arms[0].build = None;
    assert_eq!(next(&plan, &[]), Ok(Next::Done));
}

#[test]
fn priming_attempts_are_discarded_whatever_they_print() {
    let plan = plan(3, 1);
    for outcome in [failed(), invalid(), Outcome::TimedOut { limit_seconds: 3 }] {
        let bad = |_: &Plan, step: Next| match step {
            Next::Prime { .. } => outcome.clone(),
            _ => Outcome::Ok,
        };
        let rows = run_on(&plan, vec![], &bad);
        assert_eq!(rows.iter().filter(|one| one.round == 0).count(), 6);
        assert_eq!(rounds_of(&complete(&plan, &rows).unwrap()[0]), [1, 2, 3]);
    }
    let disturbed = |_: &Plan, step: Next| match step {
        Next::Prime { .. } => rejected(),
        _ => Outcome::Ok,
    };
    let rows = run_on(&plan, vec![], &disturbed);
    assert_eq!(rows.iter().filter(|one| one.round == 0).count(), 12);
}

#[test]
fn a_row_out_of_step_is_an_error_that_names_both() {
    let plan = plan(3, 2);
    let mut rows = run_on(&plan, vec![], &|_, _| Outcome::Ok);
    rows.swap(4, 5);
    let error = complete(&plan, &rows).unwrap_err();
    assert_eq!(error.row, 5);
    assert!(error.to_string().contains("of round 1, try 1"), "{error}");
    let mut rows = run_on(&plan, vec![], &|_, _| Outcome::Ok);
    rows.push(rows[3].clone());
    assert!(
        next(&plan, &rows)
            .unwrap_err()
            .expected
            .contains("no further row")
    );
}

/// Outcomes at random, but fixed by an attempt's place: a deterministic fake.
fn fake_of(seed: u64) -> impl Fn(&Plan, Next) -> Outcome {
    move |_, step| {
        let place = format!("{step:?}");
        let hash = place.bytes().fold(seed, |hash, byte| {
            SplitMix64::new(hash ^ u64::from(byte)).next_u64()
        });
        match hash % 40 {
            0..=2 => rejected(),
            3 | 4 => failed(),
            5 => Outcome::TimedOut { limit_seconds: 1 },
            6 => invalid(),
            _ => Outcome::Ok,
        }
    }
}

/// What must hold of the complete rounds, told from the rows alone.
fn check_rounds(plan: &Plan, rows: &[Attempt], cells: &[CellRounds]) {
    let mut tries: BTreeMap<(&str, u32, u32), Vec<usize>> = BTreeMap::new();
    for (index, one) in rows.iter().enumerate() {
        tries
            .entry((&one.cell, one.round, one.round_try))
            .or_default()
            .push(index);
    }
    for cell in cells {
        let id = plan.cells[cell.cell].id.as_str();
        let is_in = |arm: usize| {
            let treatment = plan.arms[arm].treatment;
            !cell
                .out
                .iter()
                .any(|(out, _)| plan.arms[*out].treatment == treatment)
        };
        for one in &cell.complete {
            let of_try = &tries[&(id, one.round, one.round_try)];
            for arm in 0..plan.arms.len() {
                let expected = of_try
                    .iter()
                    .copied()
                    .find(|&row| is_in(arm) && rows[row].arm == plan.arms[arm].name);
                assert_eq!(one.attempts[arm], expected);
                assert!(expected.is_none_or(|row| rows[row].outcome == Outcome::Ok));
                assert_eq!(expected.is_some(), is_in(arm));
            }
        }
        let rounds = rounds_of(cell);
        assert!(rounds.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(cell.lost.iter().all(|lost| !rounds.contains(lost)));
        if cell.stopped.is_none() {
            assert_eq!(rounds.len() + cell.lost.len(), plan.order[cell.cell].len());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    /// Killed after any row, and while any attempt runs, a run ends with the
    /// same rows and the same complete rounds.
    #[test]
    fn a_killed_run_ends_like_one_that_was_not(
        seed: u64, rounds in 1..5_usize, retries in 0..3_u32,
    ) {
        let plan = plan(rounds, retries);
        let fake = fake_of(seed);
        let whole = run_on(&plan, vec![], &fake);
        let cells = complete(&plan, &whole).unwrap();
        check_rounds(&plan, &whole, &cells);
        for kept in 0..whole.len() {
            let resumed = run_on(&plan, whole[..kept].to_vec(), &fake);
            prop_assert_eq!(&resumed, &whole);
            prop_assert_eq!(&complete(&plan, &resumed).unwrap(), &cells);
        }
    }
}

/// Every run there can be of one cell, one round of three arms and one retry.
#[test]
fn every_small_run_ends_and_keeps_the_rules() {
    let mut plan = plan(1, 1);
    plan.cells.truncate(1);
    plan.order = vec![vec![vec![2, 0, 1]]];
    plan.arms.truncate(3);
    let mut open = vec![Vec::new()];
    let mut ended = 0_u32;
    while let Some(rows) = open.pop() {
        let step = next(&plan, &rows).unwrap();
        let outcomes = match step {
            Next::Done => {
                check_rounds(&plan, &rows, &complete(&plan, &rows).unwrap());
                ended += 1;
                continue;
            }
            Next::Look { .. } => panic!("a plan of one stage"),
            Next::Prime { .. } => vec![Outcome::Ok],
            Next::Run { .. } => vec![Outcome::Ok, rejected(), failed(), invalid()],
        };
        for outcome in outcomes {
            let mut longer: Vec<Attempt> = rows.clone();
            longer.push(row(&plan, step, outcome));
            assert!(
                longer.len() <= 2 + 2 * 3,
                "more attempts than two tries can hold"
            );
            open.push(longer);
        }
    }
    assert!(ended > 50, "{ended}");
}
