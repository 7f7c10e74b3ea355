//! When a text ends.

/// Why it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The model chose an end token.
    EndToken,
    /// The budget is spent.
    MaxTokens,
    /// The caller found a stop string.
    StopString,
    /// The text repeats itself.
    LoopFound,
    /// The caller wants no more.
    Callback,
    /// The caller's flag was raised.
    Cancelled,
}

impl StopReason {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::EndToken => "end_token",
            Self::MaxTokens => "max_tokens",
            Self::StopString => "stop_string",
            Self::LoopFound => "loop_found",
            Self::Callback => "callback",
            Self::Cancelled => "cancelled",
        }
    }
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

/// When a text is held to repeat itself: its last tokens are one block, several times over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopRule {
    /// Longest block looked for, in tokens.
    pub longest_block: usize,
    /// Times that the block must stand at the end; below 2 nothing is found.
    pub repeats: usize,
}

impl LoopRule {
    /// Whether `tokens` ends in such a loop.
    pub fn found(&self, tokens: &[u32]) -> bool {
        self.repeats >= 2
            && (1..=self.longest_block)
                .take_while(|block| block * self.repeats <= tokens.len())
                .any(|block| {
                    let tail = &tokens[tokens.len() - block * self.repeats..];
                    tail[block..] == tail[..tail.len() - block]
                })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_is_a_block_that_stands_at_the_end_often_enough() {
        let rule = LoopRule {
            longest_block: 3,
            repeats: 3,
        };
        assert!(rule.found(&[9, 5, 5, 5]));
        assert!(rule.found(&[9, 1, 2, 3, 1, 2, 3, 1, 2, 3]));
        assert!(!rule.found(&[1, 2, 3, 1, 2, 3, 1, 2]), "two and a half");
        assert!(!rule.found(&[5, 5, 5, 9]), "not at the end");
        assert!(!rule.found(&[]));
        let four = [1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4];
        assert!(!rule.found(&four), "longer than the longest block");
    }
}
