//! The pipeline on a device whose steps fail on command: a bounded check of every interleaving, and
//! the unwind table row by row.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::fake_device::{Fault, engine, failure, oracle};
use super::pipeline::{Control, DirectEngine};
use super::{
    LookaheadOptions, LoopRule, Sampler, SamplerOptions, StopReason, StopRule, UndoPolicy,
};
use crate::engine::Sequence;
use crate::error::BackendError;

/// Tokens that each text has in the end: enough to wrap the window twice.
const TOKENS: usize = 9;

const PIPELINED: LookaheadOptions = LookaheadOptions {
    force_sync: false,
    undo: UndoPolicy::InAppend,
};
const SYNCHRONOUS: LookaheadOptions = LookaheadOptions {
    force_sync: true,
    undo: UndoPolicy::InAppend,
};
const UNTIL_FULL: LookaheadOptions = LookaheadOptions {
    force_sync: false,
    undo: UndoPolicy::SyncOnceFull,
};
const SLACK: LookaheadOptions = LookaheadOptions {
    force_sync: false,
    undo: UndoPolicy::Slack,
};
const DISCARDING: LookaheadOptions = LookaheadOptions {
    force_sync: false,
    undo: UndoPolicy::Discard,
};

fn prompt(tokens: usize) -> Vec<u32> {
    (0..tokens as u32).map(|index| index * 7 % 31).collect()
}

/// Draws from a stream, so that a draw which is lost or doubled shows in the tokens.
fn sampler() -> Sampler {
    Sampler::new(SamplerOptions {
        temperature: 1.0,
        top_p: 0.9,
        seed: 5,
    })
}

fn budget(max_tokens: usize) -> StopRule {
    StopRule {
        max_tokens,
        end_tokens: Vec::new(),
    }
}

