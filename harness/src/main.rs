//! The `bench-run` program.

fn main() {}
