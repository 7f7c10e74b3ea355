//! A run from experiment file to record: prepare, seal, prime, rounds, resume.
//!
//! `prepare` turns a file into a sealed plan, `run` asks `record::rounds` what comes
//! next until nothing does. Nothing here decides: what comes next is `record::rounds`'s
//! affair, what an output means `metric`'s, whether an attempt was disturbed `guard`'s.

pub mod attempt;
pub mod bisect;
pub mod budget;
pub mod calibrate;
pub mod command;
pub mod control;
pub mod environment;
pub mod error;
mod fixtures;
pub mod memory;
pub mod observer;
pub mod pins;
pub mod prepare;
pub mod run;
pub mod symbolic;
pub mod treatment;
pub mod watch;
