//! The choice of a token from logits, as every device makes it.

use crate::backend::interface::Sampling;

/// Chooses a token; the same logits and `sampling` give the same token everywhere.
pub(crate) fn choose(logits: &[f32], sampling: Sampling) -> u32 {
    match sampling {
        Sampling::Greedy => argmax(logits),
        Sampling::TopP {
            temperature,
            top_p,
            uniform,
        } => top_p_choice(logits, temperature, top_p, uniform),
    }
}

/// Index of the largest value, the first one among equals; NaN is never larger.
pub(crate) fn argmax(values: &[f32]) -> u32 {
    let mut best = 0;
    let mut best_value = f32::NEG_INFINITY;
    for (index, &value) in values.iter().enumerate() {
        if value > best_value {
            best = index;
            best_value = value;
        }
    }
    best as u32
}

/// Draws from the smallest set of likeliest tokens whose probabilities sum to `top_p`.
fn top_p_choice(logits: &[f32], temperature: f32, top_p: f32, uniform: f32) -> u32 {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weight = |logit: f32| f64::from((logit - largest) / temperature).exp();
    let mut order: Vec<(f64, u32)> = logits
        .iter()
        .zip(0u32..)
        .map(|(&logit, id)| (weight(logit), id))
        .collect();
    let total: f64 = order.iter().map(|(weight, _)| weight).sum();
    // Ties by id, so that the set does not depend on the sorting algorithm.
    order.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let wanted = total * f64::from(top_p);
    let mut kept = 0.0;
    let mut count = 0;
    for (weight, _) in &order {
        kept += weight;
        count += 1;
        if kept >= wanted {
            break;
        }
    }
    let mut left = f64::from(uniform) * kept;
    for &(weight, id) in &order[..count] {
        left -= weight;
        if left < 0.0 {
            return id;
        }
    }
    order[count - 1].1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(logits: &[f32], top_p: f32, uniform: f32) -> u32 {
        let sampling = Sampling::TopP {
            temperature: 1.0,
            top_p,
            uniform,
        };
        choose(logits, sampling)
    }

    #[test]
    fn greedy_takes_the_first_of_equals() {
        assert_eq!(choose(&[1.0, 3.0, 3.0, 2.0], Sampling::Greedy), 1);
    }

    #[test]
    fn draws_follow_the_probabilities() {
        // Probabilities 1/2, 1/4, 1/4 in the order of likelihood: ids 1, 0, 2.
        let logits = [0.0, 2.0f32.ln(), 0.0];
        assert_eq!(draw(&logits, 1.0, 0.49), 1);
        assert_eq!(draw(&logits, 1.0, 0.51), 0);
        assert_eq!(draw(&logits, 1.0, 0.76), 2);
    }

    #[test]
    fn unlikely_tokens_are_outside_top_p() {
        let logits = [0.0, 2.0f32.ln(), 0.0];
        assert_eq!(draw(&logits, 0.5, 0.99), 1);
        assert_eq!(draw(&logits, 0.7, 0.99), 0);
    }
}
