//! What a cache tells the device: compact these rows, write from this slot, see those.

use super::{FullCursor, RotatingCursor};

/// Buffers grow by this many rows, so that a growing cache is not copied for every token.
pub const GROWTH_ROWS: usize = 256;

/// Where a step writes a cache and what it sees in it: slots, not positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CachePlan {
    /// Done first: old rows are moved to the front of the buffer, oldest first.
    pub compact: Option<Compaction>,
    /// Slot of the first new row; the others follow it.
    pub first_slot: usize,
    /// Rows that the buffer holds afterwards.
    pub physical_rows: usize,
    /// Rows that the buffer should have room for.
    pub capacity_rows: usize,
    /// Which rows the new tokens see.
    pub view: KeyView,
}

/// Rows `head.0..head.1`, then `tail.0..tail.1`, become rows `0..`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compaction {
    /// The older rows.
    pub head: (usize, usize),
    /// The newer rows; may be empty.
    pub tail: (usize, usize),
}

/// How queries see the rows of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyView {
    /// One query sees every row; their order is free, since keys carry their rotation.
    All,
    /// Row `r` holds position `first_position + r`; a query at position `i` sees positions
    /// `j <= i` with `i - j < window`.
    Ordered {
        /// Position of row 0.
        first_position: usize,
        /// Sliding window in tokens, the token itself included.
        window_tokens: Option<usize>,
    },
}

/// The cursors of one kind of cache. Cloning one is how a caller keeps a way back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CacheCursor {
    /// Keeps every token.
    Full(FullCursor),
    /// Keeps a window.
    Rotating(RotatingCursor),
}

impl CacheCursor {
    /// Tokens seen, which is the position of the next one.
    pub fn offset_tokens(&self) -> usize {
        match self {
            Self::Full(cursor) => cursor.offset_tokens(),
            Self::Rotating(cursor) => cursor.offset_tokens(),
        }
    }

    /// Makes room for `tokens` tokens (at least one) and moves the cursors past them.
    pub fn append(&mut self, tokens: usize) -> CachePlan {
        match self {
            Self::Full(cursor) => cursor.append(tokens),
            Self::Rotating(cursor) => cursor.append(tokens),
        }
    }

    /// Whether a slot that held a visible token has been written again.
    pub fn has_wrapped(&self) -> bool {
        match self {
            Self::Full(_) => false,
            Self::Rotating(cursor) => cursor.has_wrapped(),
        }
    }
}
