//! The record of a run: its format, appending to it, reading it back.
//!
//! Never edited, never overwritten; a row is on disk before the next attempt starts.

pub mod format;
