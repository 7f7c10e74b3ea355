//! Each row of the table, the closed forms, and what no input may do.

use proptest::prelude::*;

use super::*;
use crate::verdict::example::{RULE, cell, noisy, sealed_rule};
use crate::verdict::foresight::PlannedShape;
use crate::verdict::rule::{ArmCopy, Revision};

fn one(data: CellData) -> Judgement {
    let mut judgements = decide(&[data], &RULE);
    assert_eq!(judgements.len(), 1);
    judgements.remove(0)
}

fn verdict_of(base: f64, candidate: f64, better: Better) -> Verdict {
    one(noisy("decode_tok_s", better, base, candidate)).verdict
}

#[test]
fn each_row_of_the_table_is_reached() {
    use Better::{Higher, Lower};
    for (candidate, better, want) in [
        (97.0, Higher, Verdict::Regressed),
        (103.0, Lower, Verdict::Regressed),
        (99.7, Higher, Verdict::SlowerWithinThreshold),
        (100.3, Lower, Verdict::SlowerWithinThreshold),
        (99.05, Higher, Verdict::SlowerSizeUndecided),
        (100.0, Higher, Verdict::Equivalent),
        (103.0, Higher, Verdict::Improved),
        (97.0, Lower, Verdict::Improved),
    ] {
        assert_eq!(
            verdict_of(100.0, candidate, better),
            want,
            "{candidate} {better:?}"
        );
    }
    // Wide noise: nothing is proven.
    let wild = [
        [100.0, 104.0, 97.0],
        [103.0, 99.0, 105.0],
        [98.0, 103.0, 101.0],
    ];
    assert_eq!(
        one(cell("wall_s", Better::Lower, &wild)).verdict,
        Verdict::Unresolved
    );
    // Wide noise, and far on the good side, but not proven faster among twenty.
    let good = [
        [100.0, 101.0, 99.0],
        [101.0, 100.0, 98.5],
        [100.0, 100.5, 99.8],
    ];
    let mut family = vec![cell("wall_s", Better::Lower, &good)];
    family.extend((0..19).map(|_| cell("wall_s", Better::Lower, &wild)));
    assert_eq!(decide(&family, &RULE)[0].verdict, Verdict::NotSlower);
}

#[test]
fn the_estimate_follows_the_closed_form() {
    let data = noisy("wall_s", Better::Lower, 100.0, 100.4);
    let found = one(data.clone()).estimate.unwrap();
    let y: Vec<Vec<f64>> = data
        .rounds
        .iter()
        .map(|row| row.iter().map(|value| value.ln()).collect())
        .collect();
    let delta = y
        .iter()
        .map(|r| r[2] - f64::midpoint(r[0], r[1]))
        .sum::<f64>()
        / 5.0;
    let mut rss = 0.0;
    for row in &y {
        let mean = row.iter().sum::<f64>() / 3.0;
        for (value, effect) in row.iter().zip([-delta / 3.0, -delta / 3.0, delta / 1.5]) {
            rss += (value - mean - effect).powi(2);
        }
    }
    // k = 2 copies of the base, m = 1, R = 5: df = 5·2 − 1.
    let error = (rss / 9.0 * 1.5 / 5.0_f64).sqrt();
    assert!((found.delta - delta).abs() < 1e-12);
    assert!((found.standard_error - error).abs() < 1e-12);
    assert!((found.degrees_of_freedom - 9.0).abs() < 1e-12);
    assert!((found.high - delta - 2.262_157 * error).abs() < 1e-8);
    assert!((found.upper_bound - delta - 1.833_113 * error).abs() < 1e-8);
    assert!((found.low + found.high - 2.0 * delta).abs() < 1e-12);
    assert!((found.lower_bound + found.upper_bound - 2.0 * delta).abs() < 1e-12);
}

#[test]
fn a_rate_and_its_reciprocal_time_are_judged_alike() {
    let rate = noisy("decode_tok_s", Better::Higher, 100.0, 98.2);
    let mut time = rate.clone();
    time.better = Better::Lower;
    time.rounds
        .iter_mut()
        .flatten()
        .for_each(|value| *value = value.recip());
    let (rate, time) = (one(rate), one(time));
    let (a, b) = (rate.estimate.unwrap(), time.estimate.unwrap());
    assert!(a.delta > 0.0);
    assert!((a.delta - b.delta).abs() < 1e-12);
    assert!((rate.p.unwrap() - time.p.unwrap()).abs() < 1e-12);
    // The gate is not quite the same: 1 % less of a rate is 1.0101 % more time.
    assert!(rate.tau > time.tau);
}

