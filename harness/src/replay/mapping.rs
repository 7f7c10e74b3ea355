//! The mapping: which column of somebody's CSV says what, and by which rule it is judged.

use std::path::Path;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::experiment::diagnostic::Diagnostics;
use crate::experiment::load::{self, Kind};
use crate::experiment::meaning;
use crate::experiment::model::{Better, Metric, Verdict};
use crate::experiment::report::Report;
use crate::unit;
use crate::verdict::named_rule::NamedRule;

/// The schema number of mapping files.
const SCHEMA: u32 = 1;

/// A whole mapping file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mapping {
    /// Format version; always 1.
    pub schema: u32,
    /// Short name; becomes part of file names: letters, digits, `-`, `_`, `.`.
    pub name: String,
    /// The question the measurements answer, in one sentence.
    pub question: String,
    /// Who measured, where and when it was published: printed with every number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Which column says what.
    #[serde(default)]
    pub columns: Columns,
    /// The arms to look at, in reading order; where left out, all in order of appearance.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arms: Vec<String>,
    /// Name of the arm that the others are compared with.
    #[serde(default = "default_base")]
    pub base: String,
    /// Null arms with the arm that each repeats; where left out, arms called
    /// `<arm>-null`, `<arm>-null-2`, ….
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nulls: Option<IndexMap<String, String>>,
    /// What was measured, in reading order.
    pub metrics: IndexMap<String, MappedMetric>,
    /// Our own decision rule.
    #[serde(default)]
    pub verdict: Verdict,
    /// Other people's rules that are shown beside it.
    #[serde(default = "every_rule")]
    pub rules: Vec<NamedRule>,
}

/// Which column says what; a row is one attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Columns {
    /// Columns whose values together name the workload; without any there is one cell.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cell: Vec<String>,
    /// The round, any text that its attempts share.
    pub round: String,
    /// The arm.
    pub arm: String,
    /// One column that holds several of them, in place of `round` and `arm`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<Label>,
    /// Whether the attempt may be used; without it every row is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
}

impl Default for Columns {
    fn default() -> Self {
        Columns {
            cell: Vec::new(),
            round: "round".into(),
            arm: "arm".into(),
            label: None,
            status: None,
        }
    }
}

/// A column such as `base-r1` that holds the arm and the round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Label {
    /// The column.
    pub column: String,
    /// A regular expression over the whole value with the named groups `arm` and `round`.
    pub pattern: String,
}

/// The column that says whether an attempt may be used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Status {
    /// The column.
    pub column: String,
    /// The values that an attempt may have to be used; all others are refused.
    pub used: Vec<String>,
}

/// One measured quantity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MappedMetric {
    /// Its column; where left out, the one of the metric's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// Which way is better.
    pub better: Better,
    /// Whether the gate decides on it.
    #[serde(default)]
    pub gate: bool,
    /// Unit for readers, such as `tok/s`; guessed from the name's ending where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
}

impl MappedMetric {
    /// The unit for readers: the given one, or what the metric's `name` ends with.
    #[must_use]
    pub fn unit_of<'a>(&'a self, name: &'a str) -> &'a str {
        self.unit
            .as_deref()
            .unwrap_or_else(|| unit::metric_unit(name))
    }
}

impl Mapping {
    /// The metrics as the tables and pictures of a report know them.
    #[must_use]
    pub fn report_metrics(&self) -> IndexMap<String, Metric> {
        let metrics = self.metrics.iter();
        metrics
            .map(|(name, metric)| {
                let shown = Metric {
                    json: None,
                    regex: None,
                    rusage: None,
                    better: metric.better,
                    gate: metric.gate,
                    unit: metric.unit.clone(),
                };
                (name.clone(), shown)
            })
            .collect()
    }
}

/// Checks `bytes`, the content of a mapping file that is called `path` in messages.
///
/// # Errors
/// Every fault of the file, each with its place, key, expected and got.
pub fn parse(path: &Path, bytes: &[u8]) -> Result<Mapping, Diagnostics> {
    let kind = Kind {
        noun: "a mapping",
        page: "docs/REPLAY.md",
        schema: &schemars::schema_for!(Mapping).to_value(),
    };
    let (mapping, _) = load::document(path, bytes, kind, check)?;
    Ok(mapping)
}

