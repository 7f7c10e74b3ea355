//! From a prompt to a text, piece by piece: the tokenizer, the decode loop and the stop rules put
//! together.
//!
//! Nothing here measures; `prefill_ns` and `decode_ns` are for a line under the text.

mod options;
mod run;

pub use options::{GenerateOptions, Prompt};
pub use run::{Ending, GenerateError, Generated, generate, prompt_ids};
