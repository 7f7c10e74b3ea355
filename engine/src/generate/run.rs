//! The loop: ids from the decode loop, text to the caller as soon as it is certain.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::options::{GenerateOptions, Prompt};
use crate::decode::{DecodeLoop, DecodeStatistics, Sampler, StopReason, StopRule};
use crate::engine::Engine;
use crate::error::BackendError;
use crate::tokenizer::{Message, Role, StopStrings, TextStream, TextTokenizer, TokenizerError};

/// Why a text ended.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The model chose an end token.
    EndToken,
    /// A stop string was written.
    StopString(String),
    /// The budget is spent.
    MaxTokens,
    /// The model was made for no longer context.
    Context,
    /// Nobody wants more of it.
    Cancelled,
}

/// A finished text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generated {
    /// The text, without what ended it.
    pub text: String,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens chosen, the end token included.
    pub ids: Vec<u32>,
    /// Why it ended.
    pub ending: Ending,
    /// From handing over the prompt to having the first token.
    pub prefill_ns: u64,
    /// From having the first token to the end.
    pub decode_ns: u64,
    /// What the loop did.
    pub statistics: DecodeStatistics,
}

/// Why there is no text.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// The tokenizer failed.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A step failed.
    #[error(transparent)]
    Step(#[from] BackendError),
    /// A prompt without a token.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// A prompt that leaves no room for a text.
    #[error("prompt of {prompt_tokens} tokens, but the model was made for {context_tokens}")]
    PromptTooLong {
        /// Its length.
        prompt_tokens: usize,
        /// The model's context.
        context_tokens: usize,
    },
    /// The text could not be handed on.
    #[error(transparent)]
    Output(#[from] std::io::Error),
}

/// The ids of a prompt.
///
/// # Errors
/// When a chat is asked for without a template, or the tokenizer fails.
pub fn prompt_ids(tokenizer: &TextTokenizer, prompt: &Prompt) -> Result<Vec<u32>, TokenizerError> {
    match prompt {
        Prompt::Raw(text) => tokenizer.encode(text),
        Prompt::Chat { system, user } => {
            let system = system.iter().map(|text| Message::new(Role::System, text));
            let messages: Vec<Message> = system.chain([Message::new(Role::User, user)]).collect();
            tokenizer.encode_chat(&messages)
        }
    }
}

/// Writes a text; `on_text` gets its pieces as they become certain.
///
/// # Errors
/// A prompt that is empty or too long, a step that fails, or an error of `on_text`.
pub fn generate(
    engine: &Engine,
    tokenizer: &TextTokenizer,
    prompt: &[u32],
    options: &GenerateOptions,
    on_text: &mut dyn FnMut(&str) -> std::io::Result<()>,
) -> Result<Generated, GenerateError> {
    if prompt.is_empty() {
        return Err(GenerateError::EmptyPrompt);
    }
    let (max_tokens, is_context) = budget(engine, prompt.len(), options.max_tokens)?;
    let rule = StopRule {
        max_tokens,
        end_tokens: end_tokens(engine, tokenizer, options),
    };
    let mut sequence = options.decode_loop.new_sequence(engine)?;
    let mut writer = Writer {
        stream: TextStream::after(tokenizer, prompt)?,
        stops: StopStrings::new(options.stop_strings.iter().cloned()),
        text: String::new(),
        on_text,
    };
    let sampler = Sampler::new(options.sampler);
    let mut decoder = (options.decode_loop).over(&mut sequence, sampler, rule, false);
    let start = Instant::now();
    let first = decoder.prefill(prompt)?.token;
    let prefill_ns = elapsed_ns(start);
    let start = Instant::now();
    let (ids, stop_string) = decode(decoder.as_mut(), first, options, &mut writer)?;
    let decode_ns = elapsed_ns(start);
    let reason = decoder.stopped();
    let statistics = decoder.finish()?;
    let (text, last_stop) = writer.finish(stop_string.is_some())?;
    let by_rule = match reason {
        Some(StopReason::EndToken) => Ending::EndToken,
        Some(StopReason::Cancelled) => Ending::Cancelled,
        _ if is_context => Ending::Context,
        _ => Ending::MaxTokens,
    };
    Ok(Generated {
        text,
        prompt_tokens: prompt.len(),
        ids,
        ending: (stop_string.or(last_stop)).map_or(by_rule, Ending::StopString),
        prefill_ns,
        decode_ns,
        statistics,
    })
}

/// Decodes to the end: the tokens, the first one included, and the stop string that ended them.
fn decode(
    decoder: &mut dyn DecodeLoop,
    first: u32,
    options: &GenerateOptions,
    writer: &mut Writer<'_>,
) -> Result<(Vec<u32>, Option<String>), GenerateError> {
    let mut ids = Vec::new();
    let mut next = Some(first);
    while let Some(token) = next {
        ids.push(token);
        if decoder.stopped() == Some(StopReason::EndToken) {
            break;
        }
        if let Some(stop) = writer.push(token)? {
            decoder.end(StopReason::StopString)?;
            return Ok((ids, Some(stop)));
        }
        if options.cancel.load(Ordering::Relaxed) {
            decoder.end(StopReason::Cancelled)?;
        }
        next = decoder.next()?.map(|decoded| decoded.token);
    }
    Ok((ids, None))
}

/// Tokens that may be written, and whether it is the context that limits them.
fn budget(
    engine: &Engine,
    prompt_tokens: usize,
    max_tokens: usize,
) -> Result<(usize, bool), GenerateError> {
    let Some(context_tokens) = engine.model().max_position_tokens else {
        return Ok((max_tokens, false));
    };
    // The last token is chosen but never fed, so it needs no position.
    let room = (context_tokens + 1).saturating_sub(prompt_tokens);
    if room == 0 {
        return Err(GenerateError::PromptTooLong {
            prompt_tokens,
            context_tokens,
        });
    }
    Ok((room.min(max_tokens), room < max_tokens))
}

/// The model's end tokens and the tokenizer's own: chat models often name one in each file.
fn end_tokens(engine: &Engine, tokenizer: &TextTokenizer, options: &GenerateOptions) -> Vec<u32> {
    if options.ignore_end_tokens {
        return Vec::new();
    }
    let mut tokens = engine.model().end_tokens.clone();
    tokens.extend(tokenizer.end_token());
    tokens
}

/// Where ids become text and text leaves.
struct Writer<'a> {
    stream: TextStream<'a>,
    stops: StopStrings,
    text: String,
    on_text: &'a mut dyn FnMut(&str) -> std::io::Result<()>,
}

