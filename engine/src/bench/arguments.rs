//! The command line of `mlxcel-bench-decode`.

use clap::{Parser, ValueEnum};

use crate::backend::interface::{Arithmetic, BackendChoice};
use crate::decode::{LookaheadOptions, LoopChoice, SamplerOptions};
use crate::engine::{DEFAULT_PREFILL_CHUNK_TOKENS, LoadOptions};
use crate::qmm::{Profile, QmmSetup};

/// Name of the program in messages and reports.
pub const PROGRAM: &str = "mlxcel-bench-decode";

/// Most tokens that an option may ask for; far above any context, far below
/// what would overflow a size.
const MOST_TOKENS: i64 = 1 << 24;

/// Measure prefill and decode of one model: one process, one measured pass
#[derive(Debug, Clone, Parser)]
#[command(name = PROGRAM, disable_version_flag = true)]
pub struct Arguments {
    /// MLX model folder, or synthetic:NAME (random weights in a real model's shapes)
    #[arg(short, long, value_name = "DIR", required_unless_present = "version")]
    pub model: Option<String>,

    /// Text of the prompt; --prompt-tokens replaces it
    #[arg(short, long, value_name = "TEXT", default_value = DEFAULT_PROMPT)]
    pub prompt: String,

    /// Make a prompt of exactly N tokens from a neutral English paragraph
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..=MOST_TOKENS))]
    pub prompt_tokens: Option<i64>,

    /// Tokens to decode after the first one, which prefill gives
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100,
          value_parser = clap::value_parser!(i64).range(1..=MOST_TOKENS))]
    pub max_tokens: i64,

    /// Tokens of the warm-up pass, which also runs the whole prompt; 0 skips it
    #[arg(long, value_name = "N", default_value_t = 20,
          value_parser = clap::value_parser!(i64).range(0..=MOST_TOKENS))]
    pub warmup_tokens: i64,

    /// Go on past the model's end tokens
    #[arg(long)]
    pub ignore_eos: bool,

    /// Use the prompt as it is, although the model has a chat template
    #[arg(long)]
    pub no_chat_template: bool,

    /// Divides the logits before a token is drawn; 0 takes the most likely one
    #[arg(long, value_name = "T", default_value_t = 0.0, value_parser = temperature)]
    pub temperature: f32,

    /// Draw from the smallest set of tokens whose probability reaches P
    #[arg(long, value_name = "P", default_value_t = 1.0, value_parser = top_p)]
    pub top_p: f32,

    /// Seed of the draws
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,

    /// Where to compute
    #[arg(long, value_enum, default_value_t = BackendArgument::Auto)]
    pub backend: BackendArgument,

    /// float32 is the reference; fast rounds activations, to 8 bits on a processor
    #[arg(long, value_enum, default_value_t = ArithmeticArgument::Fast)]
    pub arithmetic: ArithmeticArgument,

    /// Threads that compute; 0 means one for each core this process may use
    #[arg(long, value_name = "N", default_value_t = 0,
          value_parser = clap::value_parser!(u16).range(0..=1024))]
    pub threads: u16,

    /// Decode loop; MLXCEL_FORCE_SYNC, set to anything, makes the engine's steps synchronous
    #[arg(long = "loop", value_enum, default_value_t = LoopArgument::Engine)]
    pub decode_loop: LoopArgument,

    /// Take another device's routes of quantised products, e.g. gfx1151, instead of the own ones:
    /// slower, for tests of what does not depend on the device
    #[arg(long, value_name = "NAME", value_parser = Profile::find)]
    pub route_profile: Option<Profile>,

    /// Most tokens of the prompt in one step
    #[arg(long, value_name = "N", default_value_t = DEFAULT_PREFILL_CHUNK_TOKENS as i64,
          value_parser = clap::value_parser!(i64).range(1..=MOST_TOKENS))]
    pub prefill_chunk: i64,

    /// Print one line of JSON instead of the text
    #[arg(long)]
    pub json: bool,

    /// Print version, commit, dirty flag, features, target and profile (with --json: as JSON)
    #[arg(short = 'V', long)]
    pub version: bool,
}

/// What `-p` is when nobody says anything.
const DEFAULT_PROMPT: &str = "Describe the way from the harbour to the old mill.";

/// `--backend`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BackendArgument {
    /// The best one of this build and machine
    Auto,
    /// The processor
    Cpu,
    /// An NVIDIA GPU
    Cuda,
    /// An AMD GPU
    Rocm,
    /// The GPU back end on the processor, for tests
    #[value(hide = true)]
    Sim,
}

