//! Text to ids and back, as the files of a model folder say.
//!
//! * [`text_tokenizer`] tokenizer.json with what tokenizer_config.json adds to it;
//! * [`settings`] tokenizer_config.json;
//! * [`chat_template`] messages to the text that a chat model was trained on;
//! * [`text_stream`] ids to text one at a time, never half a character;
//! * [`stop_strings`] where a text ends, also in the middle of a token.
//!
//! The algorithms of tokenizer.json are the `tokenizers` crate's. Nothing here knows a model.

pub mod chat_template;
pub mod error;
mod python_json;
pub mod settings;
pub mod stop_strings;
pub mod text_stream;
pub mod text_tokenizer;

pub use chat_template::{ChatTemplate, Message, Role};
pub use error::TokenizerError;
pub use stop_strings::StopStrings;
pub use text_stream::TextStream;
pub use text_tokenizer::TextTokenizer;
