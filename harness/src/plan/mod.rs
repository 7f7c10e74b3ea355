//! What will run in which order, fixed before the first attempt. Pure.

pub mod order;
