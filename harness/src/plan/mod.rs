//! What will run in which order, fixed before the first attempt. Pure.

pub mod looks;
pub mod order;
