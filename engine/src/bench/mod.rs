//! `mlxcel-bench-decode`: one process, one measured pass, no statistics.
//!
//! * [`arguments`] the command line;
//! * [`prompt`] ids of a given number from a neutral text;
//! * [`measure`] load, warm-up pass, measured pass: the order is the method;
//! * [`bandwidth`] what the memory can give, probed beside the measurement;
//! * [`latency`] times between tokens;
//! * [`text_report`] and [`json_report`] the same numbers for people and for
//!   programs.
//!
//! Repeating, comparing and judging are somebody else's work: a process is one
//! sample.

pub mod arguments;
pub mod bandwidth;
#[cfg(test)]
mod example;
pub mod json_report;
pub mod latency;
pub mod measure;
pub mod prompt;
pub mod text_report;
