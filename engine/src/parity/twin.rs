//! What the slow float32 twin says to a text that fast arithmetic has decoded (ADR 0038).
//!
//! Equal ids cannot be asked for: where two logits are closer than rounding, either is right, and from
//! the first such token on two texts have nothing in common. So all are fed with the text itself.

use std::fmt;

use serde::Serialize;

use crate::backend::interface::{HeadRequest, TokenSource};
use crate::check::compare::standard_deviation;
use crate::check::limits::{FAST_RMS_OVER_BF16, FAST_WORST_OVER_RMS};
use crate::decode::{prefill, step};
use crate::engine::{Engine, Sequence, StepRequest};
use crate::error::BackendError;

/// Largest rms of a deep model's logits against the twin's, in their standard deviations: half of what
/// a missing norm or a wrong rotation shows in a shallow one.
const RMS: f64 = 0.15;

/// Logits of a position that are kept for the rms.
const KEPT_LOGITS: usize = 4096;

/// Rows of a step whose logits all go to the host.
const CHUNK_ROWS: usize = 64;

/// What one arithmetic predicts ahead of each token of a text.
#[derive(Debug)]
struct Predictions(Vec<Prediction>);

#[derive(Debug)]
struct Prediction {
    /// Some of the logits, the same of each position.
    logits: Vec<f32>,
    /// Standard deviation of all.
    unit: f64,
    /// How far the token's logit is below the best, in these.
    gap: f64,
}

impl Prediction {
    fn new(logits: &[f32], token: u32) -> Self {
        let unit = standard_deviation(logits);
        let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let logits_from = |stride| logits.iter().copied().step_by(stride);
        Self {
            logits: logits_from(kept_stride(logits.len())).collect(),
            unit,
            gap: (f64::from(best) - f64::from(logits[token as usize])) / unit,
        }
    }
}

/// One of so many logits is kept. Odd, so that they come from all rows of a kernel's tiles.
fn kept_stride(vocab_size: usize) -> usize {
    vocab_size.div_ceil(KEPT_LOGITS) | 1
}

impl Predictions {
    /// Root mean square of the differences from `twin`, in standard deviations of its logits.
    fn rms(&self, twin: &Self) -> f64 {
        let (mut squares, mut count) = (0.0, 0u64);
        for (own, twin) in self.0.iter().zip(&twin.0) {
            for (own, other) in own.logits.iter().zip(&twin.logits) {
                squares += ((f64::from(*own) - f64::from(*other)) / twin.unit).powi(2);
                count += 1;
            }
        }
        (squares / count as f64).sqrt()
    }
}

/// A text as fast arithmetic sees it.
#[derive(Debug)]
pub struct FastText {
    steps: Predictions,
    rows: Predictions,
}

impl FastText {
    /// Feeds `text` behind `prompt` to `engine`, token by token, and again as rows of a prompt.
    ///
    /// # Errors
    /// When a step fails.
    pub fn new(engine: &Engine, prompt: &[u32], text: &[u32]) -> Result<Self, BackendError> {
        Ok(Self {
            steps: by_steps(engine, prompt, text)?,
            rows: by_rows(engine, prompt, text)?,
        })
    }
}

/// Feeds the same text to `engine`, whose arithmetic is float32, and compares.
///
/// # Errors
/// When a step fails.
pub fn twin(
    engine: &Engine,
    prompt: &[u32],
    text: &[u32],
    fast: &FastText,
) -> Result<TwinReport, BackendError> {
    Ok(TwinReport::of(&by_steps(engine, prompt, text)?, fast))
}

fn prompted(engine: &Engine, prompt: &[u32]) -> Result<(Sequence, Vec<f32>), BackendError> {
    let request = StepRequest {
        head: HeadRequest::TokenAndLogits,
        ..StepRequest::greedy()
    };
    let mut sequence = engine.new_sequence()?;
    let ticket = prefill::prefill(&mut sequence, prompt, request)?;
    let logits = engine.read(ticket)?.logits;
    Ok((sequence, logits))
}

