//! A cache that keeps a window: a ring for single tokens, a sorted buffer for many.
//!
//! * One token: the buffer grows until it has the window's rows; then the slot wraps to 0 and the
//!   new row takes the place of the oldest. Every row in the buffer is visible.
//! * Many tokens: the rows still visible to the first of them (window − 1) are put in the order of
//!   time, the new ones follow. The first such call keeps everything, even beyond the window; the
//!   next single token trims the buffer to the window.

use super::interface::{CachePlan, Compaction, GROWTH_ROWS, KeyView};

/// Cursor of a cache with a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RotatingCursor {
    window_tokens: usize,
    offset_tokens: usize,
    /// Rows in the buffer.
    rows: usize,
    /// Where the next single row goes; equal to `rows` while the buffer is in the order of time.
    next_slot: usize,
    wrapped: bool,
}

impl RotatingCursor {
    /// An empty cache of `window_tokens` tokens, the newest included; 0 is taken as 1.
    pub fn new(window_tokens: usize) -> Self {
        Self {
            window_tokens: window_tokens.max(1),
            offset_tokens: 0,
            rows: 0,
            next_slot: 0,
            wrapped: false,
        }
    }

    /// Tokens seen.
    pub fn offset_tokens(&self) -> usize {
        self.offset_tokens
    }

    /// Whether a slot has been written a second time by single tokens.
    pub fn has_wrapped(&self) -> bool {
        self.wrapped
    }

    /// The window.
    pub fn window_tokens(&self) -> usize {
        self.window_tokens
    }

    /// Where the next single token goes, unless that is the window's end, which wraps to 0.
    pub fn next_slot(&self) -> usize {
        self.next_slot
    }

    /// Rows in the buffer.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The cursor as the next single token finds it: trimmed to the window. Which rows are visible
    /// does not change.
    pub fn trimmed_to_window(mut self) -> (Self, Option<Compaction>) {
        let compact = self.trim_to_window();
        (self, compact)
    }

    /// Forgets the newest `tokens` tokens by moving the cursors; false, and nothing done, where that
    /// would not be exact: after the wrap the slots still hold what is to be forgotten.
    pub fn trim(&mut self, tokens: usize) -> bool {
        let in_order = self.rows == self.offset_tokens && self.next_slot == self.rows;
        if !in_order || tokens > self.offset_tokens {
            return tokens == 0;
        }
        self.offset_tokens -= tokens;
        self.rows -= tokens;
        self.next_slot -= tokens;
        true
    }

    /// Makes room for `tokens` rows.
    pub fn append(&mut self, tokens: usize) -> CachePlan {
        if tokens == 1 {
            self.append_one()
        } else {
            self.append_many(tokens)
        }
    }

    fn append_one(&mut self) -> CachePlan {
        let window = self.window_tokens;
        let compact = self.trim_to_window();
        if self.next_slot == window {
            self.next_slot = 0;
            self.wrapped = true;
        }
        let first_slot = self.next_slot;
        self.next_slot += 1;
        self.rows = self.rows.max(self.next_slot);
        self.offset_tokens += 1;
        CachePlan {
            compact,
            first_slot,
            physical_rows: self.rows,
            capacity_rows: self.rows.next_multiple_of(GROWTH_ROWS).min(window),
            view: KeyView::All,
            offset_tokens: self.offset_tokens,
            save: None,
        }
    }

    fn trim_to_window(&mut self) -> Option<Compaction> {
        let window = self.window_tokens;
        (self.rows > window).then(|| {
            let newest = (self.rows - window, self.rows);
            self.rows = window;
            self.next_slot = window;
            Compaction {
                head: newest,
                tail: (0, 0),
            }
        })
    }

    fn append_many(&mut self, tokens: usize) -> CachePlan {
        let kept = self.rows.min(self.window_tokens - 1);
        let dropped = self.rows - kept;
        let in_order = self.next_slot == self.rows;
        let compact = if in_order && dropped == 0 {
            None
        } else if in_order {
            Some(Compaction {
                head: (dropped, self.rows),
                tail: (0, 0),
            })
        } else {
            Some(self.unroll(dropped))
        };
        let first_position = self.offset_tokens - kept;
        self.rows = kept + tokens;
        self.next_slot = self.rows;
        self.offset_tokens += tokens;
        CachePlan {
            compact,
            first_slot: kept,
            physical_rows: self.rows,
            capacity_rows: self.rows,
            view: KeyView::Ordered {
                first_position,
                window_tokens: Some(self.window_tokens),
            },
            offset_tokens: self.offset_tokens,
            save: None,
        }
    }

    /// The ring in the order of time without its `dropped` oldest rows: the oldest lies at
    /// `next_slot`, the newest just before it.
    fn unroll(&self, dropped: usize) -> Compaction {
        let older = self.rows - self.next_slot;
        if dropped < older {
            Compaction {
                head: (self.next_slot + dropped, self.rows),
                tail: (0, self.next_slot),
            }
        } else {
            Compaction {
                head: (dropped - older, self.next_slot),
                tail: (0, 0),
            }
        }
    }
}
