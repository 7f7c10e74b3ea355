//! The table and the line of JSON.

use std::fmt;

use serde::Serialize;

use super::trace::{Path, Trace};
use super::twin::TwinReport;
use crate::backend::interface::Arithmetic;
use crate::decode::DecodeStatistics;

/// How a path compares with the synchronous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowResult {
    /// The same tokens from the same logits.
    Identical,
    /// Another token.
    Diverges {
        /// Index of the first one.
        at: usize,
        /// The synchronous path's.
        left: u32,
        /// This path's.
        right: u32,
    },
    /// The same tokens, but logits that differ in some bit.
    LogitsDiverge {
        /// Index of the first step.
        at: usize,
    },
    /// One text is shorter.
    LengthDiffers {
        /// Tokens of the synchronous path.
        left: usize,
        /// Tokens of this path.
        right: usize,
    },
    /// The path is not to be had here.
    NotAvailable {
        /// Why.
        reason: &'static str,
    },
}

impl fmt::Display for RowResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Identical => f.write_str("identical"),
            Self::Diverges { at, left, right } => {
                write!(f, "diverge@{at} left={left} right={right}")
            }
            Self::LogitsDiverge { at } => write!(f, "logits diverge@{at}"),
            Self::LengthDiffers { left, right } => write!(f, "length left={left} right={right}"),
            Self::NotAvailable { .. } => f.write_str("n/a"),
        }
    }
}

impl Serialize for RowResult {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// One path.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The path.
    pub path: Path,
    /// `greedy` or `sampled`.
    pub sampling: &'static str,
    /// How it compares with the synchronous path.
    pub result: RowResult,
    /// Why it is not to be had, where it is not.
    pub reason: Option<&'static str>,
    /// Different ids in the text.
    pub distinct_tokens: usize,
    /// What the loop did.
    pub statistics: DecodeStatistics,
}

impl Row {
    pub(super) fn new(
        path: Path,
        sampling: &'static str,
        result: RowResult,
        trace: &Trace,
    ) -> Self {
        Self {
            path,
            sampling,
            result,
            reason: None,
            distinct_tokens: trace.distinct_tokens(),
            statistics: trace.statistics,
        }
    }

    pub(super) fn not_available(path: Path, sampling: &'static str, reason: &'static str) -> Self {
        Self {
            path,
            sampling,
            result: RowResult::NotAvailable { reason },
            reason: Some(reason),
            distinct_tokens: 0,
            statistics: DecodeStatistics::default(),
        }
    }
}

/// Every path, and whether the gate is green.
#[derive(Debug, Clone, Serialize)]
pub struct ParityReport {
    /// Hash of the model.
    pub model_hash: String,
    /// Its family.
    pub family: String,
    /// Back end.
    pub backend: String,
    /// Arithmetic of activations and products.
    pub arithmetic: Arithmetic,
    /// Whose table chose the routes of products; empty where no table is asked.
    pub route_profile: String,
    /// Whether that is another device's.
    pub route_profile_foreign: bool,
    /// Its window, where it has one.
    pub window_tokens: Option<usize>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens decoded by each path.
    pub tokens: usize,
    /// What happened to rows that were overwritten ahead.
    pub undo_policy: &'static str,
    /// Whether rows were left out of rewinds on purpose.
    pub planted_rewind_bug: bool,
    /// Every row identical, no problem, and no objection of the twin.
    pub passed: bool,
    /// One a path and sampling.
    pub rows: Vec<Row>,
    /// What keeps the comparison from proving anything.
    pub problems: Vec<String>,
    /// What the float32 twin says to the text, where it was asked.
    pub twin: Option<TwinReport>,
    /// The synchronous greedy text.
    #[serde(skip)]
    pub text: Vec<u32>,
    /// SHA-256 of its tokens as little-endian 32-bit words, as `mlxcel-bench-decode` tells it.
    pub token_sha256: String,
}

impl ParityReport {
    /// The same with the twin's word, which also has to be good.
    #[must_use]
    pub fn with_twin(self, twin: TwinReport) -> Self {
        Self {
            passed: self.passed && twin.passed(),
            twin: Some(twin),
            ..self
        }
    }
}

impl fmt::Display for ParityReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let window = match self.window_tokens {
            Some(window) => format!("window {window}"),
            None => "no window".to_owned(),
        };
        let routes = match self.route_profile_foreign {
            true => format!(" under the routes of {}", self.route_profile),
            false => String::new(),
        };
        writeln!(
            f,
            "{} on {}{routes}, {window}, prompt {}, {} tokens, undo {}",
            self.family, self.backend, self.prompt_tokens, self.tokens, self.undo_policy
        )?;
        let (ahead, rows) = ("ahead", "undo rows");
        writeln!(
            f,
            "{:<10} {:<8} {:>6} {:>6} {:>9} {:>7}  result",
            "path", "sampling", "ids", ahead, rows, "rewinds"
        )?;
        for row in &self.rows {
            let statistics = &row.statistics;
            writeln!(
                f,
                "{:<10} {:<8} {:>6} {:>6} {:>9} {:>7}  {}",
                row.path.name(),
                row.sampling,
                row.distinct_tokens,
                statistics.lookahead_steps,
                statistics.undo_rows_recorded,
                statistics.rewinds,
                row.result
            )?;
        }
        for problem in &self.problems {
            writeln!(f, "problem: {problem}")?;
        }
        if let Some(twin) = &self.twin {
            writeln!(f, "text {}", self.token_sha256)?;
            write!(f, "{twin}")?;
        }
        let verdict = if self.passed { "passed" } else { "FAILED" };
        writeln!(f, "parity: {verdict}")
    }
}
