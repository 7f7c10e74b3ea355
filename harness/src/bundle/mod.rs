//! A sealed plan with its built arms in one folder, for machines without repository or
//! toolchain.
//!
//! `layout` names what lies where, `pack` fills it, `open` checks every hash and gives what
//! `session` runs, `stay` tells one stay on a machine from another, `logs` keeps a record to a
//! handful of files while it travels, `merge` brings it home. The measuring itself is
//! `session`'s: there is no second runner (docs/adr/0026).

pub mod error;
pub mod layout;
pub mod logs;
pub mod merge;
pub mod open;
pub mod pack;
pub mod stay;
