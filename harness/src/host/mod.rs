//! What machine this is, and what about it makes measurements noisy.
//!
//! `info` reads the facts, `label` names the machine, `snapshot` looks at what can make it
//! noisy and `findings` (pure) says what to mend.
//! Nothing here says who owns the machine: no host or user name, no path.

pub mod findings;
pub mod info;
pub mod label;
mod reader;
pub mod snapshot;
