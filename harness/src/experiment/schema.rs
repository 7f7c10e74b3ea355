//! The JSON Schema of the experiment file, generated from [`super::model`].
//!
//! Editors complete a file with it, and the loader checks a file against it, so
//! that keys, types and defaults have one definition. The copy in
//! docs/experiment.schema.json is kept equal by a test.

use serde_json::Value;

use super::model::Experiment;

/// The schema as a JSON value.
pub(crate) fn schema() -> Value {
    schemars::schema_for!(Experiment).to_value()
}

/// The schema as indented JSON text with a final line break.
#[must_use]
pub fn json_schema() -> String {
    format!("{:#}\n", schema())
}
