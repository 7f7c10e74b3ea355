//! `bench-run gate`: a record's verdicts as an exit code, a summary, annotations, JUnit
//! XML and JSON.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;

use super::arguments::GateArgs;
use super::dispatch::print;
use crate::analysis::from_record::analyse;
use crate::analysis::model::{Analysis, GateOutcome};
use crate::exit_code;
use crate::record::reader::{self, Record};
use crate::report::annotations::workflow_commands;
use crate::report::model::ReportModel;
use crate::report::{junit, markdown};
use crate::session::error::SessionError;

/// The exit code of a gate.
#[must_use]
pub fn exit_code_of(outcome: GateOutcome) -> i32 {
    match outcome {
        GateOutcome::Pass => exit_code::OK,
        GateOutcome::Regressed => exit_code::GATE_REGRESSED,
        GateOutcome::Undecided => exit_code::GATE_UNDECIDED,
        GateOutcome::Invalid => exit_code::GATE_INVALID,
    }
}

/// Decides and prints; the exit code is the gate's.
///
/// # Errors
/// A record that cannot be read, a summary that cannot be written.
pub fn run(arguments: &GateArgs) -> anyhow::Result<i32> {
    let record = reader::read(&arguments.record)?;
    let analysis = analyse(&record.plan, &record.attempts).map_err(SessionError::OutOfStep)?;
    summary(arguments, &record, &analysis)?;
    if let Some(path) = &arguments.junit {
        let text = junit::render(&record, &analysis).context("cannot render JUnit XML")?;
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if arguments.annotations || std::env::var_os("GITHUB_ACTIONS").is_some_and(|on| on == "true") {
        // The hosted CI reads both streams; the other one may have to stay one JSON document.
        let commands = workflow_commands(&record.plan, &analysis);
        std::io::stderr()
            .write_all(commands.as_bytes())
            .context("cannot write to standard error")?;
    }
    if arguments.json {
        let json =
            serde_json::to_string_pretty(&analysis).context("cannot write the verdicts as JSON")?;
        print(&format!("{json}\n"))?;
    } else {
        let lines = analysis
            .judgements
            .iter()
            .filter(|judgement| judgement.gated);
        let text: String = lines
            .map(|judgement| format!("{}\n", judgement.sentence))
            .collect();
        print(&format!("{text}{}\n", analysis.gate_sentence))?;
    }
    Ok(exit_code_of(analysis.gate))
}

/// Appends the Markdown summary to the file asked for, else to the hosted CI's.
fn summary(arguments: &GateArgs, record: &Record, analysis: &Analysis) -> anyhow::Result<()> {
    let hosted = std::env::var_os("GITHUB_STEP_SUMMARY").filter(|path| !path.is_empty());
    let Some(path) = arguments
        .summary
        .clone()
        .or_else(|| hosted.map(PathBuf::from))
    else {
        return Ok(());
    };
    let text = markdown::ci_summary(&ReportModel::new(record, analysis, ""))
        .context("cannot render the summary")?;
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .with_context(|| format!("cannot open {} for the summary", path.display()))?;
    file.write_all(text.as_bytes())
        .with_context(|| format!("cannot write {}", path.display()))
}
