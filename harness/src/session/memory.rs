//! What a run takes from earlier runs on this host, and leaves for later ones.

use crate::analysis::model::Analysis;
use crate::analysis::past;
use crate::history::file::HistoryFile;
use crate::history::format::{PastRun, family};
use crate::history::known::{self, KnownCell};
use crate::record::error::RecordError;
use crate::record::format::Plan;
use crate::record::reader::Record;
use crate::record::store;
use crate::source::cache_root::CacheRoot;

use super::control;
use super::observer::Observer;

/// Freezes into a plan that is not sealed yet what earlier runs say about it, the null
/// contrasts and the size of its control, and tells what is known about its cells. A history that cannot be read is a warning: the
/// plan then does without.
pub fn recall(
    cache: &CacheRoot,
    host: &str,
    plan: &mut Plan,
    observer: &mut dyn Observer,
) -> Vec<KnownCell> {
    let runs = read(cache, host, plan, observer);
    let contrasts = known::contrasts(plan, &runs);
    if let Some(noise) = &mut plan.noise {
        noise.null_history = contrasts;
    }
    let known = known::cells(plan, &runs);
    control::size(plan, &known);
    known
}

fn read(cache: &CacheRoot, host: &str, plan: &Plan, observer: &mut dyn Observer) -> Vec<PastRun> {
    let Some(file) = file(cache, host, plan) else {
        return Vec::new();
    };
    match file.read() {
        Ok((runs, notes)) => {
            notes.iter().for_each(|note| observer.warning(note));
            runs
        }
        Err(error) => {
            observer.warning(&format!("no history of this host is used: {error}"));
            Vec::new()
        }
    }
}

/// Adds a finished, valid run to the history; any other leaves nothing.
///
/// # Errors
/// The history cannot be written.
pub fn remember(
    cache: &CacheRoot,
    record: &Record,
    analysis: &Analysis,
) -> Result<(), RecordError> {
    let tag = store::tag(&record.plan_sha256);
    let left = past::past(&record.plan, tag, &record.attempts, analysis);
    match (file(cache, &record.host.label, &record.plan), left) {
        (Some(file), Some(run)) => file.append(&run),
        _ => Ok(()),
    }
}

fn file(cache: &CacheRoot, host: &str, plan: &Plan) -> Option<HistoryFile> {
    Some(HistoryFile::new(&cache.history(), host, &family(plan)?))
}

#[cfg(test)]
mod tests {
    use super::super::observer::Silent;
    use super::*;
    use crate::analysis::from_record::analyse;
    use crate::record::example;
    use crate::record::reader;

    #[test]
    fn what_one_run_remembers_the_next_plan_is_sealed_with() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CacheRoot::at(folder.path()).unwrap();
        let mut plan = example::plan();
        let nothing = recall(&cache, "epyc-2c", &mut plan, &mut Silent);
        assert!(nothing.iter().all(|cell| cell.attempt_seconds.is_none()));
        let rows = example::attempts(&plan);
        let directory = example::store(&folder.path().join("results"), &plan, &rows);
        let record = reader::read(directory.path()).unwrap();
        let analysis = analyse(&record.plan, &record.attempts).unwrap();
        remember(&cache, &record, &analysis).unwrap();
        let known = recall(&cache, "epyc-2c", &mut plan, &mut Silent);
        assert!(known[1].noise["decode_tok_s"].sigma > 0.0);
        let history = &plan.noise.unwrap().null_history;
        // Two cells with one null arm each.
        assert_eq!(history["decode_tok_s"].len(), 2);
    }

    #[test]
    fn another_host_knows_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CacheRoot::at(folder.path()).unwrap();
        let plan = example::plan();
        let rows = example::attempts(&plan);
        let directory = example::store(&folder.path().join("results"), &plan, &rows);
        let record = reader::read(directory.path()).unwrap();
        let analysis = analyse(&record.plan, &record.attempts).unwrap();
        remember(&cache, &record, &analysis).unwrap();
        let known = recall(&cache, "other", &mut plan.clone(), &mut Silent);
        assert!(known.iter().all(|cell| cell.noise.is_empty()));
    }
}
