//! Ids to text, one at a time.
//!
//! What a token stands for may depend on the one before it (leading blanks) and on those after it
//! (a character in several bytes). So the text of an id is the difference between the text of a few
//! ids with it and without it, and nothing is handed out while that ends in the middle of a
//! character.

use super::error::TokenizerError;
use super::text_tokenizer::TextTokenizer;

/// What decoders put where bytes are no character (yet).
const REPLACEMENT: char = '\u{FFFD}';

/// Ids that may wait for the rest of a character. Only text that holds replacements itself, and
/// bytes that are no text, make that many wait.
const MOST_WAITING: usize = 16;

/// Ids that the beginning of one character can take: it has at most four bytes.
const MOST_OPEN: usize = 3;

/// Ids of the prompt that the first new one may depend on.
const MOST_CONTEXT: usize = 8;

/// The text of a growing list of ids.
#[derive(Debug)]
pub struct TextStream<'a> {
    tokenizer: &'a TextTokenizer,
    /// `[..read]` is context whose text was handed out, the rest waits.
    ids: Vec<u32>,
    read: usize,
}

impl<'a> TextStream<'a> {
    /// The text of what comes after `prompt`.
    ///
    /// # Errors
    /// When the tokenizer cannot decode the prompt's end.
    pub fn after(tokenizer: &'a TextTokenizer, prompt: &[u32]) -> Result<Self, TokenizerError> {
        let mut stream = Self {
            tokenizer,
            ids: Vec::new(),
            read: 0,
        };
        // The shortest end of the prompt that has a text and does not begin inside a character.
        for count in 1..=prompt.len().min(MOST_CONTEXT) {
            let end = &prompt[prompt.len() - count..];
            let text = tokenizer.decode(end)?;
            if !text.is_empty() && !text.contains(REPLACEMENT) {
                stream.ids = end.to_vec();
                stream.read = count;
                break;
            }
        }
        Ok(stream)
    }

    /// Its tokenizer.
    pub fn tokenizer(&self) -> &'a TextTokenizer {
        self.tokenizer
    }

    /// The text that `id` completes; often empty.
    ///
    /// # Errors
    /// When the tokenizer cannot decode it.
    pub fn push(&mut self, id: u32) -> Result<String, TokenizerError> {
        self.ids.push(id);
        let text = self.waiting_text()?;
        if text.is_empty() {
            return Ok(text);
        }
        if !text.ends_with(REPLACEMENT) {
            self.hand_out(self.ids.len());
            return Ok(text);
        }
        if self.ids.len() - self.read < MOST_WAITING {
            return Ok(String::new());
        }
        let (end, text) = self.split()?;
        self.hand_out(end);
        Ok(text)
    }

    /// `ids[..end]` become the context, what was context before is forgotten.
    fn hand_out(&mut self, end: usize) {
        self.ids.drain(..self.read);
        self.read = end - self.read;
    }

    /// Where to cut ids that all seem to end inside a character: there where the two sides need the
    /// fewest replacements, which is never inside a character that is whole.
    fn split(&self) -> Result<(usize, String), TokenizerError> {
        let replacements = |text: &str| text.matches(REPLACEMENT).count();
        let mut best = (usize::MAX, self.ids.len(), String::new());
        for end in self.ids.len() - MOST_OPEN..=self.ids.len() {
            let text = self.text_between(end)?;
            let rest = self.tokenizer.decode(&self.ids[end..])?;
            let count = replacements(&text) + replacements(&rest);
            if count < best.0 {
                best = (count, end, text);
            }
        }
        Ok((best.1, best.2))
    }

    /// What still waits, when no more ids come; half a character becomes a replacement.
    ///
    /// # Errors
    /// When the tokenizer cannot decode it.
    pub fn finish(self) -> Result<String, TokenizerError> {
        if self.read == self.ids.len() {
            return Ok(String::new());
        }
        self.waiting_text()
    }

    fn waiting_text(&self) -> Result<String, TokenizerError> {
        self.text_between(self.ids.len())
    }

    /// The text of the waiting ids up to `end`, behind their context.
    fn text_between(&self, end: usize) -> Result<String, TokenizerError> {
        let context = self.tokenizer.decode(&self.ids[..self.read])?;
        let whole = self.tokenizer.decode(&self.ids[..end])?;
        match whole.strip_prefix(&context) {
            Some(new) => Ok(new.to_owned()),
            // New bytes can spoil a run that was text before: then they are on their own.
            None => self.tokenizer.decode(&self.ids[self.read..end]),
        }
    }
}
