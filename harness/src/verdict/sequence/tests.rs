//! What is kept, what goes on, and what a confirmation does.

use super::*;
use crate::experiment::model::Better;
use crate::verdict::example::{RULE, noisy};
use crate::verdict::rule::{ArmCopy, Injected};

/// A cell called `name` whose candidate takes `candidate` where the base takes 100, after
/// `rounds` of at most five rounds.
fn cell(name: &str, candidate: f64, rounds: usize) -> CellData {
    let mut data = noisy("wall_s", Better::Lower, 100.0, candidate);
    data.cell = name.into();
    data.rounds.truncate(rounds);
    data.slots.truncate(rounds);
    data
}

fn sequence(looks: u32) -> Sequence {
    Sequence::new(RULE, looks)
}

#[test]
fn a_cell_with_its_verdict_is_done_and_keeps_it_whatever_comes_later() {
    let mut looks = sequence(2);
    let first = looks.look(1, &[cell("a", 103.0, 3), cell("b", 101.0, 3)]);
    assert!(!looks.is_open("a", &first));
    assert!(
        looks.is_open("b", &first),
        "an estimate at the gate stays open"
    );
    // Rounds that would say otherwise change nothing for `a`.
    let second = looks.look(2, &[cell("a", 100.0, 5), cell("b", 101.0, 5)]);
    let judgements = looks.finish(second, None).judgements;
    assert_eq!(judgements[0].verdict, Verdict::Regressed);
    let look = |number| Some(DecidedAt::Look { number, of: 2 });
    assert_eq!(judgements[0].decided_at, look(1));
    assert_eq!(judgements[1].decided_at, look(2));
    assert!(
        judgements[0]
            .sentence
            .ends_with(" Decided at look 1 of 2, after 3 rounds."),
        "{}",
        judgements[0].sentence
    );
}

#[test]
fn an_arm_that_is_out_needs_no_further_rounds_and_too_few_rounds_do() {
    let mut out = cell("a", 100.0, 3);
    out.invalid.push((2, "it printed another token".into()));
    let few = cell("b", 100.0, 2);
    let mut looks = sequence(2);
    let first = looks.look(1, &[out, few]);
    assert!(!looks.is_open("a", &first));
    assert!(looks.is_open("b", &first));
}

fn with_control(mut data: CellData, factor: f64) -> CellData {
    data.arms.push(ArmCopy {
        name: "base-control".into(),
        treatment: 2,
        null_of: None,
        declared: false,
        injected: Some(Injected {
            delta: 0.03,
            reaches: true,
        }),
    });
    for (row, slots) in data.rounds.iter_mut().zip(&mut data.slots) {
        row.push(row[1] * factor);
        slots.push(3);
    }
    data
}

#[test]
fn a_cell_goes_on_until_its_control_is_found_and_a_found_one_stays_found() {
    let mut looks = sequence(2);
    let missed = with_control(cell("a", 100.0, 3), 1.0);
    let first = looks.look(1, &[missed]);
    assert!(
        looks.is_open("a", &first),
        "the verdict is there, the control is not"
    );
    let second = looks.look(2, &[with_control(cell("a", 100.0, 5), 1.03)]);
    assert!(!looks.is_open("a", &second));
    let decision = looks.finish(second, None);
    assert!(decision.controls[0].found);
    assert_eq!(decision.judgements[0].verdict, Verdict::Equivalent);
}

#[test]
fn a_control_that_no_look_finds_makes_kept_verdicts_invalid_too() {
    let mut looks = sequence(2);
    let data = || with_control(cell("a", 103.0, 5), 1.0);
    let _ = looks.look(1, &[data()]);
    let last = looks.look(2, &[data()]);
    let decision = looks.finish(last, None);
    assert_eq!(decision.judgements[0].verdict, Verdict::Invalid);
}

#[test]
fn only_a_failure_that_happens_twice_fails_and_the_second_effect_is_reported() {
    for (second, verdict, fate) in [
        (
            102.0,
            Verdict::Regressed,
            "5 first rounds failed the gate (+3.00 %); these 5 fresh ones confirm it.",
        ),
        (
            100.0,
            Verdict::Equivalent,
            "these 5 fresh ones do not confirm it.",
        ),
    ] {
        let mut looks = sequence(1);
        let last = looks.look(1, &[cell("a", 103.0, 5), cell("b", 100.0, 5)]);
        assert!(looks.fails("a") && !looks.fails("b"));
        let decision = looks.finish(last, Some(&[cell("a", second, 5)]));
        let judgement = &decision.judgements[0];
        assert_eq!(judgement.verdict, verdict);
        let delta = judgement.estimate.unwrap().delta;
        assert!((delta - (second / 100.0_f64).ln()).abs() < 0.002, "{delta}");
        assert!(judgement.sentence.ends_with(fate), "{}", judgement.sentence);
        assert_eq!(decision.judgements[1].verdict, Verdict::Equivalent);
        assert_eq!(decision.judgements[1].decided_at, None);
    }
}

#[test]
fn a_confirmation_that_could_not_be_made_is_no_failure() {
    let mut looks = sequence(1);
    let last = looks.look(1, &[cell("a", 103.0, 5)]);
    let decision = looks.finish(last, Some(&[cell("a", 103.0, 1)]));
    assert_eq!(decision.judgements[0].verdict, Verdict::Invalid);
    assert_eq!(decision.judgements[0].gate, Gate::Undecided);
}
