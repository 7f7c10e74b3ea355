//! Measurements made elsewhere, judged again: a CSV of attempts and a mapping of its
//! columns in, the same tables and verdicts out.
//!
//! `mapping` is the definition file, `convention` what is assumed without one; `sheet`
//! reads CSV with places, `session` pairs its rows into complete rounds, `judge` applies
//! our rule and the named ones. docs/REPLAY.md describes the format. What was measured
//! elsewhere has no sealed plan: nothing here pretends that it had one.

pub mod convention;
pub mod judge;
pub mod mapping;
pub mod session;
pub mod sheet;
