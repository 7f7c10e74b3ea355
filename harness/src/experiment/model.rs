//! The types of an experiment file: what a user may write, with the defaults.
//!
//! These types are the single definition: the JSON Schema is generated from
//! them, the loader checks the file against that schema with line numbers, and
//! the sealed plan stores them as they were read. They decide nothing.

use std::path::PathBuf;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::claim::Claims;
use super::control::Control;

/// The schema number this program writes and reads.
pub const SCHEMA: u32 = 1;

/// Fewer complete rounds than this have no verdict: with two, one odd round is half of all.
pub const MIN_ROUNDS: u32 = 3;

/// More rounds than this are a slip: 20 times what a 1 % gate takes at 1 % noise.
pub const MAX_ROUNDS: u32 = 1000;

/// A whole experiment file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Format version; always 1.
    pub schema: u32,
    /// Short name; becomes part of file names: letters, digits, `-`, `_`, `.`.
    pub name: String,
    /// The question the experiment answers, in one sentence.
    pub question: String,
    /// Where the sources come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// How an arm is built.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<Build>,
    /// The arms in reading order; one of them is the base.
    pub arms: IndexMap<String, Arm>,
    /// Name of the arm that the others are compared with.
    #[serde(default = "default_base")]
    pub base: String,
    /// Which arms are repeated as null arms; at least one, since without a null arm
    /// no difference can be told from noise.
    pub nulls: Nulls,
    /// A positive control: without it nobody knows whether this run could have found anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<Control>,
    /// The workloads.
    #[serde(default)]
    pub cells: Cells,
    /// What has to be made or fetched before anything is measured, in order; each
    /// name is a placeholder of `command`.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub setup: IndexMap<String, SetupStep>,
    /// The command line of one attempt. It is split like a POSIX shell would,
    /// but no shell runs; `{artifact}`, `{artifact:<file name>}`, `{artifact_dir}`,
    /// `{arm}`, `{args}`, each cell variable and each setup step are replaced inside the words.
    pub command: String,
    /// Environment of every attempt, beside the fixed one. `{artifact_dir}` in a
    /// value is the folder that holds the arm's copied artifacts.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub env: IndexMap<String, String>,
    /// Variables of the caller's environment that attempts may see.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pass_env: Vec<String>,
    /// What is measured, in reading order.
    pub metrics: IndexMap<String, Metric>,
    /// What an attempt's output must say before any time is looked at.
    #[serde(default)]
    pub expect: Expect,
    /// Effects that somebody published; each gets a verdict of its own, and the gate does
    /// not look at them.
    #[serde(default, skip_serializing_if = "Claims::is_empty")]
    pub claim: Claims,
    /// Rounds per cell.
    #[serde(default = "default_rounds")]
    pub rounds: u32,
    /// Looks instead of `rounds`: after each of these numbers of rounds a cell that has its
    /// verdict is done; the others go on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub looks: Vec<u32>,
    /// A cell that fails the gate is run again with fresh rounds; the gate fails only if
    /// both do, and the second effect is the one reported.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub confirm: bool,
    /// Seed of the order and of the environment padding.
    #[serde(default)]
    pub seed: u64,
    /// Wall-clock limit of one attempt in seconds.
    #[serde(default = "default_timeout_secs")]
    pub timeout_secs: u64,
    /// How often a round is run again after a rejected, failed or timed-out attempt.
    #[serde(default = "default_retries")]
    pub retries: u32,
    /// How the machine is watched.
    #[serde(default)]
    pub guard: Guard,
    /// The decision rule, fixed before the run.
    #[serde(default)]
    pub verdict: Verdict,
    /// What to do with two arms whose code turns out equal although nothing
    /// in the file says so.
    #[serde(default)]
    pub identical: Identical,
}

/// Where the sources come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// A path (relative to the experiment file's repository root) or a URL; `${VAR}` is allowed.
    pub repo: String,
    /// What to do when a checkout has submodules.
    #[serde(default)]
    pub submodules: Submodules,
}

/// What to do when a checkout has submodules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Submodules {
    /// Stop with an error: a build with empty submodules measures something else.
    #[default]
    Refuse,
    /// Leave them empty; the build is known not to need them.
    Ignore,
}

