//! `mlxcel`: small jobs around models. See `engine/README.md`.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use mlxcel_engine::cli;

const PROGRAM: &str = "mlxcel";

/// Make and check models for the engine
#[derive(Debug, Parser)]
#[command(name = PROGRAM, disable_version_flag = true, arg_required_else_help = true)]
struct Arguments {
    /// Print version, commit, dirty flag, features, target and profile
    #[arg(short = 'V', long)]
    version: bool,
    /// With --version: print it as JSON
    #[arg(long, requires = "version")]
    json: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Synth(cli::synth::Arguments),
    Check(cli::check::Arguments),
    Inspect(cli::inspect::Arguments),
    Convert(cli::convert::Arguments),
    Fetch(cli::fetch::Arguments),
    Generate(cli::generate::Arguments),
    Perplexity(cli::perplexity::Arguments),
    LogitTrace(cli::logit_trace::Arguments),
}

fn main() -> ExitCode {
    cli::exit_code::finish(PROGRAM, run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    if arguments.version {
        cli::version::print(PROGRAM, arguments.json)?;
        return Ok(cli::exit_code::SUCCESS);
    }
    match &arguments.command {
        Some(Command::Synth(arguments)) => cli::synth::run(arguments),
        Some(Command::Check(arguments)) => cli::check::run(arguments),
        Some(Command::Inspect(arguments)) => cli::inspect::run(arguments),
        Some(Command::Convert(arguments)) => cli::convert::run(arguments),
        Some(Command::Generate(arguments)) => cli::generate::run(arguments),
        Some(Command::Fetch(arguments)) => cli::fetch::run(arguments),
        Some(Command::Perplexity(arguments)) => cli::perplexity::run(arguments),
        Some(Command::LogitTrace(arguments)) => cli::logit_trace::run(arguments),
        None => Arguments::command()
            .error(
                clap::error::ErrorKind::MissingSubcommand,
                "a sub-command is required",
            )
            .exit(),
    }
}