fn by_steps(engine: &Engine, prompt: &[u32], text: &[u32]) -> Result<Predictions, BackendError> {
    let request = StepRequest {
        head: HeadRequest::TokenAndLogits,
        ..StepRequest::greedy()
    };
    let (mut sequence, first) = prompted(engine, prompt)?;
    let Some((&last, fed)) = text.split_last() else {
        return Ok(Predictions(Vec::new()));
    };
    let mut logits = first;
    let mut predictions = Vec::with_capacity(text.len());
    for &token in fed {
        predictions.push(Prediction::new(&logits, token));
        logits = step::step(&mut sequence, token, request)?.logits;
    }
    predictions.push(Prediction::new(&logits, last));
    Ok(Predictions(predictions))
}

fn by_rows(engine: &Engine, prompt: &[u32], text: &[u32]) -> Result<Predictions, BackendError> {
    let request = StepRequest {
        head: HeadRequest::AllLogits,
        ..StepRequest::greedy()
    };
    let (mut sequence, logits) = prompted(engine, prompt)?;
    let [first, rest @ ..] = text else {
        return Ok(Predictions(Vec::new()));
    };
    let mut predictions = vec![Prediction::new(&logits, *first)];
    let vocab_size = engine.model().vocab_size;
    for (fed, next) in text.chunks(CHUNK_ROWS).zip(rest.chunks(CHUNK_ROWS)) {
        let ticket = sequence.submit(TokenSource::Host(fed.to_vec()), request)?;
        let logits = engine.read(ticket)?.logits;
        let rows = logits.chunks_exact(vocab_size).zip(next);
        predictions.extend(rows.map(|(row, token)| Prediction::new(row, *token)));
    }
    Ok(Predictions(predictions))
}

/// Fast arithmetic in the twin's eyes; distances in standard deviations of the twin's logits.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TwinReport {
    /// Tokens of the text.
    pub tokens: usize,
    /// Those that are the best of fast steps again, as all have to be.
    pub repeated: usize,
    /// Those that are the twin's best.
    pub best: usize,
    /// How far the others are below its best: the median, the upper of two; 0 where there are none.
    pub median_gap: f64,
    /// The farthest.
    pub largest_gap: f64,
    /// Of the logits of decode steps.
    pub rms: f64,
    /// Of the same by rows, as a prompt is computed: on a GPU by other kernels, from bf16 activations.
    pub rms_by_rows: f64,
    /// What is beyond its limit.
    pub failures: Vec<String>,
}

impl TwinReport {
    fn of(twin: &Predictions, fast: &FastText) -> Self {
        // What is no number is not the best.
        let gaps = twin.0.iter().map(|prediction| prediction.gap);
        let mut gaps: Vec<f64> = gaps.filter(|gap| *gap != 0.0).collect();
        gaps.sort_unstable_by(f64::total_cmp);
        let steps = fast.steps.0.iter();
        Self {
            tokens: twin.0.len(),
            repeated: steps.filter(|prediction| prediction.gap == 0.0).count(),
            best: twin.0.len() - gaps.len(),
            median_gap: gaps.get(gaps.len() / 2).copied().unwrap_or(0.0),
            largest_gap: gaps.last().copied().unwrap_or(0.0),
            rms: fast.steps.rms(twin),
            rms_by_rows: fast.rows.rms(twin),
            failures: Vec::new(),
        }
        .judged()
    }

    fn judged(mut self) -> Self {
        if self.repeated != self.tokens {
            let (repeated, tokens) = (self.repeated, self.tokens);
            let failure = format!("tokens that steps repeat: expected {tokens}, got {repeated}");
            self.failures.push(failure);
        }
        let limits = [
            ("rms", self.rms, RMS),
            ("rms by rows", self.rms_by_rows, RMS),
            (
                "rms over that by rows",
                ratio(self.rms, self.rms_by_rows),
                FAST_RMS_OVER_BF16,
            ),
            (
                "largest gap over rms",
                ratio(self.largest_gap, self.rms),
                FAST_WORST_OVER_RMS,
            ),
        ];
        for (what, value, limit) in limits {
            if value.is_nan() || value > limit {
                let failure = format!("{what}: expected at most {limit}, got {value:.4}");
                self.failures.push(failure);
            }
        }
        self
    }

    /// Whether everything is within its limit.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.failures.is_empty()
    }
}

/// How many times `of` is `value`; nothing is no times anything.
fn ratio(value: f64, of: f64) -> f64 {
    if value == 0.0 { 0.0 } else { value / of }
}

