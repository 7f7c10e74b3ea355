//! A cache that keeps a window: a ring for single tokens, a sorted buffer for many.
//!
//! * One token: the buffer grows until it has the window's rows, and those of its slack if it has
//!   any; then the slot wraps to 0 and the new row takes the place of the oldest. Without slack
//!   every row in the buffer is visible. With slack the newest rows of a window are; a row that is
//!   overwritten has then been out of sight for as many tokens as there is slack, so that so many
//!   tokens can be taken back and nothing needs to be saved for them.
//! * Many tokens: the rows still visible to the first of them (window − 1) are put in the order of
//!   time, the new ones follow. The first such call keeps everything, even beyond the window; the
//!   next single token trims the buffer to the ring's rows.

use super::interface::{CachePlan, Compaction, GROWTH_ROWS, KeyView};

/// Cursor of a cache with a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RotatingCursor {
    window_tokens: usize,
    slack_rows: usize,
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
        Self::with_slack(window_tokens, 0)
    }

    /// The same, whose ring has `slack_rows` rows more than the window.
    pub fn with_slack(window_tokens: usize, slack_rows: usize) -> Self {
        Self {
            window_tokens: window_tokens.max(1),
            slack_rows,
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

    /// Whether single tokens have gone on beyond the window.
    pub fn has_wrapped(&self) -> bool {
        self.wrapped
    }

    /// The window.
    pub fn window_tokens(&self) -> usize {
        self.window_tokens
    }

    /// Rows that the ring has beyond the window.
    pub fn slack_rows(&self) -> usize {
        self.slack_rows
    }

    /// Rows of the ring: window and slack.
    pub fn ring_rows(&self) -> usize {
        self.window_tokens + self.slack_rows
    }

    /// Whether the next single token takes the place of a row, rather than a place of its own.
    pub fn overwrites(&self) -> bool {
        self.next_slot < self.rows || self.rows >= self.ring_rows()
    }

    /// Where the next single token goes, unless that is the ring's end, which wraps to 0.
    pub fn next_slot(&self) -> usize {
        self.next_slot
    }

    /// Rows in the buffer.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The cursor as the next single token finds it: trimmed to the ring. Which rows are visible
    /// does not change.
    pub fn trimmed_to_ring(mut self) -> (Self, Option<Compaction>) {
        let compact = self.trim_to_ring();
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
        let compact = self.trim_to_ring();
        if self.next_slot == self.ring_rows() {
            self.next_slot = 0;
        }
        self.wrapped |= self.offset_tokens >= self.window_tokens;
        let first_slot = self.next_slot;
        self.next_slot += 1;
        self.rows = self.rows.max(self.next_slot);
        self.offset_tokens += 1;
        let visible = self.offset_tokens.min(self.window_tokens);
        CachePlan {
            compact,
            first_slot,
            physical_rows: self.rows,
            capacity_rows: self.capacity_rows(),
            view: KeyView::Ring {
                oldest_slot: (self.next_slot + self.rows - visible) % self.rows,
                rows: visible,
            },
            offset_tokens: self.offset_tokens,
            save: None,
        }
    }

    /// A few rows of slack are no reason to move a full window to a larger buffer.
    fn capacity_rows(&self) -> usize {
        let grown = self.rows.next_multiple_of(GROWTH_ROWS);
        match grown >= self.window_tokens {
            true => self.ring_rows(),
            false => grown,
        }
    }

    fn trim_to_ring(&mut self) -> Option<Compaction> {
        let ring = self.ring_rows();
        (self.rows > ring).then(|| {
            let newest = (self.rows - ring, self.rows);
            self.rows = ring;
            self.next_slot = ring;
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
