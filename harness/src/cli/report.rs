//! `bench-run report`: a record's report again, on standard output or in files.

use anyhow::Context as _;

use super::arguments::ReportArgs;
use super::dispatch::print;
use super::project;
use super::report_files;
use crate::analysis::from_record::analyse;
use crate::exit_code;
use crate::record::reader;
use crate::report::markdown;
use crate::report::model::ReportModel;
use crate::session::error::SessionError;

/// Renders the report where the arguments say.
///
/// # Errors
/// A record that cannot be read, files that cannot be written.
pub fn run(arguments: &ReportArgs) -> anyhow::Result<i32> {
    let record = reader::read(&arguments.record)?;
    let analysis = analyse(&record.plan, &record.attempts).map_err(SessionError::OutOfStep)?;
    if arguments.table {
        return print(&report_files::table(&record, &analysis));
    }
    let root = project::root_of(&arguments.record.join("plan.json"));
    let folder = if arguments.publish {
        Some(report_files::default_folder(&root))
    } else {
        arguments.to.clone()
    };
    let Some(folder) = folder else {
        let model = ReportModel::new(&record, &analysis, "");
        return print(&markdown::render(&model).context("cannot render the report")?);
    };
    let path = report_files::write(&record, &analysis, &folder, arguments.publish)?;
    print(&format!("{}\n", project::relative(&path, &root)))?;
    Ok(exit_code::OK)
}