/// How a text is ended early, after the token with this index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    EndToken(usize),
    Caller(usize),
    Cancel(usize),
    Dropped(usize),
    Budget(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disturbance {
    Fault(Fault),
    Ending(Ending),
}

fn disturbances() -> Vec<Disturbance> {
    let mut all = Vec::new();
    for at in 0..TOKENS - 1 {
        let faults = [Fault::Submit(at), Fault::Step(at, 0), Fault::Step(at, 2)];
        all.extend(faults.map(Disturbance::Fault));
        let endings = [
            Ending::EndToken(at),
            Ending::Caller(at),
            Ending::Cancel(at),
            Ending::Dropped(at),
            Ending::Budget(at),
        ];
        all.extend(endings.map(Disturbance::Ending));
    }
    all
}

/// A text under way: its sequence, and what a later loop needs to go on.
struct Text {
    sequence: Sequence,
    tokens: Vec<u32>,
    sampler: Sampler,
}

/// Decodes until `ending` or the budget; failed steps are tried again.
fn decode(text: &mut Text, prompt: &[u32], ending: Option<Ending>, options: LookaheadOptions) {
    let before = text.tokens.len();
    let mut stop = budget(TOKENS - before);
    let cancel = Arc::new(AtomicBool::new(false));
    match ending {
        // The oracle says which token that is; an equal one may come sooner.
        Some(Ending::EndToken(at)) => {
            let expected = oracle(prompt, TOKENS, sampler());
            stop.end_tokens = vec![expected[at]];
        }
        Some(Ending::Budget(at)) => stop.max_tokens = (at + 1).saturating_sub(before).max(1),
        _ => {}
    }
    let mut decoder = DirectEngine::new(&mut text.sequence, text.sampler.clone(), stop, options)
        .with_cancel(Arc::clone(&cancel));
    let reaches = |at: usize, decoder: &DirectEngine<'_>| before + decoder.tokens().len() == at + 1;
    match text.tokens.last() {
        Some(&last) => decoder.resume(last),
        None => {
            decoder.prefill(prompt).unwrap();
        }
    }
    loop {
        match ending {
            Some(Ending::Caller(at)) if reaches(at, &decoder) => {
                decoder.end(StopReason::Callback).unwrap();
            }
            Some(Ending::Dropped(at)) if reaches(at, &decoder) => break,
            // Raised here, it is seen with the token after this one.
            Some(Ending::Cancel(at)) if reaches(at, &decoder) => {
                cancel.store(true, Ordering::Relaxed);
            }
            _ => {}
        }
        match decoder.next() {
            Ok(Some(_)) => {}
            Ok(None) => break,
            // Every fault strikes once, so trying again gets past it.
            Err(error) => assert_eq!(error, failure()),
        }
    }
    text.tokens.extend_from_slice(decoder.tokens());
    text.sampler = decoder.sampler();
}

fn check(prompt: &[u32], disturbances: &[Disturbance], options: LookaheadOptions) {
    let faults: Vec<Fault> = disturbances
        .iter()
        .filter_map(|d| match d {
            Disturbance::Fault(fault) => Some(*fault),
            Disturbance::Ending(_) => None,
        })
        .collect();
    let engine = engine(&faults, usize::MAX);
    let mut text = Text {
        sequence: engine
            .new_sequence_with_slack(options.undo.slack_rows())
            .unwrap(),
        tokens: Vec::new(),
        sampler: sampler(),
    };
    let endings = disturbances.iter().filter_map(|d| match d {
        Disturbance::Ending(ending) => Some(Some(*ending)),
        Disturbance::Fault(_) => None,
    });
    let expected = oracle(prompt, TOKENS, sampler());
    for ending in endings.chain([None]) {
        if text.tokens.len() == TOKENS {
            break;
        }
        decode(&mut text, prompt, ending, options);
        let (tokens, n) = (&text.tokens, text.tokens.len());
        assert_eq!(*tokens, expected[..n], "{} {disturbances:?}", prompt.len());
        let fed = prompt.len() + n - 1;
        assert_eq!(text.sequence.offset_tokens(), fed, "{disturbances:?}");
    }
    assert_eq!(text.tokens.len(), TOKENS, "{disturbances:?}");
}

#[test]
fn no_append_is_lost_or_doubled_whatever_two_things_happen_and_when() {
    for options in [PIPELINED, SLACK, UNTIL_FULL, SYNCHRONOUS] {
        // Inside the window, at its end, just beyond it, and a prompt that is longer than it.
        for tokens in [2, 3, 4, 9] {
            let prompt = prompt(tokens);
            let all = disturbances();
            for first in &all {
                for second in &all {
                    check(&prompt, &[*first, *second], options);
                }
            }
        }
    }
}

#[test]
fn a_failed_synchronous_step_is_taken_back_and_tried_again() {
    // With the window full, after none, some and all layers have written their rows.
    for layers in 0..4 {
        let engine = engine(&[Fault::Step(1, layers)], usize::MAX);
        let mut sequence = engine.new_sequence_with_slack(0).unwrap();
        let mut decoder = DirectEngine::new(&mut sequence, sampler(), budget(9), SYNCHRONOUS);
        let prompt = prompt(6);
        decoder.prefill(&prompt).unwrap();
        decoder.next().unwrap();
        assert_eq!(decoder.next(), Err(failure()));
        while decoder.next().unwrap().is_some() {}
        assert_eq!(decoder.tokens(), oracle(&prompt, 9, sampler()), "{layers}");
        let statistics = decoder.finish().unwrap();
        assert_eq!(statistics.undo_rows_recorded, 0);
        assert_eq!(statistics.appends_rewound, 1);
    }
}

/// Steps taken back, and where the sequence stands relative to the tokens that are fed for good.
fn unwound(
    options: LookaheadOptions,
    faults: &[Fault],
    drive: impl Fn(&mut DirectEngine<'_>),
) -> usize {
    let engine = engine(faults, usize::MAX);
    let mut sequence = engine.new_sequence_with_slack(0).unwrap();
    let mut decoder = DirectEngine::new(&mut sequence, sampler(), budget(6), options);
    decoder.prefill(&prompt(9)).unwrap();
    drive(&mut decoder);
    decoder.statistics().appends_rewound
}

#[test]
fn the_unwind_table_row_by_row() {
    let read = |decoder: &mut DirectEngine<'_>, count: usize| {
        for _ in 0..count {
            decoder.next().unwrap().unwrap();
        }
    };
    let stop = |decoder: &mut DirectEngine<'_>| {
        read(decoder, 2);
        decoder.end(StopReason::StopString).unwrap();
    };
    assert_eq!(unwound(PIPELINED, &[], stop), 1);
    assert_eq!(unwound(SYNCHRONOUS, &[], stop), 0);

    let to_the_budget = |decoder: &mut DirectEngine<'_>| {
        read(decoder, 5);
        assert_eq!(decoder.next(), Ok(None));
        decoder.end(StopReason::Callback).unwrap();
    };
    assert_eq!(unwound(PIPELINED, &[], to_the_budget), 0);
    assert_eq!(unwound(SYNCHRONOUS, &[], to_the_budget), 0);

    let fails = |decoder: &mut DirectEngine<'_>| {
        read(decoder, 2);
        assert_eq!(decoder.next(), Err(failure()));
    };
    assert_eq!(unwound(PIPELINED, &[Fault::Step(2, 1)], fails), 2);
    let fails_on_the_last = |decoder: &mut DirectEngine<'_>| {
        read(decoder, 4);
        assert_eq!(decoder.next(), Err(failure()));
    };
    let last_step = [Fault::Step(4, 1)];
    assert_eq!(unwound(PIPELINED, &last_step, fails_on_the_last), 1);

    let refused = |decoder: &mut DirectEngine<'_>| {
        read(decoder, 5);
        let statistics = decoder.statistics();
        assert_eq!(statistics.sync_reason, Some("submit_failed"));
        assert_eq!(statistics.lookahead_steps, 1);
    };
    assert_eq!(unwound(PIPELINED, &[Fault::Submit(2)], refused), 1);
}

