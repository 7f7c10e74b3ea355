//! Closed forms, slow twins, and what cannot be fitted.

use proptest::prelude::*;

use super::*;
use crate::stats::random::SplitMix64;

fn each(places: &[Vec<usize>]) -> Slots<'_> {
    Slots {
        places,
        effect: SlotEffect::Each,
    }
}

fn noise(rounds: usize, arms: usize, seed: u64) -> Vec<Vec<f64>> {
    let mut random = SplitMix64::new(seed);
    (0..rounds)
        .map(|_| (0..arms).map(|_| random.normal()).collect())
        .collect()
}

/// The slow twin for two treatments without slots: subtract each round's
/// mean, then compare group means, by hand.
fn by_hand(y: &[Vec<f64>], treatments: &[usize]) -> (f64, f64, f64) {
    let (rounds, arms) = (y.len() as f64, treatments.len() as f64);
    let group = |wanted: usize| -> f64 {
        let columns: Vec<usize> = (0..treatments.len())
            .filter(|&a| treatments[a] == wanted)
            .collect();
        y.iter()
            .flat_map(|row| columns.iter().map(|&a| row[a]))
            .sum::<f64>()
            / (rounds * columns.len() as f64)
    };
    let delta = group(1) - group(0);
    let k = treatments.iter().filter(|&&t| t == 0).count() as f64;
    let m = arms - k;
    let mut rss = 0.0;
    for row in y {
        let mean = row.iter().sum::<f64>() / arms;
        for (value, &t) in row.iter().zip(treatments) {
            let effect = if t == 1 { delta * k } else { -delta * m } / arms;
            rss += (value - mean - effect).powi(2);
        }
    }
    let df = rounds * (arms - 1.0) - 1.0;
    let se = (rss / df * (1.0 / k + 1.0 / m) / rounds).sqrt();
    (delta, se, df)
}

/// The slow twin for any design: one column per round, one per treatment and per
/// slot but the first. Estimate of treatment `second` against the first, its
/// unscaled variance, residual variance, degrees of freedom.
fn with_round_columns(y: &[Vec<f64>], layout: Layout<'_>, second: usize) -> [f64; 4] {
    let (rounds, arms) = (y.len(), layout.treatments.len());
    let treatments = layout.treatments.iter().max().unwrap() + 1;
    let slots = layout.slots.map_or(0, |slots| match slots.effect {
        SlotEffect::Each => arms - 1,
        SlotEffect::Slope => 1,
    });
    let first_of_slots = rounds + treatments - 1;
    let mut design = DMatrix::zeros(rounds * arms, first_of_slots + slots);
    for round in 0..rounds {
        for (arm, &treatment) in layout.treatments.iter().enumerate() {
            let row = round * arms + arm;
            design[(row, round)] = 1.0;
            if treatment > 0 {
                design[(row, rounds + treatment - 1)] = 1.0;
            }
            let Some(slots) = layout.slots else { continue };
            match (slots.places[round][arm], slots.effect) {
                (slot, SlotEffect::Slope) => design[(row, first_of_slots)] = slot as f64,
                (0, SlotEffect::Each) => {}
                (slot, SlotEffect::Each) => design[(row, first_of_slots + slot - 1)] = 1.0,
            }
        }
    }
    let values = DVector::from_iterator(rounds * arms, y.iter().flatten().copied());
    let inverse = (design.transpose() * &design).try_inverse().unwrap();
    let coefficients = &inverse * design.transpose() * &values;
    let residuals = &values - &design * &coefficients;
    let df = (design.nrows() - design.ncols()) as f64;
    let at = rounds + second - 1;
    [
        coefficients[at],
        inverse[(at, at)],
        residuals.norm_squared() / df,
        df,
    ]
}

#[test]
fn taking_the_rounds_out_changes_nothing() {
    for (seed, treatments) in [(1, vec![0, 1, 2]), (2, vec![0, 0, 1, 2]), (3, vec![0, 1])] {
        let arms = treatments.len();
        let slots: Vec<Vec<usize>> = (0..2 * arms)
            .map(|round| (0..arms).map(|arm| (arm + round) % arms).collect())
            .collect();
        let y = noise(2 * arms, arms, seed);
        for effect in [None, Some(SlotEffect::Each), Some(SlotEffect::Slope)] {
            let layout = Layout {
                treatments: &treatments,
                slots: effect.map(|effect| Slots {
                    places: &slots,
                    effect,
                }),
            };
            let fitted = fit(&y, layout).unwrap();
            let last = *treatments.last().unwrap();
            let contrast = fitted.contrast(0, last).unwrap();
            let got = [
                contrast.estimate,
                contrast.unscaled_variance,
                fitted.variance,
                fitted.df as f64,
            ];
            for (got, want) in got.into_iter().zip(with_round_columns(&y, layout, last)) {
                assert!((got - want).abs() < 1e-12, "{treatments:?}: {got} {want}");
            }
        }
    }
}

