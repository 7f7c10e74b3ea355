//! The version line of this program.

/// Version, commit and whether the tree had changes, such as `0.1.0 (a3176c7… dirty)`.
pub const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("BENCH_RUN_COMMIT"),
    ")"
);

/// The same with the program's name, as plans carry it.
pub const LINE: &str = concat!(
    "bench-run ",
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("BENCH_RUN_COMMIT"),
    ")"
);
