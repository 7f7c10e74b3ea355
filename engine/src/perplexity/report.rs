//! The sums of a measurement, as data and as text.

use std::fmt;

use crate::backend::interface::Arithmetic;

/// One model on one text.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct PerplexityReport {
    /// Hash of config and weights.
    pub model_hash: String,
    /// Whether the weights are random numbers in a real model's shape.
    pub synthetic: bool,
    /// Tokens of the text.
    pub text_tokens: usize,
    /// Those that were predicted.
    pub tokens: usize,
    /// Tokens in a window, the start token included.
    pub context_tokens: usize,
    /// Tokens that the next window moves on by.
    pub stride_tokens: usize,
    /// Windows.
    pub windows: usize,
    /// Arithmetics, in the order asked for.
    pub results: Vec<ArithmeticReport>,
    /// The last arithmetic against the first, where there are two.
    pub comparison: Option<Comparison>,
}

/// One arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct ArithmeticReport {
    /// Which one.
    pub arithmetic: Arithmetic,
    /// `exp` of the mean.
    pub perplexity: f64,
    /// Mean of `−ln p(token)`, in nats.
    pub mean_nats: f64,
    /// Standard error of that mean if tokens were independent, in nats.
    pub standard_error_nats: f64,
}

/// Fast arithmetic against the reference, on the same tokens.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Comparison {
    /// Mean Kullback–Leibler divergence of fast from float32, in nats a token.
    pub mean_kl_nats: f64,
    /// The largest of any token.
    pub worst_kl_nats: f64,
    /// Share of tokens for which both find the same token likeliest.
    pub equal_best_share: f64,
    /// Perplexity of fast over that of float32, less one.
    pub perplexity_change: f64,
}

impl fmt::Display for PerplexityReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} of {} tokens predicted, {} windows of {} moving on by {}{}",
            self.tokens,
            self.text_tokens,
            self.windows,
            self.context_tokens,
            self.stride_tokens,
            if self.synthetic {
                ", synthetic model"
            } else {
                ""
            }
        )?;
        for result in &self.results {
            let name = match result.arithmetic {
                Arithmetic::Float32 => "float32",
                Arithmetic::Fast => "fast",
            };
            // The error of exp(x) is that of x, times exp(x).
            let error = result.perplexity * result.standard_error_nats;
            writeln!(
                f,
                "  {name:<8} perplexity {:.4} ± {error:.4} ({:.6} nats a token)",
                result.perplexity, result.mean_nats
            )?;
        }
        let Some(comparison) = &self.comparison else {
            return Ok(());
        };
        writeln!(
            f,
            "  fast against float32: KL {:.6} nats (worst {:.4}), same best token {:.2} %, \
             perplexity {:+.3} %",
            comparison.mean_kl_nats,
            comparison.worst_kl_nats,
            comparison.equal_best_share * 100.0,
            comparison.perplexity_change * 100.0
        )
    }
}
