//! Looks, confirmations and sessions: runs in several parts.

use super::*;

/// A plan with looks after 2 and 3 rounds and a confirmation.
fn staged() -> Plan {
    let mut plan = plan(6, 2);
    plan.experiment.rounds = 3;
    plan.experiment.looks = vec![2, 3];
    plan.experiment.confirm = true;
    plan
}

/// Runs to the end; `judge` says who takes part in a stage.
fn run_staged(plan: &Plan, judge: &mut Judge<'_>) -> (Vec<Attempt>, Vec<CellRounds>) {
    let mut rows = Vec::new();
    let mut progress = Progress::new(plan);
    loop {
        progress.look(&rows, judge);
        match progress.next() {
            Next::Done => return (rows, progress.cells()),
            step => {
                let one = row(plan, step, Outcome::Ok);
                progress.apply(&one).unwrap();
                rows.push(one);
            }
        }
    }
}

#[test]
fn cells_that_take_part_go_on_and_a_confirmation_has_rounds_of_its_own() {
    let plan = staged();
    let parts = [[true, true], [false, true], [true, false]];
    let mut asked = Vec::new();
    let (rows, cells) = run_staged(&plan, &mut |rows, cells, stage| {
        asked.push((stage, rows.len()));
        assert_eq!(cells.len(), 2);
        parts[stage].to_vec()
    });
    // Three priming attempts and two rounds of four in both cells, then one more round of the
    // second and three fresh ones of the first, each primed anew.
    assert_eq!(asked, [(1, 22), (2, 22 + 7)]);
    assert_eq!(rows.len(), 22 + 7 + 15);
    assert_eq!(rounds_of(&cells[0]), [1, 2, 4, 5, 6]);
    assert_eq!(rounds_of(&cells[1]), [1, 2, 3]);
    assert!(cells.iter().all(|cell| cell.finished));
    let primed: Vec<u32> = rows
        .iter()
        .filter(|row| row.round == 0 && row.arm == "base")
        .map(|row| row.slot)
        .collect();
    assert_eq!(primed, [0, 0, 1, 2]);
}

#[test]
fn a_run_that_nobody_takes_further_ends_without_further_rows() {
    let plan = staged();
    let (rows, cells) = run_staged(&plan, &mut |_, _, _| vec![false, false]);
    assert_eq!(rows.len(), 22);
    assert!(cells.iter().all(|cell| cell.finished));
}

#[test]
fn a_row_of_a_stage_that_was_not_entered_is_out_of_step() {
    let plan = staged();
    let (mut rows, _) = run_staged(&plan, &mut |_, _, _| vec![true, true]);
    let error = super::super::replay(&plan, &rows, &mut |_, _, _| vec![false, false]).unwrap_err();
    assert_eq!((error.row, error.expected.as_str()), (23, "no further row"));
    rows.truncate(22);
    let progress = super::super::replay(&plan, &rows, &mut |_, _, _| vec![true, false]).unwrap();
    assert_eq!((progress.stage(), progress.attempts_left()), (1, 7));
    let over: Vec<bool> = progress.cells().iter().map(|cell| cell.finished).collect();
    assert_eq!(over, [false, false], "the second may still be confirmed");
}

#[test]
fn rounds_that_are_lost_in_one_part_do_not_end_the_other() {
    let plan = staged();
    let lost = |_: &Plan, step: Next| match step {
        Next::Run {
            cell: 0,
            round: 1 | 4,
            ..
        } => rejected(),
        _ => Outcome::Ok,
    };
    let mut rows: Vec<Attempt> = Vec::new();
    let mut progress = Progress::new(&plan);
    loop {
        progress.look(&rows, &mut |_, _, _| vec![true, true]);
        let step = progress.next();
        if step == Next::Done {
            break;
        }
        rows.push(row(&plan, step, lost(&plan, step)));
        progress.apply(rows.last().unwrap()).unwrap();
    }
    let cell = &progress.cells()[0];
    assert_eq!(
        (cell.lost.clone(), cell.stopped.clone()),
        (vec![1, 4], None)
    );
}

/// A row of session 2.
fn in_second_session(row: Attempt) -> Attempt {
    Attempt { session: 2, ..row }
}

/// Runs on from `rows` to the end in session 2.
fn run_on_elsewhere(plan: &Plan, mut rows: Vec<Attempt>) -> Vec<Attempt> {
    loop {
        let mut progress = replay(plan, &rows).unwrap();
        progress.enter_session(2);
        match progress.next() {
            Next::Done => return rows,
            step => rows.push(in_second_session(row(plan, step, Outcome::Ok))),
        }
        assert!(rows.len() < 2000, "the run does not end");
    }
}

#[test]
fn another_session_drops_the_try_that_was_under_way_and_primes_again() {
    let plan = plan(4, 0);
    let all = run_on(&plan, vec![], &|_, _| Outcome::Ok);
    // Three treatments are primed, a round has four attempts: two of the second round.
    let rows = run_on_elsewhere(&plan, all[..3 + 4 + 2].to_vec());
    let primed: Vec<(u32, &str)> = rows
        .iter()
        .filter(|row| row.round == 0 && row.cell == plan.cells[0].id)
        .map(|row| (row.session, row.arm.as_str()))
        .collect();
    let arms = ["base", "main", "sync"];
    let twice: Vec<(u32, &str)> = (1..=2).flat_map(|n| arms.map(|arm| (n, arm))).collect();
    assert_eq!(primed, twice);
    let cell = &complete(&plan, &rows).unwrap()[0];
    assert_eq!(rounds_of(cell), [1, 2, 3, 4]);
    assert_eq!(cell.complete[1].round_try, 2);
    assert!(cell.dropped[0].reason.contains("session ended"));
    // No retry was allowed: a session's end takes none.
    assert!(cell.lost.is_empty() && cell.out.is_empty());
    for round in complete(&plan, &rows)
        .unwrap()
        .iter()
        .flat_map(|cell| &cell.complete)
    {
        let sessions = round
            .attempts
            .iter()
            .flatten()
            .map(|row| rows[*row].session);
        let sessions: std::collections::BTreeSet<u32> = sessions.collect();
        assert_eq!(
            sessions.len(),
            1,
            "round {} is of two sessions",
            round.round
        );
    }
}

#[test]
fn between_two_rounds_another_session_drops_nothing() {
    let plan = plan(4, 0);
    let all = run_on(&plan, vec![], &|_, _| Outcome::Ok);
    let rows = run_on_elsewhere(&plan, all[..3 + 4].to_vec());
    assert_eq!(rows.len(), all.len() + 3, "only the priming comes again");
    assert!(complete(&plan, &rows).unwrap()[0].dropped.is_empty());
}

#[test]
fn a_row_of_another_session_than_the_one_under_way_is_out_of_step() {
    let plan = plan(4, 0);
    let all = run_on(&plan, vec![], &|_, _| Outcome::Ok);
    let mut rows = run_on_elsewhere(&plan, all[..3].to_vec());
    rows[4].session = 1;
    let error = replay(&plan, &rows).unwrap_err().to_string();
    assert!(error.contains("session 2, got"), "{error}");
}

#[test]
fn what_is_missing_to_a_whole_round_counts_the_priming_before_it() {
    let plan = plan(4, 0);
    let all = run_on(&plan, vec![], &|_, _| Outcome::Ok);
    let missing = |rows: &[Attempt]| replay(&plan, rows).unwrap().attempts_to_next_round();
    assert_eq!(missing(&[]), 3 + 4);
    assert_eq!(missing(&all[..4]), 3);
    assert_eq!(missing(&all), 0);
}
