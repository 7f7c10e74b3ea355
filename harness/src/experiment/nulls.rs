//! Null arms: repeats of an arm's program under another name.

use std::collections::HashMap;

use super::model::{Experiment, Nulls};

/// One null arm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NullArm {
    /// `<arm>-null`, further ones `<arm>-null-2`, `<arm>-null-3`, ….
    pub name: String,
    /// The arm that it repeats.
    pub of: String,
}

/// The null arms in the order of the file; for `nulls: all` in the order of the arms.
#[must_use]
pub fn null_arms(experiment: &Experiment) -> Vec<NullArm> {
    let all: Vec<String>;
    let repeated = match &experiment.nulls {
        Nulls::Some(list) => list,
        Nulls::All(_) => {
            all = experiment.arms.keys().cloned().collect();
            &all
        }
    };
    let mut copies: HashMap<&str, usize> = HashMap::new();
    repeated
        .iter()
        .map(|of| {
            let copy = copies.entry(of).or_default();
            *copy += 1;
            let name = match *copy {
                1 => format!("{of}-null"),
                copy => format!("{of}-null-{copy}"),
            };
            NullArm {
                name,
                of: of.clone(),
            }
        })
        .collect()
}