#[test]
fn an_arm_that_is_out_is_told_why_even_where_no_round_is_complete() {
    let mut data = cell("wall_s", Better::Lower, &[]);
    data.invalid = vec![(2, "it failed in every undisturbed try".into())];
    let judged = one(data);
    assert_eq!(judged.verdict, Verdict::Invalid);
    assert!(
        judged.sentence.contains("failed in every undisturbed try"),
        "{}",
        judged.sentence
    );
}

#[test]
fn equal_counters_are_equivalent_with_an_interval_of_no_width() {
    for value in [4096.0, 0.0] {
        let same = one(cell("peak_bytes", Better::Lower, &[[value; 3]; 3]));
        let estimate = same.estimate.unwrap();
        assert_eq!(same.verdict, Verdict::Equivalent);
        assert_eq!((estimate.low, estimate.high), (0.0, 0.0));
        assert_eq!(same.p, Some(1.0));
        assert!(
            same.sentence.contains("no noise at all"),
            "{}",
            same.sentence
        );
        assert_eq!(same.power.unwrap().pass_if_unchanged, 1.0);
    }
}

#[test]
fn different_counters_without_noise_are_decided_by_their_values() {
    let of = |candidate| {
        one(cell(
            "peak_bytes",
            Better::Lower,
            &[[1000.0, 1000.0, candidate]; 3],
        ))
    };
    for (candidate, want) in [
        (1020.0, Verdict::Regressed),
        (1005.0, Verdict::SlowerWithinThreshold),
        (900.0, Verdict::Improved),
    ] {
        let judged = of(candidate);
        assert_eq!(judged.verdict, want);
        assert_eq!(judged.p, Some(0.0));
        assert!(
            judged.sentence.contains("values alone decide"),
            "{}",
            judged.sentence
        );
    }
}

#[test]
fn fewer_rounds_than_the_rule_wants_are_invalid() {
    let judged = one(cell(
        "wall_s",
        Better::Lower,
        &[[1.0, 1.1, 1.2], [1.1, 1.0, 1.2]],
    ));
    assert_eq!(judged.verdict, Verdict::Invalid);
    assert_eq!(judged.estimate, None);
    assert!(
        judged.sentence.contains("only 2 complete rounds"),
        "{}",
        judged.sentence
    );
    assert_eq!(
        one(cell("wall_s", Better::Lower, &[])).verdict,
        Verdict::Invalid
    );
}

fn with_third_arm(treatment: usize) -> CellData {
    let mut data = noisy("wall_s", Better::Lower, 100.0, 100.0);
    data.arms.push(ArmCopy {
        name: "fix".into(),
        treatment,
        null_of: None,
        declared: true,
        injected: None,
    });
    for (index, row) in data.rounds.iter_mut().enumerate() {
        let value = row[0] * [1.0003, 0.9996, 0.9999, 1.0002, 1.0005][index];
        row.push(value);
    }
    data.slots = vec![vec![0, 1, 2, 3]; 5];
    data
}

#[test]
fn an_invalid_arm_is_out_and_the_others_are_judged_without_it() {
    let mut data = with_third_arm(2);
    // What an arm left behind that broke its expectations is never looked at.
    data.rounds.iter_mut().for_each(|row| row[2] = f64::NAN);
    data.invalid
        .push((2, "wrapped is false, expected true".into()));
    let judged = decide(&[data], &RULE);
    assert_eq!(judged[0].verdict, Verdict::Invalid);
    assert_eq!(
        judged[0].sentence,
        "No verdict on wall_s of `main`: wrapped is false, expected true."
    );
    assert_eq!(judged[1].verdict, Verdict::Equivalent);
    let df = judged[1].estimate.unwrap().degrees_of_freedom;
    assert!((df - 9.0).abs() < 1e-12, "{df}");
}

#[test]
fn a_null_arm_that_is_invalid_takes_its_treatment_with_it() {
    let mut data = noisy("wall_s", Better::Lower, 100.0, 100.0);
    data.invalid.push((1, "exit status 1".into()));
    let judged = one(data);
    assert_eq!(judged.verdict, Verdict::Invalid);
    assert!(
        judged
            .sentence
            .contains("the base cannot be judged: `base-null`")
    );
}