#[test]
fn one_treatment_alone_leaves_the_noise_within_rounds() {
    let layout = Layout {
        treatments: &[0, 0],
        slots: None,
    };
    let fitted = fit(&[vec![1.0, 3.0], vec![7.0, 5.0]], layout).unwrap();
    // Each round leaves ±1 twice, over two degrees of freedom.
    assert!((fitted.variance - 2.0).abs() < 1e-12);
    assert_eq!((fitted.df, fitted.contrast(0, 1)), (2, None));
}

#[test]
fn two_treatments_follow_the_closed_form() {
    for (k, m) in [(1, 1), (2, 1), (1, 2), (2, 2), (3, 1), (4, 3)] {
        for rounds in [3, 5, 10] {
            let treatments: Vec<usize> = (0..k + m).map(|a| usize::from(a >= k)).collect();
            let y = noise(rounds, k + m, (k * 100 + m * 10 + rounds) as u64);
            let layout = Layout {
                treatments: &treatments,
                slots: None,
            };
            let fitted = fit(&y, layout).unwrap();
            let contrast = fitted.contrast(0, 1).unwrap();
            let (delta, se, df) = by_hand(&y, &treatments);
            assert!((contrast.estimate - delta).abs() < 1e-12);
            assert!((contrast.standard_error - se).abs() < 1e-12);
            assert!((fitted.df as f64 - df).abs() < 1e-12);
        }
    }
}

#[test]
fn every_further_treatment_costs_one_degree_of_freedom() {
    let treatments = [0, 0, 1, 2, 2];
    let y = noise(6, 5, 3);
    let fitted = fit(
        &y,
        Layout {
            treatments: &treatments,
            slots: None,
        },
    )
    .unwrap();
    assert_eq!(fitted.df, 6 * 4 - 2);
    // 1/k + 1/m over R, for k = 2 copies of base, m = 2 of treatment 2.
    let contrast = fitted.contrast(0, 2).unwrap();
    assert!((contrast.unscaled_variance - 1.0 / 6.0).abs() < 1e-12);
    // Treatments 1 and 2 against each other: (1 + 1/2)/R.
    let contrast = fitted.contrast(1, 2).unwrap();
    assert!((contrast.unscaled_variance - 0.25).abs() < 1e-12);
}

#[test]
fn slot_effects_of_a_balanced_square_are_taken_out() {
    let slots = vec![vec![0, 1, 2], vec![2, 0, 1], vec![1, 2, 0]];
    let slots: Vec<Vec<usize>> = slots.iter().chain(&slots).cloned().collect();
    let mut y = noise(6, 3, 9);
    let treatments = [0, 0, 1];
    let plain = fit(
        &y,
        Layout {
            treatments: &treatments,
            slots: Some(each(&slots)),
        },
    )
    .unwrap();
    for (row, places) in y.iter_mut().zip(&slots) {
        for (value, &slot) in row.iter_mut().zip(places) {
            *value += [0.0, 5.0, -3.0][slot];
        }
    }
    let shifted = fit(
        &y,
        Layout {
            treatments: &treatments,
            slots: Some(each(&slots)),
        },
    )
    .unwrap();
    let (a, b) = (
        plain.contrast(0, 1).unwrap(),
        shifted.contrast(0, 1).unwrap(),
    );
    assert!((a.estimate - b.estimate).abs() < 1e-12);
    assert!((a.standard_error - b.standard_error).abs() < 1e-12);
    // 18 values, 6 rounds, 1 treatment effect, 2 slot effects.
    assert_eq!(shifted.df, 18 - 9);
    assert!((b.unscaled_variance - 1.5 / 6.0).abs() < 1e-12);
}

#[test]
fn a_drift_over_the_slots_is_taken_out_by_one_degree_of_freedom() {
    let places = vec![vec![0, 1, 2], vec![2, 0, 1], vec![1, 2, 0]];
    let layout = Layout {
        treatments: &[0, 0, 1],
        slots: Some(Slots {
            places: &places,
            effect: SlotEffect::Slope,
        }),
    };
    let mut y = noise(3, 3, 9);
    let still = fit(&y, layout).unwrap();
    for (row, places) in y.iter_mut().zip(&places) {
        for (value, &slot) in row.iter_mut().zip(places) {
            *value += 0.7 * slot as f64;
        }
    }
    let drifting = fit(&y, layout).unwrap();
    assert!((still.variance - drifting.variance).abs() < 1e-12);
    let estimate = |fit: &Fit| fit.contrast(0, 1).unwrap().estimate;
    assert!((estimate(&still) - estimate(&drifting)).abs() < 1e-12);
    // 9 values, 3 rounds, 1 treatment effect, 1 slope.
    assert_eq!(drifting.df, 4);
}

