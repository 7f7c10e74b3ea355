//! The experiment file: read, checked and expanded before anything expensive.
//!
//! `model` is the definition, `load` finds every error at once with its line,
//! `matrix` expands cells, `template` fills command lines, `schema` writes the
//! JSON Schema. Nothing here starts a process.

pub mod matrix;
pub mod model;