#[test]
fn a_zero_or_a_nan_in_a_valid_arm_is_invalid_and_says_where() {
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let mut data = noisy("wall_s", Better::Lower, 100.0, 100.0);
        data.rounds[1][2] = bad;
        let judged = one(data);
        assert_eq!(judged.verdict, Verdict::Invalid);
        assert!(
            judged.sentence.contains("2nd complete round"),
            "{}",
            judged.sentence
        );
    }
}

#[test]
fn a_candidate_that_is_the_base_again_has_nothing_to_be_compared() {
    let judged = decide(&[with_third_arm(0)], &RULE);
    assert_eq!(judged[1].verdict, Verdict::Invalid);
    assert!(
        judged[1].sentence.contains("same program"),
        "{}",
        judged[1].sentence
    );
    assert_ne!(judged[0].verdict, Verdict::Invalid);
}

#[test]
fn a_candidate_that_turned_out_to_be_the_base_is_identical_and_costs_the_others_nothing() {
    let mut data = with_third_arm(0);
    data.arms[3].null_of = Some("base".into());
    let judged = decide(&[data.clone()], &RULE);
    assert_eq!(judged.len(), 2);
    assert_eq!(
        (judged[1].verdict, judged[1].gate),
        (Verdict::Identical, Gate::Pass)
    );
    assert!(
        judged[1]
            .sentence
            .starts_with("`fix` is identical to `base`"),
        "{}",
        judged[1].sentence
    );
    assert_eq!(judged[0].p, judged[0].p_adjusted);
    assert_eq!(judged[1].nulls.len(), 2);
    // A null arm that the plan added is none of the candidates.
    data.arms[3].declared = false;
    assert_eq!(decide(&[data], &RULE).len(), 1);
}

#[test]
fn an_identical_candidate_passes_only_where_its_program_was_seen_to_work() {
    let mut data = with_third_arm(0);
    data.arms[3].null_of = Some("base".into());
    let verdict = |data: &CellData| decide(std::slice::from_ref(data), &RULE)[1].clone();
    // The null arm runs the base's program: where it fails, the base and the candidate do.
    let out = CellData {
        invalid: vec![(1, "it failed".into())],
        ..data.clone()
    };
    assert_eq!(verdict(&out).verdict, Verdict::Invalid);
    assert!(verdict(&out).sentence.contains("it failed"));
    data.rounds.truncate(2);
    data.slots.truncate(2);
    assert_eq!(verdict(&data).verdict, Verdict::Invalid);
}

/// Without noise, and the base's own copy differs as much as the candidate.
#[test]
fn copies_that_always_differ_by_the_same_are_no_regression_of_the_candidate() {
    let rule = sealed_rule();
    let apart = cell("blocks", Better::Lower, &[[1000.0, 1030.0, 1030.0]; 10]);
    let judged = &decide(&[apart], &rule)[0];
    assert_eq!(judged.verdict, Verdict::Invalid);
    assert!(judged.sentence.contains("+3.00 %"), "{}", judged.sentence);
    let alike = cell("blocks", Better::Lower, &[[1000.0, 1000.0, 1030.0]; 10]);
    assert_eq!(decide(&[alike], &rule)[0].verdict, Verdict::Regressed);
}

/// The rule of a record is the one that it was sealed with, blind spots included.
#[test]
fn copies_that_always_differ_by_the_same_refute_nothing_that_was_sealed_before_the_third_revision()
{
    let apart = [cell(
        "blocks",
        Better::Lower,
        &[[1000.0, 1030.0, 1030.0]; 10],
    )];
    let verdict = |revision| {
        let sealed = Rule {
            revision,
            ..sealed_rule()
        };
        decide(&apart, &sealed)[0].verdict
    };
    let verdicts = [Revision::First, Revision::Second, Revision::Third].map(verdict);
    let before = Verdict::Regressed;
    assert_eq!(verdicts, [before, before, Verdict::Invalid]);
}

#[test]
fn a_rule_without_meaning_judges_nothing() {
    let data = [noisy("decode_tok_s", Better::Higher, 100.0, 100.0)];
    for rule in [
        Rule {
            threshold_pct: 100.0,
            ..RULE
        },
        Rule {
            threshold_pct: f64::NAN,
            ..RULE
        },
        Rule { alpha: 0.0, ..RULE },
        Rule {
            alpha: f64::NAN,
            ..RULE
        },
    ] {
        assert_eq!(decide(&data, &rule)[0].verdict, Verdict::Invalid);
    }
}

