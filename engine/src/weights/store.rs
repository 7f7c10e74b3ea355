//! All shards of a folder behind one name space.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::error::LoadError;
use crate::weights::safetensors::{SafetensorsFile, TensorView};

/// Every tensor of every `model*.safetensors` of a folder.
#[derive(Debug)]
pub struct WeightStore {
    dir: PathBuf,
    files: Vec<SafetensorsFile>,
    /// Name without the family's prefix → shard and the name in it.
    names: BTreeMap<String, (usize, String)>,
}

impl WeightStore {
    /// Opens the folder; names lose `prefix` where they start with it, so that a text model inside
    /// a multimodal file reads like one that stands alone.
    ///
    /// # Errors
    /// When there is no shard, a shard is invalid, or two shards hold the same tensor.
    pub fn open(dir: &Path, prefix: &str) -> Result<Self, LoadError> {
        let io = |source| LoadError::Io {
            path: dir.to_owned(),
            source,
        };
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(dir).map_err(io)? {
            let path = entry.map_err(io)?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            if name.is_some_and(|n| n.starts_with("model") && n.ends_with(".safetensors")) {
                paths.push(path);
            }
        }
        paths.sort();
        let files = paths
            .iter()
            .map(|path| SafetensorsFile::open(path))
            .collect::<Result<Vec<_>, _>>()?;
        if files.is_empty() {
            return Err(LoadError::NoWeights {
                dir: dir.to_owned(),
            });
        }
        let names = index_names(&files, prefix)?;
        Ok(Self {
            dir: dir.to_owned(),
            files,
            names,
        })
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether there is such a tensor.
    pub fn contains(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// The tensor called `name`.
    ///
    /// # Errors
    /// When no shard has it.
    pub fn tensor(&self, name: &str) -> Result<TensorView<'_>, LoadError> {
        self.names
            .get(name)
            .and_then(|(file, name)| self.files[*file].tensor(name))
            .ok_or_else(|| LoadError::MissingTensor {
                dir: self.dir.clone(),
                tensor: name.to_owned(),
            })
    }

    /// Bytes of all shards.
    pub fn total_bytes(&self) -> u64 {
        let lengths = self.files.iter().map(|file| file.file_bytes().len() as u64);
        lengths.sum()
    }

    /// Hash of the weights: SHA-256 over each shard's name, length and content, in name order,
    /// after `config`, the bytes of config.json. Returned as lower-case hex.
    pub fn hash(&self, config: &[u8]) -> String {
        let mut hash = Sha256::new();
        hash.update((config.len() as u64).to_le_bytes());
        hash.update(config);
        for file in &self.files {
            let name = file.path().file_name().unwrap_or_default();
            hash.update(name.as_encoded_bytes());
            hash.update((file.file_bytes().len() as u64).to_le_bytes());
            hash.update(file.file_bytes());
        }
        hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
    }
}

fn index_names(
    files: &[SafetensorsFile],
    prefix: &str,
) -> Result<BTreeMap<String, (usize, String)>, LoadError> {
    let mut names = BTreeMap::new();
    for (index, file) in files.iter().enumerate() {
        for name in file.names() {
            let short = name.strip_prefix(prefix).unwrap_or(name).to_owned();
            if let Some((first, _)) = names.insert(short, (index, name.to_owned())) {
                return Err(LoadError::DuplicateTensor {
                    tensor: name.to_owned(),
                    first: files[first].path().to_owned(),
                    second: file.path().to_owned(),
                });
            }
        }
    }
    Ok(names)
}
