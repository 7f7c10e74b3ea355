//! `model.safetensors.index.json`: which shards a folder consists of, and what lies in which.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::LoadError;

/// Name of the file in the model's folder.
pub const FILE_NAME: &str = "model.safetensors.index.json";

/// The `weight_map` of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardIndex {
    path: PathBuf,
    /// Tensor → name of the shard that holds it.
    pub shard_of: BTreeMap<String, String>,
}

impl ShardIndex {
    /// Reads the index of `dir`, if there is one.
    ///
    /// # Errors
    /// When it cannot be read or parsed, has no `weight_map`, or names a shard outside the folder.
    pub fn read(dir: &Path) -> Result<Option<Self>, LoadError> {
        let path = dir.join(FILE_NAME);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(LoadError::Io { path, source }),
        };
        Self::parse(&path, &text).map(Some)
    }

    /// Parses the text of an index; `path` is for error messages.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn parse(path: &Path, text: &[u8]) -> Result<Self, LoadError> {
        let root: Value = serde_json::from_slice(text).map_err(|source| LoadError::Json {
            path: path.to_owned(),
            source,
        })?;
        let wrong = |key: &str, expected: &str, got: String| LoadError::ConfigKey {
            path: path.to_owned(),
            key: key.to_owned(),
            expected: expected.to_owned(),
            got,
        };
        let map = root
            .get("weight_map")
            .and_then(Value::as_object)
            .filter(|map| !map.is_empty())
            .ok_or_else(|| wrong("weight_map", "an object of tensors", "none".to_owned()))?;
        let mut shard_of = BTreeMap::new();
        for (tensor, shard) in map {
            // A name with a folder in it could make us read anything.
            let name = shard
                .as_str()
                .filter(|name| name.ends_with(".safetensors") && !name.contains(['/', '\\']))
                .ok_or_else(|| {
                    let key = format!("weight_map.{tensor}");
                    wrong(&key, "the name of a .safetensors file", shard.to_string())
                })?;
            shard_of.insert(tensor.clone(), name.to_owned());
        }
        Ok(Self {
            path: path.to_owned(),
            shard_of,
        })
    }

    /// Names of the shards, each once.
    pub fn shards(&self) -> BTreeSet<&str> {
        self.shard_of.values().map(String::as_str).collect()
    }

    /// The shards as paths.
    ///
    /// # Errors
    /// When one of them is not in the folder, as after a download that broke off.
    pub fn shard_paths(&self, dir: &Path) -> Result<Vec<PathBuf>, LoadError> {
        let paths: Vec<PathBuf> = self.shards().into_iter().map(|s| dir.join(s)).collect();
        match paths.iter().find(|path| !path.is_file()) {
            Some(missing) => Err(LoadError::MissingShard {
                index: self.path.clone(),
                shard: missing.clone(),
            }),
            None => Ok(paths),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ShardIndex, LoadError> {
        ShardIndex::parse(Path::new("index.json"), text.as_bytes())
    }

    #[test]
    fn each_shard_is_named_once() {
        let index = parse(
            r#"{"metadata": {}, "weight_map": {"a": "m-2.safetensors", "b": "m-1.safetensors",
                "c": "m-2.safetensors"}}"#,
        )
        .unwrap();
        let shards: Vec<&str> = index.shards().into_iter().collect();
        assert_eq!(shards, ["m-1.safetensors", "m-2.safetensors"]);
    }

    #[test]
    fn a_shard_outside_the_folder_is_refused() {
        for shard in [
            "../x.safetensors",
            "/etc/x.safetensors",
            "passwd",
            "a\\b.safetensors",
        ] {
            let text = serde_json::json!({"weight_map": {"w": shard}}).to_string();
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.contains("weight_map.w"), "{error}");
        }
    }

    #[test]
    fn an_index_of_nothing_is_refused() {
        for text in [
            "{}",
            r#"{"weight_map": {}}"#,
            r#"{"weight_map": [1]}"#,
            "[]",
            "{",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
