//! From a revision to a checked-out commit, without touching the user's own tree.
//!
//! `repository` says where a source lies, `mirror` keeps it in the harness's
//! cache, `pin` turns a revision into a full commit, `worktree` and `patch` put
//! uncommitted changes on top, `checkout` lays the files out at one fixed path.
//! Everything local goes through libgit2; only `fetch` starts the `git` program
//! (docs/adr/0003-git.md). Nothing here builds, and nothing writes to the user's
//! repository, index, configuration or hooks.

pub mod cache_root;
pub mod checkout;
pub mod error;
pub mod line;
pub mod lock;
pub mod mirror;
pub mod patch;
pub mod pin;
pub mod progress;
pub mod repository;

mod fetch;
pub(crate) mod leftovers;
mod survey;
mod unified;
mod worktree;
