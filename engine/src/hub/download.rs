//! One file: taken up where it broke off, refused when it is not what the listing says.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::client::{Answer, Client, Failure};
use super::error::HubError;
use super::listing::{FileHash, MAX_ATTEMPTS, RemoteFile};
use super::settings::Settings;

/// Bytes read at a time.
const CHUNK_BYTES: usize = 1 << 18;

/// Fetches `url` into `target` by way of `incomplete`, which keeps what arrived when it fails.
/// `progress` gets the bytes of this file that are there.
pub(super) fn download(
    (client, settings): (&Client, &Settings),
    url: &str,
    file: &RemoteFile,
    (incomplete, target): (&Path, &Path),
    progress: &mut dyn FnMut(u64),
) -> Result<(), HubError> {
    let mut part = OpenOptions::new()
        .create(true)
        .read(true)
        .write(true)
        .truncate(false)
        .open(incomplete)
        .map_err(HubError::io("open", incomplete))?;
    // What an earlier process left may be damaged: if the hash is wrong then, start over once.
    let mut left_over = end_of(&part, incomplete)? > 0;
    loop {
        receive(client, settings, url, file, &mut part, incomplete, progress)?;
        let got = hash(&mut part, file).map_err(HubError::io("read", incomplete))?;
        if got == file.hash.hex() {
            break;
        }
        truncate(&mut part, incomplete)?;
        if !left_over {
            let _ = std::fs::remove_file(incomplete);
            return Err(HubError::Hash {
                url: url.to_owned(),
                expected: file.hash.hex().to_owned(),
                got,
            });
        }
        left_over = false;
    }
    part.sync_all().map_err(HubError::io("write", incomplete))?;
    std::fs::rename(incomplete, target).map_err(HubError::io("rename", incomplete))
}

/// Asks again until all bytes are there.
fn receive(
    client: &Client,
    settings: &Settings,
    url: &str,
    file: &RemoteFile,
    part: &mut File,
    path: &Path,
    progress: &mut dyn FnMut(u64),
) -> Result<(), HubError> {
    let mut pause = settings.retry_pause;
    let mut attempts = 0;
    // The most that ever was there: a server that cannot go on where it broke off, and breaks off
    // each time, would be asked for ever otherwise.
    let mut most = end_of(part, path)?.min(file.bytes);
    loop {
        let mut have = end_of(part, path)?;
        if have > file.bytes {
            truncate(part, path)?;
            have = 0;
        }
        progress(have);
        if have == file.bytes {
            return Ok(());
        }
        let reason = match client.get(url, have) {
            Ok(answer) => take(answer, url, file, (part, path, have), progress)?,
            Err(Failure::Final(error)) => return Err(error),
            Err(Failure::Passing(reason)) => reason,
        };
        let now = end_of(part, path)?;
        if now == file.bytes {
            continue;
        }
        if now > most {
            most = now;
            (attempts, pause) = (0, settings.retry_pause);
            continue;
        }
        attempts += 1;
        if attempts == MAX_ATTEMPTS {
            return Err(HubError::Connection {
                url: url.to_owned(),
                reason,
                attempts,
            });
        }
        std::thread::sleep(pause);
        pause *= 2;
    }
}

/// Appends an answer's body; returns why it ended, which matters only if bytes are missing.
fn take(
    mut answer: Answer,
    url: &str,
    file: &RemoteFile,
    (part, path, have): (&mut File, &Path, u64),
    progress: &mut dyn FnMut(u64),
) -> Result<String, HubError> {
    let wrong_length = |got_bytes: u64| HubError::Length {
        url: url.to_owned(),
        expected_bytes: file.bytes,
        got_bytes,
    };
    let mut at = match (answer.status, answer.range) {
        (206, Some((first, whole))) if first == have => {
            if whole != file.bytes {
                return Err(wrong_length(whole));
            }
            have
        }
        (206, _) => return Ok("answered with another range than asked for".to_owned()),
        // It says that there is nothing from here on, so what is here cannot be right.
        (416, _) => {
            truncate(part, path)?;
            return Ok("refused the range asked for".to_owned());
        }
        // The whole file, whatever was asked for.
        _ => {
            truncate(part, path)?;
            0
        }
    };
    if let Some(length) = answer.length.filter(|length| at + length != file.bytes) {
        return Err(wrong_length(at + length));
    }
    part.seek(SeekFrom::Start(at))
        .map_err(HubError::io("seek in", path))?;
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = match answer.body.read(&mut chunk) {
            Ok(0) => return Ok("the answer ended early".to_owned()),
            Ok(read) => read,
            Err(error) => return Ok(error.to_string()),
        };
        if at + read as u64 > file.bytes {
            truncate(part, path)?;
            return Err(wrong_length(at + read as u64));
        }
        part.write_all(&chunk[..read])
            .map_err(HubError::io("write", path))?;
        at += read as u64;
        progress(at);
    }
}

fn end_of(part: &File, path: &Path) -> Result<u64, HubError> {
    let metadata = part.metadata().map_err(HubError::io("read", path))?;
    Ok(metadata.len())
}

fn truncate(part: &mut File, path: &Path) -> Result<(), HubError> {
    part.set_len(0).map_err(HubError::io("truncate", path))
}

/// The hash of the whole file, of the kind that the listing has for it.
fn hash(part: &mut File, file: &RemoteFile) -> std::io::Result<String> {
    match file.hash {
        FileHash::Sha256(_) => digest(part, Sha256::new()),
        FileHash::GitBlob(_) => {
            let header = format!("blob {}\0", file.bytes);
            digest(part, Sha1::new_with_prefix(header))
        }
    }
}

fn digest<D: Digest>(part: &mut File, mut digest: D) -> std::io::Result<String> {
    part.seek(SeekFrom::Start(0))?;
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = part.read(&mut chunk)?;
        if read == 0 {
            let hash = digest.finalize();
            return Ok(hash.iter().map(|byte| format!("{byte:02x}")).collect());
        }
        digest.update(&chunk[..read]);
    }
}
