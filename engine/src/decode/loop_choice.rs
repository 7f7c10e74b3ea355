//! Which loop decodes: asked for at the edge, made here.

use crate::decode::decode_loop::DecodeLoop;
use crate::decode::eligibility::LookaheadOptions;
use crate::decode::generator::Generator;
use crate::decode::pipeline::DirectEngine;
use crate::decode::sampler::Sampler;
use crate::decode::stop::StopRule;
use crate::engine::Sequence;

/// A loop and its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopChoice {
    /// [`DirectEngine`].
    Engine(LookaheadOptions),
    /// [`Generator`], the pre-epic loop.
    Generator,
}

impl LoopChoice {
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
