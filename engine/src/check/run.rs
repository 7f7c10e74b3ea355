//! Runs the engine on the reference's tokens.

use std::path::Path;

use crate::backend::interface::{Arithmetic, BackendChoice, HeadRequest, TokenSource};
use crate::check::compare::{Distance, agreement, distance, standard_deviation};
use crate::check::limits::limits;
use crate::check::reference::Reference;
use crate::check::report::{CheckReport, ModeReport};
use crate::decode::{Generator, Sampler, SamplerOptions, StopRule, step};
use crate::engine::StepRequest;
use crate::{BackendError, Engine, LoadError, LoadOptions, LoadProgress};

/// Chunk sizes that prefill is repeated with: single tokens, sizes that do not divide the prompt,
/// and one that leaves a single token for the end.
const CHUNK_TOKENS: [usize; 4] = [1, 5, 16, 47];

/// How to check.
#[derive(Debug, Clone)]
pub struct CheckOptions {
    /// Back end.
    pub backend: BackendChoice,
    /// Arithmetics to check.
    pub arithmetics: Vec<Arithmetic>,
    /// Threads; 0 means one a core.
    pub threads: usize,
}

/// Compares the folder's reference with the engine.
///
/// # Errors
/// When the folder or its reference cannot be loaded, or a step fails. A figure beyond its limit is
/// not an error but a failed report.
pub fn check(
    dir: &Path,
    options: &CheckOptions,
    progress: &mut dyn FnMut(LoadProgress),
) -> Result<CheckReport, LoadError> {
    let reference = Reference::load(dir)?;
    let mut report = CheckReport {
        model: dir.display().to_string(),
        family: String::new(),
        model_hash: String::new(),
        device: String::new(),
        modes: Vec::new(),
        passed: false,
    };
    for &arithmetic in &options.arithmetics {
        let load = LoadOptions {
            backend: options.backend,
            arithmetic,
            threads: options.threads,
            ..LoadOptions::default()
        };
        let engine = Engine::load(dir, &load, progress)?;
        report.family.clone_from(&engine.model().family);
        report.model_hash.clone_from(&engine.model().model_hash);
        report.device.clone_from(&engine.device().name);
        report.modes.push(check_mode(&engine, &reference)?);
    }
    report.passed = report.modes.iter().all(|mode| mode.failures.is_empty());
    Ok(report)
}

fn check_mode(engine: &Engine, reference: &Reference) -> Result<ModeReport, BackendError> {
    let limits = limits(engine.arithmetic(), reference.bf16_rms);
    let whole = run_teacher_forced(engine, reference)?;
    let unit = reference.unit;
    let prefill_len = reference.prompt_ids.len() * reference.vocab_size;
    let (want_prefill, want_decode) = reference.logits.split_at(prefill_len);
    let (got_prefill, got_decode) = whole.logits.split_at(prefill_len.min(whole.logits.len()));
    let gap = limits.clear_gap * unit;
    let report = ModeReport {
        arithmetic: engine.arithmetic(),
        kernels: engine.kernels().clone(),
        prefill: distance(got_prefill, want_prefill, unit),
        decode: distance(got_decode, want_decode, unit),
        logits: distance(&whole.logits, &reference.logits, unit),
        chunked: farthest_chunking(engine, reference, got_prefill)?,
        hidden_worst: hidden_worst(&whole.hidden, &reference.hidden),
        top1: agreement(&whole.logits, &reference.logits, reference.vocab_size, gap),
        equal_ids: equal_ids(engine, reference)?,
        reference_ids: reference.decode_ids.len(),
        limits,
        failures: Vec::new(),
    };
    Ok(report.judged())
}

struct TeacherForced {
    /// Rows of the prompt, then the row after each decoded token.
    logits: Vec<f32>,
    /// Of the prompt.
    hidden: Vec<Vec<f32>>,
}

/// The prompt in one piece, then the reference's own tokens one by one.
fn run_teacher_forced(
    engine: &Engine,
    reference: &Reference,
) -> Result<TeacherForced, BackendError> {
    let mut sequence = engine.new_sequence()?;
    let request = StepRequest {
        head: HeadRequest::AllLogits,
        capture_hidden: true,
        ..StepRequest::greedy()
    };
    let input = TokenSource::Host(reference.prompt_ids.clone());
    let ticket = sequence.submit(input, request)?;
    let prefill = engine.read(ticket)?;
    let mut logits = prefill.logits;
    let request = StepRequest {
        head: HeadRequest::TokenAndLogits,
        capture_hidden: false,
        ..request
    };
    for &token in &reference.decode_ids {
        logits.extend(step::step(&mut sequence, token, request)?.logits);
    }
    Ok(TeacherForced {
        logits,
        hidden: prefill.hidden,
    })
}

/// The prompt again in chunks, against the engine's own logits of one piece.
fn farthest_chunking(
    engine: &Engine,
    reference: &Reference,
    whole: &[f32],
) -> Result<Distance, BackendError> {
    let request = StepRequest {
        head: HeadRequest::AllLogits,
        ..StepRequest::greedy()
    };
    let mut farthest = Distance {
        rms: 0.0,
        worst: 0.0,
    };
    for chunk_tokens in CHUNK_TOKENS {
        let mut sequence = engine.new_sequence()?;
        let mut logits = Vec::with_capacity(whole.len());
        for chunk in reference.prompt_ids.chunks(chunk_tokens) {
            let ticket = sequence.submit(TokenSource::Host(chunk.to_vec()), request)?;
            logits.extend(engine.read(ticket)?.logits);
        }
        let far = distance(&logits, whole, reference.unit);
        farthest.rms = farthest.rms.max(far.rms);
        farthest.worst = farthest.worst.max(far.worst);
    }
    Ok(farthest)
}

fn hidden_worst(got: &[Vec<f32>], wanted: &[Vec<f32>]) -> Option<f64> {
    if wanted.is_empty() {
        return None;
    }
    if got.len() != wanted.len() {
        return Some(f64::INFINITY);
    }
    let layers = got.iter().zip(wanted);
    let worst = layers.map(|(got, wanted)| distance(got, wanted, standard_deviation(wanted)).worst);
    Some(worst.fold(0.0, f64::max))
}

/// The loop's own greedy tokens that equal the reference's, up to the first that does not.
fn equal_ids(engine: &Engine, reference: &Reference) -> Result<usize, BackendError> {
    let mut sequence = engine.new_sequence()?;
    let stop = StopRule {
        max_tokens: reference.decode_ids.len(),
        end_tokens: Vec::new(),
    };
    let sampler = Sampler::new(SamplerOptions::default());
    let mut generator = Generator::new(&mut sequence, sampler, stop);
    let mut ids = vec![generator.prefill(&reference.prompt_ids)?.token];
    while let Some(decoded) = generator.next()? {
        ids.push(decoded.token);
    }
    let pairs = ids.iter().zip(&reference.decode_ids);
    Ok(pairs.take_while(|(got, wanted)| got == wanted).count())
}