#[test]
fn an_error_of_the_callback_takes_the_step_ahead_back() {
    let engine = engine(&[], usize::MAX);
    let mut sequence = engine.new_sequence_with_slack(0).unwrap();
    let prompt = prompt(6);
    let mut decoder = DirectEngine::new(&mut sequence, sampler(), budget(9), PIPELINED);
    let mut seen = 0;
    let result = decoder.run(&prompt, |_| {
        seen += 1;
        match seen {
            3 => Err(BackendError::EmptyStep),
            _ => Ok(Control::Continue),
        }
    });
    assert_eq!(result, Err(BackendError::EmptyStep));
    assert_eq!(decoder.statistics().appends_rewound, 1);
    drop(decoder);
    assert_eq!(sequence.offset_tokens(), prompt.len() + 2);
}

#[test]
fn run_hands_out_every_token_and_says_why_it_ended() {
    let engine = engine(&[], usize::MAX);
    let prompt = prompt(5);
    let expected = oracle(&prompt, 7, sampler());
    for (stop_at, reason) in [
        (usize::MAX, StopReason::MaxTokens),
        (4, StopReason::StopString),
    ] {
        let mut sequence = engine.new_sequence_with_slack(0).unwrap();
        let mut decoder = DirectEngine::new(&mut sequence, sampler(), budget(7), PIPELINED);
        let mut tokens = Vec::new();
        let ended: Result<_, BackendError> = decoder.run(&prompt, |decoded| {
            tokens.push(decoded.token);
            Ok(match tokens.len() == stop_at {
                true => Control::Stop(StopReason::StopString),
                false => Control::Continue,
            })
        });
        assert_eq!(ended, Ok(reason));
        assert_eq!(tokens, expected[..stop_at.min(7)]);
    }
}