impl Writer<'_> {
    /// Takes an id; the stop string that it completed, if it did.
    fn push(&mut self, id: u32) -> Result<Option<String>, GenerateError> {
        let piece = self.stream.push(id)?;
        self.take(&piece)
    }

    fn take(&mut self, piece: &str) -> Result<Option<String>, GenerateError> {
        let passed = self.stops.push(piece);
        self.hand_on(&passed.text)?;
        Ok(passed.stopped_by)
    }

    fn hand_on(&mut self, text: &str) -> Result<(), GenerateError> {
        if !text.is_empty() {
            self.text.push_str(text);
            (self.on_text)(text)?;
        }
        Ok(())
    }

    /// Hands on what was held back, unless a stop string ended the text; the text, and the stop
    /// string that the last characters completed.
    fn finish(mut self, stopped: bool) -> Result<(String, Option<String>), GenerateError> {
        if stopped {
            return Ok((self.text, None));
        }
        let empty = TextStream::after(self.stream.tokenizer(), &[])?;
        let last = std::mem::replace(&mut self.stream, empty).finish()?;
        let stopped_by = self.take(&last)?;
        if stopped_by.is_none() {
            let held = self.stops.finish();
            self.hand_on(&held)?;
        }
        Ok((self.text, stopped_by))
    }
}

fn elapsed_ns(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
