//! The stored types: the sealed plan, the host, and one row per attempt.
//!
//! A record is enough to redo the whole analysis. Names carry their unit;
//! numbers are unrounded. Paths are relative or symbolic (`{repo}`, `{cache}`):
//! a record may be committed, so it holds no absolute path, user or host name.
//! docs/RECORD_FORMAT.md describes every field.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::experiment::matrix::Cell;
use crate::experiment::model::{Experiment, Scalar};
use crate::plan::looks::{self, Stage};

/// Version of the record's layout. A newer one is refused, an older one read.
pub const SCHEMA: u32 = 1;

/// `plan.json`: everything that was decided before the first attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// [`SCHEMA`] of the writer.
    pub schema: u32,
    /// Version line of the `bench-run` that sealed the plan.
    pub tool: String,
    /// The experiment as it was read, defaults filled in.
    pub experiment: Experiment,
    /// SHA-256 of the experiment file's bytes.
    pub experiment_sha256: String,
    /// The file's path relative to the repository, for the reproduce section.
    pub experiment_path: String,
    /// `--rounds`, where it stood in place of the file's number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds_option: Option<u32>,
    /// Tells whether the values of the variables that attempts may see of the caller's
    /// environment (`pass_env`) are still the same: 4 hex digits of a SHA-256, too few to
    /// guess a value from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed_env_check: Option<String>,
    /// When the plan was sealed, RFC 3339 in UTC, whole seconds.
    pub sealed_at: String,
    /// Every distinct build, in order of first use.
    pub builds: Vec<PlannedBuild>,
    /// Every arm and null arm, in reading order.
    pub arms: Vec<PlannedArm>,
    /// Every cell, in reading order.
    pub cells: Vec<Cell>,
    /// What the setup steps made, steps in reading order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fixtures: Vec<PlannedFixture>,
    /// `order[cell][round][slot]` is an index into `arms`.
    pub order: Vec<Vec<Vec<usize>>>,
    /// True where the order of a cell is a complete balanced square, so that
    /// slot effects can be estimated.
    pub balanced: bool,
    /// The tools that built the arms: name and version line.
    pub toolchain: IndexMap<String, String>,
    /// How noise is estimated and checked. A plan without it lets every cell stand alone
    /// and checks nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<NoiseRule>,
    /// Things the reader must know, found while planning.
    pub warnings: Vec<String>,
}

impl Plan {
    /// The stages of every cell; at least one.
    #[must_use]
    pub fn stages(&self) -> Vec<Stage> {
        let experiment = &self.experiment;
        looks::stages(experiment.rounds, &experiment.looks, experiment.confirm)
    }
}

/// The part of the sealed rule that is about noise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NoiseRule {
    /// Cells of a metric from which on their variances are moderated.
    pub moderate_from_cells: u32,
    /// Most degrees of freedom that the other cells lend, in units of a cell's own.
    pub largest_prior: f64,
    /// Contrasts between copies of one program from which on the noise model is checked.
    pub check_from_contrasts: u32,
    /// An inflation above this makes every verdict of the metric Invalid.
    pub largest_inflation: f64,
    /// Whether a candidate that scatters more than copies of the base has its noise widened.
    #[serde(default)]
    pub unequal_noise: bool,
    /// Which revision of the whole rule; a plan without it has the first.
    #[serde(default)]
    pub revision: RuleRevision,
    /// Contrasts of earlier runs of the base's program on this host, by metric, the
    /// oldest first. Frozen here, so that the record alone gives the verdict.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub null_history: IndexMap<String, Vec<NullContrast>>,
}

/// A revision of the rule, a number in the plan. A reader that does not know it must not judge
/// by another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub enum RuleRevision {
    /// As it was before revisions were numbered.
    #[default]
    First,
    /// docs/adr/0030.
    Second,
    /// docs/adr/0032.
    Third,
}

impl TryFrom<u32> for RuleRevision {
    type Error = String;

    fn try_from(number: u32) -> Result<Self, String> {
        match number {
            1 => Ok(RuleRevision::First),
            2 => Ok(RuleRevision::Second),
            3 => Ok(RuleRevision::Third),
            got => Err(format!(
                "expected revision 1, 2 or 3 of the rule, got {got}"
            )),
        }
    }
}

impl From<RuleRevision> for u32 {
    fn from(revision: RuleRevision) -> u32 {
        match revision {
            RuleRevision::First => 1,
            RuleRevision::Second => 2,
            RuleRevision::Third => 3,
        }
    }
}

/// A contrast between copies of one program; its true value is 0.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct NullContrast {
    /// The contrast in units of its own standard error.
    pub t: f64,
    /// Degrees of freedom of that standard error.
    pub df: f64,
}

