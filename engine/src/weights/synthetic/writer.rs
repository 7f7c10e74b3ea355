//! Streams one synthetic model into an existing empty folder.
//!
//! One thread makes chunks while the caller's thread hashes and writes them, so
//! memory stays at a few chunks whatever the model's size.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use sha2::{Digest, Sha256};

use super::catalogue::Configuration;
use super::error::SyntheticError;
use super::fill::fill;
use super::layout::Layout;
use super::manifest::{FileEntry, Manifest, WEIGHTS_FILE, hex};

/// Bytes made at a time: small enough for the last-level cache, large enough
/// that handing over costs nothing.
const CHUNK_BYTES: u64 = 4 << 20;

/// Chunks in flight between the two threads.
const CHUNKS_IN_FLIGHT: usize = 4;

/// How far the writing has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteProgress {
    /// Bytes written so far.
    pub written_bytes: u64,
    /// Bytes of the whole model.
    pub total_bytes: u64,
}

/// Writes weights, index, config and manifest of `configuration` into `folder`.
///
/// # Errors
/// [`SyntheticError::Io`] naming the file; the folder is then incomplete and
/// the caller removes it.
pub fn write_model(
    configuration: &Configuration,
    folder: &Path,
    progress: &mut dyn FnMut(WriteProgress),
) -> Result<Manifest, SyntheticError> {
    let layout = Layout::new(configuration);
    let weights = write_weights(&layout, &folder.join(WEIGHTS_FILE), progress)?;
    let index = pretty(&layout.index_json(WEIGHTS_FILE));
    let config = pretty(&configuration.config_json());
    let files = vec![
        weights,
        write_small(folder, "model.safetensors.index.json", &index)?,
        write_small(folder, "config.json", &config)?,
    ];
    let manifest = Manifest::new(configuration.name, files);
    manifest.write(folder)?;
    Ok(manifest)
}

fn pretty(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}

fn write_small(folder: &Path, name: &str, text: &str) -> Result<FileEntry, SyntheticError> {
    let path = folder.join(name);
    std::fs::write(&path, text).map_err(SyntheticError::io("write", &path))?;
    Ok(FileEntry {
        name: name.to_owned(),
        bytes: text.len() as u64,
        sha256: hex(&Sha256::digest(text.as_bytes())),
    })
}

fn write_weights(
    layout: &Layout,
    path: &Path,
    progress: &mut dyn FnMut(WriteProgress),
) -> Result<FileEntry, SyntheticError> {
    let mut file = File::create(path).map_err(SyntheticError::io("create", path))?;
    let mut hash = Sha256::new();
    let mut written = 0u64;
    let total_bytes = layout.file_bytes();
    for_each_chunk(layout, &mut |bytes| {
        hash.update(bytes);
        file.write_all(bytes)
            .map_err(SyntheticError::io("write", path))?;
        written += bytes.len() as u64;
        progress(WriteProgress {
            written_bytes: written,
            total_bytes,
        });
        Ok(())
    })?;
    file.sync_all().map_err(SyntheticError::io("sync", path))?;
    Ok(FileEntry {
        name: WEIGHTS_FILE.to_owned(),
        bytes: written,
        sha256: hex(&hash.finalize()),
    })
}

/// The SHA-256 of a model's weights file, without writing it anywhere.
pub fn hash_weights(configuration: &Configuration) -> String {
    let mut hash = Sha256::new();
    let layout = Layout::new(configuration);
    let result: Result<(), std::convert::Infallible> = for_each_chunk(&layout, &mut |bytes| {
        hash.update(bytes);
        Ok(())
    });
    match result {
        Ok(()) => hex(&hash.finalize()),
    }
}

/// Gives the file's bytes in order, made ahead on a second thread.
fn for_each_chunk<E>(
    layout: &Layout,
    consume: &mut dyn FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    consume(&layout.header)?;
    std::thread::scope(|scope| {
        let (full, chunks) = sync_channel(CHUNKS_IN_FLIGHT);
        let (recycle, empty) = sync_channel(CHUNKS_IN_FLIGHT + 2);
        scope.spawn(move || produce(layout, &full, &empty));
        for chunk in chunks {
            consume(&chunk)?;
            // The producer may be done already; then nobody needs the buffer.
            let _ = recycle.try_send(chunk);
        }
        Ok(())
    })
}

fn produce(layout: &Layout, full: &SyncSender<Vec<u8>>, empty: &Receiver<Vec<u8>>) {
    for tensor in &layout.tensors {
        let length = tensor.end - tensor.begin;
        let mut offset = 0;
        while offset < length {
            let bytes = CHUNK_BYTES.min(length - offset);
            let mut chunk = empty.try_recv().unwrap_or_default();
            chunk.resize(bytes as usize, 0);
            fill(tensor.content, tensor.key, offset, &mut chunk);
            // The reader is gone after a write error: stop quietly.
            if full.send(chunk).is_err() {
                return;
            }
            offset += bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::catalogue::{CONFIGURATIONS, find};
    use super::super::manifest::known_sha256;
    use super::*;

    #[test]
    fn the_same_name_gives_the_same_bytes_and_another_name_others() {
        let tiny = find("tiny-gemma3").unwrap();
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = write_model(tiny, one.path(), &mut |_| {}).unwrap();
        let second = write_model(tiny, two.path(), &mut |_| {}).unwrap();
        assert_eq!(first, second);
        for entry in &first.files {
            let left = std::fs::read(one.path().join(&entry.name)).unwrap();
            let right = std::fs::read(two.path().join(&entry.name)).unwrap();
            assert_eq!(left, right, "{}", entry.name);
        }
        assert_ne!(
            hash_weights(tiny),
            hash_weights(find("tiny-llama").unwrap())
        );
    }

    #[test]
    fn the_hash_without_writing_is_the_hash_of_the_file() {
        let tiny = find("tiny-qwen3").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let manifest = write_model(tiny, folder.path(), &mut |_| {}).unwrap();
        let bytes = std::fs::read(folder.path().join(WEIGHTS_FILE)).unwrap();
        assert_eq!(manifest.weights_sha256(), Some(hash_weights(tiny).as_str()));
        assert_eq!(hex(&Sha256::digest(&bytes)), hash_weights(tiny));
        assert_eq!(bytes.len() as u64, Layout::new(tiny).file_bytes());
    }

    #[test]
    fn the_generator_still_makes_the_bytes_of_this_format_version() {
        for name in ["tiny-gemma3", "tiny-llama", "tiny-qwen3", "gemma3-270m"] {
            let hash = hash_weights(find(name).unwrap());
            assert_eq!(known_sha256(name), Some(hash.as_str()), "{name}");
        }
    }

    #[test]
    fn progress_ends_at_the_total() {
        let folder = tempfile::tempdir().unwrap();
        let mut last = None;
        let tiny = &CONFIGURATIONS[CONFIGURATIONS.len() - 1];
        write_model(tiny, folder.path(), &mut |progress| last = Some(progress)).unwrap();
        let last = last.unwrap();
        assert_eq!(last.written_bytes, last.total_bytes);
    }

    #[test]
    fn a_folder_that_is_missing_is_an_error_that_names_it() {
        let tiny = find("tiny-llama").unwrap();
        let error = write_model(tiny, Path::new("/nonexistent/here"), &mut |_| {});
        let text = error.unwrap_err().to_string();
        assert!(
            text.contains("/nonexistent/here/model.safetensors"),
            "{text}"
        );
    }
}
