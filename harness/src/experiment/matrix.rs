//! Cells: the workloads of an experiment, one per combination of values.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::model::Scalar;

/// One workload. Its id is unique within the experiment and safe in a file name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Such as `gemma3-270m.2048`; what rows and reports call the cell.
    pub id: String,
    /// The variables that the command may use.
    pub values: IndexMap<String, Scalar>,
}
