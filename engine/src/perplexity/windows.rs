//! A text longer than the context, in overlapping windows: every token is predicted exactly once.
//!
//! Each window starts as a text does (with the start token, where the model has one). The first
//! window scores all of its tokens; each later one moves on by `stride` and scores only those that
//! no window before it has reached, so that these have at least `context − stride` tokens before
//! them.

use std::ops::Range;

/// One window of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// Tokens of the text that it holds.
    pub tokens: Range<usize>,
    /// Those of them that it predicts.
    pub scored: Range<usize>,
}

/// The windows of a text of `text_tokens`, each at most `context_tokens` long, `start_tokens`
/// included. The first token of the text is predicted only if something comes before it.
///
/// `stride_tokens` is held between 1 and the room that a window has for the text. A context with no
/// room for two tokens gives no windows.
pub fn windows(
    text_tokens: usize,
    start_tokens: usize,
    context_tokens: usize,
    stride_tokens: usize,
) -> Vec<Window> {
    let room = context_tokens.saturating_sub(start_tokens);
    if room < 2 {
        return Vec::new();
    }
    // A window that does not overlap the one before would have nothing to predict its first token
    // from, unless it has a start token.
    let most = if start_tokens == 0 { room - 1 } else { room };
    let stride = stride_tokens.clamp(1, most);
    let mut windows = Vec::new();
    let mut scored = usize::from(start_tokens == 0);
    let mut begin = 0;
    while scored < text_tokens {
        let end = (begin + room).min(text_tokens);
        windows.push(Window {
            tokens: begin..end,
            scored: scored..end,
        });
        scored = end;
        begin += stride;
    }
    windows
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_text_that_fits_is_one_window() {
        let whole = |scored| {
            vec![Window {
                tokens: 0..10,
                scored,
            }]
        };
        assert_eq!(windows(10, 1, 11, 5), whole(0..10));
        assert_eq!(windows(10, 0, 10, 5), whole(1..10));
    }

    #[test]
    fn later_windows_overlap_by_what_the_stride_leaves() {
        let expected = [(0..8, 1..8), (4..12, 8..12), (8..14, 12..14)];
        let expected: Vec<Window> = expected
            .into_iter()
            .map(|(tokens, scored)| Window { tokens, scored })
            .collect();
        assert_eq!(windows(14, 0, 8, 4), expected);
    }

    #[test]
    fn nothing_can_be_predicted_from_nothing() {
        assert!(windows(1, 0, 8, 4).is_empty());
        assert!(windows(0, 1, 8, 4).is_empty());
        assert!(windows(100, 7, 8, 4).is_empty());
        assert_eq!(windows(1, 1, 8, 4).len(), 1);
    }

    proptest! {
        #[test]
        fn every_token_is_predicted_once_from_enough(
            text in 0usize..300,
            start in 0usize..2,
            context in 3usize..40,
            stride in 0usize..50,
        ) {
            let windows = windows(text, start, context, stride);
            let scored: Vec<usize> = windows.iter().flat_map(|w| w.scored.clone()).collect();
            let wanted: Vec<usize> = (usize::from(start == 0)..text).collect();
            prop_assert_eq!(scored, wanted);
            for (index, window) in windows.iter().enumerate() {
                prop_assert!(window.tokens.len() + start <= context);
                prop_assert!(window.tokens.start <= window.scored.start);
                prop_assert!(window.scored.end <= window.tokens.end);
                prop_assert!(!window.scored.is_empty());
                // Something comes before the first token that is predicted.
                prop_assert!(window.scored.start + start > window.tokens.start);
                if index > 0 {
                    let before = window.scored.start - window.tokens.start;
                    let room = context - start;
                    prop_assert!(before >= room.saturating_sub(stride.max(1)));
                }
            }
        }
    }
}
