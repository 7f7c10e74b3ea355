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
    /// Tokens seen afterwards: a device counts them too, to know which steps it has run.
    pub offset_tokens: usize,
    /// A row to keep, after compacting and before writing.
    pub save: Option<SaveRow>,
}

/// The row of `slot` (key and value) is copied to `entry` of the layer's undo rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SaveRow {
    /// The row, which the step is about to overwrite.
    pub slot: usize,
    /// Where it is kept, below the journal's depth.
    pub entry: usize,
    /// When the device copies it.
    pub method: SaveMethod,
}

/// When a device copies a row that is about to be overwritten. What it keeps is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SaveMethod {
    /// The append itself reads the old row before it writes the new one: no work of its own.
    #[default]
    InAppend,
    /// A copy of the key row and one of the value row before the append, two pieces of work a layer.
    OwnCopies,
}

/// How a device takes back appends of one token each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheUndo {
    /// Newest append first.
    pub appends: Vec<AppendUndo>,
    /// Rows that the buffer holds afterwards.
    pub physical_rows: usize,
}

/// How a device takes back one append.
///
/// A device that never ran the append (its step failed before) leaves the row alone, but compacts
/// as the append would have: the cursors come back compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendUndo {
    /// Tokens seen before the append. A device that has seen no more never ran it.
    pub offset_before: usize,
    /// The compaction that the append began with.
    pub compact: Option<Compaction>,
    /// What becomes of the row that it wrote.
    pub row: RowUndo,
}

/// What becomes of a row that is taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowUndo {
    /// Nothing: the row is beyond the end and will be written before it is seen.
    Keep,
    /// It was never valid: zeros again.
    Zero {
        /// The row.
        slot: usize,
    },
    /// It held a visible token: the saved one comes back.
    Restore {
        /// The row.
        slot: usize,
        /// Where the saved one is.
        entry: usize,
    },
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
    /// One query sees `rows` rows, from `oldest_slot` on in the order of their positions; behind the
    /// last row of the buffer ([`CachePlan::physical_rows`]) comes its first. A back end visits them
    /// in this order, so that sums have the same last bits wherever in the buffer the rows lie.
    Ring {
        /// The row of the oldest visible position.
        oldest_slot: usize,
        /// Visible rows, the new one included.
        rows: usize,
    },
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
