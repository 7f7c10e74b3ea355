//! The command line as types: help, completion and parsing from one definition.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory as _, Parser, Subcommand};

use super::bisect::BisectArgs;
use super::bundle::BundleArgs;
use super::calibrate::CalibrateArgs;
use super::guard::GuardArgs;
use super::slow_down::SlowDownArgs;

const ABOUT: &str = "Tells whether a change made a program faster, slower or neither, and whether that answer can be trusted";

const AFTER_HELP: &str = "\
`bench-run FILE` is `bench-run run FILE`.

Exit codes: 0 done (gate: pass) · 10 gate: regressed · 11 gate: undecided · 12 gate: invalid · \
2 usage or bad input · 69 a repository, tool or build is missing or broken · 70 internal fault · \
74 reading or writing failed · 75 the machine never became quiet, another run has the record, the minutes of a bundle are over, or a bisection has spent its runs: try again · 130, 143 ended by a signal";

/// The whole command line.
#[derive(Debug, Parser)]
#[command(name = "bench-run", version = super::version::VERSION, about = ABOUT, after_help = AFTER_HELP)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The sub-commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check out, build, measure, decide and report an experiment
    Run(RunArgs),
    /// Check an experiment file and its pins; start nothing
    Check(FileArgs),
    /// Build the arms and print what would run, in which order; measure nothing
    Plan(PlanArgs),
    /// Render the report of a record again, or publish it
    Report(ReportArgs),
    /// Turn a record's verdicts into an exit code for CI
    Gate(GateArgs),
    /// Find the commit between two others with which an effect began
    Bisect(BisectArgs),
    /// Judge measurements made elsewhere (CSV) by our rule and by named ones
    Replay(ReplayArgs),
    /// Pack a sealed plan with its arms, run it on another machine, merge its record
    Bundle(BundleArgs),
    /// Run any command while the machine is quiet
    Guard(GuardArgs),
    /// Measure a program against itself many times: how often the rule errs here, and what it finds
    Calibrate(CalibrateArgs),
    /// Run a command so that it takes a known share longer: what a control arm runs under
    #[command(hide = true)]
    SlowDown(SlowDownArgs),
    /// Say what will make this machine noisy, and how to mend it; change nothing
    Doctor(DoctorArgs),
    /// List what the harness's cache holds, or remove what no experiment needs
    Cache(CacheArgs),
    /// Print the JSON Schema of experiment files
    Schema,
    /// Print a completion script for a shell
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// Where things are; shared by the commands that take an experiment file.
#[derive(Debug, Clone, Args)]
pub struct FileArgs {
    /// The experiment file (YAML)
    pub file: PathBuf,
}

/// `bench-run run`.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// The experiment file (YAML)
    pub file: PathBuf,
    /// Measure this many rounds instead of the file's (recorded in the plan)
    #[arg(long, value_name = "N")]
    pub rounds: Option<u32>,
    /// Folder of the records [default: results beside the experiment's project]
    #[arg(long, value_name = "DIR")]
    pub results: Option<PathBuf>,
    /// Folder of the reports [default: docs/benchmark_results in the project]
    #[arg(long, value_name = "DIR")]
    pub reports: Option<PathBuf>,
    /// Name of this machine in records and reports [default: made from the processor]
    #[arg(long, value_name = "LABEL")]
    pub host: Option<String>,
    /// Start a new record although an unfinished one of the same plan could be resumed
    #[arg(long)]
    pub fresh: bool,
    /// End with the gate's exit code
    #[arg(long)]
    pub gate: bool,
    /// Write the record only, no report
    #[arg(long)]
    pub no_report: bool,
    /// No progress, no table; warnings and errors only
    #[arg(long, short)]
    pub quiet: bool,
}

/// `bench-run plan`.
#[derive(Debug, Clone, Args)]
pub struct PlanArgs {
    /// The experiment file (YAML)
    pub file: PathBuf,
    /// Plan this many rounds instead of the file's
    #[arg(long, value_name = "N")]
    pub rounds: Option<u32>,
    /// Name of this machine, under which its noise is known [default: made from the processor]
    #[arg(long, value_name = "LABEL")]
    pub host: Option<String>,
    /// No progress on standard error
    #[arg(long, short)]
    pub quiet: bool,
}

/// `bench-run report`.
#[derive(Debug, Clone, Args)]
pub struct ReportArgs {
    /// The record: a folder under results/, or a published data folder
    pub record: PathBuf,
    /// Folder to write the report into [default: print Markdown to standard output]
    #[arg(long, value_name = "DIR")]
    pub to: Option<PathBuf>,
    /// Write into docs/benchmark_results with the record beside it, once
    #[arg(long, conflicts_with = "to")]
    pub publish: bool,
    /// Print the terminal table instead of Markdown
    #[arg(long, conflicts_with_all = ["to", "publish"])]
    pub table: bool,
}

