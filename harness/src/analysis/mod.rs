//! From a record to its answer: complete rounds, judgements, the gate; and from a plan to
//! what its gate needs.
//!
//! Joins `record` (rows) and `verdict` (numbers); the only room that knows both.

pub mod bisection;
pub mod calibration;
pub mod claims;
pub mod from_record;
pub mod gate;
pub mod looks;
pub mod model;
pub mod past;
pub mod reach;
pub mod stage_data;
