//! Prints an analysis: Markdown, plots, terminal. Decides nothing, holds no threshold.
//!
//! `model` is what the templates see; `method`, `outcomes`, `reproduce`, `table` and
//! its `rows` are its parts; `words` and `escape` spell. The same record gives the
//! same bytes: no clock, no time zone, no unordered map.

pub mod annotations;
pub mod bisection;
pub mod calibration;
pub mod escape;
#[cfg(test)]
pub(crate) mod example;
#[cfg(test)]
mod golden;
pub mod junit;
pub mod markdown;
pub mod method;
pub mod model;
pub mod outcomes;
pub mod plot;
pub mod publish;
pub mod replay;
pub mod reproduce;
pub mod rows;
pub mod table;
pub mod terminal;
pub mod words;
