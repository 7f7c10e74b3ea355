//! `bench-run cache`: what the harness keeps, and what of it may go.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context as _;

use super::arguments::{CacheAction, CacheArgs, PruneArgs};
use super::dispatch::print;
use super::project;
use crate::cache::entries::{self, Entry};
use crate::cache::keep::{Fate, Origin, Pins, fate};
use crate::cache::sweep;
use crate::exit_code;
use crate::experiment::load;
use crate::session::error::SessionError;
use crate::source::cache_root::CacheRoot;
use crate::source::mirror;
use crate::unit;

/// Digits of a key that are shown.
const KEY_DIGITS: usize = 12;

/// Lists the cache, or removes what nothing speaks for.
///
/// # Errors
/// The cache or an experiment cannot be read; a run is using the cache.
pub fn run(arguments: &CacheArgs) -> anyhow::Result<i32> {
    let cache = CacheRoot::find(&|name| std::env::var_os(name)).map_err(SessionError::Source)?;
    let prune = match &arguments.action {
        Some(CacheAction::Prune(prune)) => prune.clone(),
        Some(CacheAction::List) | None => PruneArgs::default(),
    };
    let removes = matches!(arguments.action, Some(CacheAction::Prune(_))) && prune.yes;
    let _alone = match removes {
        true => Some(
            cache
                .alone()
                .map_err(SessionError::Source)?
                .ok_or(SessionError::CacheInUse)?,
        ),
        false => None,
    };
    let root = project::root_of(&std::env::current_dir()?.join("experiment"));
    let entries = entries::read(&cache, SystemTime::now()).context("cannot list the cache")?;
    let pins = pins(&cache, &root, &prune, &entries)?;
    let origins: Vec<Origin> = entries.iter().map(|entry| entry.origin.clone()).collect();
    let fates = entries.iter().map(|entry| {
        let (origin, days) = (&entry.origin, entry.unused_days);
        fate(origin, days, &origins, (&pins, &root), prune.days)
    });
    let judged: Vec<(&Entry, Fate)> = entries.iter().zip(fates).collect();
    match &arguments.action {
        Some(CacheAction::Prune(_)) => pruned(&judged, removes),
        _ => print(&list(&cache, &judged)),
    }
}

/// What the project's experiments pin. One that cannot be read might pin anything.
fn pins(
    cache: &CacheRoot,
    root: &Path,
    arguments: &PruneArgs,
    entries: &[Entry],
) -> anyhow::Result<Pins> {
    let folder = arguments
        .experiments
        .clone()
        .unwrap_or_else(|| root.join("experiments"));
    let mut pins = Pins::default();
    for file in experiment_files(&folder)? {
        let loaded = load::load(&file).map_err(SessionError::Experiment)?;
        pins.add(&loaded.experiment);
    }
    let names: Vec<String> = pins.names().map(str::to_owned).collect();
    for entry in entries {
        if let Origin::Source { name } = &entry.origin {
            let known = |revision: &String| mirror::commit_of(cache, name, revision);
            pins.commits.extend(names.iter().filter_map(known));
        }
    }
    Ok(pins)
}

fn experiment_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let ending = path.extension().unwrap_or_default();
        if ending == "yaml" || ending == "yml" {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn list(cache: &CacheRoot, judged: &[(&Entry, Fate)]) -> String {
    let mut text = String::new();
    for (entry, fate) in judged {
        text += &line(entry, word(*fate));
    }
    let total = bytes(judged.iter().map(|(entry, _)| entry.bytes).sum());
    text + &format!("{total} in {}\n", cache.path().display())
}

/// Removes what goes, or says what would.
fn pruned(judged: &[(&Entry, Fate)], removes: bool) -> anyhow::Result<i32> {
    let going: Vec<&Entry> = judged
        .iter()
        .filter(|(_, fate)| *fate == Fate::Goes)
        .map(|(entry, _)| *entry)
        .collect();
    let mut text = String::new();
    for entry in &going {
        if removes {
            sweep::remove(entry)
                .with_context(|| format!("cannot remove {}", entry.path.display()))?;
        }
        text += &line(entry, if removes { "removed" } else { "would go" });
    }
    let total = bytes(going.iter().map(|entry| entry.bytes).sum());
    text += &match (removes, going.is_empty()) {
        (_, true) => "nothing to remove\n".to_owned(),
        (true, false) => format!("{total} removed\n"),
        (false, false) => format!("{total} would go; nothing was removed, `--yes` removes it\n"),
    };
    print(&text)?;
    Ok(exit_code::OK)
}

/// `build   0123456789ab     1.2 MiB   12 days  pinned   commit 0123456789ab of code-1`.
fn line(entry: &Entry, word: &str) -> String {
    let days = match entry.unused_days {
        0 => "today".to_owned(),
        1 => "1 day".to_owned(),
        days => format!("{days} days"),
    };
    let what = match &entry.origin {
        Origin::Build { source, commit } => format!("commit {commit:.12} of {source}"),
        Origin::Fixture { command, .. } => command.clone(),
        Origin::Source { .. } => "mirror and checkout".to_owned(),
        Origin::History { host, runs: 1 } => format!("1 run on {host}"),
        Origin::History { host, runs } => format!("{runs} runs on {host}"),
        Origin::Remains => "a log, a lock, or something unreadable".to_owned(),
        Origin::Half => "half made".to_owned(),
    };
    let name = match entry.kind {
        "source" => entry.name.clone(),
        _ => entry.name.chars().take(KEY_DIGITS).collect(),
    };
    let size = bytes(entry.bytes);
    format!(
        "{:7} {name:20} {size:>10}  {days:>9}  {word:8}  {what}\n",
        entry.kind
    )
}

fn word(fate: Fate) -> &'static str {
    match fate {
        Fate::Pinned => "pinned",
        Fate::Kept => "kept",
        Fate::Recent => "recent",
        Fate::Goes => "may go",
    }
}

#[expect(clippy::cast_precision_loss, reason = "for readers, four digits")]
fn bytes(count: u64) -> String {
    unit::bytes(count as f64)
}