#[test]
fn a_text_that_repeats_itself_ends_and_its_step_ahead_is_taken_back() {
    let engine = engine(&[], usize::MAX);
    let mut sequence = engine.new_sequence_with_slack(0).unwrap();
    let rule = LoopRule {
        longest_block: 40,
        repeats: 2,
    };
    let stop = budget(400);
    let mut decoder =
        DirectEngine::new(&mut sequence, sampler(), stop, PIPELINED).with_loop_rule(rule);
    decoder.prefill(&prompt(6)).unwrap();
    while decoder.next().unwrap().is_some() {}
    assert_eq!(decoder.stopped(), Some(StopReason::LoopFound));
    assert!(rule.found(decoder.tokens()));
    assert_eq!(decoder.statistics().appends_rewound, 1);
}

#[test]
fn the_host_may_choose_and_then_nothing_is_queued_ahead_or_recorded() {
    let engine = engine(&[], usize::MAX);
    let mut sequence = engine.new_sequence_with_slack(0).unwrap();
    let choice = Box::new(|_: &[f32], tokens: &[u32]| tokens.len() as u32);
    let mut decoder =
        DirectEngine::new(&mut sequence, sampler(), budget(8), PIPELINED).with_host_choice(choice);
    decoder.prefill(&prompt(6)).unwrap();
    while decoder.next().unwrap().is_some() {}
    assert_eq!(decoder.tokens(), [0, 1, 2, 3, 4, 5, 6, 7]);
    let statistics = decoder.finish().unwrap();
    assert_eq!(statistics.sync_reason, Some("host_sampling"));
    assert_eq!(statistics.lookahead_steps, 0);
    assert_eq!(statistics.undo_rows_recorded, 0);
}

#[test]
fn a_full_context_is_an_error_only_for_the_token_that_does_not_fit() {
    // A prompt of 6 and 3 tokens fed fill it: the fourth token is chosen but cannot be fed.
    let engine = engine(&[], 9);
    let prompt = prompt(6);
    let mut sequence = engine.new_sequence_with_slack(0).unwrap();
    let mut decoder = DirectEngine::new(&mut sequence, sampler(), budget(9), PIPELINED);
    decoder.prefill(&prompt).unwrap();
    for _ in 0..3 {
        decoder.next().unwrap().unwrap();
    }
    assert_eq!(decoder.tokens(), oracle(&prompt, 4, sampler()));
    let error = decoder.next().unwrap_err();
    assert!(matches!(error, BackendError::ContextFull { .. }), "{error}");
}

#[test]
fn rows_are_recorded_only_once_the_window_is_full_and_only_ahead() {
    let run = |options, max_tokens| {
        let engine = engine(&[], usize::MAX);
        let mut sequence = engine.new_sequence_with_slack(0).unwrap();
        let stop = budget(max_tokens);
        let mut decoder = DirectEngine::new(&mut sequence, sampler(), stop, options);
        decoder.prefill(&prompt(2)).unwrap();
        while decoder.next().unwrap().is_some() {}
        decoder.finish().unwrap()
    };
    // The window of 4 is full after two fed tokens; two windowed layers save a key and a value.
    assert_eq!(run(PIPELINED, 3).undo_rows_recorded, 0);
    let wrapped = run(PIPELINED, 8);
    assert_eq!(wrapped.undo_rows_recorded, 5 * 2 * 2);
    assert_eq!(wrapped.undo_rows_copied, 5 * 2 * 2);
    assert_eq!(wrapped.lookahead_steps, 6);
    let forced = run(SYNCHRONOUS, 8);
    assert_eq!((forced.undo_rows_recorded, forced.lookahead_steps), (0, 0));
    assert!(forced.wrapped && forced.forced_sync);
    assert_eq!(forced.sync_reason, Some("forced_sync"));
}

