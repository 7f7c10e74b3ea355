//! How well a model predicts a text, and how far fast arithmetic is from the reference on it.
//!
//! * [`windows`] which tokens are predicted from which, a pure function;
//! * [`score`] logits to nats: surprise, divergence, agreement;
//! * [`run`] one or several engines over all windows, in step;
//! * [`report`] the sums as data and as text.

pub mod report;
mod run;
pub mod score;
pub mod windows;

pub use report::{ArithmeticReport, Comparison, PerplexityReport};
pub use run::{PerplexityError, PerplexityOptions, measure};