/// The twin: what one unit of noise in each value leaves of the contrast, summed up.
#[test]
fn degrees_of_freedom_of_a_contrast_are_what_unit_noise_leaves_of_it() {
    let places: Vec<Vec<usize>> = (0..6)
        .map(|round| (0..4).map(|arm| (arm + round * round) % 4).collect())
        .collect();
    let weights = [-0.5, -0.5, 0.5, 0.5];
    for effect in [None, Some(SlotEffect::Each), Some(SlotEffect::Slope)] {
        let layout = Layout {
            treatments: &[0, 0, 1, 1],
            slots: effect.map(|effect| Slots {
                places: &places,
                effect,
            }),
        };
        let mut left = 0.0;
        for at in 0..24 {
            let mut y = vec![vec![0.0; 4]; 6];
            y[at / 4][at % 4] = 1.0;
            let unit = fit(&y, layout).unwrap();
            for round in 0..6 {
                let terms = weights.iter().enumerate();
                let contrast: f64 = terms.map(|(a, w)| w * unit.residual(round, a)).sum();
                left += contrast.powi(2);
            }
        }
        let found = fit(&noise(6, 4, 1), layout).unwrap().df_of(&weights);
        assert!((found - left).abs() < 1e-12, "{effect:?}: {found} {left}");
    }
}

#[test]
fn a_design_that_cannot_tell_its_effects_apart_is_an_error() {
    // The candidate always runs last: slot 1 is treatment 1.
    let slots = vec![vec![0, 1]; 5];
    let y = noise(5, 2, 1);
    let layout = Layout {
        treatments: &[0, 1],
        slots: Some(each(&slots)),
    };
    assert_eq!(
        fit(&y, layout).unwrap_err(),
        ModelError::RankDeficient { parameters: 7 }
    );
    let alone = Layout {
        treatments: &[0, 1],
        slots: None,
    };
    assert_eq!(
        fit(&y[..1], alone).unwrap_err(),
        ModelError::NoResidual {
            observations: 2,
            parameters: 2
        }
    );
}

#[test]
fn data_of_the_wrong_shape_is_an_error() {
    let layout = Layout {
        treatments: &[0, 1],
        slots: None,
    };
    assert!(matches!(fit(&[], layout), Err(ModelError::Shape { .. })));
    let ragged = [vec![1.0, 2.0], vec![1.0]];
    assert_eq!(
        fit(&ragged, layout).unwrap_err().to_string(),
        "expected 2 values in round 2, got 1"
    );
    let infinite = [vec![1.0, f64::INFINITY], vec![1.0, 2.0]];
    assert_eq!(
        fit(&infinite, layout).unwrap_err(),
        ModelError::NotFinite {
            round: 1,
            column: 1
        }
    );
}

#[test]
fn values_without_noise_have_a_variance_of_exactly_zero() {
    let layout = Layout {
        treatments: &[0, 0, 1],
        slots: None,
    };
    let different = vec![vec![0.0, 0.0, (1.1_f64).ln()]; 5];
    let fitted = fit(&different, layout).unwrap();
    let contrast = fitted.contrast(0, 1).unwrap();
    assert!(fitted.variance.abs() < f64::MIN_POSITIVE);
    assert!((contrast.estimate - (1.1_f64).ln()).abs() < 1e-14);
    assert!(contrast.standard_error.abs() < f64::MIN_POSITIVE);
    // Rounds may differ by anything: that is no noise of the comparison.
    let drifting: Vec<Vec<f64>> = (0..5).map(|r| vec![f64::from(r).ln_1p(); 3]).collect();
    let contrast = fit(&drifting, layout).unwrap().contrast(0, 1).unwrap();
    assert!(contrast.estimate.abs() < f64::MIN_POSITIVE);
    assert!(contrast.standard_error.abs() < f64::MIN_POSITIVE);
}

#[test]
fn a_balanced_order_has_every_arm_in_every_slot_equally_often() {
    let square = vec![vec![0, 1], vec![1, 0]];
    assert_eq!(slot_spread(&square, 2), Some(0));
    assert_eq!(slot_spread(&square[..1], 2), Some(1));
    assert_eq!(slot_spread(&[vec![0, 1], vec![0, 1]], 2), Some(2));
    assert_eq!(slot_spread(&[vec![0, 5]], 2), None);
    assert_eq!(slot_spread(&[vec![0]], 2), None);
}

proptest! {
    #[test]
    fn adding_to_a_round_changes_nothing(
        seed in 0..1000_u64, rounds in 3..7_usize, shift in -9.0..9.0_f64,
    ) {
        let treatments = [0, 1, 0, 2];
        let layout = Layout { treatments: &treatments, slots: None };
        let mut y = noise(rounds, 4, seed);
        let before = fit(&y, layout).unwrap().contrast(0, 2).unwrap();
        y[1].iter_mut().for_each(|value| *value += shift);
        let after = fit(&y, layout).unwrap().contrast(0, 2).unwrap();
        prop_assert!((before.estimate - after.estimate).abs() < 1e-10);
        prop_assert!((before.standard_error - after.standard_error).abs() < 1e-10);
    }
}
