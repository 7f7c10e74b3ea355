//! Which files a revision has, and which of them make a model folder.

use std::io::Read;

use serde::Deserialize;

use super::client::{Client, Failure};
use super::error::HubError;
use super::name::{ModelName, is_commit};
use super::settings::Settings;

/// Largest listing that is read; one of a thousand files is below a megabyte.
const MAX_LISTING_BYTES: u64 = 32 << 20;

/// Attempts in a row that may fail.
pub(super) const MAX_ATTEMPTS: u32 = 5;

/// A file that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RemoteFile {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) hash: FileHash,
}

/// How the hub names the content of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FileHash {
    /// Large files: SHA-256 of the content.
    Sha256(String),
    /// Small ones: git's SHA-1 of a header and the content.
    GitBlob(String),
}

impl FileHash {
    /// Lower-case hex; also the name of the file in the cache.
    pub(super) fn hex(&self) -> &str {
        match self {
            Self::Sha256(hex) | Self::GitBlob(hex) => hex,
        }
    }
}

/// A revision, resolved.
#[derive(Debug)]
pub(super) struct Listing {
    /// Full commit.
    pub(super) commit: String,
    /// Files besides weights, then weights.
    pub(super) small: Vec<RemoteFile>,
    pub(super) weights: Vec<RemoteFile>,
}

#[derive(Deserialize)]
struct Answer {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    blob_id: Option<String>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: String,
    size: u64,
}

/// Asks the hub.
pub(super) fn list(
    client: &Client,
    settings: &Settings,
    model: &ModelName,
) -> Result<Listing, HubError> {
    let url = format!(
        "{}/api/models/{}/revision/{}?blobs=true",
        settings.endpoint,
        model.repository(),
        model.revision
    );
    let text = get_text(client, settings, &url)?;
    let wrong = |problem: String| HubError::Listing {
        url: url.clone(),
        problem,
    };
    let answer: Answer = serde_json::from_slice(&text)
        .map_err(|error| wrong(format!("not a listing of a model: {error}")))?;
    if !is_commit(&answer.sha) {
        return Err(wrong(format!(
            "`sha` is {:?}, expected a commit",
            answer.sha
        )));
    }
    choose(model, answer, wrong)
}

fn get_text(client: &Client, settings: &Settings, url: &str) -> Result<Vec<u8>, HubError> {
    let mut pause = settings.retry_pause;
    let mut attempts = 0;
    loop {
        let reason = match client.get(url, 0) {
            Ok(answer) => {
                let mut text = Vec::new();
                match answer.body.take(MAX_LISTING_BYTES).read_to_end(&mut text) {
                    Ok(_) => return Ok(text),
                    Err(error) => error.to_string(),
                }
            }
            Err(Failure::Final(error)) => return Err(error),
            Err(Failure::Passing(reason)) => reason,
        };
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

fn choose(
    model: &ModelName,
    answer: Answer,
    wrong: impl Fn(String) -> HubError,
) -> Result<Listing, HubError> {
    let mut listing = Listing {
        commit: answer.sha,
        small: Vec::new(),
        weights: Vec::new(),
    };
    let mut others = Vec::new();
    for sibling in answer.siblings {
        let list = match kind(&sibling.rfilename) {
            Kind::Small => &mut listing.small,
            Kind::Weights => &mut listing.weights,
            Kind::Other => {
                others.push(sibling.rfilename);
                continue;
            }
        };
        let name = sibling.rfilename.clone();
        let file = remote_file(sibling)
            .ok_or_else(|| wrong(format!("`{name}` has no size and hash that make sense")))?;
        list.push(file);
    }
    let has_config = listing.small.iter().any(|file| file.name == "config.json");
    if has_config && !listing.weights.is_empty() {
        return Ok(listing);
    }
    let gguf = others.iter().filter(|name| name.ends_with(".gguf")).count();
    let got = match (
        gguf,
        others.len() + listing.small.len() + listing.weights.len(),
    ) {
        (0, 0) => "nothing".to_owned(),
        (0, all) => format!("{all} other files"),
        (gguf, _) => format!("{gguf} GGUF files (download one and use `mlxcel convert`)"),
    };
    Err(HubError::NoModel {
        model: model.to_string(),
        got,
    })
}

enum Kind {
    Small,
    Weights,
    Other,
}

/// Only names that are plain file names count: a listing must not write anywhere else.
fn kind(name: &str) -> Kind {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) || name.len() > 200 {
        return Kind::Other;
    }
    if name.starts_with("model") && name.ends_with(".safetensors") {
        Kind::Weights
    } else if name.ends_with(".json") || name.ends_with(".jinja") {
        Kind::Small
    } else {
        Kind::Other
    }
}

fn remote_file(sibling: Sibling) -> Option<RemoteFile> {
    let hex = |text: &str, length: usize| {
        text.len() == length && text.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'))
    };
    let (bytes, hash) = match sibling.lfs {
        Some(lfs) if hex(&lfs.sha256, 64) => (lfs.size, FileHash::Sha256(lfs.sha256)),
        Some(_) => return None,
        None => {
            let blob = sibling.blob_id.filter(|blob| hex(blob, 40))?;
            (sibling.size?, FileHash::GitBlob(blob))
        }
    };
    Some(RemoteFile {
        name: sibling.rfilename,
        bytes,
        hash,
    })
}
