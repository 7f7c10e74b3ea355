//! What a check found, as data and as text.

use std::fmt;

use crate::backend::interface::{Arithmetic, KernelReport};
use crate::check::compare::{Agreement, Distance};
use crate::check::limits::Limits;

/// One folder.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct CheckReport {
    /// The folder.
    pub model: String,
    /// Family.
    pub family: String,
    /// Hash of config and weights.
    pub model_hash: String,
    /// Device that it ran on.
    pub device: String,
    /// Arithmetics, in the order asked for.
    pub modes: Vec<ModeReport>,
    /// Whether every arithmetic is within its limits.
    pub passed: bool,
}

/// One arithmetic.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct ModeReport {
    /// Which one.
    pub arithmetic: Arithmetic,
    /// What ran.
    pub kernels: KernelReport,
    /// Logits of the prompt, in one piece.
    pub prefill: Distance,
    /// Logits after each token of the reference (teacher-forced).
    pub decode: Distance,
    /// All of them together: the figure that is judged.
    pub logits: Distance,
    /// Prompt in chunks of several sizes against one piece: the farthest.
    pub chunked: Distance,
    /// Largest difference of any layer's residual stream, in its own standard deviation; `None`
    /// when the reference has none.
    pub hidden_worst: Option<f64>,
    /// Best logits of rows that are clear in the reference.
    pub top1: Agreement,
    /// Greedy tokens equal to the reference's before the first difference.
    pub equal_ids: usize,
    /// Greedy tokens in the reference.
    pub reference_ids: usize,
    /// What they are held to.
    pub limits: Limits,
    /// Each limit that is not kept, as a sentence; empty when all are.
    pub failures: Vec<String>,
}

impl ModeReport {
    /// Fills [`Self::failures`] by comparing every figure with its limit.
    #[must_use]
    pub fn judged(mut self) -> Self {
        let limits = self.limits;
        let mut failures = Vec::new();
        let mut within = |what: &str, got: f64, limit: f64| {
            // A figure that is not a number is not within anything.
            if got.is_nan() || got > limit {
                failures.push(format!(
                    "{what}: got {got:.2e}, expected at most {limit:.2e}"
                ));
            }
        };
        within("rms of the logits", self.logits.rms, limits.rms);
        within("worst logit", self.logits.worst, limits.worst);
        within(
            "rms of prefill in chunks",
            self.chunked.rms,
            limits.chunked_rms,
        );
        if let (Some(got), Some(limit)) = (self.hidden_worst, limits.hidden_worst) {
            within("worst residual stream", got, limit);
        }
        let Agreement {
            clear_rows,
            equal_rows,
        } = self.top1;
        if equal_rows < clear_rows {
            failures.push(format!(
                "best logit of clear rows: got {equal_rows} equal, expected {clear_rows}"
            ));
        }
        if limits.equal_ids && self.equal_ids < self.reference_ids {
            failures.push(format!(
                "greedy tokens: got {} equal, expected {}",
                self.equal_ids, self.reference_ids
            ));
        }
        self.failures = failures;
        self
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.passed { "ok" } else { "FAILED" };
        writeln!(
            f,
            "{} ({}, {}): {verdict}",
            self.model, self.family, self.device
        )?;
        for mode in &self.modes {
            write!(f, "{mode}")?;
        }
        Ok(())
    }
}

impl fmt::Display for ModeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.arithmetic {
            Arithmetic::Float32 => "float32",
            Arithmetic::Fast => "fast",
        };
        let Self {
            logits,
            limits,
            top1,
            ..
        } = self;
        writeln!(f, "  {name}")?;
        let row = |f: &mut fmt::Formatter<'_>, label: &str, far: &Distance| {
            writeln!(
                f,
                "    {label:<18} rms {:.1e}  worst {:.1e}",
                far.rms, far.worst
            )
        };
        row(f, "prefill", &self.prefill)?;
        row(f, "decode", &self.decode)?;
        writeln!(
            f,
            "    {:<18} rms {:.1e}  worst {:.1e}  (limits {:.1e}, {:.1e})",
            "all logits", logits.rms, logits.worst, limits.rms, limits.worst
        )?;
        row(f, "chunks", &self.chunked)?;
        if let Some(worst) = self.hidden_worst {
            writeln!(f, "    {:<18} worst {worst:.1e}", "residual streams")?;
        }
        let (equal, clear) = (top1.equal_rows, top1.clear_rows);
        writeln!(f, "    {:<18} {equal} of {clear} clear rows", "best logit")?;
        let (equal, all) = (self.equal_ids, self.reference_ids);
        writeln!(f, "    {:<18} {equal} of {all}", "equal ids")?;
        for (role, kernel) in &self.kernels.by_role {
            writeln!(f, "    {role:<18} {kernel}")?;
        }
        for failure in &self.failures {
            writeln!(f, "    FAILED {failure}")?;
        }
        Ok(())
    }
}
