//! Randomisation test: were the labels of a round's runs of any account?
//!
//! If candidate and base do not differ, which of a round's runs was called the candidate
//! is a matter of the drawn order alone, and any other labelling was as likely (Fisher
//! 1935, "The design of experiments", chapter III). Labels are exchanged within rounds
//! among the candidate's and the base's copies; nothing is assumed about the noise but
//! that a round's runs are exchangeable. Over many comparisons the largest statistic is
//! compared, step by step (Westfall and Young 1993, "Resampling-based multiple testing",
//! algorithm 2.8). Comparisons are relabelled independently of each other, which is exact
//! for different cells and errs on the safe side for candidates that share a base.
//!
//! An effect τ is tested by subtracting it from the candidate first.

use super::count::count;
use super::random::SplitMix64;

/// Labellings drawn. The smallest p that so many can show is 1/2000.
pub const DRAWS: u32 = 1999;

/// Statistics this close are equal: the same sums in another order.
const TIE: f64 = 1e-9;

/// One comparison, round by round.
#[derive(Debug, Clone, PartialEq)]
pub struct Exchange {
    /// `rounds[r]`: the values of the base's copies, then those of the candidate's;
    /// natural logarithms, larger is slower.
    pub rounds: Vec<Vec<f64>>,
    /// How many of each round's last values are the candidate's.
    pub candidates: usize,
}

/// What relabelling says about one comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Randomised {
    /// Two-sided p of no difference, adjusted for all comparisons of the family.
    pub p_direction: f64,
    /// One-sided p of a candidate slower by at least the gate, unadjusted.
    pub p_gate: f64,
    /// The smallest `p_direction` that this many rounds can show.
    pub floor_direction: f64,
    /// The smallest `p_gate` that this many rounds can show.
    pub floor_gate: f64,
}

/// Relabels a family of comparisons, each with its own gate τ.
///
/// One answer per comparison, in their order. `None` for one without rounds, without
/// copies of either side, or without noise.
#[must_use]
pub fn randomise(family: &[(Exchange, f64)], seed: u64) -> Vec<Option<Randomised>> {
    let tested: Vec<Option<Tested>> = family
        .iter()
        .map(|(exchange, tau)| Tested::new(exchange, *tau))
        .collect();
    // The largest statistic first: step-down.
    let mut order: Vec<usize> = (0..tested.len())
        .filter(|&index| tested[index].is_some())
        .collect();
    let observed = |index: usize| tested[index].as_ref().map_or(0.0, |one| one.observed);
    order.sort_by(|&a, &b| observed(b).total_cmp(&observed(a)));
    let (mut beyond, mut below) = (vec![0_u32; tested.len()], vec![0_u32; tested.len()]);
    let mut random = SplitMix64::new(seed);
    for _ in 0..DRAWS {
        let mut largest = 0.0_f64;
        for &index in order.iter().rev() {
            let Some(one) = &tested[index] else { continue };
            let (statistic, shifted) = one.draw(&mut random);
            largest = largest.max(statistic);
            beyond[index] += u32::from(largest >= one.observed * (1.0 - TIE));
            below[index] += u32::from(shifted <= one.shifted + TIE * one.shifted.abs());
        }
    }
    let share = |hits: u32| f64::from(hits + 1) / f64::from(DRAWS + 1);
    let mut adjusted = 0.0_f64;
    let mut found = vec![None; tested.len()];
    for &index in &order {
        adjusted = adjusted.max(share(beyond[index]));
        found[index] = tested[index].as_ref().map(|one| Randomised {
            // Drawn labellings estimate a p that is never below its floor.
            p_direction: adjusted.max(one.floor_direction),
            p_gate: share(below[index]).max(one.floor_gate),
            floor_direction: one.floor_direction,
            floor_gate: one.floor_gate,
        });
    }
    found
}

/// A comparison ready to be relabelled.
struct Tested {
    /// Round after round, each value around its round's mean, and the same after τ was taken
    /// from the candidate's.
    values: Vec<(f64, f64)>,
    columns: usize,
    candidates: usize,
    /// Sum of squares within rounds; no labelling changes it.
    total: f64,
    /// Factor from the candidate's sum to the squared statistic's numerator.
    weight: f64,
    df: f64,
    /// |t| under the true labels.
    observed: f64,
    /// The candidate's sum under the true labels, τ subtracted.
    shifted: f64,
    floor_direction: f64,
    floor_gate: f64,
}

