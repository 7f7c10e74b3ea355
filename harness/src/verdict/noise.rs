//! From fitted cells to the noise that bounds are made of: variances moderated over the
//! cells of a metric, and an inflation by contrasts between copies of one program.

use super::columns::Columns;
use super::measure::whole;
use super::null_check;
use super::rule::{NoiseModel, NullCheck, Rule};
use crate::stats::count::count;
use crate::stats::linear_model::Fit;
use crate::stats::moderated::{Variance, moderate};
use crate::stats::noise_ratio::Widening;
use crate::stats::null_calibration::{NullContrast, inflation};

/// The noise of one (cell, metric).
#[derive(Debug, Clone)]
pub(super) struct Noise {
    /// Variance of one attempt on the logarithmic scale, inflated.
    pub(super) variance: f64,
    /// Degrees of freedom of that estimate.
    pub(super) df: f64,
    /// Those of them that other cells lent; below 0 where unequal noise took some.
    pub(super) df_of_prior: f64,
    /// How it came about.
    pub(super) model: NoiseModel,
}

impl Noise {
    /// What the cell's own fit says.
    pub(super) fn of(fit: &Fit) -> Self {
        Noise {
            variance: fit.variance,
            df: count(fit.df),
            df_of_prior: 0.0,
            model: NoiseModel {
                moderated_cells: 0,
                null_contrasts: 0,
                null_contrasts_before: 0,
                inflation: None,
                widening: 1.0,
            },
        }
    }

    /// The noise of a comparison that scatters more than copies do.
    pub(super) fn widened(&self, widening: Widening) -> Self {
        let df = self.df * widening.df_factor;
        Noise {
            variance: self.variance * widening.factor,
            df,
            df_of_prior: self.df_of_prior + df - self.df,
            model: NoiseModel {
                widening: widening.factor.sqrt(),
                ..self.model
            },
        }
    }
}

/// A cell whose noise is to be settled.
pub(super) struct Part<'a> {
    pub(super) metric: &'a str,
    pub(super) columns: &'a Columns,
    pub(super) noise: &'a mut Noise,
}

