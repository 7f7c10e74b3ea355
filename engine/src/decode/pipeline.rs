//! `DirectEngine`: one sequence, decoded one step ahead of its reads.
//!
//! ```text
//! pending = submit(last)
//! loop:  next = submit(pending's token)     unless this token spends the budget
//!        token = read(pending)              the only point where host and device meet
//!        stop?  take next back : pending = next
//! ```
//!
//! A token that ends the text makes the step behind it one too many. It is taken back exactly
//! (`kv_cache/undo_journal.rs`), so that the sequence stands where the synchronous loop
//! (`decode/step.rs`) would have left it: the prompt and every token but the last have been fed. A
//! text can be continued from there, and a step that failed can be tried again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::backend::interface::{HeadRequest, Ticket, TokenSource, UndoWork};
use crate::decode::decode_loop::{DecodeLoop, DecodeStatistics, Decoded};
use crate::decode::eligibility::{LookaheadOptions, LookaheadParams, SyncReason, lookahead_params};
use crate::decode::prefill::prefill;
use crate::decode::sampler::Sampler;
use crate::decode::step::step;
use crate::decode::stop::{LoopRule, StopReason, StopRule};
use crate::decode::unwind::{Progress, appends_to_unwind};
use crate::engine::{Sequence, StepRequest, UndoCount};
use crate::error::BackendError;

/// Chooses a token on the host, from a step's logits and the tokens generated so far.
pub type HostChoice<'a> = Box<dyn FnMut(&[f32], &[u32]) -> u32 + 'a>;

/// What a callback wants next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// More.
    Continue,
    /// The text ends here, for this reason.
    Stop(StopReason),
}

/// A submitted step whose token has not been read.
#[derive(Debug)]
struct Pending {
    ticket: Ticket,
    /// The sampler before it drew for this step: what it goes back to with the step.
    sampler_before: Sampler,
}

/// The loop over one sequence.
pub struct DirectEngine<'a> {
    sequence: &'a mut Sequence,
    sampler: Sampler,
    stop: StopRule,
    options: LookaheadOptions,
    loop_rule: Option<LoopRule>,
    cancel: Option<Arc<AtomicBool>>,
    host_choice: Option<HostChoice<'a>>,
    want_logits: bool,
    /// Parameters of the pipeline, or why there is none.
    lookahead: Result<LookaheadParams, SyncReason>,
    pending: Option<Pending>,
    /// Tokens generated; the last one has not been fed.
    tokens: Vec<u32>,
    /// Tokens fed for good.
    committed_tokens: usize,
    /// What a resumed text starts from.
    last: Option<u32>,
    stopped: Option<StopReason>,
    lookahead_steps: usize,
    dropped_steps: usize,
    undo_before: (UndoCount, UndoWork),
}

impl<'a> DirectEngine<'a> {
    /// A loop that has not started.
    pub fn new(
        sequence: &'a mut Sequence,
        sampler: Sampler,
        stop: StopRule,
        options: LookaheadOptions,
    ) -> Self {
        let undo_before = (sequence.undo_count(), sequence.undo_work());
        let lookahead = lookahead_params(options, sequence.caches(), false);
        Self {
            committed_tokens: sequence.offset_tokens(),
            sequence,
            sampler,
            stop,
            options,
            loop_rule: None,
            cancel: None,
            host_choice: None,
            want_logits: false,
            lookahead,
            pending: None,
            tokens: Vec::new(),
            last: None,
            stopped: None,
            lookahead_steps: 0,
            dropped_steps: 0,
            undo_before,
        }
    }

    /// Also hands out the logits of each token, at the cost of copying them.
    #[must_use]
    pub fn with_logits(mut self, want: bool) -> Self {
        self.want_logits = want;
        self
    }

    /// Ends texts that repeat themselves.
    #[must_use]
    pub fn with_loop_rule(mut self, rule: LoopRule) -> Self {
        self.loop_rule = Some(rule);
        self
    }

    /// Ends the text after the token during which `flag` was raised.
    #[must_use]
    pub fn with_cancel(mut self, flag: Arc<AtomicBool>) -> Self {
        self.cancel = Some(flag);
        self
    }

