//! One sentence or two for a judgement: what is proven, what is not, and what
//! would settle it.
//!
//! Inside the rule larger is slower; here the reader sees the metric's own
//! change: a rate that lost 1.19 % reads −1.19 %, a time that grew reads +.

use super::change::own_pct;
use super::decide::Weighed;
use super::foresight::{GATEABLE, WANTED};
use super::measure::{Found, Measured};
use super::rule::{Power, Rule, Verdict};
use crate::experiment::model::Better;
use crate::unit;

/// Everything a sentence may mention.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    pub(super) one: &'a Weighed<'a>,
    pub(super) rule: &'a Rule,
    /// Gated comparisons of the whole run.
    pub(super) family: usize,
    pub(super) power: Option<Power>,
    /// Rounds of a fresh run that would decide if the effect is as estimated.
    pub(super) rounds_if_as_estimated: Option<u32>,
}

/// The metric's own change for an effect `delta` (larger is slower), such as `−1.19 %`.
pub(super) fn metric_change(delta: f64, better: Better) -> String {
    unit::signed_pct(own_pct(better, delta))
}

/// The words for a change for the worse and for the better of values in `unit`.
fn words(unit: &str) -> (&'static str, &'static str) {
    match unit {
        "B" | "KiB" | "MiB" | "GiB" | "kB" | "MB" | "GB" => ("larger", "smaller"),
        unit if unit.ends_with("/s") => ("slower", "faster"),
        "s" | "ms" | "µs" | "us" | "ns" | "min" | "h" => ("slower", "faster"),
        _ => ("worse", "better"),
    }
}

/// Writes the sentence.
pub(super) fn write(facts: &Facts<'_>) -> String {
    let (candidate, base, metric) = names(facts);
    match &facts.one.found {
        Found::Nothing(reason) => format!("No verdict on {metric} of `{candidate}`: {reason}."),
        Found::Identical(_) => format!(
            "`{candidate}` is identical to `{base}`: the same code in the same environment. Its \
             {metric} is another sample of the base's, and counts as a null arm."
        ),
        Found::Numbers(found) if found.estimate.standard_error == 0.0 => {
            without_noise(facts, found)
        }
        Found::Numbers(found) => with_noise(facts, found),
    }
}

/// Every attempt agrees: the values alone decide, and the reader is told so.
fn without_noise(facts: &Facts<'_>, found: &Measured) -> String {
    let (candidate, base, metric) = names(facts);
    if found.estimate.delta == 0.0 {
        return format!(
            "`{candidate}` equals `{base}` exactly: {metric} is the same for both in every round. \
             It shows no noise at all, so the values alone decide."
        );
    }
    let (worse, better) = words(&facts.one.data.unit);
    let threshold = threshold(facts);
    let what = match facts.one.verdict {
        Verdict::Regressed => format!("{worse}, at or beyond the threshold of {threshold}"),
        Verdict::Improved => better.to_owned(),
        _ => format!("{worse}, within the threshold of {threshold}"),
    };
    format!(
        "`{candidate}` is {what}: {metric} differs from `{base}` by {} in every round. \
         It shows no noise at all, so the values alone decide.",
        metric_change(found.estimate.delta, facts.one.data.better)
    )
}

fn with_noise(facts: &Facts<'_>, found: &Measured) -> String {
    let (candidate, base, _) = names(facts);
    let (worse, better) = words(&facts.one.data.unit);
    let threshold = threshold(facts);
    let measured = interval(facts, found);
    let estimate = &found.estimate;
    match facts.one.verdict {
        Verdict::Regressed if estimate.lower_bound > found.tau => format!(
            "`{candidate}` is {worse} than `{base}` by more than the threshold of {threshold}: \
             {measured}."
        ),
        Verdict::Regressed => format!(
            "`{candidate}` is {worse} than `{base}`: {measured}. That it is {worse} is \
             proven, and the estimate is beyond the threshold of {threshold}; a smaller true \
             change is not ruled out."
        ),
        Verdict::SlowerWithinThreshold => format!(
            "`{candidate}` is {worse} than `{base}`, and proven to stay within the threshold of \
             {threshold}: {measured}."
        ),
        Verdict::SlowerSizeUndecided => format!(
            "`{candidate}` is {worse} than `{base}`: {measured}. Whether the change stays within \
             the threshold of {threshold} is open{}.",
            if_as_estimated(facts)
        ),
        Verdict::Equivalent => format!(
            "`{candidate}` and `{base}` are equal within {threshold}: {measured}. A larger \
             change either way is ruled out.{}",
            alone(facts, found)
        ),
        Verdict::Improved => format!("`{candidate}` is {better} than `{base}`: {measured}."),
        Verdict::NotSlower => format!(
            "`{candidate}` is not {worse} than `{base}` by {threshold} or more: {measured}. \
             That it is {better} is not proven.{}",
            alone(facts, found)
        ),
        Verdict::Unresolved | Verdict::Identical | Verdict::Invalid => format!(
            "Nothing is proven about `{candidate}`: {measured}; no change and a change beyond \
             the threshold of {threshold} both fit.{}{}",
            outlook(facts, found),
            alone(facts, found)
        ),
    }
}

