//! Synthetic models: seeded random quantised weights in the shapes of real ones.
//!
//! They let a fresh machine run the main job without a download. Decode speed
//! depends on shapes, formats and bytes, not on the values, so a synthetic
//! model takes the same routes as the real one; its text means nothing, and
//! every config and report says that it is synthetic.
//!
//! * [`catalogue`] which models exist, and their `config.json`;
//! * [`layout`] which tensors a model has and where they lie in the file;
//! * [`fill`] the bytes of a tensor, a pure function of key and position;
//! * [`writer`] streams one model into a folder, hashing it on the way;
//! * [`manifest`] what is written beside it, and how a folder is checked;
//! * [`store`] folders: the cache of `synthetic:<name>`, and `mlxcel synth`.
//!
//! Not here: loading. A synthetic folder is an ordinary MLX folder.

pub mod catalogue;
pub mod error;
pub mod fill;
pub mod layout;
pub mod manifest;
pub mod store;
pub mod writer;

pub use catalogue::{FORMAT_VERSION, PREFIX};
pub use error::SyntheticError;
pub use store::{CacheRoot, cached_folder, write_folder};
pub use writer::WriteProgress;