#[test]
fn a_ring_with_slack_is_decoded_ahead_and_saves_nothing() {
    let engine = engine(&[], usize::MAX);
    let mut sequence = engine.new_sequence().unwrap();
    let prompt = prompt(6);
    let mut decoder = DirectEngine::new(&mut sequence, sampler(), budget(20), SLACK);
    decoder.prefill(&prompt).unwrap();
    for _ in 0..12 {
        decoder.next().unwrap();
    }
    decoder.end(StopReason::Callback).unwrap();
    assert_eq!(decoder.tokens(), oracle(&prompt, 13, sampler()));
    let statistics = decoder.finish().unwrap();
    assert_eq!(statistics.undo_rows_recorded, 0);
    assert_eq!(
        (statistics.undo_rows_copied, statistics.undo_launches),
        (0, 0)
    );
    assert_eq!(
        (statistics.lookahead_steps, statistics.appends_rewound),
        (12, 1)
    );
    assert!(statistics.wrapped);
}

#[test]
fn a_ring_without_slack_is_not_decoded_ahead_by_a_policy_that_needs_it() {
    let engine = engine(&[], usize::MAX);
    let mut sequence = engine.new_sequence_with_slack(0).unwrap();
    let prompt = prompt(6);
    let mut decoder = DirectEngine::new(&mut sequence, sampler(), budget(9), SLACK);
    decoder.prefill(&prompt).unwrap();
    while decoder.next().unwrap().is_some() {}
    assert_eq!(decoder.tokens(), oracle(&prompt, 9, sampler()));
    let statistics = decoder.finish().unwrap();
    assert_eq!(statistics.sync_reason, Some("cache_without_slack"));
}

#[test]
fn ahead_only_until_the_window_is_full_never_saves_a_row() {
    let engine = engine(&[], usize::MAX);
    let mut sequence = engine.new_sequence_with_slack(0).unwrap();
    let mut decoder = DirectEngine::new(&mut sequence, sampler(), budget(9), UNTIL_FULL);
    decoder.prefill(&prompt(2)).unwrap();
    while decoder.next().unwrap().is_some() {}
    let statistics = decoder.finish().unwrap();
    assert_eq!(statistics.undo_rows_recorded, 0);
    assert_eq!(statistics.sync_reason, Some("window_full"));
    assert_eq!(statistics.lookahead_steps, 1, "positions 2 and 3 are free");
    assert!(statistics.wrapped);
}

#[test]
fn discarding_gives_the_same_tokens_and_a_sequence_that_can_only_be_closed() {
    for (ending, spoiled) in [(None, false), (Some(4), true)] {
        let engine = engine(&[], usize::MAX);
        let prompt = prompt(5);
        let mut sequence = engine.new_sequence_with_slack(0).unwrap();
        let mut decoder = DirectEngine::new(&mut sequence, sampler(), budget(9), DISCARDING);
        decoder.prefill(&prompt).unwrap();
        while ending != Some(decoder.tokens().len()) && decoder.next().unwrap().is_some() {}
        decoder.end(StopReason::Callback).unwrap();
        let expected = oracle(&prompt, ending.unwrap_or(9), sampler());
        assert_eq!(decoder.tokens(), expected);
        let last = expected[expected.len() - 1];
        let statistics = decoder.finish().unwrap();
        assert_eq!(statistics.undo_rows_recorded, 0);
        assert_eq!(statistics.dropped_steps, usize::from(spoiled));
        let mut again = DirectEngine::new(&mut sequence, sampler(), budget(9), DISCARDING);
        again.resume(last);
        assert_eq!(again.next().is_err(), spoiled);
    }
}

#[test]
fn a_refused_submit_while_discarding_loses_nothing() {
    for at in 0..8 {
        let engine = engine(&[Fault::Submit(at)], usize::MAX);
        let prompt = prompt(5);
        let mut sequence = engine.new_sequence_with_slack(0).unwrap();
        let mut decoder = DirectEngine::new(&mut sequence, sampler(), budget(9), DISCARDING);
        decoder.prefill(&prompt).unwrap();
        while decoder.next().unwrap().is_some() {}
        assert_eq!(decoder.tokens(), oracle(&prompt, 9, sampler()), "{at}");
    }
}
