//! Weights: where a model's tensors come from.
//!
//! * [`synthetic`] seeded random models in the shapes of real ones.

pub mod synthetic;
