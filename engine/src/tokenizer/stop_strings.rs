//! Where a text ends: at the first of some strings, wherever tokens begin and end.
//!
//! What could be the beginning of a stop string is held back until more text decides.

/// Watches a text that arrives in pieces.
#[derive(Debug, Clone, Default)]
pub struct StopStrings {
    stops: Vec<String>,
    /// Text that arrived and was not handed on.
    held: String,
}

/// What a piece brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passed {
    /// Text that is now certain, without any stop string.
    pub text: String,
    /// The stop string that ended the text, if one did.
    pub stopped_by: Option<String>,
}

impl StopStrings {
    /// Stops at any of `stops`; empty ones are ignored.
    pub fn new(stops: impl IntoIterator<Item = String>) -> Self {
        Self {
            stops: stops.into_iter().filter(|stop| !stop.is_empty()).collect(),
            held: String::new(),
        }
    }

    /// Takes the next piece. The text ends at the stop string that is complete first; of those
    /// complete at the same character, the longest.
    pub fn push(&mut self, piece: &str) -> Passed {
        self.held.push_str(piece);
        let first = self
            .stops
            .iter()
            .filter_map(|stop| self.held.find(stop.as_str()).map(|start| (start, stop)))
            .min_by_key(|(start, stop)| (start + stop.len(), *start));
        if let Some((start, stop)) = first {
            let stopped_by = Some(stop.clone());
            self.held.truncate(start);
            return Passed {
                text: std::mem::take(&mut self.held),
                stopped_by,
            };
        }
        let open = self.open_bytes();
        let rest = self.held.split_off(self.held.len() - open);
        Passed {
            text: std::mem::replace(&mut self.held, rest),
            stopped_by: None,
        }
    }

    /// What is still held back, when no more text comes.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Bytes at the end of the text that begin a stop string.
    fn open_bytes(&self) -> usize {
        let ends = self.held.char_indices().map(|(at, _)| &self.held[at..]);
        ends.filter(|end| self.stops.iter().any(|stop| stop.starts_with(end)))
            .map(str::len)
            .max()
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Feeds the pieces; the text handed on and what stopped it.
    fn run(stops: &[&str], pieces: &[&str]) -> (String, Option<String>) {
        let mut watch = StopStrings::new(stops.iter().map(|stop| (*stop).to_owned()));
        let mut text = String::new();
        for piece in pieces {
            let passed = watch.push(piece);
            text.push_str(&passed.text);
            if passed.stopped_by.is_some() {
                return (text, passed.stopped_by);
            }
        }
        text.push_str(&watch.finish());
        (text, None)
    }

    /// The obvious twin: looks at every prefix of the whole text.
    fn twin(stops: &[&str], text: &str) -> (String, Option<String>) {
        let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
        for end in ends {
            let ending = stops
                .iter()
                .filter(|s| !s.is_empty() && text[..end].ends_with(**s));
            if let Some(stop) = ending.max_by_key(|stop| stop.len()) {
                return (
                    text[..end - stop.len()].to_owned(),
                    Some((*stop).to_owned()),
                );
            }
        }
        (text.to_owned(), None)
    }

    #[test]
    fn a_stop_string_may_begin_in_one_token_and_end_in_another() {
        let (text, stop) = run(&["</end>"], &["one <", "/e", "nd> two"]);
        assert_eq!((text.as_str(), stop.as_deref()), ("one ", Some("</end>")));
    }

    #[test]
    fn what_only_looked_like_one_is_handed_on() {
        let (text, stop) = run(&["abcd"], &["xab", "c", "x"]);
        assert_eq!((text.as_str(), stop), ("xabcx", None));
        assert_eq!(run(&["abcd"], &["xabc"]).0, "xabc");
    }

    #[test]
    fn text_is_handed_on_as_soon_as_it_is_certain() {
        let mut watch = StopStrings::new(["\n\n".to_owned()]);
        assert_eq!(watch.push("a line\n").text, "a line");
        assert_eq!(watch.push("b").text, "\nb");
    }

    #[test]
    fn an_empty_stop_string_stops_nothing() {
        assert_eq!(run(&[""], &["a", "b"]), ("ab".to_owned(), None));
    }

    proptest! {
        #[test]
        fn cutting_a_text_into_pieces_changes_nothing(
            text in "[abé]{0,24}",
            stops in prop::collection::vec("[abé]{0,4}", 0..4),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let mut bounds: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
            bounds.push(text.len());
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| *cut.get(&bounds)).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&str> = cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
            prop_assert_eq!(run(&stops, &pieces), twin(&stops, &text));
        }
    }
}
