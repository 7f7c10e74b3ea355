//! What a model predicts at every position of a text that is given to it: one line a position, so
//! that two builds, routes or devices can be compared token by token
//! (`scripts/compare_logit_traces.py`).
//!
//! * [`run`] a text in chunks, each on a sequence of its own;
//! * [`row`] one position: the surprise at what came, and the likeliest tokens.
//!
//! Lines hold nothing but what follows from model, text and arithmetic: equal bits give equal bytes.

pub mod row;
mod run;

pub use run::{TraceError, TraceOptions, trace};
