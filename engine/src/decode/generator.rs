//! The pre-epic loop, kept for ever as `--loop generator`.
//!
//! A token is read one step late: the forward pass that follows it is queued on the token's value
//! on the device, and only then is it read. Nothing is recorded for undoing, so a forward pass past
//! the end is simply dropped, and its sequence is one token too long afterwards.

use crate::backend::interface::{HeadRequest, Ticket, TokenSource};
use crate::decode::decode_loop::{DecodeLoop, DecodeStatistics, Decoded};
use crate::decode::prefill::prefill;
use crate::decode::sampler::Sampler;
use crate::decode::stop::{StopReason, StopRule};
use crate::engine::{Sequence, StepRequest};
use crate::error::BackendError;

/// The loop over one sequence.
#[derive(Debug)]
pub struct Generator<'a> {
    sequence: &'a mut Sequence,
    sampler: Sampler,
    stop: StopRule,
    want_logits: bool,
    pending: Option<Ticket>,
    generated: usize,
    stopped: Option<StopReason>,
    dropped_steps: usize,
}

impl<'a> Generator<'a> {
    /// A loop that has not started.
    pub fn new(sequence: &'a mut Sequence, sampler: Sampler, stop: StopRule) -> Self {
        Self {
            sequence,
            sampler,
            stop,
            want_logits: false,
            pending: None,
            generated: 0,
            stopped: None,
            dropped_steps: 0,
        }
    }

    /// Also hands out the logits of each token, at the cost of copying them.
    #[must_use]
    pub fn with_logits(mut self, want: bool) -> Self {
        self.want_logits = want;
        self
    }

    /// Feeds the prompt and returns the first token; the pass after it is already queued.
    ///
    /// # Errors
    /// When the prompt is empty or a step fails.
    pub fn prefill(&mut self, ids: &[u32]) -> Result<Decoded, BackendError> {
        let request = self.request();
        let first = prefill(self.sequence, ids, request)?;
        self.advance(first)
    }

    /// The next token, or `None` after the end.
    ///
    /// # Errors
    /// When a step fails.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator could not say whether a step failed or the text ended"
    )]
    pub fn next(&mut self) -> Result<Option<Decoded>, BackendError> {
        match self.pending.take() {
            Some(ticket) if self.stopped.is_none() => self.advance(ticket).map(Some),
            other => {
                self.pending = other;
                Ok(None)
            }
        }
    }

    /// Why the text ended, once it has.
    pub fn stopped(&self) -> Option<StopReason> {
        self.stopped
    }

    /// Waits for the pass past the end, so that it does not run into whatever is timed next.
    ///
    /// # Errors
    /// When that pass failed.
    pub fn finish(mut self) -> Result<DecodeStatistics, BackendError> {
        if let Some(ticket) = self.pending.take() {
            self.dropped_steps += 1;
            self.sequence.engine().read(ticket)?;
        }
        Ok(self.statistics())
    }

    /// What the loop did so far.
    pub fn statistics(&self) -> DecodeStatistics {
        DecodeStatistics {
            decode_path: "generator",
            dropped_steps: self.dropped_steps,
            wrapped: self.sequence.has_wrapped(),
            ..DecodeStatistics::default()
        }
    }

    /// Queues the pass on the token of `ticket`, then reads that token.
    fn advance(&mut self, ticket: Ticket) -> Result<Decoded, BackendError> {
        let request = self.request();
        // A full context ends the text only if the token turns out not to: keep the error until
        // the token has been read.
        let next = self.sequence.submit(TokenSource::Device(ticket), request);
        let output = self.sequence.engine().read(ticket)?;
        let decoded = Decoded::from_output(output)?;
        self.generated += 1;
        self.stopped = self.stop.after(decoded.token, self.generated);
        match next {
            Ok(next) => self.pending = Some(next),
            Err(error) if self.stopped.is_none() => return Err(error),
            Err(_) => {}
        }
        Ok(decoded)
    }

    fn request(&mut self) -> StepRequest {
        StepRequest {
            head: if self.want_logits {
                HeadRequest::TokenAndLogits
            } else {
                HeadRequest::Token
            },
            sampling: self.sampler.next_sampling(),
            capture_hidden: false,
        }
    }
}

impl DecodeLoop for Generator<'_> {
    fn prefill(&mut self, ids: &[u32]) -> Result<Decoded, BackendError> {
        Generator::prefill(self, ids)
    }

    fn next(&mut self) -> Result<Option<Decoded>, BackendError> {
        Generator::next(self)
    }

    fn end(&mut self, reason: StopReason) -> Result<(), BackendError> {
        self.stopped.get_or_insert(reason);
        Ok(())
    }

    fn stopped(&self) -> Option<StopReason> {
        self.stopped
    }

    fn finish(self: Box<Self>) -> Result<DecodeStatistics, BackendError> {
        Generator::finish(*self)
    }
}

impl Drop for Generator<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.pending.take() {
            self.sequence.engine().discard(ticket);
        }
    }
}
