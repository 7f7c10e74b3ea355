//! A GPU as a device: what the back ends for NVIDIA and AMD share, over a [`Machine`] that allocates,
//! copies and launches.
//!
//! Kernels are `engine/kernels`, one source for all of them. Decode steps of one token run as one
//! captured graph of fused kernels (`step.rs`); prompts, and the slow float32 twin of everything, run
//! stage by stage over rows (`rows.rs`). Not here: drivers.

mod args;
mod arrange;
mod attention_cut;
mod backend;
mod buffer;
mod builder;
mod cache;
mod context;
mod draw;
#[cfg(test)]
mod host_tiles;
mod machine;
mod matrix;
mod probe;
#[cfg(test)]
mod random_attention;
#[cfg(test)]
mod random_draws;
#[cfg(test)]
mod random_matrix;
#[cfg(test)]
mod random_module;
#[cfg(test)]
mod random_products;
#[cfg(test)]
mod random_tiles;
mod rope;
mod routes;
mod rows;
mod step;
mod tiles;
mod vector_cut;
mod weights;

#[cfg(test)]
pub(crate) use args::args_sizes;
pub(crate) use attention_cut::cluster_shared_bytes;
pub(crate) use builder::GpuBuilder;
pub(crate) use machine::{
    CLUSTER_BLOCKS, Clusters, GraphId, HostWords, Launch, MARKS, Machine, Tuning,
};
#[cfg(test)]
pub(crate) use random_attention::{check as check_random_attention, check_spare_tiles};
#[cfg(test)]
pub(crate) use random_draws::check as check_random_draws;
#[cfg(test)]
pub(crate) use random_products::{Most, check as check_random_products};
#[cfg(test)]
pub(crate) use random_tiles::check as check_random_tiles;
pub(crate) use tiles::Layout;
