//! The record of a run: its format, appending to it, reading it back.
//!
//! `format` is what is stored, `store` finds and seals the directory, `aside` is where it is made, `writer`
//! appends, `sessions` tells stays on machines apart, `reader` checks and reads. Never edited, never overwritten; a row is
//! on disk before the next attempt starts. docs/RECORD_FORMAT.md is the manual.

pub(crate) mod adopt;
pub(crate) mod aside;
mod cell_progress;
pub mod error;
#[cfg(test)]
pub(crate) mod example;
pub mod format;
#[cfg(test)]
mod manual;
pub mod reader;
pub mod rounds;
pub mod session_file;
pub mod sessions;
pub mod store;
pub mod writer;