impl Tested {
    fn new(exchange: &Exchange, tau: f64) -> Option<Self> {
        let columns = exchange.rounds.first()?.len();
        let candidates = exchange.candidates;
        let bases = columns.checked_sub(candidates).filter(|&bases| bases > 0)?;
        if candidates == 0 || exchange.rounds.iter().any(|row| row.len() != columns) {
            return None;
        }
        let rounds = count(exchange.rounds.len());
        let plain = centred(exchange, 0.0);
        let total: f64 = plain.iter().flatten().map(|value| value * value).sum();
        // A difference of means D has D² R/(1/k + 1/m) of it, and D is proportional to
        // the candidate's sum over all rounds.
        let labellings = labellings(bases, candidates, exchange.rounds.len());
        // With as many copies on both sides a labelling and its mirror image have one |t|.
        let mirrored = if bases == candidates { 2.0 } else { 1.0 };
        let inverse = 1.0 / count(bases) + 1.0 / count(candidates);
        let shifted = centred(exchange, tau);
        let sum =
            |rounds: &[Vec<f64>]| -> f64 { rounds.iter().flat_map(|row| &row[bases..]).sum() };
        let pairs = plain.iter().flatten().zip(shifted.iter().flatten());
        let mut one = Tested {
            values: pairs.map(|(plain, shifted)| (*plain, *shifted)).collect(),
            columns,
            candidates,
            total,
            weight: inverse / rounds,
            df: rounds * (count(columns) - 1.0) - 1.0,
            observed: 0.0,
            shifted: sum(&shifted),
            floor_direction: floor(labellings / mirrored),
            floor_gate: floor(labellings),
        };
        if !(one.total > 0.0 && one.df > 0.0) {
            return None;
        }
        one.observed = one.statistic(sum(&plain));
        Some(one)
    }

    /// |t| for a sum of the candidate's values.
    fn statistic(&self, sum: f64) -> f64 {
        let explained = (sum * sum * self.weight / self.total).min(1.0);
        (self.df * explained / (1.0 - explained)).sqrt()
    }

    /// |t| and the shifted sum under one random labelling.
    fn draw(&self, random: &mut SplitMix64) -> (f64, f64) {
        let (mut sum, mut shifted) = (0.0, 0.0);
        let mut take = |(plain, after_shift): (f64, f64)| {
            sum += plain;
            shifted += after_shift;
        };
        let columns = self.columns;
        let rounds = self.values.chunks_exact(columns);
        if self.candidates == 1 {
            rounds.for_each(|row| take(row[random.below(columns)]));
            return (self.statistic(sum), shifted);
        }
        let mut taken: Vec<usize> = Vec::with_capacity(self.candidates);
        for row in rounds {
            taken.clear();
            // Floyd's sampling without replacement, which needs no shuffled copy.
            for upper in columns - self.candidates..columns {
                let drawn = random.below(upper + 1);
                let at = if taken.contains(&drawn) { upper } else { drawn };
                taken.push(at);
                take(row[at]);
            }
        }
        (self.statistic(sum), shifted)
    }
}

/// Each round's values around their mean, after `shift` was taken from the candidate's.
fn centred(exchange: &Exchange, shift: f64) -> Vec<Vec<f64>> {
    exchange
        .rounds
        .iter()
        .map(|row| {
            let bases = row.len() - exchange.candidates;
            let value = |column: usize| row[column] - if column < bases { 0.0 } else { shift };
            let mean = (0..row.len()).map(value).sum::<f64>() / count(row.len());
            (0..row.len()).map(|column| value(column) - mean).collect()
        })
        .collect()
}

/// Number of ways to call `candidates` of each round's runs the candidate's.
fn labellings(bases: usize, candidates: usize, rounds: usize) -> f64 {
    let columns = bases + candidates;
    let per_round: f64 = (0..candidates)
        .map(|step| count(columns - step) / count(step + 1))
        .product();
    per_round.powi(i32::try_from(rounds).unwrap_or(i32::MAX))
}

