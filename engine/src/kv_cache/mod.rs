//! Where keys and values go: pure cursors that turn "n tokens arrive" into slots, and what is
//! visible of them.
//!
//! Nothing here holds a key or touches a device: a back end stores rows and obeys the plans, so the
//! rules can be tested without one. `position` counts tokens of the sequence, `slot` counts rows of
//! the buffer; the two never share a variable.

pub mod full;
pub mod interface;
pub mod mask;
pub mod rotating;

pub use full::FullCursor;
pub use interface::{CacheCursor, CachePlan, Compaction, KeyView};
pub use rotating::RotatingCursor;
