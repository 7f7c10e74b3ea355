//! NVIDIA GPUs through the driver, which is looked for when the program runs: nothing of CUDA is
//! needed to build this, and only the driver to use it.

mod driver;
mod images;
mod launch;
mod open;
#[cfg(test)]
mod tests;

pub(crate) use open::{open, require};