impl BackendArgument {
    /// What it means for loading.
    pub fn choice(self) -> BackendChoice {
        match self {
            Self::Auto => BackendChoice::Auto,
            Self::Cpu => BackendChoice::Cpu,
            Self::Cuda => BackendChoice::Cuda,
            Self::Rocm => BackendChoice::Rocm,
            Self::Sim => BackendChoice::Sim,
        }
    }
}

/// `--arithmetic`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ArithmeticArgument {
    /// Float32 activations, dequantised weights
    Float32,
    /// Int8 activations by group
    Fast,
}

impl ArithmeticArgument {
    /// What it means for loading.
    pub fn arithmetic(self) -> Arithmetic {
        match self {
            Self::Float32 => Arithmetic::Float32,
            Self::Fast => Arithmetic::Fast,
        }
    }
}

/// `--loop`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LoopArgument {
    /// One step ahead of the read, taken back exactly where the text ends
    Engine,
    /// The pre-epic loop: reads each token one step late, records nothing
    Generator,
}

impl LoopArgument {
    /// The loop, with what the environment says about the engine's.
    pub fn choice(self, lookahead: LookaheadOptions) -> LoopChoice {
        match self {
            Self::Engine => LoopChoice::Engine(lookahead),
            Self::Generator => LoopChoice::Generator,
        }
    }
}

impl Arguments {
    /// How to load the model, in an empty environment.
    pub fn load_options(&self) -> LoadOptions {
        LoadOptions {
            backend: self.backend.choice(),
            arithmetic: self.arithmetic.arithmetic(),
            threads: usize::from(self.threads),
            prefill_chunk_tokens: tokens(self.prefill_chunk),
            max_context_tokens: None,
            qmm: QmmSetup {
                route_profile: self.route_profile,
                ..QmmSetup::default()
            },
        }
    }

    /// How to draw tokens.
    pub fn sampler_options(&self) -> SamplerOptions {
        SamplerOptions {
            temperature: self.temperature,
            top_p: self.top_p,
            seed: self.seed,
        }
    }

    /// Tokens of a prompt to synthesise.
    pub fn prompt_tokens(&self) -> Option<usize> {
        self.prompt_tokens.map(tokens)
    }

    /// Tokens to decode in the measured pass.
    pub fn decode_tokens(&self) -> usize {
        tokens(self.max_tokens)
    }

    /// Tokens to decode in the warm-up pass.
    pub fn warmup_tokens(&self) -> usize {
        tokens(self.warmup_tokens)
    }
}

/// The parsers admit 0 to [`MOST_TOKENS`] only.
fn tokens(count: i64) -> usize {
    usize::try_from(count).unwrap_or(0)
}

/// Parses `--temperature`.
pub(crate) fn temperature(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        _ => Err("expected a finite number of at least 0".to_owned()),
    }
}

/// Parses `--top-p`.
pub(crate) fn top_p(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(value) if value > 0.0 && value <= 1.0 => Ok(value),
        _ => Err("expected a number above 0 and at most 1".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from(std::iter::once(PROGRAM).chain(line.split_whitespace()))
    }

    #[test]
    fn the_definition_is_consistent() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }

    #[test]
    fn defaults_are_the_documented_ones() {
        let arguments = parse("-m x").unwrap();
        assert_eq!(arguments.decode_tokens(), 100);
        assert_eq!(arguments.warmup_tokens(), 20);
        assert_eq!(arguments.prompt_tokens(), None);
        assert_eq!(arguments.load_options().arithmetic, Arithmetic::Fast);
        assert_eq!(arguments.sampler_options(), SamplerOptions::default());
    }

    #[test]
    fn a_model_is_needed_unless_the_version_is_asked_for() {
        assert!(parse("--prompt-tokens 5").is_err());
        assert!(parse("--version").is_ok());
        assert!(parse("--version --json").is_ok());
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for line in [
            "--prompt-tokens 0",
            "--prompt-tokens -3",
            "--prompt-tokens 99999999999",
            "-n 0",
            "-n many",
            "--warmup-tokens -1",
            "--temperature -1",
            "--temperature NaN",
            "--temperature inf",
            "--top-p 0",
            "--top-p 1.5",
            "--top-p NaN",
            "--threads 5000",
            "--prefill-chunk 0",
            "--backend metal",
            "--arithmetic int4",
            "--loop sideways",
            "--route-profile gfx9",
        ] {
            assert!(parse(&format!("-m x {line}")).is_err(), "{line}");
        }
    }
}