impl fmt::Display for TwinReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "float32 twin, in standard deviations of its logits: rms {:.4}, by rows {:.4}; {} of {} tokens are \
             its best, the others {:.3} (median) to {:.3} below",
            self.rms, self.rms_by_rows, self.best, self.tokens, self.median_gap, self.largest_gap
        )?;
        for failure in &self.failures {
            writeln!(f, "twin: {failure}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The best of both rows.
    const TOKENS: [u32; 2] = [2, 1];
    const FAST: [[f32; 4]; 2] = [[1.0, 3.0, 5.0, 3.0], [1.0, 5.0, 3.0, 4.95]];

    fn predictions(rows: [[f32; 4]; 2]) -> Predictions {
        let rows = rows.iter().zip(TOKENS);
        Predictions(
            rows.map(|(row, token)| Prediction::new(row, token))
                .collect(),
        )
    }

    /// `FAST` with another logit in the second row.
    fn with(index: usize, logit: f32) -> [[f32; 4]; 2] {
        let mut rows = FAST;
        rows[1][index] = logit;
        rows
    }

    fn report(twin: [[f32; 4]; 2], steps: [[f32; 4]; 2], rows: [[f32; 4]; 2]) -> TwinReport {
        let fast = FastText {
            steps: predictions(steps),
            rows: predictions(rows),
        };
        TwinReport::of(&predictions(twin), &fast)
    }

    /// What each failure is about.
    fn failures(report: &TwinReport) -> Vec<&str> {
        let failures = report.failures.iter();
        failures
            .filter_map(|failure| Some(failure.split_once(':')?.0))
            .collect()
    }

    #[test]
    fn a_near_choice_passes() {
        let twin = with(3, 5.05);
        let near = report(twin, FAST, FAST);
        assert!(near.passed(), "{near}");
        assert_eq!((near.tokens, near.best, near.repeated), (2, 1, 2));
        let unit = standard_deviation(&twin[1]);
        assert!((near.largest_gap - 0.05 / unit).abs() < 1e-6);
        assert!((near.rms - 0.1 / unit / 8.0f64.sqrt()).abs() < 1e-6);
        assert_eq!(near.median_gap, near.largest_gap);
    }

    #[test]
    fn each_limit_is_one() {
        assert!(report(FAST, FAST, FAST).passed());
        let far = with(3, 7.0);
        assert_eq!(failures(&report(far, FAST, FAST)), ["rms", "rms by rows"]);
        let rows = with(0, 3.0);
        assert_eq!(failures(&report(FAST, FAST, rows)), ["rms by rows"]);
        let steps = with(0, 1.4);
        let twice = report(FAST, steps, with(0, 1.1));
        assert_eq!(failures(&twice), ["rms over that by rows"]);
        assert!(report(FAST, steps, with(0, 1.3)).passed());
        let steps = with(3, 5.05);
        let repeated = report(FAST, steps, steps);
        assert_eq!(failures(&repeated), ["tokens that steps repeat"]);
    }

    #[test]
    fn a_token_that_no_rounding_explains_does_not_pass() {
        let text = Predictions(vec![Prediction {
            logits: vec![0.1; 4],
            unit: 1.0,
            gap: 0.0,
        }]);
        let twin = |gap| {
            Predictions(vec![Prediction {
                logits: vec![0.0; 4],
                unit: 1.0,
                gap,
            }])
        };
        let fast = FastText {
            rows: twin(0.0),
            steps: text,
        };
        let judged = |gap| {
            let report = TwinReport::of(&twin(gap), &fast);
            failures(&report).contains(&"largest gap over rms")
        };
        assert!(!judged(0.79) && judged(0.81));
    }

    #[test]
    fn logits_that_are_no_numbers_do_not_pass() {
        let nan = with(0, f32::NAN);
        assert!(!report(nan, FAST, FAST).passed());
        assert!(!report(FAST, nan, FAST).passed());
        assert!(!report(FAST, FAST, nan).passed());
    }

    #[test]
    fn kept_logits_come_from_all_rows_of_tiles() {
        for vocab_size in [128_256, 151_936, 262_144] {
            let kept = (0..vocab_size).step_by(kept_stride(vocab_size));
            assert!(kept.clone().count() <= KEPT_LOGITS);
            let rows: std::collections::HashSet<usize> = kept.map(|id| id % 16).collect();
            assert_eq!(rows.len(), 16, "{vocab_size}");
        }
    }
}