/// How an arm is built.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Build {
    /// A shell command line, run by `sh -euc` at the checkout's root.
    pub command: String,
    /// Files the build leaves, relative to the checkout's root. The first is `{artifact}`.
    pub artifacts: Vec<PathBuf>,
    /// Extra environment of the build.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub env: IndexMap<String, String>,
    /// Wall-clock limit of one build in seconds.
    #[serde(default = "default_build_timeout_secs")]
    pub timeout_secs: u64,
    /// The version line that proves which commit was built.
    #[serde(default)]
    pub receipt: Receipt,
    /// Untracked folders that survive from one pin's build to the next, relative to
    /// the checkout's root; everything else that a build leaves is removed first,
    /// because leftovers of another pin make a stale build. Where left out:
    /// `target` if the root holds a `Cargo.toml`, else nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<Vec<PathBuf>>,
    /// Accept an artifact that is a script or a libtool wrapper.
    #[serde(default)]
    pub allow_script: bool,
}

/// How an artifact proves which commit it was built from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Receipt {
    /// `{artifact} --version` must print the full commit; a mismatch is an error.
    Commit,
    /// `{artifact} --version` is recorded; where it holds a 40-digit commit, that must match.
    #[default]
    Optional,
    /// The artifact is not asked.
    None,
}

/// One arm: a build under test, with its environment and its arguments.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// A revision of the source, or `worktree` for the tree as it is. Required unless `binary` is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rev: Option<String>,
    /// A prebuilt program instead of a revision; `${VAR}` is allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binary: Option<String>,
    /// What a reader should call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Another source repository for this arm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repo: Option<String>,
    /// A patch file applied on top of the revision, relative to the experiment file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<PathBuf>,
    /// Another build command for this arm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_command: Option<String>,
    /// Words of this arm's own for the command, in the place of `{args}`; split like the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<String>,
    /// Environment of this arm's attempts; `{artifact_dir}` works as in `env` above.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub env: IndexMap<String, String>,
    /// Fields of the output that must hold, such as `lookahead_steps: '> 0'`.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub requires: IndexMap<String, Condition>,
}

/// Which arms are repeated as null arms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Nulls {
    /// Every arm.
    All(AllNulls),
    /// These arms; a name may stand twice.
    Some(Vec<String>),
}

/// The word `all`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AllNulls {
    /// Every arm gets a null arm.
    All,
}

/// The workloads: a product of variables, a list of cells, or both.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cells {
    /// Every combination of these values is a cell.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub matrix: IndexMap<String, Vec<Scalar>>,
    /// Further cells, written out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub list: Vec<IndexMap<String, Scalar>>,
    /// Cells that belong to the question and are not run, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skip: Vec<Skip>,
}

/// Cells that are not run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Skip {
    /// The cells it is about: those that have all these values.
    pub when: IndexMap<String, Scalar>,
    /// Why, for readers of the report.
    pub reason: String,
}

/// A command that makes or fetches something that attempts read, once for all cells for
/// which it is the same command. What it made is hashed and must stay as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetupStep {
    /// The command line, split into words and started without a shell at the project's
    /// root. Cell variables, `{artifact}`, `{artifact:<file name>}`, `{artifact_dir}` and
    /// `{out}`, an empty folder to be filled, are replaced inside the words.
    pub command: String,
    /// `path` when the command prints, as its last line, the path of what it made or
    /// found; without it the command fills `{out}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prints: Option<Prints>,
    /// The arm whose artifacts the command may run; the base where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arm: Option<String>,
    /// Files and folders that the command reads, relative to the project's root: when
    /// their content changes, it runs again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<PathBuf>,
    /// Extra environment of the command.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub env: IndexMap<String, String>,
    /// Variables of the caller's environment that the command may see, such as a token.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pass_env: Vec<String>,
    /// Wall-clock limit of one run of the command in seconds.
    #[serde(default = "default_build_timeout_secs")]
    pub timeout_secs: u64,
}

/// What the last line that a setup step prints is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Prints {
    /// The path of a file or a folder, absolute or relative to the project's root.
    Path,
}

/// A value in a cell or an expectation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Scalar {
    /// true or false
    Bool(bool),
    /// a whole number
    Int(i64),
    /// a number with a fraction
    Float(f64),
    /// text
    Text(String),
}

impl std::fmt::Display for Scalar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Scalar::Bool(value) => write!(f, "{value}"),
            Scalar::Int(value) => write!(f, "{value}"),
            Scalar::Float(value) => write!(f, "{value}"),
            Scalar::Text(value) => write!(f, "{value}"),
        }
    }
}

/// A condition on one field of the output: a scalar it must equal, or a
/// comparison as text (`> 0`, `>= 1.5`, `== 0`, `!= 3`, `< 10`).
pub type Condition = Scalar;

/// One measured quantity. Exactly one of `json`, `regex` and `rusage` is given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// A field of the JSON on standard output; dots descend (`timings.decode_ms`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json: Option<String>,
    /// A regular expression over standard output whose first group is the number.
    /// It must match exactly once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
    /// A figure of the operating system's account of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rusage: Option<Rusage>,
    /// Which way is better.
    pub better: Better,
    /// Whether the gate decides on it.
    #[serde(default)]
    pub gate: bool,
    /// Unit for readers, such as `tok/s`; guessed from the name's ending where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
}

