//! All shards of a folder behind one name space.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use sha2::{Digest, Sha256};

use crate::error::LoadError;
use crate::weights::index::ShardIndex;
use crate::weights::safetensors::{SafetensorsFile, TensorView};

/// Every tensor of every shard of a folder.
#[derive(Debug)]
pub struct WeightStore {
    dir: PathBuf,
    files: Vec<SafetensorsFile>,
    /// By name without the family's prefix.
    names: BTreeMap<String, Entry>,
}

/// Where a tensor lies.
#[derive(Debug)]
struct Entry {
    /// Index of the shard.
    file: usize,
    /// Name in the shard.
    name: String,
    /// Whether anybody asked for it.
    used: AtomicBool,
}

impl WeightStore {
    /// Opens the folder; names lose `prefix` where they start with it, so that a text model inside
    /// a multimodal file reads like one that stands alone.
    ///
    /// # Errors
    /// When there is no shard, a shard is invalid, or two shards hold the same tensor.
    pub fn open(dir: &Path, prefix: &str) -> Result<Self, LoadError> {
        let paths = shard_paths(dir)?;
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
            .and_then(|entry| {
                entry.used.store(true, Ordering::Relaxed);
                self.files[entry.file].tensor(&entry.name)
            })
            .ok_or_else(|| LoadError::MissingTensor {
                dir: self.dir.clone(),
                tensor: name.to_owned(),
            })
    }

    /// The shards, in name order.
    pub fn files(&self) -> &[SafetensorsFile] {
        &self.files
    }

    /// Tensors that nobody has asked for, by their names in the shards.
    pub fn unused(&self) -> impl Iterator<Item = &str> {
        let unused = |entry: &&Entry| !entry.used.load(Ordering::Relaxed);
        self.names
            .values()
            .filter(unused)
            .map(|entry| entry.name.as_str())
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

/// The shards of a folder in name order: those of its index, else every `model*.safetensors`.
///
/// # Errors
/// When the folder or its index cannot be read, or the index names a shard that is not there.
pub fn shard_paths(dir: &Path) -> Result<Vec<PathBuf>, LoadError> {
    if let Some(index) = ShardIndex::read(dir)? {
        return index.shard_paths(dir);
    }
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
    Ok(paths)
}

fn index_names(
    files: &[SafetensorsFile],
    prefix: &str,
) -> Result<BTreeMap<String, Entry>, LoadError> {
    let mut names: BTreeMap<String, Entry> = BTreeMap::new();
    for (index, file) in files.iter().enumerate() {
        for name in file.names() {
            let short = name.strip_prefix(prefix).unwrap_or(name).to_owned();
            let entry = Entry {
                file: index,
                name: name.to_owned(),
                used: AtomicBool::new(false),
            };
            if let Some(first) = names.insert(short, entry) {
                return Err(LoadError::DuplicateTensor {
                    tensor: name.to_owned(),
                    first: files[first.file].path().to_owned(),
                    second: file.path().to_owned(),
                });
            }
        }
    }
    Ok(names)
}
