//! One or several engines over all windows, in step, so that no logits need to be kept.

use super::report::{ArithmeticReport, Comparison, PerplexityReport};
use super::score::LogProbabilities;
use super::windows::{Window, windows};
use crate::backend::interface::{HeadRequest, TokenSource};
use crate::engine::{Engine, Sequence, StepRequest};
use crate::error::BackendError;

/// Bytes of logits that one step may bring to the host: with a vocabulary of a quarter of a million,
/// a whole window would be gigabytes.
const LOGITS_BYTES: usize = 64 << 20;

/// How to cut the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerplexityOptions {
    /// Tokens in a window, the start token included.
    pub context_tokens: usize,
    /// Tokens that the next window moves on by.
    pub stride_tokens: usize,
}

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub enum PerplexityError {
    /// A step failed.
    #[error(transparent)]
    Step(#[from] BackendError),
    /// Nothing to predict.
    #[error(
        "a text of {text_tokens} tokens in windows of {context_tokens} leaves nothing to predict"
    )]
    NothingToPredict {
        /// Tokens of the text.
        text_tokens: usize,
        /// Tokens of a window.
        context_tokens: usize,
    },
}

/// Predicts every token of `text` with each of `engines`, which hold the same model in different
/// arithmetics; `start` is what the model expects before a text. `progress` hears the tokens done.
///
/// # Errors
/// When there is nothing to predict, or a step fails.
pub fn measure(
    engines: &[Engine],
    start: &[u32],
    text: &[u32],
    options: PerplexityOptions,
    progress: &mut dyn FnMut(usize),
) -> Result<PerplexityReport, PerplexityError> {
    let (context, stride) = (options.context_tokens, options.stride_tokens);
    let windows = windows(text.len(), start.len(), context, stride);
    let Some(engine) = engines.first().filter(|_| !windows.is_empty()) else {
        return Err(PerplexityError::NothingToPredict {
            text_tokens: text.len(),
            context_tokens: context,
        });
    };
    let mut sums = Sums::new(engines.len());
    for window in &windows {
        run_window(engines, start, text, window, &mut sums, progress)?;
    }
    let results: Vec<ArithmeticReport> = engines
        .iter()
        .zip(&sums.surprise)
        .map(|(engine, moments)| moments.report(engine, sums.tokens))
        .collect();
    Ok(PerplexityReport {
        model_hash: engine.model().model_hash.clone(),
        synthetic: engine.model().synthetic,
        text_tokens: text.len(),
        tokens: sums.tokens,
        context_tokens: context,
        stride_tokens: stride,
        windows: windows.len(),
        comparison: sums.comparison(&results),
        results,
    })
}

/// Feeds a window to fresh sequences and scores what it predicts.
fn run_window(
    engines: &[Engine],
    start: &[u32],
    text: &[u32],
    window: &Window,
    sums: &mut Sums,
    progress: &mut dyn FnMut(usize),
) -> Result<(), BackendError> {
    let mut input = start.to_vec();
    input.extend_from_slice(&text[window.tokens.clone()]);
    // The row of logits after input[i] predicts input[i + 1]; the last token predicts nothing.
    let first_target = start.len() + window.scored.start - window.tokens.start;
    let (context, rows) = input[..input.len() - 1].split_at(first_target - 1);
    let mut sequences = engines
        .iter()
        .map(Engine::new_sequence)
        .collect::<Result<Vec<_>, _>>()?;
    for (engine, sequence) in engines.iter().zip(&mut sequences) {
        for chunk in context.chunks(engine.prefill_chunk_tokens()) {
            let ticket = submit(sequence, chunk, HeadRequest::Skip)?;
            engine.discard(ticket);
        }
    }
    let vocab = engines.first().map_or(1, |e| e.model().vocab_size);
    let chunk_of = |engine: &Engine| engine.prefill_chunk_tokens();
    let most = engines.iter().map(chunk_of).min().unwrap_or(1);
    let step_rows = (LOGITS_BYTES / (4 * vocab)).clamp(1, most);
    let mut target = first_target;
    for chunk in rows.chunks(step_rows) {
        let tickets = sequences
            .iter_mut()
            .map(|sequence| submit(sequence, chunk, HeadRequest::AllLogits))
            .collect::<Result<Vec<_>, _>>()?;
        let outputs = engines
            .iter()
            .zip(tickets)
            .map(|(engine, ticket)| engine.read(ticket).map(|output| output.logits))
            .collect::<Result<Vec<_>, _>>()?;
        for row in 0..chunk.len() {
            let rows: Vec<LogProbabilities<'_>> = outputs
                .iter()
                .map(|logits| LogProbabilities::new(&logits[row * vocab..][..vocab]))
                .collect();
            sums.add(&rows, input[target + row]);
        }
        target += chunk.len();
        progress(sums.tokens);
    }
    Ok(())
}

fn submit(
    sequence: &mut Sequence,
    ids: &[u32],
    head: HeadRequest,
) -> Result<crate::backend::interface::Ticket, BackendError> {
    let request = StepRequest {
        head,
        ..StepRequest::greedy()
    };
    sequence.submit(TokenSource::Host(ids.to_vec()), request)
}

/// What is added up over tokens.
struct Sums {
    tokens: usize,
    /// Of each engine.
    surprise: Vec<Moments>,
    divergence: f64,
    worst_divergence: f64,
    equal_best: usize,
}

/// Sum and sum of squares.
#[derive(Clone, Default)]
struct Moments {
    sum: f64,
    squares: f64,
}

impl Moments {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.squares += value * value;
    }

    fn report(&self, engine: &Engine, tokens: usize) -> ArithmeticReport {
        let count = tokens as f64;
        let mean = self.sum / count;
        let variance = (self.squares / count - mean * mean).max(0.0);
        ArithmeticReport {
            arithmetic: engine.arithmetic(),
            perplexity: mean.exp(),
            mean_nats: mean,
            standard_error_nats: (variance / count).sqrt(),
        }
    }
}

impl Sums {
    fn new(engines: usize) -> Self {
        Self {
            tokens: 0,
            surprise: vec![Moments::default(); engines],
            divergence: 0.0,
            worst_divergence: 0.0,
            equal_best: 0,
        }
    }

    /// One token, as each engine saw it coming.
    fn add(&mut self, rows: &[LogProbabilities<'_>], token: u32) {
        self.tokens += 1;
        for (moments, row) in self.surprise.iter_mut().zip(rows) {
            moments.add(-row.of(token));
        }
        if let [first, .., last] = rows {
            let divergence = first.divergence(last);
            self.divergence += divergence;
            self.worst_divergence = self.worst_divergence.max(divergence);
            self.equal_best += usize::from(first.best() == last.best());
        }
    }

    fn comparison(&self, results: &[ArithmeticReport]) -> Option<Comparison> {
        let [first, .., last] = results else {
            return None;
        };
        let count = self.tokens as f64;
        Some(Comparison {
            mean_kl_nats: self.divergence / count,
            worst_kl_nats: self.worst_divergence,
            equal_best_share: self.equal_best as f64 / count,
            perplexity_change: last.perplexity / first.perplexity - 1.0,
        })
    }
}
