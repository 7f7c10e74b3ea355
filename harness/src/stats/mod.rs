//! Numbers in, numbers out: no file, clock, environment or printing.
//!
//! Estimates, tail probabilities and what a design can see. Nothing here knows
//! what an arm, a metric or a verdict is; the rule that puts these figures to
//! use is `verdict/`. docs/METHODOLOGY.md derives the formulas.

pub mod count;
pub(crate) mod halving;
pub mod hodges_lehmann;
pub mod holm;
pub mod linear_model;
pub mod log_ratio;
pub mod mde;
pub mod moderated;
pub mod noise_ratio;
pub mod null_calibration;
pub mod null_contrast;
pub mod power;
pub mod quantile;
pub mod random;
pub mod randomisation;
pub mod student;
