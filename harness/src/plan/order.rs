//! The order of the arms within every round: a seeded Latin square.
//!
//! Within a round an early slot may be cooler, a late one throttled, and an arm
//! may leave something behind for the next. So each arm stands in each slot, and
//! comes after each other arm, as equally often as the number of rounds allows
//! (Williams 1949: squares balanced for first-order carry-over). The seed
//! decides the rest: which arm takes which letter, and the order of the rows.
//!
//! Slots come before neighbours where both cannot be had: a square of an odd
//! number of arms cannot hold every ordered pair once, only a square and its
//! mirror image can hold every pair twice. Neighbours across two rounds are not
//! counted: a quiet wait lies between them.

use crate::stats::random::SplitMix64;

/// Odd squares up to this size have their repeated neighbours searched for; the
/// search is a moment at nine arms and slow beyond, and a round of ten is rare.
const LARGEST_SEARCHED: usize = 9;

/// `order[round][slot]` is the arm, 0-based, that runs there; true when every
/// arm stands in every slot equally often.
///
/// The same arguments give the same order in every version of this program: the
/// plan is sealed with it. Any number of first rounds is as balanced as the
/// whole: per slot, arms differ by one appearance at most.
#[must_use]
pub fn order(arms: usize, rounds: usize, seed: u64) -> (Vec<Vec<usize>>, bool) {
    if arms == 0 {
        return (vec![Vec::new(); rounds], false);
    }
    let mut random = SplitMix64::new(seed);
    let first_row = first_row(arms);
    let mut order: Vec<Vec<usize>> = Vec::with_capacity(rounds);
    while order.len() < rounds {
        let mut letters: Vec<usize> = (0..arms).collect();
        random.shuffle(&mut letters);
        for row in block(&first_row, &mut random) {
            order.push(row.into_iter().map(|letter| letters[letter]).collect());
        }
    }
    order.truncate(rounds);
    (order, rounds > 0 && rounds.is_multiple_of(arms))
}

/// The seed of one cell's order, so that cells do not all repeat one order.
#[must_use]
pub fn cell_seed(seed: u64, cell: usize) -> u64 {
    SplitMix64::new(seed ^ (cell as u64).rotate_left(32)).next_u64()
}

/// The rounds after which all neighbours are balanced too: one square of an even
/// number of arms, a square and its mirror image of an odd one.
fn block(first_row: &[usize], random: &mut SplitMix64) -> Vec<Vec<usize>> {
    let mut rows = square(first_row);
    random.shuffle(&mut rows);
    if first_row.len() % 2 == 1 {
        let mirrored: Vec<usize> = first_row.iter().rev().copied().collect();
        let mut mirror = square(&mirrored);
        random.shuffle(&mut mirror);
        if random.below(2) == 1 {
            std::mem::swap(&mut rows, &mut mirror);
        }
        rows.extend(mirror);
    }
    rows
}

/// The cyclic Latin square that grows from its first row.
fn square(first_row: &[usize]) -> Vec<Vec<usize>> {
    let arms = first_row.len();
    (0..arms)
        .map(|shift| {
            first_row
                .iter()
                .map(|&letter| (letter + shift) % arms)
                .collect()
        })
        .collect()
}

/// A first row whose steps, modulo the number of arms, differ as far as possible:
/// in the square that grows from it each step is one ordered pair of neighbours
/// per row.
fn first_row(arms: usize) -> Vec<usize> {
    if arms % 2 == 1 && (3..=LARGEST_SEARCHED).contains(&arms) {
        let mut row = vec![0];
        let mut steps = vec![0; arms];
        if extend(&mut row, &mut steps, None) {
            return row;
        }
    }
    // Williams's zigzag 0, 1, n−1, 2, n−2, …: all steps differ when n is even,
    // and each occurs twice or never when n is odd.
    let zigzag = |place: usize| match place {
        0 => 0,
        odd if odd % 2 == 1 => odd.div_ceil(2),
        even => arms - even / 2,
    };
    (0..arms).map(zigzag).collect()
}

