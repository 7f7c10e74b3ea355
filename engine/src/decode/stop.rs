//! When a text ends.

/// Why it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The model chose an end token.
    EndToken,
    /// The budget is spent.
    MaxTokens,
}

/// When to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopRule {
    /// Most tokens to generate, the first one included.
    pub max_tokens: usize,
    /// Tokens that end the text; empty to ignore them.
    pub end_tokens: Vec<u32>,
}

impl StopRule {
    /// Whether the text ends with `token`, the `generated`-th one.
    pub fn after(&self, token: u32, generated: usize) -> Option<StopReason> {
        if self.end_tokens.contains(&token) {
            Some(StopReason::EndToken)
        } else if generated >= self.max_tokens {
            Some(StopReason::MaxTokens)
        } else {
            None
        }
    }
}