/// One distinct build.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedBuild {
    /// Full commit, or `None` for a prebuilt binary.
    pub commit: Option<String>,
    /// `rev: worktree` with uncommitted changes.
    pub dirty: bool,
    /// SHA-256 of the patch, or of the worktree's diff.
    pub patch_sha256: Option<String>,
    /// Key of the build cache (hex).
    pub key: String,
    /// The artifacts, the first being `{artifact}`.
    pub artifacts: Vec<PlannedArtifact>,
    /// SHA-256 over the code hashes of all artifacts: what decides equality.
    pub code_sha256: String,
    /// The artifact's own version line, where it has one.
    pub receipt: Option<String>,
}

/// One file that a build left.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedArtifact {
    /// Path relative to the checkout.
    pub path: String,
    /// SHA-256 of the whole file.
    pub file_sha256: String,
    /// SHA-256 without receipt, build-id and debug sections.
    pub code_sha256: String,
    /// Size in bytes.
    pub bytes: u64,
    /// What the file is, and how it is linked.
    pub kind: ArtifactKind,
    /// The shared libraries it loads, by soname.
    pub libraries: Vec<PlannedLibrary>,
}

/// What an artifact is. Arms that differ here are not the same program twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArtifactKind {
    /// An ELF file that asks the loader for shared libraries.
    ElfDynamic,
    /// An ELF file that needs none.
    ElfStatic,
    /// A file that starts with `#!`.
    Script,
    /// A folder, copied and hashed as a whole.
    Directory,
    /// Anything else.
    Other,
}

/// A shared library that an artifact loads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedLibrary {
    /// As the loader asks for it.
    pub soname: String,
    /// SHA-256 of the file that answers; `None` where it was not found.
    pub sha256: Option<String>,
}

/// What a setup step made for the cells that share it: a file or a folder that attempts read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedFixture {
    /// Name of the step: the placeholder that stands for it in the command.
    pub step: String,
    /// Ids of the cells that use it.
    pub cells: Vec<String>,
    /// The command that made it, the cells' values filled in; `{artifact}` and `{out}` stand.
    pub command: String,
    /// Where it lies if the command printed that, with symbols for this machine's folders;
    /// `None` for what lies in the harness's cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// SHA-256 over name and content of its files.
    pub tree_sha256: String,
    /// Number of its files.
    pub files: u64,
    /// Size of all of them.
    pub bytes: u64,
}

/// One arm of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedArm {
    /// Unique name; a null arm is `<arm>-null`, `<arm>-null-2`, ….
    pub name: String,
    /// What readers see.
    pub label: String,
    /// The arm that this one repeats.
    pub null_of: Option<String>,
    /// Index into `builds`; `None` when the build failed.
    pub build: Option<usize>,
    /// Last lines of the build log when the build failed.
    pub build_failure: Option<String>,
    /// Copies of one treatment (same build, environment and arguments) share a number.
    pub treatment: usize,
    /// Its own words in the command, in the place of `{args}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<String>,
    /// The declared environment of its attempts: the experiment's, then the arm's own.
    pub env: IndexMap<String, String>,
    /// Conditions on the output that only this arm must meet.
    pub requires: IndexMap<String, Scalar>,
    /// The slow-down that is injected; only a control arm has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow_down: Option<SlowDown>,
}

/// A slow-down that `bench-run slow-down` injects into an attempt, and what it must reach.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SlowDown {
    /// Percent of the time without it.
    pub pct: f64,
    /// The program's own clock must see it: the program is stopped again and again.
    pub inside: bool,
    /// The wall-clock time of the whole attempt must grow.
    pub wall: bool,
    /// The CPU time of the whole attempt must grow.
    pub cpu: bool,
}

impl SlowDown {
    /// What stands between `bench-run` and the command that is slowed down.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let flags = [
            ("--inside", self.inside),
            ("--wall", self.wall),
            ("--cpu", self.cpu),
        ];
        let flags = flags.into_iter().filter(|(_, on)| *on);
        [
            "slow-down".to_owned(),
            "--pct".to_owned(),
            self.pct.to_string(),
        ]
        .into_iter()
        .chain(flags.map(|(flag, _)| flag.to_owned()))
        .chain(["--".to_owned()])
        .collect()
    }
}

/// `host.json`: what machine this was. A label, never a host name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// [`SCHEMA`] of the writer.
    pub schema: u32,
    /// Short label made from the processor, such as `epyc-2c`; may be set by the user.
    pub label: String,
    /// Facts in reading order: processor, governor, memory, kernel, GPU, driver….
    pub facts: IndexMap<String, String>,
    /// Things about the machine that make it noisy.
    pub warnings: Vec<String>,
}

/// One line of `sessions.jsonl`: one stay on one machine, of a run that a bundle carries from
/// machine to machine. A record without that file was measured where it lies, in one session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// [`SCHEMA`] of the writer.
    pub schema: u32,
    /// 1-based; rows carry it.
    pub session: u32,
    /// 8 hex digits that are others after a restart of the machine, or in another copy of
    /// the bundle.
    pub stay: String,
    /// Tells whether `pass_env` has the same values, as in the plan of a run without a bundle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed_env_check: Option<String>,
    /// When it began, RFC 3339 in UTC, whole seconds.
    pub started_at: String,
    /// Facts about the machine, as in `host.json`.
    pub facts: IndexMap<String, String>,
    /// What a reader must know about this machine.
    pub warnings: Vec<String>,
}

