//! Steps taken back on real caches: whatever follows has the same logits, bit for bit, as if they
//! had never been.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use mlxcel_engine::backend::interface::{HeadRequest, TokenSource};
use mlxcel_engine::decode::prefill::prefill;
use mlxcel_engine::decode::step::step;
use mlxcel_engine::decode::{
    DirectEngine, Generator, LookaheadOptions, Sampler, SamplerOptions, StopReason, StopRule,
    UndoPolicy,
};
use mlxcel_engine::engine::StepRequest;
use mlxcel_engine::kv_cache::SaveMethod;
use mlxcel_engine::{Arithmetic, BackendError, Engine, LoadOptions, Sequence};

/// Every policy whose sequences can be continued after a stop in mid-text.
const CONTINUABLE: [UndoPolicy; 4] = [
    UndoPolicy::InAppend,
    UndoPolicy::OwnCopies,
    UndoPolicy::Slack,
    UndoPolicy::SyncOnceFull,
];

fn pipelined(undo: UndoPolicy) -> LookaheadOptions {
    LookaheadOptions {
        force_sync: false,
        undo,
    }
}

/// The window of the Gemma fixture.
const WINDOW: usize = 32;

fn engine(family: &str, arithmetic: Arithmetic, chunk: usize) -> Engine {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(family);
    let options = LoadOptions {
        arithmetic,
        threads: 1,
        prefill_chunk_tokens: chunk,
        ..LoadOptions::default()
    };
    Engine::load(&dir, &options, &mut |_| {}).unwrap()
}

fn prompt(tokens: usize) -> Vec<u32> {
    (0..tokens as u32).map(|index| index * 37 % 251).collect()
}

fn with_logits() -> StepRequest {
    StepRequest {
        head: HeadRequest::TokenAndLogits,
        ..StepRequest::greedy()
    }
}

fn feed(sequence: &mut Sequence, token: u32) -> Vec<f32> {
    step(sequence, token, with_logits()).unwrap().logits
}

/// Prompt, then tokens; before each of them `detour` may do and undo something.
fn logits(
    engine: &Engine,
    prompt_tokens: usize,
    steps: usize,
    detour: impl Fn(&mut Sequence, usize),
) -> Vec<Vec<f32>> {
    let sequence = engine.new_sequence_with_slack(0).unwrap();
    logits_of(sequence, prompt_tokens, steps, detour)
}

fn logits_of(
    mut sequence: Sequence,
    prompt_tokens: usize,
    steps: usize,
    detour: impl Fn(&mut Sequence, usize),
) -> Vec<Vec<f32>> {
    let engine = sequence.engine().clone();
    let prompt = prompt(prompt_tokens);
    let ticket = prefill(&mut sequence, &prompt, with_logits()).unwrap();
    let mut all = vec![engine.read(ticket).unwrap().logits];
    for index in 0..steps {
        detour(&mut sequence, index);
        all.push(feed(&mut sequence, 100 + index as u32));
    }
    all
}

#[test]
fn appends_that_are_taken_back_leave_no_trace_across_the_wrap() {
    for arithmetic in [Arithmetic::Float32, Arithmetic::Fast] {
        let engine = engine("gemma3_text", arithmetic, 2048);
        // Filling, at the edge, full, and a prompt that must be trimmed first.
        for prompt_tokens in [WINDOW - 4, WINDOW - 1, WINDOW, WINDOW + 9] {
            let straight = logits(&engine, prompt_tokens, 40, |_, _| {});
            let detoured = logits(&engine, prompt_tokens, 40, |sequence, index| {
                let methods = [SaveMethod::InAppend, SaveMethod::OwnCopies];
                sequence.set_speculative(Some(methods[index / 2 % 2]));
                for speculative in 0..1 + index % 2 {
                    feed(sequence, 7 + speculative as u32);
                }
                sequence.rewind(1 + index % 2).unwrap();
                sequence.set_speculative(None);
            });
            assert_eq!(straight, detoured, "{arithmetic:?}, prompt {prompt_tokens}");
        }
    }
}

#[test]
fn a_ring_with_slack_has_the_logits_of_one_without_and_takes_appends_back_without_a_trace() {
    for arithmetic in [Arithmetic::Float32, Arithmetic::Fast] {
        let engine = engine("gemma3_text", arithmetic, 2048);
        for prompt_tokens in [WINDOW - 4, WINDOW, WINDOW + 1, WINDOW + 9] {
            let straight = logits(&engine, prompt_tokens, 40, |_, _| {});
            let slack = || engine.new_sequence().unwrap();
            let in_slack = logits_of(slack(), prompt_tokens, 40, |_, _| {});
            assert_eq!(straight, in_slack, "{arithmetic:?}, prompt {prompt_tokens}");
            let detoured = logits_of(slack(), prompt_tokens, 40, |sequence, index| {
                for speculative in 0..1 + index % 2 {
                    feed(sequence, 7 + speculative as u32);
                }
                sequence.rewind(1 + index % 2).unwrap();
                assert_eq!(sequence.undo_work().rows_copied, 0);
            });
            assert_eq!(straight, detoured, "{arithmetic:?}, prompt {prompt_tokens}");
        }
    }
}

