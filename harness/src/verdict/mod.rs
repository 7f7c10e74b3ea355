//! The one place where a verdict is decided. Pure: no file, clock or printing.

pub mod rule;
