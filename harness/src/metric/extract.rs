//! One attempt's output to numbers, in a fixed order: how it ended, then every
//! expectation and requirement, and only then the metrics.

use std::io::{self, Read};
use std::path::Path;

use indexmap::IndexMap;
use serde_json::Value;

use super::{expect, json, regex, rusage};
use crate::experiment::matrix::Cell;
use crate::experiment::model::{Condition, Experiment, Metric};
use crate::hash::{sha256_file, sha256_hex};
use crate::record::format::{PlannedArm, Usage};

/// Most bytes of standard output that are parsed; an attempt that prints more is stopped.
pub const MAX_PARSED_BYTES: u64 = 64 << 20;

/// Longest field, as JSON, that a row keeps in full.
const MAX_RECORDED_BYTES: usize = 1024;

/// What an attempt's output says.
#[derive(Debug, Clone, PartialEq)]
pub struct Extracted {
    /// The fields that expectations, requirements and `same_across_arms` name, as
    /// far as the output has them.
    pub fields: IndexMap<String, Value>,
    /// The metrics by name, each finite and above zero; or why there are none.
    pub metrics: Result<IndexMap<String, f64>, Refusal>,
}

/// Why an attempt has no numbers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It ended otherwise than it should, or its output cannot be read.
    #[error("{0}")]
    Failed(String),
    /// Its output is readable and breaks `expect` or `requires`.
    #[error("{0}")]
    Invalid(String),
}

/// Reads the output of one attempt of `arm` on `cell`.
///
/// `stdout` is the attempt's own file. Every reason is one line; where several
/// expectations are broken, all of them are named.
#[must_use]
pub fn extract(
    experiment: &Experiment,
    cell: &Cell,
    arm: &PlannedArm,
    stdout: &Path,
    usage: &Usage,
) -> Extracted {
    let mut fields = IndexMap::new();
    let attempt = Attempt {
        experiment,
        cell,
        arm,
        stdout,
        usage,
    };
    let metrics = attempt.metrics(&mut fields);
    Extracted { fields, metrics }
}

struct Attempt<'a> {
    experiment: &'a Experiment,
    cell: &'a Cell,
    arm: &'a PlannedArm,
    stdout: &'a Path,
    usage: &'a Usage,
}

