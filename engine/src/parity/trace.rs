//! One path over one prompt: its tokens, a hash of each step's logits, and what the loop did.

use sha2::{Digest, Sha256};

use super::run::ParityOptions;
use crate::backend::interface::TokenSource;
use crate::decode::{
    DecodeStatistics, Decoded, DirectEngine, Generator, LookaheadOptions, Sampler, SamplerOptions,
    StopReason, StopRule, SyncReason, UndoPolicy, lookahead_params,
};
use crate::engine::{Engine, REWIND_DEPTH, Sequence, StepRequest};
use crate::error::BackendError;

/// A way to decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Path {
    /// Step by step: what the others are compared with.
    Sync,
    /// The pre-epic loop.
    Generator,
    /// One step ahead of the reads.
    Pipelined,
    /// The same, stopped in mid-text again and again; before it goes on, as many foreign tokens as
    /// can be taken back are fed and taken back.
    Rewinds,
}

impl Path {
    /// All, the reference first.
    pub const ALL: [Self; 4] = [Self::Sync, Self::Generator, Self::Pipelined, Self::Rewinds];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Generator => "generator",
            Self::Pipelined => "pipelined",
            Self::Rewinds => "rewinds",
        }
    }
}

/// What a path did.
#[derive(Debug, Clone)]
pub struct Trace {
    /// Tokens, the prompt's own first.
    pub tokens: Vec<u32>,
    /// SHA-256 of the logits that each was chosen from.
    pub logits_sha256: Vec<[u8; 32]>,
    /// No infinity and no NaN among them.
    pub finite: bool,
    /// What the loop did.
    pub statistics: DecodeStatistics,
}

impl Trace {
    fn new() -> Self {
        Self {
            tokens: Vec::new(),
            logits_sha256: Vec::new(),
            finite: true,
            statistics: DecodeStatistics::default(),
        }
    }

    /// Different ids among the tokens.
    pub fn distinct_tokens(&self) -> usize {
        let distinct: std::collections::HashSet<_> = self.tokens.iter().collect();
        distinct.len()
    }

    fn push(&mut self, decoded: &Decoded) {
        let mut hash = Sha256::new();
        for logit in &decoded.logits {
            self.finite &= logit.is_finite();
            hash.update(logit.to_le_bytes());
        }
        self.tokens.push(decoded.token);
        self.logits_sha256.push(hash.finalize().into());
    }
}

/// Decodes a text after `prompt`, as long as the options say.
///
/// # Errors
/// When a step fails.
pub fn trace(
    engine: &Engine,
    path: Path,
    prompt: &[u32],
    sampler: SamplerOptions,
    options: &ParityOptions,
) -> Result<Trace, BackendError> {
    let mut sequence = engine.new_sequence_with_slack(options.undo.slack_rows())?;
    if options.plant_rewind_bug {
        sequence.plant_rewind_bug();
    }
    let sampler = Sampler::new(sampler);
    let count = options.tokens;
    let options = LookaheadOptions {
        force_sync: path == Path::Sync,
        undo: options.undo,
    };
    match path {
        Path::Generator => by_generator(&mut sequence, prompt, count, sampler),
        Path::Sync | Path::Pipelined => {
            let mut trace = Trace::new();
            let stop = budget(count);
            let mut decoder =
                DirectEngine::new(&mut sequence, sampler, stop, options).with_logits(true);
            trace.push(&decoder.prefill(prompt)?);
            while let Some(decoded) = decoder.next()? {
                trace.push(&decoded);
            }
            trace.statistics = decoder.finish()?;
            Ok(trace)
        }
        Path::Rewinds => with_rewinds(&mut sequence, prompt, count, sampler, options),
    }
}

/// Why the pipelined paths are not to be had for this engine's sequences, if they are not.
///
/// # Errors
/// When the device has stopped.
pub(super) fn not_pipelined(
    engine: &Engine,
    undo: UndoPolicy,
) -> Result<Option<SyncReason>, BackendError> {
    let sequence = engine.new_sequence_with_slack(undo.slack_rows())?;
    let options = LookaheadOptions {
        undo,
        ..LookaheadOptions::default()
    };
    Ok(lookahead_params(options, sequence.caches(), false).err())
}

fn budget(max_tokens: usize) -> StopRule {
    StopRule {
        max_tokens,
        end_tokens: Vec::new(),
    }
}

fn by_generator(
    sequence: &mut Sequence,
    prompt: &[u32],
    count: usize,
    sampler: Sampler,
) -> Result<Trace, BackendError> {
    let mut trace = Trace::new();
    let mut generator = Generator::new(sequence, sampler, budget(count)).with_logits(true);
    trace.push(&generator.prefill(prompt)?);
    while let Some(decoded) = generator.next()? {
        trace.push(&decoded);
    }
    trace.statistics = generator.finish()?;
    Ok(trace)
}

fn with_rewinds(
    sequence: &mut Sequence,
    prompt: &[u32],
    count: usize,
    mut sampler: Sampler,
    options: LookaheadOptions,
) -> Result<Trace, BackendError> {
    let mut trace = Trace::new();
    let mut total = DecodeStatistics::default();
    while trace.tokens.len() < count {
        let first = trace.tokens.len();
        let stop = budget(count - first);
        let mut decoder = DirectEngine::new(sequence, sampler, stop, options).with_logits(true);
        match trace.tokens.last() {
            Some(&last) => decoder.resume(last),
            None => trace.push(&decoder.prefill(prompt)?),
        }
        // Stretches of 1 to 5 tokens: every slot is once the one that is taken back.
        for _ in 0..1 + first % 5 {
            if let Some(decoded) = decoder.next()? {
                trace.push(&decoded);
            }
        }
        decoder.end(StopReason::Callback)?;
        sampler = decoder.sampler();
        total = sum(total, decoder.finish()?);
        detour(sequence, first, options)?;
    }
    total.rewinds = sequence.undo_count().rewinds;
    total.appends_rewound = sequence.undo_count().appends_rewound;
    trace.statistics = total;
    Ok(trace)
}

/// Feeds foreign tokens and takes them back. Two of them: the row that a single one overwrites is
/// overwritten by the next token anyway, so that only the second one's must really come back.
fn detour(
    sequence: &mut Sequence,
    salt: usize,
    options: LookaheadOptions,
) -> Result<(), BackendError> {
    let params = lookahead_params(options, sequence.caches(), false);
    sequence.set_speculative(params.ok().and_then(|params| params.record));
    for index in 0..REWIND_DEPTH {
        let foreign = TokenSource::Host(vec![(salt + index) as u32 % 100]);
        let ticket = sequence.submit(foreign, StepRequest::greedy())?;
        sequence.engine().discard(ticket);
    }
    sequence.set_speculative(None);
    sequence.rewind(REWIND_DEPTH)
}

fn sum(total: DecodeStatistics, part: DecodeStatistics) -> DecodeStatistics {
    DecodeStatistics {
        lookahead_steps: total.lookahead_steps + part.lookahead_steps,
        undo_rows_recorded: total.undo_rows_recorded + part.undo_rows_recorded,
        undo_rows_copied: total.undo_rows_copied + part.undo_rows_copied,
        undo_launches: total.undo_launches + part.undo_launches,
        wrapped: total.wrapped || part.wrapped,
        ..part
    }
}
