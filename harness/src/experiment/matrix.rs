//! Cells: the workloads of an experiment, one per combination of values.

use std::collections::HashSet;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::model::{Cells, Experiment, Scalar, Skip};

/// Longest cell id: part of file names beside an arm's name and a round.
const MAX_ID_CHARACTERS: usize = 80;

/// One workload. Its id is unique within the experiment and safe in a file name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Such as `gemma3-270m.2048`; what rows and reports call the cell.
    pub id: String,
    /// The variables that the command may use.
    pub values: IndexMap<String, Scalar>,
}

/// A workload that belongs to the question and is not run.
#[derive(Debug, Clone, PartialEq)]
pub struct SkippedCell {
    /// The workload.
    pub cell: Cell,
    /// Why, in the file's words.
    pub reason: String,
}

/// The cells that are run, in reading order: the matrix first (its last variable
/// varies fastest), then the list. Without variables there is one cell, `all`.
///
/// Ids are made from the values: what follows the last `/` or `:` of each, joined
/// by dots; a clash gets a counter. The experiment is taken as checked by
/// [`super::load::load`], which bounds the number of cells.
#[must_use]
pub fn cells(experiment: &Experiment) -> Vec<Cell> {
    let skip = &experiment.cells.skip;
    let mut all = named(combinations(&experiment.cells));
    all.retain(|cell| skip_of(skip, &cell.values).is_none());
    all
}

/// The cells that are not run, in reading order, with ids as in [`cells`].
#[must_use]
pub fn skipped(experiment: &Experiment) -> Vec<SkippedCell> {
    let all = named(combinations(&experiment.cells)).into_iter();
    all.filter_map(|cell| {
        let reason = skip_of(&experiment.cells.skip, &cell.values)?
            .reason
            .clone();
        Some(SkippedCell { cell, reason })
    })
    .collect()
}

/// The first entry that takes a cell with these values out.
fn skip_of<'a>(skip: &'a [Skip], values: &IndexMap<String, Scalar>) -> Option<&'a Skip> {
    skip.iter().find(|skip| selects(&skip.when, values))
}

/// Whether a cell with `values` has all values of the selector `when`.
#[must_use]
pub(crate) fn selects(when: &IndexMap<String, Scalar>, values: &IndexMap<String, Scalar>) -> bool {
    when.iter().all(|(name, wanted)| {
        let own = values.get(name);
        own.is_some_and(|own| same_value(own, wanted))
    })
}

fn named(all: Vec<IndexMap<String, Scalar>>) -> Vec<Cell> {
    let mut taken = HashSet::new();
    all.into_iter()
        .map(|values| {
            let wanted = id_of(&values);
            let mut id = wanted.clone();
            let mut count = 1;
            // Some file systems do not tell upper from lower case.
            while !taken.insert(id.to_lowercase()) {
                count += 1;
                id = format!("{wanted}-{count}");
            }
            Cell { id, values }
        })
        .collect()
}

/// How many cells there will be; `None` when the number is beyond counting.
pub(crate) fn count(cells: &Cells) -> Option<usize> {
    if cells.matrix.is_empty() {
        return Some(cells.list.len().max(1));
    }
    let product = cells
        .matrix
        .values()
        .try_fold(1_usize, |product, values| product.checked_mul(values.len()))?;
    product.checked_add(cells.list.len())
}

/// The values of every cell, in the order of [`cells`].
pub(crate) fn combinations(cells: &Cells) -> Vec<IndexMap<String, Scalar>> {
    let mut all = Vec::new();
    if !cells.matrix.is_empty() || cells.list.is_empty() {
        all.push(IndexMap::new());
    }
    for (name, values) in &cells.matrix {
        all = all
            .iter()
            .flat_map(|outer| {
                values.iter().map(|value| {
                    let mut inner: IndexMap<String, Scalar> = outer.clone();
                    inner.insert(name.clone(), value.clone());
                    inner
                })
            })
            .collect();
    }
    all.extend(cells.list.iter().cloned());
    all
}

/// Whether two values of the file mean the same: numbers by value, others exactly.
#[must_use]
pub(crate) fn same_value(left: &Scalar, right: &Scalar) -> bool {
    #[expect(
        clippy::cast_precision_loss,
        clippy::float_cmp,
        reason = "2048 and 2048.0 name the same workload; both were written by hand"
    )]
    match (left, right) {
        (Scalar::Int(int), Scalar::Float(float)) | (Scalar::Float(float), Scalar::Int(int)) => {
            *int as f64 == *float
        }
        _ => left == right,
    }
}

