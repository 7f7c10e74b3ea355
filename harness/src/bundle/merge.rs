//! Brings a record home: checked, and copied to where records lie.

use std::path::{Path, PathBuf};

use super::error::BundleError;
use super::{layout, logs, open};
use crate::record::adopt::adopt;
use crate::record::reader::{self, Record};
use crate::record::store::{self, ATTEMPTS_FILE};

/// Where a record went.
#[derive(Debug, PartialEq, Eq)]
pub enum Merged {
    /// Into this new folder.
    New(PathBuf),
    /// Nowhere: this folder holds the same rows.
    Known(PathBuf),
}

/// Copies the record in `from` below `results`, logs included; `from` stays as it is.
///
/// # Errors
/// A record that cannot be read, or has rows about other code than its plan's; with a
/// `bundle`, also a record of another plan and a bundle that has changed.
pub fn merge(from: &Path, results: &Path, bundle: Option<&Path>) -> Result<Merged, BundleError> {
    let record = reader::read(from)?;
    if let Some(bundle) = bundle {
        let sealed = open::checked(bundle, &layout::manifest(bundle)?)?;
        same_plan(&sealed.sha256, &record)?;
    }
    same_code(&record)?;
    for known in store::record_directories(results)? {
        let same = |known: &Record| {
            known.plan_sha256 == record.plan_sha256 && known.attempts == record.attempts
        };
        if reader::read(&known).is_ok_and(|known| same(&known)) {
            return Ok(Merged::Known(known));
        }
    }
    let sealed_at = &record.plan.sealed_at;
    let date = sealed_at.get(..10).unwrap_or(sealed_at);
    let name = (date, record.host.label.as_str());
    let adopted = adopt(results, name, from, &|aside| logs::unpack(from, aside))?;
    Ok(Merged::New(adopted.path().to_owned()))
}

/// Refuses a record of another plan than the bundle's.
///
/// # Errors
/// [`BundleError::OtherPlan`].
pub fn same_plan(expected: &str, record: &Record) -> Result<(), BundleError> {
    if record.plan_sha256 == expected {
        return Ok(());
    }
    Err(BundleError::OtherPlan {
        record: record.dir.clone(),
        expected: expected.to_owned(),
        got: record.plan_sha256.clone(),
    })
}

fn same_code(record: &Record) -> Result<(), BundleError> {
    let plan = &record.plan;
    for (index, row) in record.attempts.iter().enumerate() {
        let arm = plan.arms.iter().find(|arm| arm.name == row.arm);
        let build = arm.and_then(|arm| plan.builds.get(arm.build?));
        let expected = build.map_or("", |build| build.code_sha256.as_str());
        if row.code_sha256 != expected {
            return Err(BundleError::OtherCode {
                path: record.dir.join(ATTEMPTS_FILE),
                line: index + 1,
                arm: row.arm.clone(),
                expected: expected.to_owned(),
                got: row.code_sha256.clone(),
            });
        }
    }
    Ok(())
}
