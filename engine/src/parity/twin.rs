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

/// What one arithmetic says at each token of a text, before that token.
#[derive(Debug)]
struct Said(Vec<Position>);

#[derive(Debug)]
struct Position {
    /// Some of the logits, the same of each position.
    logits: Vec<f32>,
    /// Standard deviation of all.
    unit: f64,
    /// How far the token is below the best, in these.
    below: f64,
}

impl Position {
    fn new(logits: &[f32], token: u32) -> Self {
        let unit = standard_deviation(logits);
        let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let stride = logits.len().div_ceil(KEPT_LOGITS);
        Self {
            logits: logits.iter().copied().step_by(stride).collect(),
            unit,
            below: (f64::from(best) - f64::from(logits[token as usize])) / unit,
        }
    }
}

impl Said {
    /// Root mean square of the differences from `twin`, in standard deviations of its logits.
    fn rms(&self, twin: &Self) -> f64 {
        let (mut squares, mut count) = (0.0, 0);
        for (own, twin) in self.0.iter().zip(&twin.0) {
            for (own, other) in own.logits.iter().zip(&twin.logits) {
                squares += ((f64::from(*own) - f64::from(*other)) / twin.unit).powi(2);
                count += 1;
            }
        }
        (squares / f64::from(count)).sqrt()
    }
}

/// A text as fast arithmetic sees it.
#[derive(Debug)]
pub struct FastText {
    steps: Said,
    rows: Said,
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

fn by_steps(engine: &Engine, prompt: &[u32], text: &[u32]) -> Result<Said, BackendError> {
    let request = StepRequest {
        head: HeadRequest::TokenAndLogits,
        ..StepRequest::greedy()
    };
    let (mut sequence, mut logits) = prompted(engine, prompt)?;
    let mut said = Vec::with_capacity(text.len());
    for &token in text {
        said.push(Position::new(&logits, token));
        logits = step::step(&mut sequence, token, request)?.logits;
    }
    Ok(Said(said))
}

fn by_rows(engine: &Engine, prompt: &[u32], text: &[u32]) -> Result<Said, BackendError> {
    let request = StepRequest {
        head: HeadRequest::AllLogits,
        ..StepRequest::greedy()
    };
    let (mut sequence, logits) = prompted(engine, prompt)?;
    let [first, rest @ ..] = text else {
        return Ok(Said(Vec::new()));
    };
    let mut said = vec![Position::new(&logits, *first)];
    let vocab_size = engine.model().vocab_size;
    for (fed, next) in text.chunks(CHUNK_ROWS).zip(rest.chunks(CHUNK_ROWS)) {
        let ticket = sequence.submit(TokenSource::Host(fed.to_vec()), request)?;
        let logits = engine.read(ticket)?.logits;
        let rows = logits.chunks_exact(vocab_size).zip(next);
        said.extend(rows.map(|(row, token)| Position::new(row, *token)));
    }
    Ok(Said(said))
}

/// Fast arithmetic in the twin's eyes; distances in standard deviations of the twin's logits.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TwinReport {
    /// Tokens of the text.
    pub tokens: usize,
    /// Those that are the twin's best.
    pub best: usize,
    /// How far the others are below its best: the median, 0 where there are none.
    pub median_below: f64,
    /// The farthest.
    pub farthest_below: f64,
    /// Of the logits of decode steps.
    pub rms: f64,
    /// Of the same by rows, as a prompt is computed: by other kernels, from bf16 activations on a GPU.
    pub rms_by_rows: f64,
    /// What is beyond its limit.
    pub failures: Vec<String>,
}

impl TwinReport {
    fn of(twin: &Said, fast: &FastText) -> Self {
        let below = twin.0.iter().map(|position| position.below);
        // What is no number is not the best.
        let mut others: Vec<f64> = below.filter(|below| *below != 0.0).collect();
        others.sort_unstable_by(f64::total_cmp);
        Self {
            tokens: twin.0.len(),
            best: twin.0.len() - others.len(),
            median_below: others.get(others.len() / 2).copied().unwrap_or(0.0),
            farthest_below: others.last().copied().unwrap_or(0.0),
            rms: fast.steps.rms(twin),
            rms_by_rows: fast.rows.rms(twin),
            failures: Vec::new(),
        }
        .judged()
    }

    fn judged(mut self) -> Self {
        let mut within = |what: &str, value: f64, limit: f64| {
            if value.is_nan() || value > limit {
                let failure = format!("{what}: expected at most {limit:.4}, got {value:.4}");
                self.failures.push(failure);
            }
        };
        within("rms", self.rms, RMS);
        within("rms by rows", self.rms_by_rows, RMS);
        let rows = FAST_RMS_OVER_BF16 * self.rms_by_rows;
        within("rms, against twice that by rows", self.rms, rows);
        let farthest = FAST_WORST_OVER_RMS * self.rms;
        within(
            "farthest token below the best, against eight rms",
            self.farthest_below,
            farthest,
        );
        self
    }

    /// Whether everything is within its limit.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.failures.is_empty()
    }
}

impl fmt::Display for TwinReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "float32 twin, in standard deviations of its logits: rms {:.4}, by rows {:.4}; {} of {} tokens are \
             its best, the others {:.3} (median) to {:.3} below",
            self.rms,
            self.rms_by_rows,
            self.best,
            self.tokens,
            self.median_below,
            self.farthest_below
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

    const TOKENS: [u32; 2] = [2, 1];

    fn said(rows: [[f32; 4]; 2]) -> Said {
        let rows = rows.iter().zip(TOKENS);
        Said(rows.map(|(row, token)| Position::new(row, token)).collect())
    }

    fn report(twin: [[f32; 4]; 2], steps: [[f32; 4]; 2]) -> TwinReport {
        let fast = FastText {
            steps: said(steps),
            rows: said(steps),
        };
        TwinReport::of(&said(twin), &fast)
    }

    const TWIN: [[f32; 4]; 2] = [[1.0, 3.0, 5.0, 3.0], [1.0, 3.0, 3.0, 5.0]];

    #[test]
    fn tokens_and_logits_are_compared_in_the_twins_deviations() {
        let mut fast = TWIN;
        fast[1][1] = 3.2;
        let report = report(TWIN, fast);
        let unit = 2.0f64.sqrt();
        assert_eq!((report.tokens, report.best), (2, 1));
        assert_eq!(report.median_below, 2.0 / unit);
        assert!((report.rms - (0.04 / 2.0 / 8.0f64).sqrt()).abs() < 1e-7);
        assert_eq!(report.rms, report.rms_by_rows);
        assert_eq!(report.failures.len(), 1, "{report}");
        assert!(report.failures[0].starts_with("farthest token"), "{report}");
    }

    #[test]
    fn a_near_choice_passes_and_other_logits_do_not() {
        let mut fast = TWIN;
        fast[1][1] = 4.9;
        let mut twin = fast;
        twin[1][3] = 4.95;
        let near = report(twin, fast);
        assert!(near.passed() && near.best == 1, "{near}");
        fast[0][0] = 3.0;
        let far = report(twin, fast);
        assert!(far.failures.iter().any(|f| f.starts_with("rms:")), "{far}");
    }

    #[test]
    fn logits_that_are_no_numbers_do_not_pass() {
        let mut fast = TWIN;
        fast[0][1] = f32::NAN;
        assert!(!report(TWIN, fast).passed());
        assert!(!report(fast, TWIN).passed());
    }
}
