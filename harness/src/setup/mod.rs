//! What attempts read is made or fetched before anything is measured: once, hashed, kept.
//!
//! `demand` says what an experiment needs (a step's command, and the cells that share it),
//! `store` keeps what was made, `tree` says by content what a file or a folder is, `make`
//! runs a step. Nothing here measures, and nothing prints: progress goes to a callback.

pub mod demand;
pub mod error;
pub mod make;
pub mod store;
pub mod tree;