impl Metric {
    /// The unit for readers: the given one, or what the metric's `name` ends with.
    #[must_use]
    pub fn unit_of<'a>(&'a self, name: &'a str) -> &'a str {
        self.unit
            .as_deref()
            .unwrap_or_else(|| crate::unit::metric_unit(name))
    }
}

/// A figure of the operating system's account of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rusage {
    /// Wall-clock seconds from start to exit.
    WallSeconds,
    /// User CPU seconds.
    UserSeconds,
    /// System CPU seconds.
    SystemSeconds,
    /// User and system CPU seconds.
    CpuSeconds,
    /// Peak resident bytes of the largest process.
    PeakRssBytes,
}

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// A rate: more is better.
    Higher,
    /// A time or a size: less is better.
    Lower,
}

/// What an attempt's output must say before any time is looked at.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// Fields that must be equal in all arms of a cell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub same_across_arms: Vec<String>,
    /// Fields that must hold in every attempt.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub json: IndexMap<String, Condition>,
    /// Fields that must hold in the cells that carry these values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cells: Vec<CellExpect>,
    /// SHA-256 of the whole standard output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout_sha256: Option<String>,
    /// Accepted exit status; 0 where left out.
    #[serde(default)]
    pub exit_status: i32,
}

/// An expectation that holds in some cells only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CellExpect {
    /// The cells it is about: those that have all these values.
    pub when: IndexMap<String, Scalar>,
    /// The arms it is about, with the null and control arms that repeat them; all where left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arms: Vec<String>,
    /// Fields that must hold there.
    pub json: IndexMap<String, Condition>,
}

/// How the machine is watched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Guard {
    /// Which guard.
    #[serde(default)]
    pub kind: GuardKind,
    /// Quiet seconds in a row before a round starts.
    #[serde(default = "default_idle_secs")]
    pub idle_secs: u64,
    /// Longest wait for a quiet machine in seconds, the lock included; 0 = no limit.
    #[serde(default = "default_max_wait_secs")]
    pub max_wait_secs: u64,
    /// Share of the machine's CPU, in percent of one core, that foreign processes may take.
    #[serde(default = "default_max_foreign_cpu_pct")]
    pub max_foreign_cpu_pct: f64,
}

/// Which guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GuardKind {
    /// The guard that fits the machine.
    #[default]
    Auto,
    /// Foreign processes and compilers.
    Cpu,
    /// As `cpu`, and foreign holders of an AMD GPU.
    Rocm,
    /// As `cpu`, and foreign holders of an NVIDIA GPU.
    Cuda,
    /// No guard; the report says so.
    None,
}

/// The decision rule, fixed before the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// The gate in percent of the base.
    #[serde(default = "default_threshold_pct")]
    pub threshold_pct: f64,
    /// Error level of both questions.
    #[serde(default = "default_alpha")]
    pub alpha: f64,
    /// What the gate does when a cell stays undecided.
    #[serde(default)]
    pub undecided: OnUndecided,
}

/// What the gate does when a cell stays undecided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnUndecided {
    /// Exit with the code for undecided.
    #[default]
    Fail,
    /// Pass, and say so.
    Pass,
}

/// What to do with two arms whose code turns out equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Identical {
    /// Stop: most likely a stale build.
    #[default]
    Refuse,
    /// Treat the later arm as a null arm of the earlier one.
    AsNull,
}

fn default_base() -> String {
    "base".into()
}
fn default_rounds() -> u32 {
    5
}
fn default_timeout_secs() -> u64 {
    600
}
fn default_build_timeout_secs() -> u64 {
    3600
}
fn default_retries() -> u32 {
    5
}
fn default_idle_secs() -> u64 {
    3
}
fn default_max_wait_secs() -> u64 {
    600
}
fn default_max_foreign_cpu_pct() -> f64 {
    20.0
}
fn default_threshold_pct() -> f64 {
    1.0
}
fn default_alpha() -> f64 {
    0.05
}

impl Default for Guard {
    fn default() -> Self {
        Guard {
            kind: GuardKind::default(),
            idle_secs: default_idle_secs(),
            max_wait_secs: default_max_wait_secs(),
            max_foreign_cpu_pct: default_max_foreign_cpu_pct(),
        }
    }
}

impl Default for Verdict {
    fn default() -> Self {
        Verdict {
            threshold_pct: default_threshold_pct(),
            alpha: default_alpha(),
            undecided: OnUndecided::default(),
        }
    }
}
