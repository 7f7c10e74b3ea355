//! Every way to decode gives the same text: each path's tokens and logits, one against the other.
//!
//! A gate that never reaches what it guards is no gate: the default prompt ends inside the model's
//! window and the text runs over it, steps are taken back in mid-text, and a text that repeats one
//! token, which would hide a wrong rewind, does not pass.

mod report;
mod run;
mod trace;
mod twin;

pub use report::{ParityReport, Row, RowResult};
pub use run::{ParityOptions, default_prompt_tokens, parity};
pub use trace::{Path, Trace, trace};
pub use twin::{FastText, TwinReport, twin};
