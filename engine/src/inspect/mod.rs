//! What a model folder is, without loading it onto a device, and what would stop it from loading.
//!
//! * [`run`] looks at every part of a folder and keeps going past what is wrong;
//! * [`modules`] tensors to modules and their formats, known family or not;
//! * [`survey`] the family's own loader against a device that keeps nothing;
//! * [`cache`] bytes of keys and values;
//! * [`report`] the findings as data, [`text`] as text.
//!
//! Nothing here decides whether a model is good; `loads` says only that no problem was found.

pub mod cache;
pub mod modules;
pub mod report;
mod run;
mod survey;
pub mod text;

pub use report::InspectReport;
pub use run::inspect;