#[test]
fn a_step_whose_row_is_lost_can_be_retracted() {
    for arithmetic in [Arithmetic::Float32, Arithmetic::Fast] {
        let engine = engine("gemma3_text", arithmetic, 2048);
        for prompt_tokens in [WINDOW - 2, WINDOW, WINDOW + 9] {
            let straight = logits(&engine, prompt_tokens, 40, |_, _| {});
            let detoured = logits(&engine, prompt_tokens, 40, |sequence, _| {
                feed(sequence, 7);
                sequence.retract().unwrap();
            });
            assert_eq!(straight, detoured, "{arithmetic:?}, prompt {prompt_tokens}");
        }
    }
}

#[test]
fn what_is_saved_is_counted_for_each_sequence() {
    let engine = engine("gemma3_text", Arithmetic::Fast, 2048);
    let mut sequences = [(); 2].map(|()| engine.new_sequence_with_slack(0).unwrap());
    for sequence in &mut sequences {
        let ticket = prefill(sequence, &prompt(WINDOW + 1), with_logits()).unwrap();
        engine.discard(ticket);
        sequence.set_speculative(Some(SaveMethod::OwnCopies));
    }
    let [one, two] = &mut sequences;
    feed(one, 1);
    let rows = one.undo_work().rows_copied;
    assert!(rows > 0);
    assert_eq!(two.undo_work().rows_copied, 0);
    feed(two, 1);
    feed(two, 2);
    assert_eq!(one.undo_work().rows_copied, rows);
    assert_eq!(two.undo_work().rows_copied, 2 * rows);
    assert_eq!(two.undo_work().launches, 2 * rows);
}

#[test]
fn families_without_a_window_rewind_too() {
    for family in ["llama", "qwen3"] {
        let engine = engine(family, Arithmetic::Fast, 3);
        let straight = logits(&engine, 8, 12, |_, _| {});
        let detoured = logits(&engine, 8, 12, |sequence, _| {
            feed(sequence, 3);
            feed(sequence, 4);
            sequence.rewind(2).unwrap();
        });
        assert_eq!(straight, detoured, "{family}");
    }
}

#[test]
fn a_chunk_after_a_rewind_sees_the_right_rows() {
    for arithmetic in [Arithmetic::Float32, Arithmetic::Fast] {
        let engine = engine("gemma3_text", arithmetic, 2048);
        let last = |detour: bool| {
            let mut sequence = engine.new_sequence_with_slack(0).unwrap();
            let ticket = prefill(&mut sequence, &prompt(WINDOW + 5), with_logits()).unwrap();
            engine.discard(ticket);
            // Both are trimmed to the window by a first token.
            feed(&mut sequence, 1);
            if detour {
                sequence.set_speculative(Some(SaveMethod::InAppend));
                feed(&mut sequence, 2);
                feed(&mut sequence, 3);
                sequence.rewind(2).unwrap();
            }
            let chunk = TokenSource::Host(vec![5, 6, 7, 8]);
            let ticket = sequence.submit(chunk, with_logits()).unwrap();
            engine.read(ticket).unwrap().logits
        };
        assert_eq!(last(true), last(false), "{arithmetic:?}");
    }
}

#[test]
fn a_refused_rewind_leaves_the_sequence_as_it_was() {
    let engine = engine("gemma3_text", Arithmetic::Fast, 2048);
    let straight = logits(&engine, WINDOW + 3, 6, |_, _| {});
    let detoured = logits(&engine, WINDOW + 3, 6, |sequence, index| {
        let refused = sequence.rewind(1 + index % 3);
        let refused = refused.unwrap_err();
        assert!(matches!(refused, BackendError::CannotRewind { .. }));
    });
    assert_eq!(straight, detoured);
}

fn budget(max_tokens: usize) -> StopRule {
    StopRule {
        max_tokens,
        end_tokens: Vec::new(),
    }
}

fn sampler(temperature: f32) -> Sampler {
    Sampler::new(SamplerOptions {
        temperature,
        top_p: 0.95,
        seed: 11,
    })
}

fn by_generator(engine: &Engine, prompt: &[u32], count: usize, temperature: f32) -> Vec<u32> {
    by_generator_on(
        &mut engine.new_sequence_with_slack(0).unwrap(),
        prompt,
        count,
        temperature,
    )
}

