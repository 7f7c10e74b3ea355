//! `hf:<org>/<name>`: model folders from a hub that speaks Hugging Face's protocol.
//!
//! * [`name`] what a user writes; [`settings`] endpoint, token and cache folder.
//! * [`listing`] which files a revision has, with sizes and hashes, and which of them are wanted.
//! * [`client`] one request; [`download`] one file, taken up again where it broke off and checked.
//! * [`cache`] where files lie: the layout of `huggingface_hub`, so that both find the other's.
//! * [`folder`] all of it: a name to a folder.
//!
//! Not here: what the files mean. Whoever asks may look at the small ones before the weights come.

mod cache;
mod client;
mod download;
pub mod error;
pub mod folder;
mod listing;
pub mod name;
pub mod settings;

pub use error::HubError;
pub use folder::{Fetch, fetch};
pub use name::{ModelName, PREFIX};
pub use settings::Settings;
