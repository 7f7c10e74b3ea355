//! Load, warm-up pass, measured pass, probe: the order is the method.

use std::time::Instant;

use sha2::{Digest, Sha256};

use super::arguments::Arguments;
use super::bandwidth::{self, ReadBandwidth};
use super::latency::Latency;
use super::prompt::Tokenizer;
use crate::backend::interface::{Arithmetic, KernelReport};
use crate::decode::token_hash::{hex, token_sha256};
use crate::decode::{DecodeStatistics, LookaheadOptions, Sampler, StopReason, StopRule};
use crate::device_profile::DeviceProfile;
use crate::engine::{Engine, LoadOptions, LoadProgress, ModelInfo};
use crate::error::{BackendError, LoadError};
use crate::memory::{self, MemoryUse};
use crate::qmm::{QmmOptions, QmmReport, QmmSetup};
use crate::tokenizer::TokenizerError;

/// Everything that one process found out.
#[derive(Debug, Clone)]
pub struct Measurement {
    /// What was loaded.
    pub model: ModelInfo,
    /// What it ran on.
    pub device: DeviceProfile,
    /// Arithmetic of activations and products.
    pub arithmetic: Arithmetic,
    /// Which kernels ran.
    pub kernels: KernelReport,
    /// How text became ids.
    pub tokenizer: &'static str,
    /// Whether the prompt was put into the chat template.
    pub chat_template: bool,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Time to open the folder, check it and have the weights on the device.
    pub load_ns: u64,
    /// Memory when the model was loaded.
    pub after_load: MemoryUse,
    /// Memory after the warm-up pass.
    pub after_warmup: MemoryUse,
    /// Memory after the measured pass and its sequence.
    pub after_pass: MemoryUse,
    /// The warm-up pass's logits, when there was one.
    pub logits: Option<LogitsDigest>,
    /// The measured pass.
    pub pass: Pass,
    /// Which routes products took, and the cache behind them.
    pub qmm: QmmReport,
    /// Bytes of keys and values that a decode step reads, mean over the pass.
    pub cache_bytes_per_token: u64,
    /// What the memory gave right afterwards.
    pub bandwidth: ReadBandwidth,
    /// Largest resident set, before the probe took its buffer.
    pub peak_resident_bytes: Option<u64>,
}

impl Measurement {
    /// Largest account of any phase.
    pub fn peak_bytes(&self) -> u64 {
        [self.after_load, self.after_warmup, self.after_pass]
            .map(|phase| phase.phase_peak_bytes)
            .into_iter()
            .max()
            .unwrap_or(0)
    }

    /// Bytes that decoding moved, per second.
    pub fn decode_bytes_per_second(&self) -> f64 {
        let bytes = self.model.bytes_per_token + self.cache_bytes_per_token;
        bytes as f64 * self.pass.decode_tokens_per_second()
    }

    /// That, as a share of what the memory gave.
    pub fn bandwidth_share(&self) -> f64 {
        self.decode_bytes_per_second() / self.bandwidth.median
    }
}

/// What the environment overrides.
#[derive(Debug, Clone, Copy)]
pub struct Overrides {
    /// Of the decode loop.
    pub lookahead: LookaheadOptions,
    /// Of the routes of products.
    pub qmm: QmmOptions,
}

/// One prompt and its continuation.
#[derive(Debug, Clone)]
pub struct Pass {
    /// The prompt's tokens.
    pub prompt_tokens: usize,
    /// From handing over the prompt to having the first token.
    pub prefill_ns: u64,
    /// The same from before the sequence was made.
    pub first_token_ns: u64,
    /// Memory when the prompt had been taken; its peak is prefill's.
    pub after_prefill: MemoryUse,
    /// Memory when the last token was there; its peak is decoding's.
    pub after_decode: MemoryUse,
    /// From having the first token to having the last.
    pub decode_ns: u64,
    /// Gaps between tokens.
    pub latency: Latency,
    /// The first token, which prefill gave, and those decoded after it.
    pub tokens: Vec<u32>,
    /// What the loop did.
    pub statistics: DecodeStatistics,
    /// Why it ended.
    pub stopped: Option<StopReason>,
}

impl Pass {
    /// Tokens that decode steps gave: the first one is prefill's.
    pub fn decoded_tokens(&self) -> usize {
        self.tokens.len().saturating_sub(1)
    }