/// Completes `row` so that one step occurs twice, its opposite never, and all
/// others once: then the mirror image evens everything out, and one square alone
/// is as near to balance as an odd one can be.
fn extend(row: &mut Vec<usize>, steps: &mut [usize], twice: Option<usize>) -> bool {
    let arms = steps.len();
    let Some(&last) = row.last().filter(|_| row.len() < arms) else {
        return !row.is_empty();
    };
    for next in 1..arms {
        if row.contains(&next) {
            continue;
        }
        let step = (next + arms - last) % arms;
        let opposite = arms - step;
        let repeated = match (steps[step], twice) {
            (0, Some(twice)) if opposite == twice => continue,
            (0, _) => twice,
            (1, None) if steps[opposite] == 0 => Some(step),
            _ => continue,
        };
        row.push(next);
        steps[step] += 1;
        if extend(row, steps, repeated) {
            return true;
        }
        steps[step] -= 1;
        row.pop();
    }
    false
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_permutation(row: &[usize]) -> bool {
        let mut sorted = row.to_vec();
        sorted.sort_unstable();
        sorted.into_iter().eq(0..row.len())
    }

    /// Smallest and largest count of an arm in a slot.
    fn slot_spread(order: &[Vec<usize>], arms: usize) -> (usize, usize) {
        let mut counts = vec![0; arms * arms];
        for row in order {
            for (slot, &arm) in row.iter().enumerate() {
                counts[arm * arms + slot] += 1;
            }
        }
        let low = counts.iter().min().copied().unwrap_or(0);
        (low, counts.into_iter().max().unwrap_or(0))
    }

    /// Smallest and largest count of an ordered pair of neighbours.
    fn neighbour_spread(order: &[Vec<usize>], arms: usize) -> (usize, usize) {
        let mut counts = vec![0; arms * arms];
        for row in order {
            for pair in row.windows(2) {
                counts[pair[0] * arms + pair[1]] += 1;
            }
        }
        let pairs = (0..arms * arms).filter(|index| index / arms != index % arms);
        let counts: Vec<usize> = pairs.map(|index| counts[index]).collect();
        let low = counts.iter().min().copied().unwrap_or(0);
        (low, counts.into_iter().max().unwrap_or(0))
    }

    #[test]
    fn a_sealed_order_never_changes() {
        let (order, balanced) = order(3, 5, 1);
        assert_eq!(
            order,
            [[0, 2, 1], [1, 0, 2], [2, 1, 0], [2, 0, 1], [1, 2, 0]]
        );
        assert!(!balanced);
    }

    #[test]
    fn no_arms_and_no_rounds_are_harmless() {
        assert_eq!(order(0, 2, 1), (vec![vec![], vec![]], false));
        assert_eq!(order(3, 0, 1), (vec![], false));
        assert_eq!(order(1, 2, 1), (vec![vec![0], vec![0]], true));
    }

    #[test]
    fn complete_blocks_balance_the_neighbours_exactly() {
        for arms in 2..=13 {
            let rounds = if arms % 2 == 0 { arms } else { 2 * arms };
            let (order, balanced) = order(arms, rounds, 99);
            let (low, high) = neighbour_spread(&order, arms);
            assert!(balanced);
            assert_eq!((low, high), (rounds / arms, rounds / arms), "{arms} arms");
        }
    }

    /// Five rounds of base, null arm and candidate: the default experiment.
    #[test]
    fn the_default_experiment_has_every_pair_of_neighbours() {
        for seed in 0..50 {
            assert_eq!(neighbour_spread(&order(3, 5, seed).0, 3), (1, 2));
        }
    }

    #[test]
    fn one_odd_square_misses_as_few_neighbours_as_possible() {
        for arms in [5, 7, 9] {
            let (order, _) = order(arms, arms, 4);
            let mut counts = vec![0; arms * arms];
            for row in &order {
                row.windows(2)
                    .for_each(|pair| counts[pair[0] * arms + pair[1]] += 1);
            }
            // One step of the row is missing, so one pair per arm.
            let missing = counts.iter().filter(|&&n| n == 0).count() - arms;
            assert_eq!(missing, arms, "{arms} arms");
        }
    }

    #[test]
    fn cells_have_orders_of_their_own() {
        let orders: std::collections::BTreeSet<_> = (0..20)
            .map(|cell| order(4, 8, cell_seed(7, cell)).0)
            .collect();
        assert!(orders.len() > 18);
    }

    #[test]
    fn the_seed_puts_every_arm_first_about_equally_often() {
        let mut first = [0_u32; 3];
        for seed in 0..900 {
            first[order(3, 1, seed).0[0][0]] += 1;
        }
        // 300 expected, standard deviation 14.
        assert!(first.iter().all(|&n| (230..=370).contains(&n)), "{first:?}");
    }

    proptest! {
        #[test]
        fn every_prefix_is_balanced_in_slots(
            arms in 1..12_usize, rounds in 1..40_usize, seed: u64,
        ) {
            let (order, balanced) = order(arms, rounds, seed);
            prop_assert_eq!(order.len(), rounds);
            for end in 1..=rounds {
                prop_assert!(is_permutation(&order[end - 1]));
                let (low, high) = slot_spread(&order[..end], arms);
                prop_assert!(high - low <= 1);
                let (low, high) = neighbour_spread(&order[..end], arms);
                let allowed = 1 + arms % 2;
                prop_assert!(high - low <= allowed);
            }
            let (low, high) = slot_spread(&order, arms);
            prop_assert_eq!(balanced, low == high);
        }
    }
}
