//! The kernels on the processor, a fiber a GPU thread, behind the GPU back end: for tests, of the
//! kernels and of everything around them. Thousands of times slower than a GPU.

mod machine;
mod open;
#[cfg(test)]
mod tests;

pub(crate) use open::{open, require};
