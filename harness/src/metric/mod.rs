//! From an attempt's output to numbers: expectations first, then metrics.
//!
//! `extract` is the whole way for one attempt; `json`, `regex` and `rusage` each
//! read one kind of source; `expect` decides whether the output is what it should
//! be. Wrong output is never a fast attempt: no time is looked at before every
//! expectation holds.

pub mod expect;
pub mod extract;
pub mod json;
pub mod regex;
pub mod rusage;
