//! Numbers in, numbers out: no file, clock, environment or printing.