    /// Prompt tokens per second; 0 when nothing was timed.
    pub fn prefill_tokens_per_second(&self) -> f64 {
        rate(self.prompt_tokens, self.prefill_ns)
    }

    /// The largest account of the pass.
    pub fn peak_bytes(&self) -> u64 {
        let [prefill, decode] = [self.after_prefill, self.after_decode];
        prefill.phase_peak_bytes.max(decode.phase_peak_bytes)
    }

    /// Decoded tokens per second; 0 when nothing was decoded.
    pub fn decode_tokens_per_second(&self) -> f64 {
        rate(self.decoded_tokens(), self.decode_ns)
    }

    /// Different ids among the tokens.
    pub fn distinct_tokens(&self) -> usize {
        let distinct: std::collections::HashSet<_> = self.tokens.iter().collect();
        distinct.len()
    }

    /// SHA-256 of the tokens as little-endian 32-bit words.
    pub fn token_sha256(&self) -> String {
        token_sha256(&self.tokens)
    }
}

/// The logits of a pass, hashed as they came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogitsDigest {
    /// SHA-256 of every step's logits as little-endian float32.
    pub sha256: String,
    /// No infinity and no NaN among them.
    pub finite: bool,
}

/// Loads the model that `folder` holds and measures it.
///
/// # Errors
/// A model that cannot be loaded, or a step that fails.
pub fn measure(
    folder: &std::path::Path,
    arguments: &Arguments,
    overrides: Overrides,
    progress: &mut dyn FnMut(LoadProgress),
) -> Result<Measurement, MeasureError> {
    memory::start_phase();
    let start = Instant::now();
    let load = arguments.load_options();
    let options = LoadOptions {
        qmm: QmmSetup {
            options: overrides.qmm,
            ..load.qmm
        },
        ..load
    };
    let engine = Engine::load(folder, &options, progress)?;
    let load_ns = elapsed_ns(start);
    let lookahead = overrides.lookahead;
    let after_load = settled(&engine)?;

    let tokenizer = Tokenizer::open(folder, engine.model().vocab_size)?;
    let asks = arguments.prompt_tokens.is_none() && !arguments.no_chat_template;
    let chat_template = asks && tokenizer.has_chat_template();
    let build_prompt = || match arguments.prompt_tokens() {
        Some(count) => tokenizer.synthesise(count),
        None => tokenizer.encode(&arguments.prompt, chat_template),
    };

    memory::start_phase();
    let logits = match arguments.warmup_tokens() {
        0 => None,
        count => Some(warm_up(
            &engine,
            &build_prompt()?,
            count,
            arguments,
            lookahead,
        )?),
    };
    let after_warmup = settled(&engine)?;

    memory::start_phase();
    let prompt = build_prompt()?;
    let pass = measured_pass(&engine, &prompt, arguments, lookahead)?;
    let after_pass = MemoryUse {
        phase_peak_bytes: pass.peak_bytes(),
        ..settled(&engine)?
    };
    let peak_resident_bytes = memory::peak_resident_bytes();

    // Reads grow linearly until a window is full, so the middle of the pass
    // stands for its mean.
    let depth = prompt.len() + pass.decoded_tokens() / 2;
    Ok(Measurement {
        model: engine.model().clone(),
        device: engine.device().clone(),
        arithmetic: engine.arithmetic(),
        kernels: engine.kernels().clone(),
        tokenizer: tokenizer.name(),
        chat_template,
        prompt_tokens: prompt.len(),
        load_ns,
        after_load,
        after_warmup,
        after_pass,
        logits,
        pass,
        qmm: engine.qmm_report(),
        cache_bytes_per_token: engine.cache_bytes_at(depth),
        bandwidth: match engine.read_bandwidth()? {
            Some(passes) => ReadBandwidth::of(passes),
            None => bandwidth::probe(engine.device().units),
        },
        peak_resident_bytes,
    })
}

/// Why there is no measurement.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The model could not be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The prompt could not be made into ids.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A step failed.
    #[error(transparent)]
    Step(#[from] BackendError),
}

/// The account of memory when nothing is under way on the device.
fn settled(engine: &Engine) -> Result<MemoryUse, BackendError> {
    engine.wait_idle()?;
    Ok(memory::now())
}

