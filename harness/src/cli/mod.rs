//! The command line: one file per sub-command. The only room that prints.

pub mod arguments;
pub mod bisect;
pub mod bundle;
pub mod cache;
pub mod calibrate;
pub mod check;
pub mod dispatch;
pub mod doctor;
pub mod failure;
pub mod gate;
pub mod guard;
mod guard_output;
pub mod plan;
mod preparing;
pub mod progress;
pub mod project;
pub mod replay;
pub mod report;
pub mod report_files;
pub mod run;
pub mod slow_down;
pub mod surroundings;
mod this_host;
pub mod version;
