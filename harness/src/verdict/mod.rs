//! The one place where a verdict is decided. Pure: no file, clock or printing.
//!
//! [`decide`] turns complete rounds and a sealed rule into judgements; report
//! and gate print them and add nothing. docs/METHODOLOGY.md explains the rule.

mod beside;
pub mod change;
pub mod claim;
mod columns;
pub mod control;
pub mod decide;
#[cfg(test)]
mod example;
pub mod foresight;
mod measure;
pub mod named_rule;
mod noise;
pub mod null_check;
mod permutation;
pub mod rejections;
pub mod rule;
mod sentence;
pub mod sequence;
#[cfg(test)]
mod sequence_simulation;
pub mod suite;
mod unequal;