#[test]
fn the_family_counts_every_gated_comparison_even_the_invalid_ones() {
    let found = noisy("wall_s", Better::Lower, 100.0, 100.12);
    let mut lost = found.clone();
    lost.rounds.truncate(1);
    let mut shown = found.clone();
    shown.gated = false;
    let judged = decide(&[found, lost, shown], &RULE);
    let p = judged[0].p.unwrap();
    assert!((judged[0].p_adjusted.unwrap() - 2.0 * p).abs() < 1e-12);
    assert_eq!(judged[2].p_adjusted, judged[2].p);
}

/// Rounds of a cell with its slots, and the degrees of freedom that each revision leaves.
fn df_by_revision(rounds: usize, balanced: bool, slots: &[[usize; 3]]) -> [f64; 2] {
    let mut data = noisy("wall_s", Better::Lower, 100.0, 100.0);
    let more = data.rounds.clone();
    data.rounds.extend(more);
    data.rounds.truncate(rounds);
    data.slots = slots
        .iter()
        .cycle()
        .take(rounds)
        .map(|row| row.to_vec())
        .collect();
    data.balanced = balanced;
    [Revision::First, Revision::Second].map(|revision| {
        let rule = Rule { revision, ..RULE };
        let judged = decide(std::slice::from_ref(&data), &rule).remove(0);
        judged.estimate.unwrap().degrees_of_freedom
    })
}

#[test]
fn slots_enter_the_model_one_by_one_from_two_squares_on_and_before_as_a_slope() {
    const SQUARE: [[usize; 3]; 3] = [[0, 1, 2], [1, 2, 0], [2, 0, 1]];
    // 2 of each round, less 1 for the treatment.
    assert_eq!(df_by_revision(3, true, &SQUARE), [5.0 - 2.0, 5.0 - 1.0]);
    assert_eq!(df_by_revision(6, true, &SQUARE), [11.0 - 2.0, 11.0 - 2.0]);
    assert_eq!(df_by_revision(5, false, &SQUARE), [9.0, 9.0 - 1.0]);
    // A flag that the slots contradict is not believed, and neither revision uses slots in
    // which an arm stands again and again.
    let same = [[0, 1, 2]; 3];
    assert_eq!(df_by_revision(3, true, &same), [5.0, 5.0]);
}

#[test]
fn the_null_band_is_the_range_of_the_null_arm_against_its_own_arm() {
    let judged = one(cell(
        "wall_s",
        Better::Lower,
        &[
            [100.0, 101.0, 100.0],
            [100.0, 98.0, 100.0],
            [100.0, 100.5, 100.0],
        ],
    ));
    let band = &judged.nulls[0];
    assert_eq!(band.name, "base-null");
    assert!((band.low - 0.98_f64.ln()).abs() < 1e-12);
    assert!((band.median - 1.005_f64.ln()).abs() < 1e-12);
    assert!((band.high - 1.01_f64.ln()).abs() < 1e-12);
}

#[test]
fn other_estimators_are_paired_and_unpaired_medians() {
    let data = cell(
        "decode_tok_s",
        Better::Higher,
        &[[100.0, 1.0, 99.0], [110.0, 1.0, 107.0], [120.0, 1.0, 119.0]],
    );
    let others = one(data).others.unwrap();
    let ratios: [f64; 3] = [100.0 / 99.0, 110.0 / 107.0, 120.0 / 119.0].map(f64::ln);
    assert!((others.median_paired - ratios[0]).abs() < 1e-12);
    assert!((others.ratio_of_medians - ratios[1]).abs() < 1e-12);
    let walsh = f64::midpoint(ratios[0], f64::midpoint(ratios[1], ratios[2]));
    assert!((others.hodges_lehmann - walsh).abs() < 1e-12);
}

#[test]
fn names_and_order_of_arms_change_no_number() {
    let plain = with_third_arm(2);
    let mut turned = plain.clone();
    turned.arms.reverse();
    turned.base = 3;
    turned.rounds.iter_mut().for_each(|row| row.reverse());
    for (index, arm) in turned.arms.iter_mut().enumerate() {
        arm.treatment = 70 - arm.treatment;
        if arm.null_of.is_none() && index != 3 {
            arm.name = format!("renamed-{index}");
        }
    }
    let (a, b) = (decide(&[plain], &RULE), decide(&[turned], &RULE));
    for (first, second) in a.iter().zip(b.iter().rev()) {
        let (x, y) = (first.estimate.unwrap(), second.estimate.unwrap());
        assert!((x.delta - y.delta).abs() < 1e-13);
        assert!((x.standard_error - y.standard_error).abs() < 1e-13);
        assert!((first.p.unwrap() - second.p.unwrap()).abs() < 1e-9);
        assert_eq!(first.verdict, second.verdict);
    }
}

