//! `bench-run doctor`: what will make this machine noisy, and how to mend it. Changes nothing.

use std::path::Path;

use anyhow::Context as _;
use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};

use super::arguments::DoctorArgs;
use super::dispatch::print;
use crate::guard::cuda;
use crate::host::findings::{Finding, State, findings};
use crate::host::snapshot::{self, NvidiaGpu};

/// Looks at the machine and says what it found.
///
/// # Errors
/// Standard output cannot be written.
pub fn run(arguments: &DoctorArgs) -> anyhow::Result<i32> {
    let mut seen = snapshot::look(Path::new("/"));
    seen.nvidia_gpus = nvidia_gpus();
    let found = findings(&seen);
    if arguments.json {
        let json = serde_json::to_string_pretty(&found).context("cannot write the findings")?;
        return print(&format!("{json}\n"));
    }
    print(&text(&found))
}

/// What the driver says; `None` where there is none to ask.
fn nvidia_gpus() -> Option<Vec<NvidiaGpu>> {
    let gpus = cuda::open(Path::new("/proc")).ok()?.describe();
    let gpus = gpus.into_iter().map(|gpu| NvidiaGpu {
        name: gpu.name,
        holders: gpu.holders,
        temperature_c: gpu.temperature_c,
        slowed_by: gpu
            .slowdowns
            .iter()
            .map(|slowdown| slowdown.word().to_owned())
            .collect(),
    });
    Some(gpus.collect())
}

/// A line per question, then what to do about each noisy one.
fn text(found: &[Finding]) -> String {
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    for finding in found {
        table.add_row([word(finding.state), finding.subject, &finding.found]);
    }
    let mut text = format!("{}\n", table.trim_fmt());
    let bad = |finding: &&Finding| matches!(finding.state, State::Noisy | State::Doubtful);
    let to_do: Vec<&Finding> = found.iter().filter(bad).collect();
    if to_do.is_empty() {
        return text + "\nnothing found that makes this machine noisy\n";
    }
    for finding in to_do {
        text += &format!("\n- {}", finding.sentence());
    }
    text + "\n"
}

fn word(state: State) -> &'static str {
    match state {
        State::Quiet => "quiet",
        State::Noisy => "NOISY",
        State::Doubtful => "doubtful",
        State::Unknown => "unknown",
    }
}