fn by_generator_on(
    sequence: &mut Sequence,
    prompt: &[u32],
    count: usize,
    temperature: f32,
) -> Vec<u32> {
    let mut generator = Generator::new(sequence, sampler(temperature), budget(count));
    let mut ids = vec![generator.prefill(prompt).unwrap().token];
    while let Some(decoded) = generator.next().unwrap() {
        ids.push(decoded.token);
    }
    generator.finish().unwrap();
    ids
}

#[test]
fn stopped_and_resumed_again_and_again_the_pipeline_gives_the_generators_tokens() {
    for undo in CONTINUABLE {
        stopped_and_resumed("gemma3_text", Arithmetic::Fast, undo);
        stopped_and_resumed("gemma3_text", Arithmetic::Float32, undo);
    }
    stopped_and_resumed("llama", Arithmetic::Fast, UndoPolicy::default());
    stopped_and_resumed("qwen3", Arithmetic::Fast, UndoPolicy::default());
}

fn stopped_and_resumed(family: &str, arithmetic: Arithmetic, undo: UndoPolicy) {
    {
        let engine = engine(family, arithmetic, 20);
        let prompt = prompt(WINDOW - 6);
        for temperature in [0.0, 1.2] {
            let expected = by_generator(&engine, &prompt, 70, temperature);
            let mut sequence = engine.new_sequence_with_slack(undo.slack_rows()).unwrap();
            let mut ids: Vec<u32> = Vec::new();
            let mut sampler = sampler(temperature);
            let mut rewinds = 0;
            while ids.len() < expected.len() {
                let stop = budget(expected.len() - ids.len());
                let options = pipelined(undo);
                let mut decoder = DirectEngine::new(&mut sequence, sampler, stop, options);
                match ids.last() {
                    Some(&last) => decoder.resume(last),
                    None => {
                        decoder.prefill(&prompt).unwrap();
                    }
                }
                for _ in 0..1 + ids.len() % 4 {
                    decoder.next().unwrap();
                }
                decoder.end(StopReason::Callback).unwrap();
                ids.extend_from_slice(decoder.tokens());
                sampler = decoder.sampler();
                rewinds += decoder.finish().unwrap().rewinds;
            }
            let case = format!("{family} {arithmetic:?} {undo:?} {temperature}");
            assert_eq!(ids, expected, "{case}");
            let often = if undo == UndoPolicy::SyncOnceFull {
                0
            } else {
                10
            };
            assert!(rewinds > often, "{case}: {rewinds}");
            assert_eq!(sequence.offset_tokens(), prompt.len() + ids.len() - 1);
        }
    }
}

/// Random stops and rewinds over a text of `count` tokens; memory must not grow with the text.
fn long_run(count: usize, undo: UndoPolicy) {
    let engine = engine("gemma3_text", Arithmetic::Fast, 2048);
    let prompt = prompt(WINDOW + 2);
    let mut sequence = engine.new_sequence_with_slack(0).unwrap();
    let expected = by_generator_on(&mut sequence, &prompt, count, 1.0);
    let sequential_bytes = engine.memory_bytes();
    drop(sequence);
    let mut sequence = engine.new_sequence_with_slack(undo.slack_rows()).unwrap();
    let mut sampler = sampler(1.0);
    let mut ids: Vec<u32> = Vec::new();
    let mut random = 12_345u64;
    while ids.len() < count {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let stretch = 1 + (random >> 33) as usize % 40;
        let stop = budget(count - ids.len());
        let mut decoder = DirectEngine::new(&mut sequence, sampler, stop, pipelined(undo));
        match ids.last() {
            Some(&last) => decoder.resume(last),
            None => {
                decoder.prefill(&prompt).unwrap();
            }
        }
        for _ in 0..stretch {
            decoder.next().unwrap();
        }
        decoder.end(StopReason::Callback).unwrap();
        ids.extend_from_slice(decoder.tokens());
        sampler = decoder.sampler();
    }
    let differs = ids.iter().zip(&expected).position(|(a, b)| a != b);
    assert_eq!(differs, None);
    assert_eq!(ids.len(), count);
    // Two rows a layer, saved or of slack, are all that the rewinds may have added.
    let added = engine.memory_bytes().saturating_sub(sequential_bytes);
    assert!(added < 16 << 10, "{added} bytes more than without rewinds");
}

#[test]
fn ten_thousand_tokens_with_random_stops_are_the_sequential_ones() {
    long_run(10_000, UndoPolicy::InAppend);
}

#[test]
fn three_thousand_tokens_with_random_stops_in_a_ring_with_slack_are_the_sequential_ones() {
    long_run(3_000, UndoPolicy::Slack);
}
