//! Options of every command that loads a model: where to compute, with how many threads.

use crate::backend::interface::Arithmetic;
use crate::bench::arguments::BackendArgument;
use crate::engine::LoadOptions;
use crate::qmm::{Profile, QmmOptions, QmmSetup};

/// `--arithmetic` of a command that can compare the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ArithmeticsArgument {
    /// The reference
    Float32,
    /// What decodes fast: activations rounded, on a processor to 8 bits
    Fast,
    /// Both
    Both,
}

impl ArithmeticsArgument {
    /// Those meant, the reference first.
    pub fn arithmetics(self) -> &'static [Arithmetic] {
        match self {
            Self::Float32 => &[Arithmetic::Float32],
            Self::Fast => &[Arithmetic::Fast],
            Self::Both => &[Arithmetic::Float32, Arithmetic::Fast],
        }
    }
}

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
    /// Take another device's routes of quantised products, e.g. gfx1151, instead of the own ones:
    /// slower, for tests of what does not depend on the device
    #[arg(long, value_name = "NAME", value_parser = Profile::find)]
    pub route_profile: Option<Profile>,
}

impl ComputeArguments {
    /// How to load a model for `arithmetic`; `options` are the environment's.
    pub fn load_options(&self, arithmetic: Arithmetic, options: QmmOptions) -> LoadOptions {
        LoadOptions {
            backend: self.backend.choice(),
            arithmetic,
            threads: usize::from(self.threads),
            qmm: QmmSetup {
                route_profile: self.route_profile,
                options,
            },
            ..LoadOptions::default()
        }
    }
}