/// Runs the prompt and a few tokens on a sequence of its own. Its times are
/// thrown away; its logits, which would disturb the measured pass, are hashed.
fn warm_up(
    engine: &Engine,
    prompt: &[u32],
    decode_tokens: usize,
    arguments: &Arguments,
    lookahead: LookaheadOptions,
) -> Result<LogitsDigest, BackendError> {
    let choice = arguments.decode_loop.choice(lookahead);
    let mut sequence = choice.new_sequence(engine)?;
    // An end token is no reason to warm up less.
    let stop = StopRule {
        max_tokens: decode_tokens + 1,
        end_tokens: Vec::new(),
    };
    let sampler = Sampler::new(arguments.sampler_options());
    let mut decoder = choice.over(&mut sequence, sampler, stop, true);
    let mut hash = Sha256::new();
    let mut finite = true;
    let mut step = Some(decoder.prefill(prompt)?);
    while let Some(decoded) = step {
        for logit in &decoded.logits {
            finite &= logit.is_finite();
            hash.update(logit.to_le_bytes());
        }
        step = decoder.next()?;
    }
    decoder.finish()?;
    Ok(LogitsDigest {
        sha256: hex(&hash.finalize()),
        finite,
    })
}

fn measured_pass(
    engine: &Engine,
    prompt: &[u32],
    arguments: &Arguments,
    lookahead: LookaheadOptions,
) -> Result<Pass, BackendError> {
    let decode_tokens = arguments.decode_tokens();
    let stop = StopRule {
        max_tokens: decode_tokens + 1,
        end_tokens: match arguments.ignore_eos {
            true => Vec::new(),
            false => engine.model().end_tokens.clone(),
        },
    };
    let sampler = Sampler::new(arguments.sampler_options());
    let choice = arguments.decode_loop.choice(lookahead);
    let mut gaps_ns = Vec::with_capacity(decode_tokens);
    let mut tokens = Vec::with_capacity(decode_tokens + 1);

    let start = Instant::now();
    let mut sequence = choice.new_sequence(engine)?;
    let prefill_start = Instant::now();
    let mut decoder = choice.over(&mut sequence, sampler, stop, false);
    tokens.push(decoder.prefill(prompt)?.token);
    let first_token = Instant::now();
    let after_prefill = settled(engine)?;
    memory::start_phase();
    let decode_start = Instant::now();
    let mut last_token = decode_start;
    while let Some(decoded) = decoder.next()? {
        let now = Instant::now();
        gaps_ns.push(nanoseconds(now - last_token));
        tokens.push(decoded.token);
        last_token = now;
    }
    let after_decode = settled(engine)?;
    let stopped = decoder.stopped();
    let statistics = decoder.finish()?;
    Ok(Pass {
        prompt_tokens: prompt.len(),
        prefill_ns: nanoseconds(first_token - prefill_start),
        first_token_ns: nanoseconds(first_token - start),
        after_prefill,
        after_decode,
        decode_ns: nanoseconds(last_token - decode_start),
        latency: Latency::of(&gaps_ns),
        tokens,
        statistics,
        stopped,
    })
}

fn rate(tokens: usize, elapsed_ns: u64) -> f64 {
    if elapsed_ns == 0 {
        return 0.0;
    }
    tokens as f64 * 1e9 / elapsed_ns as f64
}

fn elapsed_ns(start: Instant) -> u64 {
    nanoseconds(start.elapsed())
}

fn nanoseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::example;

    #[test]
    fn the_first_token_belongs_to_prefill() {
        let pass = example::measurement().pass;
        assert_eq!(pass.tokens.len(), 129);
        assert_eq!(pass.decoded_tokens(), 128);
        assert!((pass.decode_tokens_per_second() - 62.657).abs() < 0.001);
        assert!((pass.prefill_tokens_per_second() - 2875.03).abs() < 0.01);
        assert_eq!(pass.distinct_tokens(), 100);
    }

    #[test]
    fn a_pass_that_decoded_nothing_has_rate_zero() {
        let mut pass = example::measurement().pass;
        pass.tokens.truncate(1);
        pass.decode_ns = 0;
        assert_eq!(pass.decode_tokens_per_second(), 0.0);
    }

    #[test]
    fn the_token_hash_depends_on_every_token() {
        let pass = example::measurement().pass;
        let mut other = pass.clone();
        other.tokens[128] += 1;
        assert_ne!(pass.token_sha256(), other.token_sha256());
    }
}
