//! The stored types: one line per run.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::hash::sha256_hex;
use crate::record::format::{NullContrast, Plan};

/// Version of the history's lines. A newer one is passed over.
pub const SCHEMA: u32 = 1;

/// Digits of a workload's hash: enough that two commands never share one by chance.
const WORKLOAD_DIGITS: usize = 16;

/// One finished run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PastRun {
    /// [`SCHEMA`] of the writer.
    pub schema: u32,
    /// First digits of the sealed plan's hash; a plan stands here once.
    pub plan: String,
    /// When the plan was sealed, RFC 3339 in UTC.
    pub sealed_at: String,
    /// Name of the experiment.
    pub experiment: String,
    /// Its cells.
    pub cells: Vec<PastCell>,
}

/// One cell of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PastCell {
    /// Cell id.
    pub cell: String,
    /// [`workload`] of the cell.
    pub workload: String,
    /// Median wall-clock seconds of an attempt.
    pub attempt_seconds: f64,
    /// Mean seconds that an attempt waited for a quiet machine.
    pub waited_seconds: f64,
    /// What was seen of each metric.
    pub metrics: IndexMap<String, PastMetric>,
}

/// One metric of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PastMetric {
    /// Residual standard deviation of one attempt, natural logarithm.
    pub sigma: f64,
    /// Its degrees of freedom.
    pub df: f64,
    /// Contrasts between copies of one program.
    pub contrasts: Vec<NullContrast>,
}

/// The program that a plan measures: the file name of the base's artifact. All revisions
/// of one program on one host share a history.
#[must_use]
pub fn family(plan: &Plan) -> Option<String> {
    let base = &plan.experiment.base;
    let arm = plan.arms.iter().find(|arm| arm.name == *base)?;
    let artifact = plan.builds.get(arm.build?)?.artifacts.first()?;
    let name = artifact.path.rsplit('/').next()?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name: String = name
        .trim_start_matches('.')
        .chars()
        .map(|c| if plain(c) { c } else { '-' })
        .collect();
    (!name.is_empty()).then_some(name)
}

/// Tells whether two cells run the same command with the same values on the same set-up:
/// only then does the noise of one foretell the other's.
#[must_use]
pub fn workload(plan: &Plan, cell: usize) -> String {
    let values = plan.cells.get(cell).map(|cell| &cell.values);
    let experiment = &plan.experiment;
    let text = serde_json::json!([experiment.command, values, experiment.setup]).to_string();
    let hash = sha256_hex(text.as_bytes());
    hash.chars().take(WORKLOAD_DIGITS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::example;

    #[test]
    fn a_family_is_the_file_name_of_the_bases_artifact() {
        let mut plan = example::plan();
        assert_eq!(family(&plan).as_deref(), Some("decode"));
        plan.builds[0].artifacts[0].path = "out/../a b".into();
        assert_eq!(family(&plan).as_deref(), Some("a-b"));
        plan.builds[0].artifacts[0].path = "out/..".into();
        assert_eq!(family(&plan), None);
    }

    #[test]
    fn a_workload_is_the_command_with_its_values() {
        let mut plan = example::plan();
        let (short, long) = (workload(&plan, 0), workload(&plan, 1));
        assert_ne!(short, long);
        plan.experiment.rounds += 1;
        assert_eq!(workload(&plan, 0), short);
        plan.experiment.command.push_str(" --threads 1");
        assert_ne!(workload(&plan, 0), short);
    }
}