fn names<'a>(facts: &Facts<'a>) -> (&'a str, &'a str, &'a str) {
    let data = facts.one.data;
    // A cell whose base is not among its arms still gets its sentence.
    let base = data.arms.get(data.base);
    (
        &data.arms[facts.one.candidate].name,
        base.map_or("base", |base| &base.name),
        &data.metric,
    )
}

fn threshold(facts: &Facts<'_>) -> String {
    format!("{} %", unit::value(facts.rule.threshold_pct))
}

/// `decode_tok_s −1.80 % (95 % interval −2.31 % to −1.29 %)`.
fn interval(facts: &Facts<'_>, found: &Measured) -> String {
    let better = facts.one.data.better;
    let estimate = &found.estimate;
    let (from, to) = match better {
        Better::Higher => (estimate.high, estimate.low),
        Better::Lower => (estimate.low, estimate.high),
    };
    format!(
        "{} {} ({} % interval {} to {}{})",
        facts.one.data.metric,
        metric_change(estimate.delta, better),
        unit::value(100.0 * rounded(1.0 - facts.rule.alpha, 1e4)),
        metric_change(from, better),
        metric_change(to, better),
        bounds(facts, found)
    )
}

/// The bounds that prove it, where the interval, which has both ends, reaches further than they do
/// and past the threshold: the sentence would contradict itself.
fn bounds(facts: &Facts<'_>, found: &Measured) -> String {
    let (estimate, tau) = (&found.estimate, found.tau);
    let change = |delta| metric_change(delta, facts.one.data.better);
    let worst = (estimate.high >= tau && estimate.upper_bound < tau)
        .then(|| format!("at worst {}", change(estimate.upper_bound)));
    let best = (facts.one.verdict == Verdict::Equivalent && estimate.low <= -tau)
        .then(|| format!("at best {}", change(estimate.lower_bound)));
    let said: Vec<String> = worst.into_iter().chain(best).collect();
    match said.is_empty() {
        true => String::new(),
        false => format!("; by one-sided bounds {}", said.join(", ")),
    }
}

/// How many rounds would decide, counted for a run of its own: adding rounds to
/// this one until it suits is what the rule forbids.
fn if_as_estimated(facts: &Facts<'_>) -> String {
    match facts.rounds_if_as_estimated {
        Some(rounds) => format!(
            "; if the estimate is right, a fresh run of about {rounds} rounds would tell (this \
             one had {})",
            facts.one.data.rounds.len()
        ),
        None => "; if the estimate is right, no realistic number of rounds would tell".into(),
    }
}

fn outlook(facts: &Facts<'_>, found: &Measured) -> String {
    let Some(power) = facts.power else {
        return String::new();
    };
    let had = facts.one.data.rounds.len();
    let noise = unit::value(100.0 * rounded(power.sigma, 1e4));
    let chance = unit::value((100.0 * power.pass_if_unchanged).round());
    let wanted = unit::value(100.0 * WANTED);
    let gateable = if power.pass_if_unchanged < GATEABLE {
        " (not gateable)"
    } else {
        ""
    };
    let mut text = format!(
        " With noise of {noise} % per attempt an unchanged candidate passes {chance} % of runs \
         of {had} rounds{gateable}"
    );
    text += &match power.rounds_to_pass {
        Some(rounds) if power.pass_if_unchanged < WANTED => {
            format!("; a fresh run of about {rounds} rounds would make it {wanted} %")
        }
        Some(_) => String::new(),
        None => format!("; no realistic number of rounds would make it {wanted} %"),
    };
    if found.estimate.delta >= found.tau
        && let Some(rounds) = facts.rounds_if_as_estimated
    {
        text += &format!(
            "; if the estimate is right, a fresh run of about {rounds} rounds would prove it"
        );
    }
    text + "."
}

