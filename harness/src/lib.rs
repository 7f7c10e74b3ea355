//! `bench-run` tells whether a change made a program faster, slower or neither,
//! and whether that answer can be trusted.
//!
//! The table of contents; docs/ARCHITECTURE.md says who may import whom.

pub mod analysis;
pub mod build;
pub mod bundle;
pub mod cache;
pub mod cli;
pub mod execute;
pub mod exit_code;
pub mod experiment;
pub mod guard;
pub mod hash;
pub mod history;
pub mod host;
pub mod metric;
pub mod plan;
pub mod record;
pub mod replay;
pub mod report;
pub mod session;
pub mod setup;
pub mod source;
pub mod stats;
pub mod unit;
pub mod verdict;
