//! What a CSV without a mapping is taken for: columns that are called as we would call them.
//!
//! Nothing is guessed that could change an answer. A table that leaves a choice open is
//! refused with a mapping to begin from.

use std::fmt::Write as _;

use indexmap::IndexMap;

use super::mapping::{Columns, MappedMetric, Mapping, Status};
use super::sheet::Sheet;
use crate::experiment::model::{Better, Verdict};
use crate::unit;
use crate::verdict::named_rule::NamedRule;

/// Columns that may say whether a row counts, with the values that say so.
const STATUS: [(&str, &str); 2] = [("status", "ok"), ("outcome", "ok")];

/// Why a table needs a mapping.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file} needs a mapping: {why}; write {wanted}, beginning from\n\n{skeleton}")]
pub struct NeedsMapping {
    file: String,
    why: String,
    wanted: String,
    skeleton: String,
}

/// The mapping of a table that follows our names: `arm`, `round`, optionally `cell` and
/// `status` (`ok` rows are used), and exactly one column whose name ends with a unit.
/// `name` becomes the name, `wanted` is the file that a mapping would be read from.
///
/// # Errors
/// What keeps it from being read without a mapping, and one to begin from.
pub fn mapping(sheet: &Sheet, name: &str, wanted: &str) -> Result<Mapping, NeedsMapping> {
    let metrics: Vec<&String> = sheet
        .header
        .iter()
        .filter(|column| direction(column).is_some())
        .collect();
    let has = |name: &str| sheet.header.iter().any(|column| column == name);
    let missing: Vec<&str> = ["arm", "round"]
        .into_iter()
        .filter(|name| !has(name))
        .collect();
    let why = match (missing.as_slice(), metrics.as_slice()) {
        ([], [_]) => None,
        ([], []) => Some("no column's name ends with a unit that we know".to_owned()),
        ([], several) => Some(format!(
            "{} columns could be the metric that decides",
            several.len()
        )),
        (missing, _) => Some(format!(
            "there is no column {}",
            missing.join(" and no column ")
        )),
    };
    if let Some(why) = why {
        return Err(NeedsMapping {
            file: sheet.path.display().to_string(),
            why,
            wanted: wanted.to_owned(),
            skeleton: skeleton(sheet, name, &metrics),
        });
    }
    let status = STATUS.into_iter().find(|(column, _)| has(column));
    let metric = |column: &&String| {
        let better = direction(column).unwrap_or(Better::Lower);
        let metric = MappedMetric {
            column: None,
            better,
            gate: true,
            unit: None,
        };
        ((*column).clone(), metric)
    };
    Ok(Mapping {
        schema: 1,
        name: name.to_owned(),
        question: "Is the candidate as fast as the base?".into(),
        source: None,
        columns: Columns {
            cell: if has("cell") {
                vec!["cell".into()]
            } else {
                Vec::new()
            },
            status: status.map(|(column, used)| Status {
                column: column.into(),
                used: vec![used.into()],
            }),
            ..Columns::default()
        },
        arms: Vec::new(),
        base: "base".into(),
        nulls: None,
        metrics: metrics.iter().map(metric).collect::<IndexMap<_, _>>(),
        verdict: Verdict::default(),
        rules: NamedRule::ALL.to_vec(),
    })
}

/// Which way is better, where the unit tells: rates up; times and sizes down.
fn direction(column: &str) -> Option<Better> {
    match unit::metric_unit(column) {
        "tok/s" => Some(Better::Higher),
        "B" | "ns" | "µs" | "ms" | "s" => Some(Better::Lower),
        _ => None,
    }
}

/// A mapping to begin from; the user takes away what does not fit.
fn skeleton(sheet: &Sheet, name: &str, metrics: &[&String]) -> String {
    let columns = sheet.header.join(", ");
    let mut text = format!(
        "schema: 1\nname: {name}\nquestion: Is the candidate as fast as the base?\n\
         # columns of the file: {columns}\n\
         columns: {{ cell: [], round: round, arm: arm }}\nbase: base\nmetrics:\n"
    );
    for (index, metric) in metrics.iter().enumerate() {
        let better = match direction(metric) {
            Some(Better::Higher) => "higher",
            _ => "lower",
        };
        let gate = if index == 0 { ", gate: true" } else { "" };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {metric}: {{ better: {better}{gate} }}");
    }
    if metrics.is_empty() {
        text.push_str("  # a column: { better: lower, gate: true }\n");
    }
    text + "verdict: { threshold_pct: 1 }\n"
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::replay::mapping::parse;

    fn of(csv: &str) -> Result<Mapping, NeedsMapping> {
        let sheet = Sheet::parse(Path::new("a.csv"), csv.as_bytes()).unwrap();
        mapping(&sheet, "a", "a.replay.yaml")
    }

    #[test]
    fn our_own_names_need_no_mapping() {
        let found = of("cell,round,arm,status,decode_tok_s\nx,1,base,ok,1\n").unwrap();
        assert_eq!(found.columns.cell, ["cell"]);
        assert_eq!(found.columns.status.as_ref().unwrap().used, ["ok"]);
        let (name, metric) = found.metrics.first().unwrap();
        assert_eq!(
            (name.as_str(), metric.better, metric.gate),
            ("decode_tok_s", Better::Higher, true)
        );
    }

    #[test]
    fn a_choice_that_is_open_is_refused_with_a_mapping_that_can_be_read() {
        let error = of("round,arm,load_s,decode_tok_s\n1,base,1,2\n").unwrap_err();
        assert!(
            error.to_string().contains("2 columns could be the metric"),
            "{error}"
        );
        let mapping = parse(Path::new("a.replay.yaml"), error.skeleton.as_bytes()).unwrap();
        assert_eq!(mapping.metrics.len(), 2);
        let error = of("variant,load_s\nbase,1\n").unwrap_err();
        assert!(
            error
                .to_string()
                .contains("no column arm and no column round"),
            "{error}"
        );
    }
}