/// Settles the noise of every cell. Cells of one metric are looked at together, and
/// metrics apart from each other.
pub(super) fn settle(parts: Vec<Part<'_>>, rule: &Rule) {
    let mut by_metric: Vec<(&str, Vec<Part<'_>>)> = Vec::new();
    for part in parts {
        match by_metric.iter_mut().find(|(name, _)| *name == part.metric) {
            Some((_, list)) => list.push(part),
            None => by_metric.push((part.metric, vec![part])),
        }
    }
    for (metric, mut parts) in by_metric {
        draw_together(&mut parts, rule);
        inflate(metric, &mut parts, rule);
    }
}

fn draw_together(parts: &mut [Part<'_>], rule: &Rule) {
    let own: Vec<Variance> = parts
        .iter()
        .map(|part| Variance {
            value: part.noise.variance,
            df: part.noise.df,
        })
        .collect();
    let noisy = own.iter().filter(|one| one.value > 0.0).count();
    let Some(moderation) = rule.moderation else {
        return;
    };
    if noisy < moderation.from_cells as usize {
        return;
    }
    let moderated = moderate(&own, moderation.largest_prior);
    for ((part, own), moderated) in parts.iter_mut().zip(own).zip(moderated) {
        part.noise.variance = moderated.value;
        part.noise.df = moderated.df;
        part.noise.df_of_prior = moderated.df - own.df;
        part.noise.model.moderated_cells = if own.value > 0.0 { whole(noisy) } else { 0 };
    }
}

fn inflate(metric: &str, parts: &mut [Part<'_>], rule: &Rule) {
    let contrasts = parts
        .iter()
        .flat_map(|part| null_check::contrasts(part.columns));
    let here: Vec<NullContrast> = contrasts.collect();
    let before = rule.null_history.get(metric).map_or(&[][..], Vec::as_slice);
    let enough = |check: &NullCheck| here.len() + before.len() >= check.from_contrasts as usize;
    let checked = rule.null_check.filter(enough);
    let inflation = checked.map(|_| inflation(&[&here, before].concat()));
    for part in parts {
        part.noise.variance *= inflation.unwrap_or(1.0).powi(2);
        part.noise.model.null_contrasts = whole(here.len());
        part.noise.model.null_contrasts_before = whole(before.len());
        part.noise.model.inflation = inflation;
    }
}

/// Why the noise model cannot be believed, if so.
pub(super) fn refuted(model: &NoiseModel, rule: &Rule) -> Option<String> {
    let limit = rule.null_check?.limit;
    let inflation = model.inflation.filter(|&inflation| inflation > limit)?;
    Some(format!(
        "copies of one program lie {inflation:.1} times as far apart as the noise model allows \
         (limit {limit}, {} contrasts): something but noise tells attempts apart",
        model.null_contrasts + model.null_contrasts_before
    ))
}

#[cfg(test)]
mod tests {
    use super::super::decide::decide;
    use super::super::example::{RULE, cell};
    use super::super::rule::{CellData, Judgement, Moderation, NullCheck, Revision, Rule, Verdict};
    use crate::experiment::model::Better;
    use crate::stats::null_calibration::NullContrast;
    use crate::stats::random::SplitMix64;

    /// `cells` cells of five rounds with noise of 1 %; copies of the base lie `apart` apart.
    fn cells(cells: usize, apart: f64) -> Vec<CellData> {
        let mut random = SplitMix64::new(17);
        (0..cells)
            .map(|_| {
                let mut value = || 100.0 * (0.01 * random.normal()).exp();
                let rounds: Vec<[f64; 3]> = (0..5)
                    .map(|_| [value(), value() * (1.0 + apart), value()])
                    .collect();
                cell("wall_s", Better::Lower, &rounds)
            })
            .collect()
    }

    fn df(judged: &Judgement) -> f64 {
        judged.estimate.unwrap().degrees_of_freedom
    }

    fn error(judged: &Judgement) -> f64 {
        judged.estimate.unwrap().standard_error
    }

    #[test]
    fn variances_are_moderated_from_the_sealed_number_of_noisy_cells_on() {
        let rule = Rule {
            moderation: Some(Moderation::DEFAULT),
            ..RULE
        };
        let few = decide(&cells(7, 0.0), &rule);
        assert!((df(&few[0]) - 9.0).abs() < 1e-12);
        assert_eq!(few[0].noise.unwrap().moderated_cells, 0);
        let many = decide(&cells(8, 0.0), &rule);
        assert!(df(&many[0]) > 9.0 && df(&many[0]) <= 27.0 + 1e-9);
        assert_eq!(many[0].noise.unwrap().moderated_cells, 8);
        // A cell without noise is none of the eight, and is left alone.
        let mut with_exact = cells(7, 0.0);
        with_exact.push(cell("wall_s", Better::Lower, &[[9.0; 3]; 5]));
        let judged = decide(&with_exact, &rule);
        assert!((df(&judged[0]) - 9.0).abs() < 1e-12);
        assert_eq!(judged[7].verdict, Verdict::Equivalent);
    }

    #[test]
    fn another_metric_neither_lends_noise_nor_checks_it() {
        let rule = Rule {
            moderation: Some(Moderation::DEFAULT),
            null_check: Some(NullCheck::DEFAULT),
            ..RULE
        };
        let mut mixed = cells(12, 0.0);
        mixed[6..]
            .iter_mut()
            .for_each(|cell| cell.metric = "cpu_s".into());
        let noise = decide(&mixed, &rule)[0].noise.unwrap();
        assert_eq!((noise.moderated_cells, noise.null_contrasts), (0, 6));
        assert_eq!(noise.inflation, None);
    }

    #[test]
    fn ten_null_contrasts_inflate_the_standard_error_by_their_scale() {
        let rule = Rule {
            null_check: Some(NullCheck::DEFAULT),
            ..RULE
        };
        let apart = cells(10, 0.012);
        let (plain, checked) = (decide(&apart, &RULE), decide(&apart, &rule));
        let lambda = checked[0].noise.unwrap().inflation.unwrap();
        assert!(lambda > 1.2 && lambda < 2.0, "{lambda}");
        assert!((error(&checked[3]) / error(&plain[3]) - lambda).abs() < 1e-9);
        let power = |judged: &Judgement| judged.power.unwrap().sigma;
        assert!((power(&checked[3]) / power(&plain[3]) - lambda).abs() < 1e-9);
    }

    #[test]
    fn a_noisier_candidate_widens_its_own_interval_and_a_calmer_one_gains_nothing() {
        let rule = Rule {
            unequal_noise: true,
            ..RULE
        };
        let scattered = |factor: f64| {
            let mut cells = cells(1, 0.0);
            for row in &mut cells[0].rounds {
                row[2] = 100.0 * (row[2] / 100.0).powf(factor);
            }
            (
                decide(&cells, &RULE).remove(0),
                decide(&cells, &rule).remove(0),
            )
        };
        let (pooled, widened) = scattered(6.0);
        let by = widened.noise.unwrap().widening;
        assert!(by > 1.2, "{by}");
        assert!((error(&widened) / error(&pooled) - by).abs() < 1e-9);
        // Four of the differences and a tenth of five.
        assert!((df(&widened) - 4.5).abs() < 1e-9);
        assert!(widened.power.unwrap().detectable > pooled.power.unwrap().detectable);
        let (pooled, calm) = scattered(0.01);
        assert_eq!(calm.noise.unwrap().widening, 1.0);
        assert_eq!(calm.estimate, pooled.estimate);
    }

    /// What a plan without a number was sealed with: a quarter of the rest's, and the variance
    /// moderated before it is widened.
    #[test]
    fn the_first_revision_still_decides_as_it_did() {
        let rule = Rule {
            revision: Revision::First,
            unequal_noise: true,
            moderation: Some(Moderation::DEFAULT),
            ..RULE
        };
        let mut cells = cells(9, 0.0);
        for row in cells.iter_mut().flat_map(|cell| &mut cell.rounds) {
            row[2] = 100.0 * (row[2] / 100.0).powf(3.0);
        }
        let alone = decide(&cells[..1], &rule).remove(0);
        assert!((df(&alone) - 5.25).abs() < 1e-9);
        let first = decide(&cells, &rule).remove(0);
        let second = decide(
            &cells,
            &Rule {
                revision: Revision::Second,
                ..rule
            },
        )
        .remove(0);
        insta::assert_snapshot!(
            format!("{:.9} {:.9} | {:.9} {:.9}", error(&first), df(&first), error(&second), df(&second)),
            @"0.015188741 24.680199679 | 0.014505889 14.651727862"
        );
    }

    #[test]
    fn contrasts_of_earlier_runs_count_and_too_few_leave_it_unchecked() {
        let mut rule = Rule {
            null_check: Some(NullCheck::DEFAULT),
            ..RULE
        };
        let one = cells(1, 0.0);
        assert_eq!(decide(&one, &rule)[0].noise.unwrap().inflation, None);
        let before = vec![NullContrast { t: 1.9, df: 8.0 }; 9];
        rule.null_history.insert("wall_s".into(), before);
        let noise = decide(&one, &rule)[0].noise.unwrap();
        assert_eq!((noise.null_contrasts, noise.null_contrasts_before), (1, 9));
        assert!(noise.inflation.unwrap() > 1.0);
    }

    #[test]
    fn a_refuted_noise_model_is_invalid_and_says_by_how_much() {
        let rule = Rule {
            null_check: Some(NullCheck::DEFAULT),
            ..RULE
        };
        let judged = decide(&cells(10, 0.05), &rule);
        assert!(judged.iter().all(|one| one.verdict == Verdict::Invalid));
        assert!(
            judged[0]
                .sentence
                .contains("times as far apart as the noise model allows (limit 2, 10 contrasts)"),
            "{}",
            judged[0].sentence
        );
    }
}
