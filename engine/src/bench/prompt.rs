//! Prompts: a given text, or exactly N ids of a neutral one.
//!
//! A model without a tokenizer, as synthetic ones are, takes a byte for a token: speed does not
//! depend on what the ids mean, and a report says `"tokenizer": "bytes"`.

use std::path::Path;

use crate::tokenizer::{Message, Role, TextTokenizer, TokenizerError};

/// The paragraph behind `--prompt-tokens`: plain prose about nothing in
/// particular, repeated as often as needed. Its bytes are part of the method;
/// another text would be another prompt.
const PARAGRAPH: &str = "The road leaves the harbour along the sea wall and climbs slowly past \
the boat sheds. On clear mornings the far bank can be seen from the first bend, and the ferry is \
a white mark on the water. Beyond the chapel the fields begin, divided by low stone walls that \
were built when the land was cleared. The mill stands where the stream comes down from the \
hills; its wheel has not turned for many years, but the roof is kept in repair and the yard is \
swept. People who walk up from the town rest there before they take the longer way back through \
the woods. ";

/// How text becomes ids.
#[derive(Debug)]
pub enum Tokenizer {
    /// Each byte is an id; ids beyond a tiny vocabulary wrap around.
    Bytes {
        /// Ids are below this.
        vocab_size: usize,
    },
    /// The folder's own.
    File(Box<TextTokenizer>),
}

impl Tokenizer {
    /// The tokenizer of `folder`; bytes where it has none.
    ///
    /// # Errors
    /// When it has one that is not valid.
    pub fn open(folder: &Path, vocab_size: usize) -> Result<Self, TokenizerError> {
        Ok(match TextTokenizer::find(folder)? {
            Some(tokenizer) => Self::File(Box::new(tokenizer)),
            None => Self::Bytes { vocab_size },
        })
    }

    /// Its name in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Bytes { .. } => "bytes",
            Self::File(_) => "tokenizer.json",
        }
    }

    /// Whether there is a template to put a question into.
    pub fn has_chat_template(&self) -> bool {
        matches!(self, Self::File(tokenizer) if tokenizer.has_chat_template())
    }

    /// The ids of a text, as a question in the chat template if `chat`.
    ///
    /// # Errors
    /// When the tokenizer or the template fails on it.
    pub fn encode(&self, text: &str, chat: bool) -> Result<Vec<u32>, TokenizerError> {
        match self {
            Self::Bytes { vocab_size } => Ok(bytes(text, *vocab_size)),
            Self::File(tokenizer) if chat => {
                tokenizer.encode_chat(&[Message::new(Role::User, text)])
            }
            Self::File(tokenizer) => tokenizer.encode(text),
        }
    }

    /// Exactly `count` ids: what starts a text here, then the paragraph, which is encoded once and
    /// its ids repeated.
    ///
    /// # Errors
    /// When the tokenizer fails on the paragraph, or makes nothing of it.
    pub fn synthesise(&self, count: usize) -> Result<Vec<u32>, TokenizerError> {
        let (start, ids) = match self {
            Self::Bytes { vocab_size } => (Vec::new(), bytes(PARAGRAPH, *vocab_size)),
            Self::File(tokenizer) => (
                tokenizer.start_tokens()?,
                tokenizer.encode_plain(PARAGRAPH)?,
            ),
        };
        if ids.is_empty() {
            return Err(TokenizerError::Encode {
                bytes: PARAGRAPH.len(),
                problem: "no ids came out".to_owned(),
            });
        }
        let repeated = ids.iter().copied().cycle();
        Ok(start.into_iter().chain(repeated).take(count).collect())
    }
}

fn bytes(text: &str, vocab_size: usize) -> Vec<u32> {
    let most = u32::try_from(vocab_size).unwrap_or(u32::MAX).max(1);
    text.bytes().map(|byte| u32::from(byte) % most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: Tokenizer = Tokenizer::Bytes { vocab_size: 512 };

    #[test]
    fn a_synthesised_prompt_has_exactly_the_length_asked_for() {
        for count in [1, PARAGRAPH.len(), PARAGRAPH.len() + 1, 5000] {
            let ids = BYTES.synthesise(count).unwrap();
            assert_eq!(ids.len(), count);
            assert_eq!(ids[0], u32::from(b'T'));
        }
    }

    #[test]
    fn a_longer_prompt_starts_with_the_shorter_one() {
        assert_eq!(
            BYTES.synthesise(3000).unwrap()[..1000],
            BYTES.synthesise(1000).unwrap()
        );
    }

    #[test]
    fn ids_stay_within_a_tiny_vocabulary() {
        let tiny = Tokenizer::Bytes { vocab_size: 7 };
        assert!(tiny.synthesise(2000).unwrap().iter().all(|&id| id < 7));
    }
}
