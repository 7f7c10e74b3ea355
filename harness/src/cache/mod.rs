//! What lies in the harness's own cache, and what of it may go.
//!
//! `entries` lists it, `keep` decides (pure), `sweep` removes. Nothing here prints.

pub mod entries;
pub mod keep;
pub mod sweep;