fn check(mapping: &Mapping, report: &mut Report) {
    meaning::schema_and_name((mapping.schema, SCHEMA), &mapping.name, report);
    meaning::not_blank("question", &mapping.question, report);
    meaning::verdict(&mapping.verdict, report);
    if mapping.metrics.is_empty() {
        report.value("metrics", "at least one metric", "none", None);
    }
    if let Some(label) = &mapping.columns.label {
        check_pattern(&label.pattern, report);
    }
    if mapping
        .columns
        .status
        .as_ref()
        .is_some_and(|status| status.used.is_empty())
    {
        report.value("columns.status.used", "at least one value", "none", None);
    }
    check_arms(mapping, report);
}

fn check_pattern(pattern: &str, report: &mut Report) {
    let path = "columns.label.pattern";
    let expected = "a regular expression with the groups `arm` and `round`";
    match regex::Regex::new(pattern) {
        Err(error) => {
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default().to_owned();
            report.value(path, expected, &format!("`{pattern}`"), Some(last));
        }
        Ok(regex) => {
            let names: Vec<&str> = regex.capture_names().flatten().collect();
            for group in ["arm", "round"] {
                if !names.contains(&group) {
                    let hint = format!("write `(?<{group}>…)` around it");
                    report.value(path, expected, &format!("no `{group}`"), Some(hint));
                }
            }
        }
    }
}

fn check_arms(mapping: &Mapping, report: &mut Report) {
    let known = |name: &String| mapping.arms.is_empty() || mapping.arms.contains(name);
    let one_of = || format!("one of the arms ({})", mapping.arms.join(", "));
    if !known(&mapping.base) {
        report.value("base", &one_of(), &mapping.base, None);
    }
    for (null, of) in mapping.nulls.iter().flatten() {
        let path = format!("nulls.{null}");
        if !known(null) {
            report.key(&path, &one_of(), null, None);
        }
        if !known(of) {
            report.value(&path, &one_of(), of, None);
        }
        if null == of || *null == mapping.base {
            report.key(&path, "a null arm with a name of its own", null, None);
        }
    }
}

fn default_base() -> String {
    "base".into()
}

fn every_rule() -> Vec<NamedRule> {
    NamedRule::ALL.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(text: &str) -> String {
        parse(Path::new("m.yaml"), text.as_bytes())
            .unwrap_err()
            .to_string()
    }

    const GOOD: &str = "schema: 1\nname: x\nquestion: Is it as fast?\nmetrics: { v_ms: { better: lower, gate: true } }\n";

    #[test]
    fn the_smallest_mapping_has_usual_columns_and_both_named_rules() {
        let mapping = parse(Path::new("m.yaml"), GOOD.as_bytes()).unwrap();
        assert_eq!(
            (mapping.columns.round.as_str(), mapping.base.as_str()),
            ("round", "base")
        );
        assert_eq!(
            mapping.rules,
            [NamedRule::Adr0007, NamedRule::RatioOfMedians]
        );
    }

    #[test]
    fn a_wrong_key_names_its_line_and_the_nearest_one() {
        let text = errors(&format!("{GOOD}colums: {{ arm: variant }}\n"));
        assert!(
            text.starts_with("m.yaml:5:1: colums: expected a known key"),
            "{text}"
        );
        assert!(text.contains("columns"), "{text}");
    }

    #[test]
    fn a_label_needs_both_groups_and_a_pattern_that_compiles() {
        let with = |pattern: &str| {
            errors(&format!(
                "{GOOD}columns: {{ label: {{ column: l, pattern: '{pattern}' }} }}\n"
            ))
        };
        assert!(with("(?<arm>.*)").contains("got no `round`"));
        assert!(with("(?<arm>").contains("m.yaml:5:"), "{}", with("(?<arm>"));
    }

    #[test]
    fn arms_that_are_not_there_are_named() {
        let text = errors(&format!(
            "{GOOD}arms: [old, new]\nnulls: {{ old-null: old }}\n"
        ));
        assert!(
            text.contains("base: expected one of the arms (old, new)"),
            "{text}"
        );
        assert!(text.contains("nulls.old-null"), "{text}");
    }
}
