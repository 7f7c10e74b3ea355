//! What names a build: everything that can change what it leaves.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::hash::sha256_hex;

/// Raised when the harness itself builds in another way than before.
const RECIPE_VERSION: u32 = 1;

/// The inputs of a build. Two builds with equal inputs are one build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyInputs {
    /// How the harness builds; raised when that changes.
    pub recipe: u32,
    /// The repository's folder in the cache: its path is the builds' path.
    pub checkout: String,
    /// Full commit.
    pub commit: String,
    /// The tree that is laid out: the commit's, or with a patch on top.
    pub tree: String,
    /// SHA-256 of what was put on top.
    pub patch_sha256: Option<String>,
    /// The shell command line.
    pub command: String,
    /// Declared environment.
    pub environment: BTreeMap<String, String>,
    /// Declared artifacts.
    pub artifacts: Vec<PathBuf>,
    /// Folders that survive from build to build.
    pub keep: Vec<PathBuf>,
    /// Tool → version line.
    pub toolchain: BTreeMap<String, String>,
    /// Host triple.
    pub host: String,
}

impl KeyInputs {
    /// Inputs of the recipe that this program follows; the other fields are set by the caller.
    #[must_use]
    pub fn new(checkout: &str, commit: &str, tree: &str) -> Self {
        Self {
            recipe: RECIPE_VERSION,
            checkout: checkout.to_owned(),
            commit: commit.to_owned(),
            tree: tree.to_owned(),
            patch_sha256: None,
            command: String::new(),
            environment: BTreeMap::new(),
            artifacts: Vec::new(),
            keep: Vec::new(),
            toolchain: BTreeMap::new(),
            host: String::new(),
        }
    }

    /// The key: SHA-256 over the inputs, 64 hex digits.
    #[must_use]
    pub fn key(&self) -> String {
        // Fields in a fixed order, maps sorted: equal inputs give equal text.
        let text = serde_json::to_string(self).unwrap_or_else(|_| format!("{self:?}"));
        sha256_hex(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs() -> KeyInputs {
        KeyInputs {
            command: "make".into(),
            artifacts: vec!["app".into()],
            host: "x86_64".into(),
            ..KeyInputs::new("code-1", "c0", "t0")
        }
    }

    #[test]
    fn equal_inputs_give_one_key_and_every_input_changes_it() {
        let pair = || BTreeMap::from([("A".to_owned(), "1".to_owned())]);
        let changes: Vec<fn(&mut KeyInputs)> = vec![
            |inputs| inputs.recipe += 1,
            |inputs| inputs.checkout.push('x'),
            |inputs| inputs.commit.push('x'),
            |inputs| inputs.tree.push('x'),
            |inputs| inputs.patch_sha256 = Some("p".into()),
            |inputs| inputs.command.push('x'),
            |inputs| inputs.artifacts.push("lib".into()),
            |inputs| inputs.keep.push("target".into()),
            |inputs| inputs.host.push('x'),
        ];
        let mut keys: Vec<String> = changes
            .iter()
            .map(|change| {
                let mut changed = inputs();
                change(&mut changed);
                changed.key()
            })
            .collect();
        keys.push(inputs().key());
        keys.push(
            KeyInputs {
                environment: pair(),
                ..inputs()
            }
            .key(),
        );
        keys.push(
            KeyInputs {
                toolchain: pair(),
                ..inputs()
            }
            .key(),
        );
        let count = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), count);
        assert_eq!(inputs().key(), inputs().key());
        assert_eq!(inputs().key().len(), 64);
    }
}