/// The smallest p: one labelling of all, or one of those drawn.
fn floor(labellings: f64) -> f64 {
    labellings.min(f64::from(DRAWS + 1)).recip()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of two base copies and one candidate that is `delta` slower.
    fn exchange(rounds: usize, delta: f64, seed: u64) -> Exchange {
        let mut random = SplitMix64::new(seed);
        let rounds = (0..rounds)
            .map(|round| {
                let drift = 0.02 * count(round);
                let mut value = |effect: f64| drift + effect + 0.01 * random.normal();
                vec![value(0.0), value(0.0), value(delta)]
            })
            .collect();
        Exchange {
            rounds,
            candidates: 1,
        }
    }

    fn alone(exchange: Exchange) -> Randomised {
        randomise(&[(exchange, 0.01)], 1)[0].unwrap()
    }

    #[test]
    fn no_p_is_below_what_so_many_rounds_can_show() {
        for seed in 0..40 {
            let slower = alone(exchange(5, 0.5, seed));
            assert_eq!(slower.floor_direction, 1.0 / 243.0);
            assert!(slower.p_direction >= slower.floor_direction, "{slower:?}");
            let faster = alone(exchange(5, -0.5, seed));
            assert!(faster.p_gate >= faster.floor_gate, "{faster:?}");
        }
    }

    /// The slow twin: every labelling of four rounds of three runs, with t by hand.
    #[test]
    fn drawn_labellings_agree_with_all_labellings() {
        for (seed, delta) in [(1, 0.0), (2, 0.01), (3, 0.02), (4, -0.015)] {
            let one = exchange(4, delta, seed);
            let t = |chosen: &[usize], shift: f64| {
                let (mut difference, mut squares) = (0.0, 0.0);
                for (row, &at) in one.rounds.iter().zip(chosen) {
                    let row = [row[0], row[1], row[2] - shift];
                    let mean = row.iter().sum::<f64>() / 3.0;
                    let others = (row.iter().sum::<f64>() - row[at]) / 2.0;
                    difference += (row[at] - others) / 4.0;
                    squares += row.iter().map(|v| (v - mean).powi(2)).sum::<f64>();
                }
                let explained = difference * difference * 4.0 / 1.5;
                difference / ((squares - explained) / 7.0 * 1.5 / 4.0).sqrt()
            };
            let every: Vec<Vec<usize>> = (0..81_usize)
                .map(|code| (0..4).map(|round| code / 3_usize.pow(round) % 3).collect())
                .collect();
            let truth = [2, 2, 2, 2];
            let hits = |keep: &dyn Fn(&[usize]) -> bool| {
                count(every.iter().filter(|chosen| keep(chosen)).count()) / 81.0
            };
            let direction =
                hits(&|chosen| t(chosen, 0.0).abs() >= t(&truth, 0.0).abs() * (1.0 - TIE));
            let gate = hits(&|chosen| t(chosen, 0.01) <= t(&truth, 0.01) + TIE);
            let found = alone(one.clone());
            // Four standard errors of 1999 draws are at most 4.5 %.
            assert!(
                (found.p_direction - direction).abs() < 0.045,
                "{found:?} {direction}"
            );
            assert!((found.p_gate - gate).abs() < 0.045, "{found:?} {gate}");
            assert!((found.floor_direction - 1.0 / 81.0).abs() < 1e-12);
        }
    }

    #[test]
    fn without_an_effect_small_p_are_as_rare_as_they_say() {
        let mut small = [0_u32; 2];
        for seed in 0..400 {
            let family: Vec<(Exchange, f64)> = (0..3)
                .map(|cell| (exchange(5, 0.0, 10 * seed + cell), 0.0))
                .collect();
            let found = randomise(&family, seed);
            let least =
                |p: &dyn Fn(&Randomised) -> f64| found.iter().flatten().map(p).fold(1.0, f64::min);
            small[0] += u32::from(least(&|one| one.p_direction) <= 0.05);
            small[1] += u32::from(found[0].unwrap().p_gate <= 0.05);
        }
        // 20 of 400 expected; the one-sided 99 % margin is 10.
        assert!(small.iter().all(|&hits| hits <= 30), "{small:?}");
    }

    #[test]
    fn a_clear_effect_is_found_and_a_clear_pass_is_one() {
        let slower = alone(exchange(8, 0.05, 5));
        assert!(slower.p_direction <= 0.001 && slower.p_gate > 0.9);
        let mut calm = exchange(8, 0.0, 6);
        calm.rounds
            .iter_mut()
            .flatten()
            .for_each(|value| *value *= 0.01);
        assert!(alone(calm).p_gate <= 0.001);
    }

    #[test]
    fn a_family_makes_every_test_harder_and_keeps_the_order_of_its_answers() {
        let one = exchange(6, 0.03, 7);
        let mut family: Vec<(Exchange, f64)> = (0..9)
            .map(|cell| (exchange(6, 0.0, 90 + cell), 0.01))
            .collect();
        family.push((one.clone(), 0.01));
        let found: Vec<f64> = randomise(&family, 1)
            .into_iter()
            .map(|one| one.unwrap().p_direction)
            .collect();
        assert!(found[9] > alone(one).p_direction, "{found:?}");
        assert!(found[..9].iter().all(|&p| p >= found[9]), "{found:?}");
    }

    #[test]
    fn three_rounds_of_two_runs_can_show_no_more_than_a_quarter() {
        let floors = |bases: usize| {
            let rounds = vec![vec![1.0; bases]; 3];
            let rounds = rounds.into_iter().enumerate().map(|(round, mut row)| {
                row.push(1.1 + 0.1 * count(round));
                row
            });
            let found = alone(Exchange {
                rounds: rounds.collect(),
                candidates: 1,
            });
            (found.floor_direction, found.floor_gate)
        };
        assert_eq!(floors(1), (0.25, 0.125));
        assert_eq!(floors(2), (1.0 / 27.0, 1.0 / 27.0));
        assert!((labellings(2, 2, 3) - 216.0).abs() < 1e-9);
        assert!((floor(labellings(2, 1, 1000)) - 1.0 / 2000.0).abs() < 1e-12);
    }

    #[test]
    fn what_cannot_be_relabelled_has_no_answer() {
        let with = |rounds: Vec<Vec<f64>>, candidates| Exchange { rounds, candidates };
        let family = [
            (with(vec![], 1), 0.01),
            (with(vec![vec![1.0, 2.0]; 3], 2), 0.01),
            (with(vec![vec![1.0, 2.0]; 3], 0), 0.01),
            (with(vec![vec![1.0, 1.0, 1.0]; 3], 1), 0.01),
            (with(vec![vec![1.0, 2.0], vec![1.0]], 1), 0.01),
        ];
        assert!(randomise(&family, 1).iter().all(Option::is_none));
        assert_eq!(randomise(&[], 1), vec![]);
    }
}