fn is_finite(judged: &Judgement) -> bool {
    let estimate = judged.estimate.map_or(vec![], |e| {
        vec![
            e.delta,
            e.standard_error,
            e.low,
            e.high,
            e.upper_bound,
            e.lower_bound,
        ]
    });
    let power = judged.power.map_or(vec![], |p| {
        vec![p.sigma, p.detectable, p.fails_gate, p.pass_if_unchanged]
    });
    let others = judged.others.map_or(vec![], |o| {
        vec![o.median_paired, o.ratio_of_medians, o.hodges_lehmann]
    });
    let bands = judged.nulls.iter().flat_map(|n| [n.median, n.low, n.high]);
    let p = judged.p.into_iter().chain(judged.p_adjusted);
    let all = [estimate, power, others].concat();
    all.into_iter().chain(bands).chain(p).all(f64::is_finite)
        && !judged.sentence.contains("NaN")
        && !judged.sentence.contains("inf")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_positive_numbers_give_finite_answers(
        exponents in proptest::collection::vec(-300.0..300.0_f64, 9..=18),
        higher: bool, gated: bool,
    ) {
        let rounds: Vec<[f64; 3]> = exponents
            .chunks_exact(3)
            .map(|row| [row[0], row[1], row[2]].map(|x| 10_f64.powf(x)))
            .collect();
        let better = if higher { Better::Higher } else { Better::Lower };
        let mut data = cell("wall_s", better, &rounds);
        data.gated = gated;
        let judged = one(data);
        prop_assert!(judged.estimate.is_some());
        prop_assert!(is_finite(&judged), "{judged:?}");
    }

    #[test]
    fn any_rule_gives_finite_answers(
        values in proptest::collection::vec(95.0..105.0_f64, 12),
        alpha in -0.1..1.1_f64, threshold_pct in -5.0..120.0_f64, higher: bool,
    ) {
        let rounds: Vec<[f64; 3]> =
            values.chunks_exact(3).map(|row| [row[0], row[1], row[2]]).collect();
        let better = if higher { Better::Higher } else { Better::Lower };
        let rule = Rule { threshold_pct, alpha, min_rounds: 0, ..RULE };
        let judged = decide(&[cell("wall_s", better, &rounds)], &rule).remove(0);
        prop_assert!(is_finite(&judged), "{judged:?}");
        let sane = alpha > 0.0 && alpha <= 0.5 && threshold_pct >= 0.0
            && (!higher || threshold_pct < 100.0);
        prop_assert_eq!(judged.verdict == Verdict::Invalid, !sane);
    }

    #[test]
    fn a_pass_always_has_its_bound_below_the_gate(
        values in proptest::collection::vec(95.0..105.0_f64, 15),
    ) {
        let rounds: Vec<[f64; 3]> =
            values.chunks_exact(3).map(|row| [row[0], row[1], row[2]]).collect();
        let judged = one(cell("wall_s", Better::Lower, &rounds));
        let estimate = judged.estimate.unwrap();
        prop_assert_eq!(judged.gate == Gate::Pass, estimate.upper_bound < judged.tau);
        if judged.gate == Gate::Fail {
            prop_assert!(estimate.delta >= judged.tau && estimate.low > 0.0);
        }
    }
}

/// docs/METHODOLOGY.md quotes the rule; this keeps the quotation true.
#[test]
fn the_manual_states_the_rounds_that_the_code_computes() {
    let manual = include_str!("../../../../docs/METHODOLOGY.md");
    let shape = PlannedShape {
        rounds: 3,
        arms: 3,
        treatments: 2,
        base_copies: 2,
        candidate_copies: 1,
    };
    let tau = tau(Better::Higher, 1.0).unwrap();
    for percent in [0.5, 1.0, 1.4, 4.0] {
        let comparison = Comparison::planned(shape, percent / 100.0, tau, 1);
        let rounds = comparison.power(&RULE).unwrap().rounds_to_pass.unwrap();
        let line = format!("| {percent} % | {rounds} | ");
        assert!(manual.contains(&line), "no line starts with {line}");
    }
}