/// `bench-run gate`.
#[derive(Debug, Clone, Args)]
pub struct GateArgs {
    /// The record: a folder under results/
    pub record: PathBuf,
    /// Append a Markdown summary to this file (GITHUB_STEP_SUMMARY where it is set)
    #[arg(long, value_name = "FILE")]
    pub summary: Option<PathBuf>,
    /// Write the verdicts as JUnit XML
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Print workflow commands for annotations on standard error, as where
    /// GITHUB_ACTIONS is true
    #[arg(long)]
    pub annotations: bool,
    /// Print the verdicts as one JSON document on standard output
    #[arg(long)]
    pub json: bool,
}

/// `bench-run doctor`.
#[derive(Debug, Clone, Args)]
pub struct DoctorArgs {
    /// Print the findings as one JSON document
    #[arg(long)]
    pub json: bool,
}

/// `bench-run cache`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "The cache is $BENCH_RUN_CACHE, else $XDG_CACHE_HOME/bench-run, else ~/.cache/bench-run."
)]
pub struct CacheArgs {
    /// What to do [default: list]
    #[command(subcommand)]
    pub action: Option<CacheAction>,
}

/// What to do with the cache.
#[derive(Debug, Clone, Subcommand)]
pub enum CacheAction {
    /// List builds, results of setup steps and repositories with size and last use
    List,
    /// Say what would be removed: what no experiment pins and what was not used for long
    Prune(PruneArgs),
}

/// `bench-run cache prune`.
#[derive(Debug, Clone, Args)]
pub struct PruneArgs {
    /// Keep what was used in the last N days
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub days: u64,
    /// Folder of the experiments whose pins stay [default: experiments in the project]
    #[arg(long, value_name = "DIR")]
    pub experiments: Option<PathBuf>,
    /// Remove it
    #[arg(long)]
    pub yes: bool,
}

/// As without options.
impl Default for PruneArgs {
    fn default() -> Self {
        PruneArgs {
            days: 30,
            experiments: None,
            yes: false,
        }
    }
}

/// `bench-run replay`.
#[derive(Debug, Clone, Args)]
pub struct ReplayArgs {
    /// The measurements: CSV with a header, one row per attempt
    pub file: PathBuf,
    /// What its columns mean [default: the same name with .replay.yaml, else columns
    /// called arm, round, cell, status and one metric]
    #[arg(long, value_name = "FILE")]
    pub mapping: Option<PathBuf>,
    /// Folder to write the report into [default: print tables to standard output]
    #[arg(long, value_name = "DIR")]
    pub to: Option<PathBuf>,
    /// Write into docs/benchmark_results with the measurements beside the report
    #[arg(long, conflicts_with = "to")]
    pub publish: bool,
    /// Print the verdicts as one JSON document on standard output
    #[arg(long, conflicts_with_all = ["to", "publish"])]
    pub json: bool,
    /// End with the gate's exit code under our own rule
    #[arg(long)]
    pub gate: bool,
}

/// Puts the word `run` where a file stands in place of a sub-command.
#[must_use]
pub fn with_default_command(arguments: Vec<OsString>) -> Vec<OsString> {
    let names: Vec<String> = Arguments::command()
        .get_subcommands()
        .map(|command| command.get_name().to_owned())
        .collect();
    let words = arguments.iter().skip(1);
    let mut words = words
        .map(|word| word.to_string_lossy().into_owned())
        .take_while(|word| word != "--")
        .filter(|word| !word.starts_with('-'));
    let is_experiment = |word: &str| word.ends_with(".yaml") || word.ends_with(".yml");
    let Some(first) = words.next() else {
        return arguments;
    };
    if names.contains(&first) || first == "help" {
        return arguments;
    }
    // The first word may be the value of an option (`--rounds 5 x.yaml`).
    let is_run = is_experiment(&first)
        || PathBuf::from(&first).is_file()
        || words.any(|w| is_experiment(&w));
    if !is_run {
        return arguments;
    }
    let mut completed = arguments;
    completed.insert(1, "run".into());
    completed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn a_file_alone_is_run() {
        assert_eq!(
            with_default_command(words("bench-run a.yaml")),
            words("bench-run run a.yaml")
        );
        assert_eq!(
            with_default_command(words("bench-run --quiet a.yml")),
            words("bench-run run --quiet a.yml")
        );
        assert_eq!(
            with_default_command(words("bench-run --rounds 7 a.yaml")),
            words("bench-run run --rounds 7 a.yaml")
        );
    }

    #[test]
    fn a_sub_command_is_left_alone() {
        for line in [
            "bench-run check a.yaml",
            "bench-run --version",
            "bench-run",
            "bench-run help run",
            "bench-run typo",
            "bench-run guard --idle-secs 3 -- cat a.yaml",
            "bench-run typo -- cat a.yaml",
        ] {
            assert_eq!(with_default_command(words(line)), words(line), "{line}");
        }
    }

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }
}
