//! An effect that somebody published, as an experiment states it.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::model::{Experiment, Scalar};

/// One claim or several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Claims {
    /// One.
    One(Claim),
    /// Several.
    Many(Vec<Claim>),
}

impl Default for Claims {
    fn default() -> Self {
        Claims::Many(Vec::new())
    }
}

impl Claims {
    /// All of them, in the order of the file.
    #[must_use]
    pub fn list(&self) -> &[Claim] {
        match self {
            Claims::One(claim) => std::slice::from_ref(claim),
            Claims::Many(claims) => claims,
        }
    }

    /// Whether nothing is claimed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list().is_empty()
    }
}

/// An effect that somebody published, to be confirmed or contradicted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The arm that it is about; may be left out where there is one beside the base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arm: Option<String>,
    /// The metric.
    pub metric: String,
    /// The cells that it is about: those that have all these values; left out: every cell.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub when: IndexMap<String, Scalar>,
    /// The metric's claimed change in percent of the base: −50 for half the time, +100 for
    /// twice the rate.
    pub change_pct: f64,
    /// Who says so, and where.
    pub source: String,
}

impl Claim {
    /// The arm that the claim is about; `None` where it is left out and not obvious.
    #[must_use]
    pub fn subject<'a>(&'a self, experiment: &'a Experiment) -> Option<&'a str> {
        if let Some(arm) = &self.arm {
            return Some(arm);
        }
        let mut candidates = experiment
            .arms
            .keys()
            .filter(|arm| **arm != experiment.base);
        let only = candidates.next()?;
        candidates.next().is_none().then_some(only.as_str())
    }

    /// Whether it is about the cell with these values.
    #[must_use]
    pub fn is_about(&self, cell: &IndexMap<String, Scalar>) -> bool {
        super::matrix::selects(&self.when, cell)
    }
}