/// Said when the correction for many comparisons is what keeps a direction unproven.
fn alone(facts: &Facts<'_>, found: &Measured) -> String {
    let adjusted = facts.one.p_adjusted.unwrap_or(1.0);
    if found.p <= facts.rule.alpha && adjusted > facts.rule.alpha {
        format!(
            " Taken alone the difference would count (p = {:.3}); among {} comparisons it does \
             not.",
            found.p, facts.family
        )
    } else {
        String::new()
    }
}

fn rounded(value: f64, steps: f64) -> f64 {
    (value * steps).round() / steps
}

#[cfg(test)]
mod tests {
    use super::super::decide::decide;
    use super::super::example::{RULE, cell, noisy};
    use super::*;

    fn sentence(data: super::super::rule::CellData) -> String {
        decide(&[data], &RULE).remove(0).sentence
    }

    #[test]
    fn the_words_follow_the_unit_that_the_experiment_gives() {
        let with_unit = |unit: &str, better| {
            let mut data = noisy("score", better, 100.0, 97.0);
            data.unit = unit.into();
            sentence(data)
        };
        assert!(with_unit("req/s", Better::Higher).starts_with("`main` is slower than"));
        assert!(with_unit("MiB", Better::Lower).starts_with("`main` is smaller than"));
        assert!(with_unit("points", Better::Higher).starts_with("`main` is worse than"));
    }

    #[test]
    fn a_slower_rate_reads_minus_and_a_slower_time_reads_plus() {
        insta::assert_snapshot!(
            sentence(noisy("decode_tok_s", Better::Higher, 100.0, 97.0)), @"`main` is slower than `base` by more than the threshold of 1 %: decode_tok_s −3.00 % (95 % interval −3.08 % to −2.91 %).");
        insta::assert_snapshot!(
            sentence(noisy("wall_s", Better::Lower, 100.0, 103.0)), @"`main` is slower than `base` by more than the threshold of 1 %: wall_s +3.00 % (95 % interval +2.92 % to +3.09 %).");
    }

    #[test]
    fn an_interval_that_reaches_past_what_is_proven_gets_the_bound_beside_it() {
        let rounds = [
            [100.150, 100.602, 100.915],
            [99.743, 99.305, 100.276],
            [102.315, 102.307, 103.246],
            [100.026, 100.336, 101.153],
            [99.478, 99.155, 100.001],
        ];
        insta::assert_snapshot!(sentence(cell("wall_s", Better::Lower, &rounds)), @"`main` is slower than `base`, and proven to stay within the threshold of 1 %: wall_s +0.77 % (95 % interval +0.52 % to +1.03 %; by one-sided bounds at worst +0.98 %).");
    }

    #[test]
    fn a_faster_rate_reads_plus_and_a_faster_time_reads_minus() {
        insta::assert_snapshot!(
            sentence(noisy("decode_tok_s", Better::Higher, 100.0, 103.0)), @"`main` is faster than `base`: decode_tok_s +3.00 % (95 % interval +2.92 % to +3.09 %).");
        insta::assert_snapshot!(
            sentence(noisy("wall_s", Better::Lower, 100.0, 97.0)), @"`main` is faster than `base`: wall_s −3.00 % (95 % interval −3.08 % to −2.91 %).");
    }

    #[test]
    fn what_is_proven_within_the_threshold_is_said() {
        insta::assert_snapshot!(
            sentence(noisy("decode_tok_s", Better::Higher, 100.0, 99.7)), @"`main` is slower than `base`, and proven to stay within the threshold of 1 %: decode_tok_s −0.30 % (95 % interval −0.38 % to −0.21 %).");
        insta::assert_snapshot!(
            sentence(noisy("decode_tok_s", Better::Higher, 100.0, 100.0)), @"`main` and `base` are equal within 1 %: decode_tok_s ±0.00 % (95 % interval −0.08 % to +0.09 %). A larger change either way is ruled out.");
    }

