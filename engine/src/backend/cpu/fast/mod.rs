//! Fast arithmetic: int8 activations by group over repacked weights, f16 keys and values.
//!
//! The kernels are in `kernel/` and know no model; here they are put together into stages. The
//! float32 stages of `reference/` are the twin that `mlxcel check` and the tests compare with.

mod builder;
mod linear;
mod stages;
mod storage;

pub(super) use builder::FastBuilder;
