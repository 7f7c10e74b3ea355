//! `bench-run slow-down`: runs a command with an injected slow-down. Hidden: control arms run
//! under it, and a reader of a report may want to repeat one by hand.

use std::ffi::OsString;

use anyhow::Context as _;
use clap::Args;

use crate::execute::slow_down;
use crate::execute::sys;
use crate::exit_code;
use crate::record::format::SlowDown;

/// `bench-run slow-down`.
#[derive(Debug, Clone, Args)]
pub struct SlowDownArgs {
    /// Percent of the time that it takes without
    #[arg(long, value_name = "PCT")]
    pub pct: f64,
    /// Stop and continue it, so that its own clock sees the slow-down
    #[arg(long)]
    pub inside: bool,
    /// Fill up its wall-clock time after the end
    #[arg(long)]
    pub wall: bool,
    /// Fill up its CPU time after the end
    #[arg(long)]
    pub cpu: bool,
    /// The command
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Runs the command and ends as it ends.
///
/// # Errors
/// A share that means nothing, a command that cannot be started.
pub fn run(arguments: &SlowDownArgs) -> anyhow::Result<i32> {
    if !(arguments.pct > 0.0 && arguments.pct.is_finite()) {
        let got = arguments.pct;
        return Err(crate::session::error::SessionError::Usage(format!(
            "--pct: expected a number above 0, got {got}"
        ))
        .into());
    }
    let slow_down = SlowDown {
        pct: arguments.pct,
        inside: arguments.inside,
        wall: arguments.wall,
        cpu: arguments.cpu,
    };
    let usage = slow_down::run(&slow_down, &arguments.command).context("slow-down")?;
    if let Some(signal) = usage.signal {
        sys::die_of(signal);
    }
    Ok(usage.exit_status.unwrap_or(exit_code::INTERNAL))
}
