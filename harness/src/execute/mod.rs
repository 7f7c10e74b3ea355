//! Running one attempt as a process group of its own, and nothing else.

pub mod interface;