    /// Lets the host choose every token, which makes steps synchronous. For what needs the text so
    /// far or the logits: penalties, masks, log probabilities.
    #[must_use]
    pub fn with_host_choice(mut self, choice: HostChoice<'a>) -> Self {
        self.host_choice = Some(choice);
        self.lookahead = lookahead_params(self.options, self.sequence.caches(), true);
        self
    }

    /// Feeds the prompt and returns the first token.
    ///
    /// # Errors
    /// When the prompt is empty or a step fails; a prompt cannot be taken back, so the sequence is
    /// then of no further use.
    pub fn prefill(&mut self, ids: &[u32]) -> Result<Decoded, BackendError> {
        let request = self.request();
        let ticket = prefill(self.sequence, ids, request)?;
        self.committed_tokens = self.sequence.offset_tokens();
        let mut decoded = Decoded::from_output(self.sequence.engine().read(ticket)?)?;
        self.accept(&mut decoded);
        self.look_ahead_from_last();
        Ok(decoded)
    }

    /// Goes on with a text whose newest token, `last`, was generated but not fed.
    pub fn resume(&mut self, last: u32) {
        self.last = Some(last);
        self.committed_tokens = self.sequence.offset_tokens();
    }

    /// The next token, or `None` after the end.
    ///
    /// # Errors
    /// When a step fails. Unless it failed to be taken back, the next call tries it again.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator could not say whether a step failed or the text ended"
    )]
    pub fn next(&mut self) -> Result<Option<Decoded>, BackendError> {
        if self.stopped.is_some() {
            return Ok(None);
        }
        let Some(last) = self.last else {
            return Err(BackendError::EmptyStep);
        };
        if self.pending.is_none() {
            self.stand_at_committed()?;
            if self.runs_into_full_window() {
                self.lookahead = Err(SyncReason::WindowFull);
            }
        }
        if self.lookahead.is_err() {
            return self.synchronous(last).map(Some);
        }
        match self.pipelined(last) {
            Ok(Some(decoded)) => Ok(Some(decoded)),
            Ok(None) => self.synchronous(last).map(Some),
            Err(error) => Err(error),
        }
    }

    /// Decodes to the end; `on_token` sees each token as it is read, the prompt's own first.
    ///
    /// # Errors
    /// When a step or `on_token` fails; what was queued ahead is taken back first.
    pub fn run<E: From<BackendError>>(
        &mut self,
        prompt: &[u32],
        mut on_token: impl FnMut(&Decoded) -> Result<Control, E>,
    ) -> Result<StopReason, E> {
        let mut decoded = Some(self.prefill(prompt)?);
        while let Some(token) = decoded {
            match on_token(&token) {
                Ok(Control::Continue) => {}
                Ok(Control::Stop(reason)) => self.end(reason)?,
                Err(error) => {
                    self.retire()?;
                    return Err(error);
                }
            }
            decoded = self.next()?;
        }
        Ok(self.stopped.unwrap_or(StopReason::Callback))
    }

    /// Ends the text after the token that was returned last; the step behind it is taken back.
    ///
    /// # Errors
    /// When the device has stopped.
    pub fn end(&mut self, reason: StopReason) -> Result<(), BackendError> {
        self.stopped.get_or_insert(reason);
        self.retire()
    }

    /// Why the text ended, once it has.
    pub fn stopped(&self) -> Option<StopReason> {
        self.stopped
    }

    /// The sampler as it stands after the tokens that were read, for a text that goes on later.
    pub fn sampler(&self) -> Sampler {
        let ahead = self.pending.as_ref();
        ahead.map_or(&self.sampler, |p| &p.sampler_before).clone()
    }

    /// Tokens generated so far.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// What was done so far.
    pub fn statistics(&self) -> DecodeStatistics {
        let (count_before, work_before) = self.undo_before;
        let count = self.sequence.undo_count();
        let work = self.sequence.undo_work().since(work_before);
        DecodeStatistics {
            decode_path: "engine",
            lookahead_steps: self.lookahead_steps,
            undo_rows_recorded: count.rows_recorded - count_before.rows_recorded,
            undo_rows_copied: work.rows_copied,
            undo_launches: work.launches,
            rewinds: count.rewinds - count_before.rewinds,
            appends_rewound: count.appends_rewound - count_before.appends_rewound,
            dropped_steps: self.dropped_steps,
            wrapped: self.sequence.has_wrapped(),
            forced_sync: self.options.force_sync,
            undo_policy: Some(self.options.undo.name()),
            sync_reason: self.lookahead.err().map(SyncReason::name),
        }
    }

    /// Takes back whatever is queued ahead and closes the loop.
    ///
    /// # Errors
    /// When the device has stopped.
    pub fn finish(mut self) -> Result<DecodeStatistics, BackendError> {
        self.retire()?;
        Ok(self.statistics())
    }

    /// One turn of the pipeline. `None`: a step was refused, everything outstanding has been taken
    /// back, and the synchronous loop has to go on.
    fn pipelined(&mut self, last: u32) -> Result<Option<Decoded>, BackendError> {
        let pending = match self.pending.take() {
            Some(pending) => pending,
            None => match self.submit_ahead(TokenSource::Host(vec![last])) {
                Ok(pending) => pending,
                Err(_) => return self.give_up_lookahead(None).map(|()| None),
            },
        };
        let spends_budget = self.tokens.len() + 1 >= self.stop.max_tokens;
        if !spends_budget && !self.runs_into_full_window() {
            match self.submit_ahead(TokenSource::Device(pending.ticket)) {
                Ok(next) => {
                    self.lookahead_steps += 1;
                    self.pending = Some(next);
                }
                // Where nothing can be taken back, what is queued must be read.
                Err(_) if !self.records() => self.lookahead = Err(SyncReason::SubmitFailed),
                Err(_) => return self.give_up_lookahead(Some(pending)).map(|()| None),
            }
        }
        let output = self.sequence.engine().read(pending.ticket);
        match output.and_then(Decoded::from_output) {
            Ok(mut decoded) => {
                self.committed_tokens += 1;
                self.accept(&mut decoded);
                if self.stopped.is_some() {
                    self.retire()?;
                }
                Ok(Some(decoded))
            }
            Err(error) => {
                self.retire()?;
                self.sampler = pending.sampler_before;
                Err(error)
            }
        }
    }

    /// The synchronous twin: feed, wait, choose.
    fn synchronous(&mut self, last: u32) -> Result<Decoded, BackendError> {
        let sampler_before = self.sampler.clone();
        let request = self.request();
        let output = step(self.sequence, last, request);
        match output.and_then(Decoded::from_output) {
            Ok(mut decoded) => {
                self.committed_tokens += 1;
                self.accept(&mut decoded);
                Ok(decoded)
            }
            Err(error) => {
                self.sampler = sampler_before;
                if self.sequence.offset_tokens() > self.committed_tokens {
                    // Where even that fails the device has stopped, and the next call says so.
                    let _ = self.sequence.retract();
                }
                Err(error)
            }
        }
    }

    /// Queues the step on the token that was just chosen, so that the device does not wait for the
    /// caller. A refusal is met again, and dealt with, at the next turn.
    fn look_ahead_from_last(&mut self) {
        let full = self.runs_into_full_window();
        if let (Some(last), None, Ok(_), false) = (self.last, self.stopped, self.lookahead, full) {
            self.pending = self.submit_ahead(TokenSource::Host(vec![last])).ok();
        }
    }

    fn submit_ahead(&mut self, input: TokenSource) -> Result<Pending, BackendError> {
        let sampler_before = self.sampler.clone();
        let request = self.request();
        let scope = self.lookahead.ok().and_then(|params| params.record);
        self.sequence.set_speculative(scope);
        let submitted = self.sequence.submit(input, request);
        self.sequence.set_speculative(None);
        match submitted {
            Ok(ticket) => Ok(Pending {
                ticket,
                sampler_before,
            }),
            Err(error) => {
                self.sampler = sampler_before;
                Err(error)
            }
        }
    }

    /// After a refused submit: back to the tokens that have been read, and no more lookahead.
    fn give_up_lookahead(&mut self, pending: Option<Pending>) -> Result<(), BackendError> {
        self.pending = pending;
        let result = self.retire();
        self.lookahead = Err(SyncReason::SubmitFailed);
        result
    }

    /// Takes back what was fed beyond the tokens that have been read.
    fn retire(&mut self) -> Result<(), BackendError> {
        let appends = appends_to_unwind(Progress {
            recorded: self.records(),
            offset_tokens: self.sequence.offset_tokens(),
            committed_tokens: self.committed_tokens,
        });
        if let Some(pending) = self.pending.take() {
            self.sequence.engine().discard(pending.ticket);
            self.sampler = pending.sampler_before;
            if !self.records() {
                self.dropped_steps += 1;
                self.sequence
                    .spoil("the step behind the last token was not taken back");
            }
        }
        self.sequence.rewind(appends)
    }

    /// Whether what is queued ahead can be taken back.
    fn records(&self) -> bool {
        self.lookahead.is_ok_and(|params| params.record.is_some())
    }

    /// Whether the next step ahead would overwrite what it has been told not to.
    fn runs_into_full_window(&self) -> bool {
        let only_until_full = self.lookahead.is_ok_and(|params| params.only_until_full);
        only_until_full && self.sequence.is_window_full()
    }

    /// Before `last` is fed: nothing of an earlier, failed turn may be left in the caches, or it
    /// would be fed twice.
    fn stand_at_committed(&mut self) -> Result<(), BackendError> {
        self.retire()?;
        let (fed, committed) = (self.sequence.offset_tokens(), self.committed_tokens);
        if fed == committed {
            return Ok(());
        }
        Err(BackendError::CannotRewind {
            reason: format!(
                "a failed step was not taken back: {fed} tokens were fed, {committed} for good"
            ),
        })
    }

    /// Takes a token over and decides whether the text ends with it.
    fn accept(&mut self, decoded: &mut Decoded) {
        if let Some(choose) = &mut self.host_choice {
            decoded.token = choose(&decoded.logits, &self.tokens);
        }
        self.tokens.push(decoded.token);
        self.last = Some(decoded.token);
        let by_rule = self.stop.after(decoded.token, self.tokens.len());
        let looped = self.loop_rule.is_some_and(|rule| rule.found(&self.tokens));
        let cancelled = self.cancel.as_ref();
        let cancelled = cancelled.is_some_and(|flag| flag.load(Ordering::Relaxed));
        self.stopped = by_rule
            .or(looped.then_some(StopReason::LoopFound))
            .or(cancelled.then_some(StopReason::Cancelled));
    }

    fn request(&mut self) -> StepRequest {
        let logits = self.want_logits || self.host_choice.is_some();
        StepRequest {
            head: match logits {
                true => HeadRequest::TokenAndLogits,
                false => HeadRequest::Token,
            },
            sampling: self.sampler.next_sampling(),
            capture_hidden: false,
        }
    }
}

impl DecodeLoop for DirectEngine<'_> {
    fn prefill(&mut self, ids: &[u32]) -> Result<Decoded, BackendError> {
        DirectEngine::prefill(self, ids)
    }

    fn next(&mut self) -> Result<Option<Decoded>, BackendError> {
        DirectEngine::next(self)
    }

    fn end(&mut self, reason: StopReason) -> Result<(), BackendError> {
        DirectEngine::end(self, reason)
    }

    fn stopped(&self) -> Option<StopReason> {
        self.stopped
    }

    fn finish(self: Box<Self>) -> Result<DecodeStatistics, BackendError> {
        DirectEngine::finish(*self)
    }
}

impl std::fmt::Debug for DirectEngine<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DirectEngine")
            .field("lookahead", &self.lookahead)
            .field("pending", &self.pending)
            .field("tokens", &self.tokens.len())
            .field("stopped", &self.stopped)
            .finish_non_exhaustive()
    }
}

impl Drop for DirectEngine<'_> {
    fn drop(&mut self) {
        // A device that has stopped takes nothing back, and says so to whoever asks next.
        let _ = self.retire();
    }
}