impl Attempt<'_> {
    fn metrics(
        &self,
        fields: &mut IndexMap<String, Value>,
    ) -> Result<IndexMap<String, f64>, Refusal> {
        self.end()?;
        let conditions = self.conditions();
        let text = if self.needs_text(&conditions) {
            read(self.stdout).map_err(Refusal::Failed)?
        } else {
            String::new()
        };
        let document = if self.needs_json(&conditions) {
            let parsed = json::document(&text);
            Some(parsed.map_err(|error| Refusal::Failed(error.to_string()))?)
        } else {
            None
        };
        self.checksum()?;
        if let Some(document) = &document {
            self.expectations(document, &conditions, fields)?;
        }
        let mut metrics = IndexMap::new();
        for (name, metric) in &self.experiment.metrics {
            let value = self.metric(name, metric, &text, document.as_ref())?;
            metrics.insert(name.clone(), value);
        }
        Ok(metrics)
    }

    /// The status that was expected, and nothing left running.
    fn end(&self) -> Result<(), Refusal> {
        let expected = self.experiment.expect.exit_status;
        let got = match (self.usage.exit_status, self.usage.signal) {
            (Some(status), _) if status == expected => return self.leftovers(),
            (Some(status), _) => format!("{status}"),
            (None, Some(signal)) => format!("death by signal {signal}"),
            (None, None) => "an unknown end".into(),
        };
        let reason = format!("expected exit status {expected}, got {got}");
        Err(Refusal::Failed(reason))
    }

    fn leftovers(&self) -> Result<(), Refusal> {
        match self.usage.left_processes {
            0 => Ok(()),
            left => Err(Refusal::Failed(format!(
                "expected no process left running, got {left}, which would have disturbed the \
                 next attempt and were killed"
            ))),
        }
    }

    /// Every condition on a field of the output, the arm's own last.
    fn conditions(&self) -> Vec<(&str, &Condition)> {
        let expect = &self.experiment.expect;
        let arm = self.repeated_arm();
        let cells = expect.cells.iter();
        let here = cells.filter(|one| expect::applies(one, self.cell, arm));
        expect
            .json
            .iter()
            .chain(here.flat_map(|one| &one.json))
            .chain(&self.arm.requires)
            .map(|(field, condition)| (field.as_str(), condition))
            .collect()
    }

    /// The arm of the file that ran: its own name, or that of the arm a null or control arm repeats.
    fn repeated_arm(&self) -> &str {
        let control = self.experiment.control.as_ref();
        let controlled = control.filter(|_| self.arm.slow_down.is_some());
        match (controlled, &self.arm.null_of) {
            (Some(control), _) => &control.of,
            (None, Some(of)) => of,
            (None, None) => &self.arm.name,
        }
    }

    fn needs_json(&self, conditions: &[(&str, &Condition)]) -> bool {
        let mut metrics = self.experiment.metrics.values();
        !conditions.is_empty()
            || !self.experiment.expect.same_across_arms.is_empty()
            || metrics.any(|metric| metric.json.is_some())
    }

    fn needs_text(&self, conditions: &[(&str, &Condition)]) -> bool {
        let mut metrics = self.experiment.metrics.values();
        self.needs_json(conditions) || metrics.any(|metric| metric.regex.is_some())
    }

    fn checksum(&self) -> Result<(), Refusal> {
        let Some(expected) = &self.experiment.expect.stdout_sha256 else {
            return Ok(());
        };
        match sha256_file(self.stdout) {
            Ok(got) if got == *expected => Ok(()),
            Ok(got) => Err(Refusal::Invalid(format!(
                "standard output: expected SHA-256 {expected}, got {got}"
            ))),
            Err(error) => Err(Refusal::Failed(unreadable(&error))),
        }
    }

    fn expectations(
        &self,
        document: &Value,
        conditions: &[(&str, &Condition)],
        fields: &mut IndexMap<String, Value>,
    ) -> Result<(), Refusal> {
        let shared = self.experiment.expect.same_across_arms.iter();
        let named = conditions.iter().map(|(field, _)| *field);
        for field in named.chain(shared.clone().map(String::as_str)) {
            if let Some(value) = json::field(document, field) {
                fields.insert(field.to_owned(), recorded(value));
            }
        }
        let mut broken: Vec<String> = conditions
            .iter()
            .filter_map(|(field, condition)| expect::check(document, field, condition).err())
            .map(|broken| broken.to_string())
            .collect();
        let missing = shared.filter(|field| json::field(document, field).is_none());
        broken
            .extend(missing.map(|field| format!("`{field}`: expected a value, got no such field")));
        if broken.is_empty() {
            Ok(())
        } else {
            Err(Refusal::Invalid(broken.join("; ")))
        }
    }

    fn metric(
        &self,
        name: &str,
        metric: &Metric,
        text: &str,
        document: Option<&Value>,
    ) -> Result<f64, Refusal> {
        let failed = |why: String| Refusal::Failed(format!("metric `{name}`: {why}"));
        let value = match (&metric.json, &metric.regex, metric.rusage, document) {
            (Some(field), _, _, Some(document)) => {
                json::number(document, field).map_err(|error| failed(error.to_string()))?
            }
            (_, Some(pattern), _, _) => {
                regex::number(pattern, text).map_err(|error| failed(error.to_string()))?
            }
            (_, _, Some(source), _) => rusage::figure(source, self.usage),
            _ => return Err(failed("expected a source, got none".into())),
        };
        // The analysis works on logarithms.
        if value.is_finite() && value > 0.0 {
            Ok(value)
        } else {
            Err(failed(format!(
                "expected a finite number above 0, got {value}"
            )))
        }
    }
}

/// A field as the record keeps it: a long one as its checksum, which still tells
/// equal from different.
fn recorded(value: &Value) -> Value {
    let text = value.to_string();
    if text.len() <= MAX_RECORDED_BYTES {
        value.clone()
    } else {
        Value::String(format!("sha256:{}", sha256_hex(text.as_bytes())))
    }
}

/// The attempt's standard output as text, if it is small enough to be parsed.
fn read(path: &Path) -> Result<String, String> {
    let file = std::fs::File::open(path).map_err(|error| unreadable(&error))?;
    let mut bytes = Vec::new();
    file.take(MAX_PARSED_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(&error))?;
    if bytes.len() as u64 > MAX_PARSED_BYTES {
        return Err(format!(
            "standard output: expected at most {MAX_PARSED_BYTES} bytes, got more"
        ));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("standard output: expected UTF-8 text, got another byte at offset {at}")
    })
}

fn unreadable(error: &io::Error) -> String {
    format!("standard output: expected a readable file, got {error}")
}
