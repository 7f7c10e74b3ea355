//! tokenizer.json and its companions, from the tokenizer keys of a GGUF file.
//!
//! * [`vocabulary`] pieces, their kinds, and the tokens with a role.
//! * [`byte_level`] merges as the file lists them, split as the file's `pre` names it.
//! * [`sentence_piece`] merges rebuilt from the pieces' scores.
//! * [`json`] what tokenizer.json holds; [`files`] the whole set.

mod byte_level;
mod files;
mod json;
mod sentence_piece;
mod vocabulary;

pub(super) use files::{Tokenizer, read};
