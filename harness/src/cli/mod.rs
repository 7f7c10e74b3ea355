//! The command line: one file per sub-command. The only room that prints.

pub mod guard;
mod guard_output;
