//! A folder's tokenizer: tokenizer.json with what tokenizer_config.json adds to it.

use std::path::{Path, PathBuf};

use tokenizers::Tokenizer;

use super::chat_template::{ChatTemplate, Message};
use super::error::TokenizerError;
use super::settings::{Settings, read_limited};

/// Name of the file in the model's folder.
pub const FILE_NAME: &str = "tokenizer.json";

/// The longest tokenizer.json read, in bytes; the largest published ones are below 40 MB.
const MOST_BYTES: u64 = 256 << 20;

/// Text to ids and back, and chats to text.
pub struct TextTokenizer {
    dir: PathBuf,
    inner: Tokenizer,
    /// Starts every text, where the settings ask for it.
    start: Option<u32>,
    end: Option<u32>,
    chat: Option<ChatTemplate>,
}

impl TextTokenizer {
    /// Loads the tokenizer of `dir`.
    ///
    /// # Errors
    /// When there is none, or one of its files is not valid.
    pub fn load(dir: &Path) -> Result<Self, TokenizerError> {
        Self::find(dir)?.ok_or_else(|| TokenizerError::Missing {
            dir: dir.to_owned(),
        })
    }

    /// Loads the tokenizer of `dir`; `None` where there is no tokenizer.json.
    ///
    /// # Errors
    /// When one of its files is not valid.
    pub fn find(dir: &Path) -> Result<Option<Self>, TokenizerError> {
        let path = dir.join(FILE_NAME);
        let Some(bytes) = read_limited(&path, MOST_BYTES)? else {
            return Ok(None);
        };
        let inner = parse(&path, &bytes)?;
        let settings = Settings::load(dir)?;
        let chat = ChatTemplate::load(dir, &settings)?;
        let id = |role: &str| inner.token_to_id(settings.special_tokens.get(role)?);
        let start = id("bos_token").filter(|_| settings.add_bos_token == Some(true));
        let end = id("eos_token");
        Ok(Some(Self {
            dir: dir.to_owned(),
            inner,
            start,
            end,
            chat,
        }))
    }

    /// The ids of a text, with the tokens that the folder puts around one.
    ///
    /// # Errors
    /// When the tokenizer fails on the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = self.encode_with(text, true)?;
        // tokenizer.json may already put it there.
        if let Some(start) = self.start.filter(|start| ids.first() != Some(start)) {
            ids.insert(0, start);
        }
        Ok(ids)
    }

    /// The ids of a text alone.
    ///
    /// # Errors
    /// When the tokenizer fails on the text.
    pub fn encode_plain(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.encode_with(text, false)
    }

    /// The tokens that the folder puts before a text: none, or the start token.
    ///
    /// # Errors
    /// When the tokenizer fails on an empty text.
    pub fn start_tokens(&self) -> Result<Vec<u32>, TokenizerError> {
        // Texts are followed by nothing in the families here, so an empty one shows the start; an
        // end token would be wrong there.
        let mut ids = self.encode("")?;
        ids.retain(|id| Some(*id) != self.end);
        Ok(ids)
    }

    /// The ids of a chat, with the opening of the assistant's next turn.
    ///
    /// # Errors
    /// When the folder has no template, or the template refuses the messages.
    pub fn encode_chat(&self, messages: &[Message]) -> Result<Vec<u32>, TokenizerError> {
        let chat = self
            .chat
            .as_ref()
            .ok_or_else(|| TokenizerError::NoChatTemplate {
                dir: self.dir.clone(),
            })?;
        // The template writes the start token itself.
        self.encode_plain(&chat.render(messages)?)
    }

    /// Whether the folder has a chat template.
    pub fn has_chat_template(&self) -> bool {
        self.chat.is_some()
    }

    /// The template, where there is one.
    pub fn chat_template(&self) -> Option<&ChatTemplate> {
        self.chat.as_ref()
    }

    /// The text of `ids`, special tokens left out.
    ///
    /// # Errors
    /// When the tokenizer fails on them. Ids that it does not know are left out.
    pub fn decode(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        guarded(|| self.inner.decode(ids, true))
            .map_err(|problem| TokenizerError::Decode { problem })
    }

    /// The token that ends a text, where the settings name one.
    pub fn end_token(&self) -> Option<u32> {
        self.end
    }

    /// Number of the tokens, added ones included.
    pub fn token_count(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// The largest id.
    pub fn largest_id(&self) -> Option<u32> {
        self.inner.get_vocab(true).into_values().max()
    }

    fn encode_with(&self, text: &str, special: bool) -> Result<Vec<u32>, TokenizerError> {
        let encoding = guarded(|| self.inner.encode_fast(text, special)).map_err(|problem| {
            TokenizerError::Encode {
                bytes: text.len(),
                problem,
            }
        })?;
        Ok(encoding.get_ids().to_vec())
    }
}

impl std::fmt::Debug for TextTokenizer {
    /// Leaves the vocabulary out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TextTokenizer")
            .field("dir", &self.dir)
            .field("tokens", &self.token_count())
            .finish_non_exhaustive()
    }
}

/// Calls the crate. It indexes and unwraps by what tokenizer.json says, so a file that contradicts
/// itself (a template with a token that it does not define) can make it panic; that is the file's
/// error, not the end of the program.
fn guarded<T>(call: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err(format!("{FILE_NAME} contradicts itself")),
    }
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Tokenizer, TokenizerError> {
    let wrong = |problem: String| TokenizerError::File {
        path: path.to_owned(),
        problem,
    };
    // Text that is no JSON makes the crate panic; find out first.
    serde_json::from_slice::<serde::de::IgnoredAny>(bytes)
        .map_err(|error| wrong(error.to_string()))?;
    let mut inner = guarded(|| Tokenizer::from_bytes(bytes)).map_err(wrong)?;
    // For batches of equal length; a prompt must stay as long as it is.
    inner.with_padding(None);
    inner
        .with_truncation(None)
        .map_err(|error| wrong(error.to_string()))?;
    Ok(inner)
}
