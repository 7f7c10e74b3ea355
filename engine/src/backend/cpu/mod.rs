//! The processor as a device: a queue thread that owns weights, caches and buffers and runs steps
//! in order on a pool of threads.
//!
//! Two sets of stages share the queue: `reference` (float32, the obvious twin) and `fast`.

mod device;
mod fast;
pub mod kernel;
mod mode;
mod open;
mod queue;
mod reference;
pub mod routed;
mod storage;

pub use open::open;
