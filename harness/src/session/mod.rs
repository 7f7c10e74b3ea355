//! A run from experiment file to record: prepare, seal, prime, rounds, resume.
