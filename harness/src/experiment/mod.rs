//! The experiment file: read, checked and expanded before anything expensive.
//!
//! `model` is the definition. `load` finds every error at once with its line:
//! `tree` keeps the places, `grammar` holds the tree against the schema, `meaning`
//! checks what no schema can say, `report` and `diagnostic` collect and show.
//! `claim` is what somebody published. `matrix` expands cells, `nulls` names the null arms, `control` the control arm, `template` fills command lines, `expand` fills in
//! `${VAR}`, `condition` reads `'> 0'`, `schema` writes the JSON Schema. Nothing
//! here starts a process.

pub mod claim;
pub mod condition;
pub mod control;
pub mod diagnostic;
pub mod expand;
mod grammar;
mod key_path;
pub mod load;
pub mod matrix;
pub(crate) mod meaning;
pub mod model;
pub mod nulls;
pub(crate) mod report;
pub mod schema;
pub mod template;
mod tree;
