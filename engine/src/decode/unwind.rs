//! How many appends a loop takes back when something happens.
//!
//! | event                        | synchronous | pipelined                                         |
//! |------------------------------|-------------|---------------------------------------------------|
//! | end token, stop string, loop | 0           | 1                                                 |
//! | caller's stop, cancel        | 0           | 1; 0 where no step was queued behind the token     |
//! | token budget                 | 0           | 0: the last token gets no follow-up               |
//! | a step's own error           | 1           | 1 or 2                                            |
//! | error after the read         | 0           | 1                                                 |
//! | refused submit               | –           | what is outstanding, and the rest is synchronous   |
//!
//! One rule gives the whole table: a pipelined loop takes back what was fed beyond the tokens that
//! have been read. After a read that is the step queued behind the token, before it also the
//! token's own step; if a refused submit should ever leave its append behind, that counts, too.
//!
//! A synchronous step that failed was not recorded, but then it is the only one to go back by, and
//! the row that it overwrote is one that the next token overwrites anyway
//! ([`Sequence::retract`](crate::engine::Sequence::retract)).

/// What a loop has fed and read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Whether steps are recorded. A synchronous loop records nothing that it could take back.
    pub recorded: bool,
    /// Tokens that the caches have seen.
    pub offset_tokens: usize,
    /// Tokens that they have seen for good: the prompt and every token read but the last.
    pub committed_tokens: usize,
}

/// Appends to take back; afterwards the caches have seen `committed_tokens`.
pub fn appends_to_unwind(progress: Progress) -> usize {
    match progress.recorded {
        true => progress
            .offset_tokens
            .saturating_sub(progress.committed_tokens),
        false => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipelined_loop_takes_back_what_is_outstanding_and_a_synchronous_one_nothing() {
        for outstanding in 0..3 {
            let progress = |recorded| Progress {
                recorded,
                offset_tokens: 100 + outstanding,
                committed_tokens: 100,
            };
            assert_eq!(appends_to_unwind(progress(true)), outstanding);
            assert_eq!(appends_to_unwind(progress(false)), 0);
        }
    }
}