fn id_of(values: &IndexMap<String, Scalar>) -> String {
    if values.is_empty() {
        return "all".into();
    }
    let parts: Vec<String> = values
        .iter()
        .map(|(name, value)| match value {
            // A bare `true` would not say of what.
            Scalar::Bool(value) => format!("{name}-{value}"),
            other => part(&other.to_string()),
        })
        .collect();
    let id: String = parts.join(".").chars().take(MAX_ID_CHARACTERS).collect();
    // A leading dot would hide the file, a leading dash would look like an option.
    let id = id.trim_matches(['.', '-']);
    if id.is_empty() {
        "cell".into()
    } else {
        id.into()
    }
}

/// The telling end of a value, with everything unsafe in a file name as one `-`.
fn part(value: &str) -> String {
    let trimmed = value.trim_end_matches(['/', ':']);
    let end = trimmed.rsplit(['/', ':']).next().unwrap_or(trimmed);
    let mut safe = String::new();
    for character in end.chars() {
        if character.is_ascii_alphanumeric() || matches!(character, '_' | '.') {
            safe.push(character);
        } else if !safe.ends_with('-') {
            safe.push('-');
        }
    }
    safe.trim_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(value: &str) -> Scalar {
        Scalar::Text(value.into())
    }

    fn id(values: &[(&str, Scalar)]) -> String {
        let values = values.iter().cloned();
        id_of(
            &values
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        )
    }

    #[test]
    fn an_id_is_made_from_the_telling_ends_of_the_values() {
        let model = text("synthetic:gemma3-270m");
        assert_eq!(
            id(&[("model", model), ("prompt_tokens", Scalar::Int(2048))]),
            "gemma3-270m.2048"
        );
        assert_eq!(
            id(&[("file", text("/data/my corpus.txt"))]),
            "my-corpus.txt"
        );
        assert_eq!(id(&[("x", text("..")), ("y", text("-v"))]), "v");
        assert_eq!(id(&[("x", text("日本語"))]), "cell");
        assert_eq!(id(&[("fast", Scalar::Bool(true))]), "fast-true");
        assert_eq!(id(&[]), "all");
    }

    #[test]
    fn skipped_cells_keep_their_place_in_the_naming_and_their_reason() {
        let yaml = "{ matrix: { model: [a/x, b/x], n: [1, 2] },
                      skip: [{ when: { model: a/x, n: 2 }, reason: too large },
                             { when: { n: 2 }, reason: too slow }] }";
        let experiment = Experiment {
            cells: serde_yaml::from_str(yaml).unwrap(),
            ..crate::record::example::plan().experiment
        };
        let ids: Vec<String> = cells(&experiment).into_iter().map(|cell| cell.id).collect();
        assert_eq!(ids, ["x.1", "x.1-2"]);
        let skipped: Vec<(String, String)> = skipped(&experiment)
            .into_iter()
            .map(|skipped| (skipped.cell.id, skipped.reason))
            .collect();
        let expected = [("x.2", "too large"), ("x.2-2", "too slow")];
        assert_eq!(skipped, expected.map(|(id, why)| (id.into(), why.into())));
    }

    #[test]
    fn a_matrix_without_values_has_no_cells_and_an_endless_one_no_count() {
        let mut cells = Cells::default();
        cells.matrix.insert("x".into(), vec![]);
        assert!(combinations(&cells).is_empty());
        assert_eq!(count(&cells), Some(0));
        let many = vec![Scalar::Int(1); 70_000];
        for name in ["a", "b", "c", "d", "e"] {
            cells.matrix.insert(name.into(), many.clone());
        }
        cells.matrix.shift_remove("x");
        assert_eq!(count(&cells), None);
    }

    proptest! {
        #[test]
        fn ids_are_unique_and_safe_in_file_names(
            values in prop::collection::vec("[a-cA-C:/. -]{0,3}|\\PC{0,100}", 1..8)
        ) {
            let list = values.iter().map(|value| IndexMap::from([("x".into(), text(value))]));
            let cells = named(list.collect());
            let mut seen = HashSet::new();
            for cell in &cells {
                let safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
                prop_assert!(cell.id.chars().all(safe), "{}", cell.id);
                prop_assert!(!cell.id.starts_with(['.', '-']) && !cell.id.is_empty());
                prop_assert!(cell.id.len() < MAX_ID_CHARACTERS + 5);
                prop_assert!(seen.insert(cell.id.to_lowercase()), "{} twice", cell.id);
            }
        }
    }
}
