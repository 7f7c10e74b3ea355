//! Every exit code the program uses, in one place, so that scripts can rely on them.
//!
//! The gate's codes (10, 11, 12) are used by nothing else: neither make, nor a
//! shell, nor a panic (101) or a signal (128 + n) can be mistaken for a verdict.

/// The command did what it was asked; for a gate: pass.
pub const OK: i32 = 0;
/// Wrong arguments or a bad input file; nothing was started.
pub const USAGE: i32 = 2;
/// The gate failed: at least one gated cell regressed.
pub const GATE_REGRESSED: i32 = 10;
/// The gate could not decide at least one gated cell, and none regressed.
pub const GATE_UNDECIDED: i32 = 11;
/// The measurement is invalid: no verdict can be drawn from it.
pub const GATE_INVALID: i32 = 12;
/// Something outside is missing or broken: a repository, a tool, a build.
pub const UNAVAILABLE: i32 = 69;
/// A fault of this program.
pub const INTERNAL: i32 = 70;
/// Reading or writing failed, a full disk for example.
pub const IO: i32 = 74;
/// Not now, as `EX_TEMPFAIL` of sysexits.h: the guard never saw a quiet machine, its budget is
/// gone, another run has the record, a bundle's minutes are over and rounds are left, or a
/// bisection has spent its runs. The same command may work later, or with more.
pub const TRY_AGAIN: i32 = 75;

/// Ended by a signal, as a shell reports it: 130 for Ctrl-C, 143 for SIGTERM.
#[must_use]
pub const fn of_signal(signal: i32) -> i32 {
    128 + signal
}
