//! `bench-run replay`: measurements made elsewhere to the same tables and verdicts.

use std::path::Path;

use anyhow::Context as _;

use super::arguments::ReplayArgs;
use super::dispatch::print;
use super::{gate, project, report_files};
use crate::exit_code;
use crate::experiment::diagnostic::Diagnostics;
use crate::replay::judge::{self, Judged};
use crate::replay::mapping::{self, Mapping};
use crate::replay::sheet::{self, Sheet};
use crate::replay::{convention, session};
use crate::report::publish;
use crate::report::replay::{Input, Inputs, ReplayModel};
use crate::report::terminal;

/// Reads, judges and prints, or writes the report.
///
/// # Errors
/// Files that cannot be read or make no sense, a report that cannot be written.
pub fn run(arguments: &ReplayArgs) -> anyhow::Result<i32> {
    let (judged, inputs) = read(arguments)?;
    let root = project::root_of(&arguments.file);
    let published = arguments
        .publish
        .then(|| report_files::default_folder(&root));
    if let Some(folder) = arguments.to.clone().or(published) {
        let to = report_files::destination(&folder, arguments.publish);
        let path = publish::write_replay(&judged, &inputs, &to)?;
        print(&format!("{}\n", project::relative(&path, &root)))?;
    } else if arguments.json {
        let json =
            serde_json::to_string_pretty(&judged).context("cannot write the verdicts as JSON")?;
        print(&format!("{json}\n"))?;
    } else {
        let (width, colours) = report_files::screen();
        let model = ReplayModel::new(&judged, &inputs);
        print(&terminal::replay_table(&model, width, colours))?;
    }
    Ok(if arguments.gate {
        gate::exit_code_of(judged.analysis.gate)
    } else {
        exit_code::OK
    })
}

fn read(arguments: &ReplayArgs) -> anyhow::Result<(Judged, Inputs)> {
    let bytes = bytes_of(&arguments.file)?;
    let sheet = Sheet::parse(&arguments.file, &bytes)?;
    let beside = arguments.file.with_extension("replay.yaml");
    let path = arguments
        .mapping
        .clone()
        .or_else(|| beside.is_file().then(|| beside.clone()));
    let (mapping, mapping_bytes) = match path {
        Some(path) => {
            let bytes = bytes_of(&path)?;
            (mapping::parse(&path, &bytes)?, bytes)
        }
        None => conventional(&sheet, &beside)?,
    };
    let session = session::pair(&sheet, &mapping)?;
    let inputs = Inputs {
        csv: Input {
            file: own_name(&arguments.file),
            bytes,
        },
        // A copy is found again beside the copy of the measurements.
        mapping: Input {
            file: own_name(&beside),
            bytes: mapping_bytes,
        },
    };
    Ok((judge::judge(&mapping, session), inputs))
}

fn bytes_of(path: &Path) -> Result<Vec<u8>, Diagnostics> {
    std::fs::read(path).map_err(|error| sheet::unreadable(path, &error.to_string()))
}

/// The mapping of a table with our own names, and how it would be written.
fn conventional(sheet: &Sheet, beside: &Path) -> anyhow::Result<(Mapping, Vec<u8>)> {
    let stem = sheet.path.file_stem().unwrap_or_default().to_string_lossy();
    let mapping = convention::mapping(sheet, &stem, &beside.display().to_string())?;
    let text = serde_yaml::to_string(&mapping).context("cannot write the mapping as YAML")?;
    Ok((mapping, text.into_bytes()))
}

fn own_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}
