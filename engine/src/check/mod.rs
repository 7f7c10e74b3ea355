//! Comparison of a folder's reference outputs with the engine.
