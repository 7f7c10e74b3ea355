//! The `bench-run` program: arguments to command to exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    let code = bench_run::cli::dispatch::main(std::env::args_os());
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}
