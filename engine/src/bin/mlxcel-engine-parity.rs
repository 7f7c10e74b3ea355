//! `mlxcel-engine-parity`: every decode path against the synchronous one. See `engine/README.md`.

use std::process::ExitCode;

use clap::Parser;
use mlxcel_engine::cli;
use mlxcel_engine::cli::engine_parity::{Arguments, PROGRAM};

fn main() -> ExitCode {
    cli::exit_code::finish(PROGRAM, cli::engine_parity::run(&Arguments::parse()))
}
