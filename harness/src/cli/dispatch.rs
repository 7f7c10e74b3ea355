//! From arguments to an exit code: parses, runs one sub-command, prints its error once.

use std::ffi::OsString;
use std::io::Write as _;

use clap::{CommandFactory as _, Parser as _};

use super::arguments::{Arguments, Command, with_default_command};
use super::{
    bisect, bundle, cache, calibrate, check, doctor, failure, gate, guard, plan, replay, report,
    run, slow_down,
};
use crate::exit_code;
use crate::experiment::schema;

/// Runs the program with `arguments`, the first being its own name.
#[must_use]
pub fn main(arguments: impl Iterator<Item = OsString>) -> i32 {
    let arguments = match Arguments::try_parse_from(with_default_command(arguments.collect())) {
        Ok(arguments) => arguments,
        Err(error) => {
            let code = if error.use_stderr() {
                exit_code::USAGE
            } else {
                exit_code::OK
            };
            // Help that goes to a closed pipe is no fault.
            let _ = error.print();
            return code;
        }
    };
    match dispatch(arguments.command) {
        Ok(code) => code,
        Err(error) => tell(&error),
    }
}

/// Ends the process with an error, from whichever thread.
#[expect(
    clippy::exit,
    reason = "the main thread waits in a call that no signal can end"
)]
pub(super) fn abandon(error: &anyhow::Error) -> ! {
    std::process::exit(tell(error))
}

/// Prints an error with its causes; returns its exit code.
fn tell(error: &anyhow::Error) -> i32 {
    // The exit code tells as much where standard error cannot be written.
    let _ = writeln!(std::io::stderr(), "error: {}", with_causes(error));
    failure::exit_code(error)
}

/// An error and its causes, each that is not part of the text before it.
fn with_causes(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

fn dispatch(command: Command) -> anyhow::Result<i32> {
    match command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Gate(arguments) => gate::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Guard(arguments) => Ok(guard::run(&arguments)),
        Command::Bisect(arguments) => bisect::run(&arguments),
        Command::Bundle(arguments) => bundle::run(&arguments),
        Command::Calibrate(arguments) => calibrate::run(&arguments),
        Command::SlowDown(arguments) => slow_down::run(&arguments),
        Command::Cache(arguments) => cache::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Schema => print(&schema::json_schema()),
        Command::Completions { shell } => completions(shell),
    }
}

fn completions(shell: clap_complete::Shell) -> anyhow::Result<i32> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "bench-run", &mut script);
    print(&String::from_utf8_lossy(&script))
}

/// Writes machine output; a reader that went away (`| head`) is no fault.
///
/// # Errors
/// Any other error of writing to standard output.
pub fn print(text: &str) -> anyhow::Result<i32> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(anyhow::Error::new(error).context("cannot write to standard output"))
        }
        _ => Ok(exit_code::OK),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_stands_in_an_error_once() {
        let io = || std::io::Error::other("no space");
        let shown = crate::session::error::SessionError::Output {
            path: "a.out".into(),
            source: io(),
        };
        let text = with_causes(&anyhow::Error::new(shown));
        assert_eq!(text.matches("no space").count(), 1, "{text}");
        let hidden = anyhow::Error::new(io()).context("cannot print");
        assert_eq!(with_causes(&hidden), "cannot print: no space");
    }
}
