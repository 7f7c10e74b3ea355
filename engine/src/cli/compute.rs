//! Options of every command that loads a model: where to compute, with how many threads.

use crate::backend::interface::Arithmetic;
use crate::bench::arguments::BackendArgument;
use crate::engine::LoadOptions;

/// Where to compute.
#[derive(Debug, Clone, clap::Args)]
pub struct ComputeArguments {
    /// Where to compute
    #[arg(long, value_enum, default_value_t = BackendArgument::Auto)]
    pub backend: BackendArgument,
    /// Threads that compute; 0 means one for each core this process may use
    #[arg(long, value_name = "N", default_value_t = 0,
          value_parser = clap::value_parser!(u16).range(0..=1024))]
    pub threads: u16,
}

impl ComputeArguments {
    /// How to load a model for `arithmetic`.
    pub fn load_options(&self, arithmetic: Arithmetic) -> LoadOptions {
        LoadOptions {
            backend: self.backend.choice(),
            arithmetic,
            threads: usize::from(self.threads),
            ..LoadOptions::default()
        }
    }
}
