//! What machine this is, and what about it makes measurements noisy.
//!
//! `info` reads the facts, `label` names the machine, `noise` finds what to mend.
//! Nothing here says who owns the machine: no host or user name, no path.

pub mod info;
pub mod label;
pub mod noise;
mod reader;
