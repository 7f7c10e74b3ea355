//! A cache that keeps every token: slot and position are the same number, but only here.

use super::interface::{CachePlan, GROWTH_ROWS, KeyView};

/// Cursor of a cache without a window.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FullCursor {
    offset_tokens: usize,
}

impl FullCursor {
    /// Tokens seen.
    pub fn offset_tokens(&self) -> usize {
        self.offset_tokens
    }

    /// Forgets the newest `tokens` tokens, at most all of them: exact, since a row beyond the end is
    /// never seen and is written before it is.
    pub fn trim(&mut self, tokens: usize) {
        self.offset_tokens = self.offset_tokens.saturating_sub(tokens);
    }

    /// Appends `tokens` rows at the end.
    pub fn append(&mut self, tokens: usize) -> CachePlan {
        let first_slot = self.offset_tokens;
        self.offset_tokens += tokens;
        let view = if tokens == 1 {
            KeyView::Ring {
                oldest_slot: 0,
                rows: self.offset_tokens,
            }
        } else {
            KeyView::Ordered {
                first_position: 0,
                window_tokens: None,
            }
        };
        CachePlan {
            compact: None,
            first_slot,
            physical_rows: self.offset_tokens,
            capacity_rows: self.offset_tokens.next_multiple_of(GROWTH_ROWS),
            view,
            offset_tokens: self.offset_tokens,
            save: None,
        }
    }
}
