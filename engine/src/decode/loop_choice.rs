//! Which loop decodes: asked for at the edge, made here.

use crate::decode::decode_loop::DecodeLoop;
use crate::decode::eligibility::LookaheadOptions;
use crate::decode::generator::Generator;
use crate::decode::pipeline::DirectEngine;
use crate::decode::sampler::Sampler;
use crate::decode::stop::StopRule;
use crate::engine::{Engine, Sequence};
use crate::error::BackendError;

/// A loop and its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopChoice {
    /// [`DirectEngine`].
    Engine(LookaheadOptions),
    /// [`Generator`], the pre-epic loop.
    Generator,
}

impl LoopChoice {
    /// Caches that fit the loop: rings with the slack that its policy needs, and no more.
    ///
    /// # Errors
    /// When the device has stopped.
    pub fn new_sequence(self, engine: &Engine) -> Result<Sequence, BackendError> {
        let slack_rows = match self {
            Self::Engine(lookahead) => lookahead.undo.slack_rows(),
            Self::Generator => 0,
        };
        engine.new_sequence_with_slack(slack_rows)
    }

    /// The loop over `sequence`, not started; `logits` hands out those of each token.
    pub fn over<'a>(
        self,
        sequence: &'a mut Sequence,
        sampler: Sampler,
        stop: StopRule,
        logits: bool,
    ) -> Box<dyn DecodeLoop + 'a> {
        match self {
            Self::Engine(lookahead) => {
                Box::new(DirectEngine::new(sequence, sampler, stop, lookahead).with_logits(logits))
            }
            Self::Generator => {
                Box::new(Generator::new(sequence, sampler, stop).with_logits(logits))
            }
        }
    }
}
