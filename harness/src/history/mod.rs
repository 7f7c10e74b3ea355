//! What earlier runs on this host measured: their noise, how far copies of one program lay
//! apart, how long an attempt took.
//!
//! Kept in the harness's cache, one file per host and program, a line per run. It is a
//! memory and no record: a verdict uses only what was frozen into the sealed plan.

pub mod file;
pub mod format;
pub mod known;
