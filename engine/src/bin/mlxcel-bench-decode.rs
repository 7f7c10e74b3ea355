//! `mlxcel-bench-decode`: prefill and decode speed of one model, as one sample.
//! See `engine/README.md`.

use std::process::ExitCode;

use clap::Parser;
use mlxcel_engine::bench::arguments::{Arguments, PROGRAM};
use mlxcel_engine::cli;
use mlxcel_engine::memory::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn main() -> ExitCode {
    cli::exit_code::finish(PROGRAM, cli::bench_decode::run(&Arguments::parse()))
}
