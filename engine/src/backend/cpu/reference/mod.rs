//! float32 arithmetic: the mode that every fast path is compared with.
//!
//! Weights are dequantised row by row, activations, caches and sums are float32, and nothing is
//! clever: one loop a formula.

mod builder;
mod math;
mod matrix;
mod stages;

pub(super) use builder::ReferenceBuilder;
