//! From a checked-out commit to hashed artifacts, once per key.
//!
//! `toolchain` says which tools build, `key` names a build, `cache` keeps it,
//! `builder` makes it, `artifact` says what a file is (kind, code hash),
//! `library` what it loads, `receipt` what it says of itself, `identity` compares
//! arms. Nothing here measures, and nothing prints: progress goes to a callback.

pub mod artifact;
pub mod builder;
pub mod cache;
pub mod error;
pub mod identity;
pub(crate) mod job;
pub mod key;
pub mod library;
pub mod prebuilt;
pub mod progress;
pub mod receipt;
pub mod toolchain;

pub(crate) mod collect;
mod describe;
mod elf;
pub(crate) mod environment;