    #[test]
    fn what_is_open_says_what_would_settle_it() {
        insta::assert_snapshot!(
            sentence(noisy("decode_tok_s", Better::Higher, 100.0, 99.05)), @"`main` is slower than `base`: decode_tok_s −0.95 % (95 % interval −1.03 % to −0.86 %). Whether the change stays within the threshold of 1 % is open; if the estimate is right, a fresh run of about 22 rounds would tell (this one had 5).");
        let wild = [
            [100.0, 104.0, 97.0],
            [103.0, 99.0, 105.0],
            [98.0, 103.0, 101.0],
        ];
        insta::assert_snapshot!(sentence(cell("wall_s", Better::Lower, &wild)), @"Nothing is proven about `main`: wall_s −0.19 % (95 % interval −6.03 % to +6.00 %); no change and a change beyond the threshold of 1 % both fit. With noise of 3.31 % per attempt an unchanged candidate passes 10 % of runs of 3 rounds (not gateable); a fresh run of about 144 rounds would make it 90 %.");
        let worse = [
            [100.0, 104.0, 107.0],
            [103.0, 99.0, 105.0],
            [98.0, 103.0, 101.0],
        ];
        insta::assert_snapshot!(sentence(cell("wall_s", Better::Lower, &worse)), @"Nothing is proven about `main`: wall_s +3.13 % (95 % interval −1.70 % to +8.18 %); no change and a change beyond the threshold of 1 % both fit. With noise of 2.63 % per attempt an unchanged candidate passes 12 % of runs of 3 rounds (not gateable); a fresh run of about 91 rounds would make it 90 %; if the estimate is right, a fresh run of about 13 rounds would prove it.");
    }

    #[test]
    fn a_failing_estimate_that_might_be_smaller_claims_no_more() {
        let close = [
            [100.0, 100.6, 101.4],
            [100.0, 99.7, 101.7],
            [100.0, 100.1, 100.9],
        ];
        insta::assert_snapshot!(sentence(cell("score", Better::Lower, &close)), @"`main` is worse than `base`: score +1.27 % (95 % interval +0.64 % to +1.90 %). That it is worse is proven, and the estimate is beyond the threshold of 1 %; a smaller true change is not ruled out.");
    }

    #[test]
    fn sizes_are_larger_or_smaller_and_exact_ones_have_no_interval() {
        let of = |candidate| {
            cell(
                "peak_bytes",
                Better::Lower,
                &[[1000.0, 1000.0, candidate]; 3],
            )
        };
        insta::assert_snapshot!(sentence(of(1020.0)), @"`main` is larger, at or beyond the threshold of 1 %: peak_bytes differs from `base` by +2.00 % in every round. It shows no noise at all, so the values alone decide.");
        insta::assert_snapshot!(sentence(of(1005.0)), @"`main` is larger, within the threshold of 1 %: peak_bytes differs from `base` by +0.50 % in every round. It shows no noise at all, so the values alone decide.");
        insta::assert_snapshot!(sentence(of(900.0)), @"`main` is smaller: peak_bytes differs from `base` by −10.00 % in every round. It shows no noise at all, so the values alone decide.");
        insta::assert_snapshot!(sentence(of(1000.0)), @"`main` equals `base` exactly: peak_bytes is the same for both in every round. It shows no noise at all, so the values alone decide.");
    }

    #[test]
    fn the_correction_for_many_comparisons_is_mentioned_where_it_decides() {
        let good = [
            [100.0, 101.0, 99.0],
            [101.0, 100.0, 98.5],
            [100.0, 100.5, 99.8],
        ];
        let family: Vec<_> = (0..9)
            .map(|_| cell("wall_s", Better::Lower, &good))
            .collect();
        let mut family = family;
        family
            .iter_mut()
            .skip(1)
            .for_each(|data| data.rounds.truncate(2));
        insta::assert_snapshot!(decide(&family, &RULE)[0].sentence, @"`main` is not slower than `base` by 1 % or more: wall_s −1.31 % (95 % interval −2.43 % to −0.18 %). That it is faster is not proven. Taken alone the difference would count (p = 0.031); among 9 comparisons it does not.");
    }
}
