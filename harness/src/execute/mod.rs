//! Running one attempt as a process group of its own, and nothing else.
//!
//! `process` is the real thing, `mock` a deterministic stand-in without a clock,
//! `output` the files that it prints into, `signal` how a Ctrl-C reaches a wait, `process_table` who runs on this machine,
//! `leftovers` what an attempt left behind, `slow_down` the brake of the positive control, `sys` the calls into the kernel.

pub mod interface;
mod leftovers;
pub mod mock;
mod output;
pub mod process;
pub mod process_table;
pub mod signal;
pub mod slow_down;
pub mod sys;
