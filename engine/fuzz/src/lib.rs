//! Fuzzing of everything that the engine reads from files it did not write.
//!
//! * [`targets`] what is done with the bytes of an input: as the programs would;
//! * [`guard`] what must not happen meanwhile: a panic, or memory that the input does not warrant.
//!
//! `engine/tests/fuzz_corpus.rs` runs the committed inputs through the same code.

pub mod guard;
pub mod targets;

pub use guard::{Guard, keep_panics_quiet};
