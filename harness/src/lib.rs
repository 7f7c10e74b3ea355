//! `bench-run` measures programs across a process boundary and decides verdicts.
