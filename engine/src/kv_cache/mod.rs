//! Where keys and values go: pure cursors that turn "n tokens arrive" into slots, and what is
//! visible of them.
//!
//! Nothing here holds a key or touches a device: a back end stores rows and obeys the plans, so the
//! rules can be tested without one. `position` counts tokens of the sequence, `slot` counts rows of
//! the buffer; the two never share a variable.

pub mod full;
pub mod interface;
pub mod mask;
pub mod rewindable;
pub mod rotating;
pub mod undo_journal;

pub use full::FullCursor;
pub use interface::{
    AppendUndo, CacheCursor, CachePlan, CacheUndo, Compaction, KeyView, RowUndo, SaveMethod,
    SaveRow,
};
pub use rewindable::RewindableCache;
pub use rotating::RotatingCursor;
pub use undo_journal::{JournalEntry, RewindRefusal, UndoJournal};
