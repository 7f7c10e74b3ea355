//! Runs every path, greedy and sampled, and compares each with the synchronous one.

use super::report::{ParityReport, Row, RowResult};
use super::trace::{Path, Trace, not_pipelined, trace};
use crate::decode::token_hash::token_sha256;
use crate::decode::{SamplerOptions, UndoPolicy};
use crate::engine::Engine;
use crate::error::BackendError;

/// Fewest different ids in a greedy text of the default length that could show a wrong rewind.
const FEWEST_DISTINCT: usize = 32;

/// A full text; a shorter one may have fewer different ids, in proportion.
const FULL_TEXT_TOKENS: usize = 128;

/// Tokens of the default prompt before the window's end, so that a text fills the window, wraps it
/// and goes on.
const TOKENS_BEFORE_THE_EDGE: usize = 16;

/// Tokens of the default prompt for a model without a window.
const PROMPT_WITHOUT_WINDOW: usize = 64;

/// What to run.
#[derive(Debug, Clone, PartialEq)]
pub struct ParityOptions {
    /// Tokens to decode, the prompt's own included.
    pub tokens: usize,
    /// How the sampled texts are drawn.
    pub sampled: SamplerOptions,
    /// What happens to rows that are overwritten ahead; not [`UndoPolicy::Discard`], which leaves
    /// nothing that could be continued.
    pub undo: UndoPolicy,
    /// A test of the gate itself: rows are not put back.
    pub plant_rewind_bug: bool,
}

/// Length of a prompt that ends shortly before the window does.
pub fn default_prompt_tokens(window_tokens: Option<usize>) -> usize {
    match window_tokens {
        Some(window) => window.saturating_sub(TOKENS_BEFORE_THE_EDGE).max(2),
        None => PROMPT_WITHOUT_WINDOW,
    }
}

/// Decodes `prompt` by every path.
///
/// # Errors
/// When a step fails.
pub fn parity(
    engine: &Engine,
    prompt: &[u32],
    options: &ParityOptions,
) -> Result<ParityReport, BackendError> {
    let greedy = SamplerOptions::default();
    let mut rows = Vec::new();
    let mut problems = Vec::new();
    let mut text = Vec::new();
    let not_pipelined = not_pipelined(engine, options.undo)?;
    for (sampling, sampler) in [("greedy", greedy), ("sampled", options.sampled)] {
        let run = |path| trace(engine, path, prompt, sampler, options);
        let reference = run(Path::Sync)?;
        if sampling == "greedy" {
            text.clone_from(&reference.tokens);
        }
        for path in Path::ALL {
            let pipelined = matches!(path, Path::Pipelined | Path::Rewinds);
            if let (true, Some(reason)) = (pipelined, not_pipelined) {
                problems.push(format!("{}: not pipelined: {}", path.name(), reason.name()));
                rows.push(Row::not_available(path, sampling, reason.name()));
                continue;
            }
            let other = match path {
                Path::Sync => reference.clone(),
                path => run(path)?,
            };
            problems.extend(problems_of(engine, path, sampling, &other, options));
            rows.push(Row::new(
                path,
                sampling,
                compare(&reference, &other),
                &other,
            ));
        }
    }
    let routes = engine.qmm_report();
    let identical = rows.iter().all(|row| row.result == RowResult::Identical);
    Ok(ParityReport {
        model_hash: engine.model().model_hash.clone(),
        family: engine.model().family.clone(),
        backend: engine.device().backend.clone(),
        arithmetic: engine.arithmetic(),
        route_profile: routes.profile,
        route_profile_foreign: routes.foreign,
        window_tokens: engine.model().window_tokens,
        prompt_tokens: prompt.len(),
        tokens: options.tokens,
        undo_policy: options.undo.name(),
        planted_rewind_bug: options.plant_rewind_bug,
        passed: identical && problems.is_empty(),
        rows,
        problems,
        twin: None,
        token_sha256: token_sha256(&text),
        text,
    })
}

/// The first difference of `right` from `left`.
fn compare(left: &Trace, right: &Trace) -> RowResult {
    let tokens = left.tokens.iter().zip(&right.tokens);
    if let Some(at) = tokens.clone().position(|(left, right)| left != right) {
        return RowResult::Diverges {
            at,
            left: left.tokens[at],
            right: right.tokens[at],
        };
    }
    let mut hashes = left.logits_sha256.iter().zip(&right.logits_sha256);
    match hashes.position(|(left, right)| left != right) {
        Some(at) => RowResult::LogitsDiverge { at },
        None if left.tokens.len() != right.tokens.len() => RowResult::LengthDiffers {
            left: left.tokens.len(),
            right: right.tokens.len(),
        },
        None => RowResult::Identical,
    }
}

/// Why a row would prove nothing, whatever it says.
fn problems_of(
    engine: &Engine,
    path: Path,
    sampling: &str,
    trace: &Trace,
    options: &ParityOptions,
) -> Vec<String> {
    let mut problems = Vec::new();
    let mut problem = |text: String| problems.push(format!("{} {sampling}: {text}", path.name()));
    let statistics = &trace.statistics;
    if !trace.finite {
        problem("logits are not finite".to_owned());
    }
    if let Some(window) = engine.model().window_tokens
        && !statistics.wrapped
    {
        problem(format!("the window of {window} tokens was not crossed"));
    }
    if path == Path::Pipelined && statistics.lookahead_steps == 0 {
        problem("no step was queued ahead".to_owned());
    }
    if path == Path::Rewinds && statistics.rewinds == 0 {
        problem("nothing was taken back".to_owned());
    }
    let distinct = trace.distinct_tokens();
    let wanted = (FEWEST_DISTINCT * options.tokens).div_ceil(FULL_TEXT_TOKENS);
    let wanted = wanted.min(FEWEST_DISTINCT);
    if distinct < wanted {
        problem(format!(
            "{distinct} different ids, expected {wanted}: the text hides mistakes"
        ));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::DecodeStatistics;

    fn trace_of(tokens: &[u32], hashes: &[u8]) -> Trace {
        Trace {
            tokens: tokens.to_vec(),
            logits_sha256: hashes.iter().map(|byte| [*byte; 32]).collect(),
            finite: true,
            statistics: DecodeStatistics::default(),
        }
    }

    #[test]
    fn the_first_difference_is_told_with_both_sides() {
        let left = trace_of(&[1, 2, 3], &[1, 2, 3]);
        assert_eq!(compare(&left, &left), RowResult::Identical);
        let result = compare(&left, &trace_of(&[1, 9, 8], &[1, 2, 3]));
        assert_eq!(result.to_string(), "diverge@1 left=2 right=9");
        let result = compare(&left, &trace_of(&[1, 2, 3], &[1, 2, 9]));
        assert_eq!(result.to_string(), "logits diverge@2");
        let result = compare(&left, &trace_of(&[1, 2], &[1, 2]));
        assert_eq!(result.to_string(), "length left=3 right=2");
    }

    #[test]
    fn the_default_text_fills_the_window_and_crosses_it() {
        for window in [8, 32, 512, 1024] {
            let prompt = default_prompt_tokens(Some(window));
            assert!(prompt < window && prompt + FULL_TEXT_TOKENS > window + 16);
        }
    }
}