const fn first_session() -> u32 {
    1
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands out references"
)]
const fn is_first_session(session: &u32) -> bool {
    *session == 1
}

/// One line of `attempts.jsonl`: one process run, kept whatever became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// [`SCHEMA`] of the writer.
    pub schema: u32,
    /// First 16 hex digits of the sealed plan's hash.
    pub plan: String,
    /// Cell id.
    pub cell: String,
    /// Arm name.
    pub arm: String,
    /// Commit that was built, if any.
    pub commit: Option<String>,
    /// `code_sha256` of the build.
    pub code_sha256: String,
    /// 1-based round; 0 for a priming attempt.
    pub round: u32,
    /// 1-based try of the whole round.
    pub round_try: u32,
    /// 0-based position in the round.
    pub slot: u32,
    /// 1-based session of a record that was measured in several; see [`Session`].
    #[serde(default = "first_session", skip_serializing_if = "is_first_session")]
    pub session: u32,
    /// When the process was started, RFC 3339 in UTC with milliseconds.
    pub started_at: String,
    /// Seconds of the monotonic clock since the run began, pauses between a kill and its
    /// resume left out.
    pub session_seconds: f64,
    /// Bytes of padding added to the environment.
    pub env_padding_bytes: u32,
    /// What became of it.
    pub outcome: Outcome,
    /// The metrics, unrounded, by the experiment's names. Empty unless `outcome` is `ok`
    /// or `rejected` (a rejected attempt's numbers are kept and never used).
    pub metrics: IndexMap<String, f64>,
    /// Fields of the output that expectations and requirements looked at.
    pub fields: IndexMap<String, serde_json::Value>,
    /// The operating system's account; `None` if the process never started.
    pub usage: Option<Usage>,
    /// What the guard saw.
    pub guard: GuardSummary,
    /// Standard output and error, relative to the record.
    pub output_files: Vec<String>,
}

/// What became of an attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Outcome {
    /// Ran, its output was as expected, nothing disturbed it.
    Ok,
    /// Disturbed: its numbers are never used, and its whole round is run again.
    Rejected {
        /// Who or what disturbed it.
        reason: String,
    },
    /// Did not start, exited with another status, died by a signal, or printed
    /// what cannot be read.
    Failed {
        /// One line: expected and got.
        reason: String,
    },
    /// Ran into the time limit and was killed with its group.
    TimedOut {
        /// The limit in seconds.
        limit_seconds: u64,
    },
    /// Its output broke `expect` or `requires`: the arm does not do the work it should.
    Invalid {
        /// One line: field, expected and got.
        reason: String,
    },
}

impl Outcome {
    /// Whether the attempt's numbers may be used.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        matches!(self, Outcome::Ok)
    }
}

/// The operating system's account of one process and its waited-for children.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Wall-clock nanoseconds from before the start to after the exit.
    pub wall_ns: u64,
    /// User CPU nanoseconds.
    pub user_ns: u64,
    /// System CPU nanoseconds.
    pub system_ns: u64,
    /// Peak resident bytes of the largest process.
    pub peak_rss_bytes: u64,
    /// Exit status, or `None` when a signal ended it.
    pub exit_status: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Involuntary context switches.
    pub involuntary_switches: u64,
    /// Page faults that needed a read.
    pub major_faults: u64,
    /// Processes of its group or subtree that outlived it and were killed.
    pub left_processes: u32,
}

/// What the guard saw around and during an attempt.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GuardSummary {
    /// `cpu`, `rocm`, `cuda` or `none`.
    pub kind: String,
    /// Seconds waited for the lock and for a quiet machine before this attempt.
    pub waited_seconds: f64,
    /// Samples taken while it ran.
    pub samples: u32,
    /// Foreign CPU time during the attempt, in percent of one core.
    pub foreign_cpu_pct: f64,
    /// Time the hypervisor took away, in percent of one core.
    pub steal_pct: f64,
    /// Load average at the start.
    pub load_1min: f64,
    /// Mean clock of the busiest core in MHz, where it can be read.
    pub clock_mhz: Option<f64>,
    /// Highest temperature in °C, where it can be read.
    pub temperature_c: Option<f64>,
    /// True when throttling was seen.
    pub throttled: bool,
    /// Mean clock of the fastest GPU's processors in MHz, where a GPU was watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_clock_mhz: Option<f64>,
    /// Highest temperature of a GPU in °C.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_temperature_c: Option<f64>,
    /// Mean power of all GPUs in watts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_power_w: Option<f64>,
    /// What slowed a GPU down, a power cap included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpu_slowed_by: Vec<String>,
}
