//! Prompts: a given text, or exactly N ids of a neutral one.
//!
//! Until a model comes with a tokenizer, a token is a byte: speed does not
//! depend on what the ids mean, and a report says `"tokenizer": "bytes"`.

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tokenizer {
    /// Each byte is an id; ids beyond a tiny vocabulary wrap around.
    Bytes {
        /// Ids are below this.
        vocab_size: usize,
    },
}

impl Tokenizer {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Tokenizer::Bytes { .. } => "bytes",
        }
    }

    /// The ids of a text.
    pub fn encode(self, text: &str) -> Vec<u32> {
        match self {
            Tokenizer::Bytes { vocab_size } => {
                let most = u32::try_from(vocab_size).unwrap_or(u32::MAX).max(1);
                text.bytes().map(|byte| u32::from(byte) % most).collect()
            }
        }
    }

    /// Exactly `count` ids: the paragraph is encoded once and its ids repeated.
    pub fn synthesise(self, count: usize) -> Vec<u32> {
        let ids = self.encode(PARAGRAPH);
        ids.iter().copied().cycle().take(count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: Tokenizer = Tokenizer::Bytes { vocab_size: 512 };

    #[test]
    fn a_synthesised_prompt_has_exactly_the_length_asked_for() {
        for count in [1, PARAGRAPH.len(), PARAGRAPH.len() + 1, 5000] {
            let ids = BYTES.synthesise(count);
            assert_eq!(ids.len(), count);
            assert_eq!(ids[0], u32::from(b'T'));
        }
    }

    #[test]
    fn a_longer_prompt_starts_with_the_shorter_one() {
        assert_eq!(BYTES.synthesise(3000)[..1000], BYTES.synthesise(1000));
    }

    #[test]
    fn ids_stay_within_a_tiny_vocabulary() {
        let tiny = Tokenizer::Bytes { vocab_size: 7 };
        assert!(tiny.synthesise(2000).iter().all(|&id| id < 7));
    }
}
