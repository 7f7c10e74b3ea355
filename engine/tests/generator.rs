//! The pre-epic loop against the sequential twin, and what it leaves behind.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use mlxcel_engine::backend::interface::{HeadRequest, TokenSource};
use mlxcel_engine::decode::prefill::prefill;
use mlxcel_engine::decode::step::step;
use mlxcel_engine::decode::{Generator, Sampler, SamplerOptions, StopReason, StopRule};
use mlxcel_engine::engine::StepRequest;
use mlxcel_engine::{Arithmetic, BackendError, Engine, LoadOptions};

const PROMPT: [u32; 5] = [3, 200, 17, 90, 4];

fn engine(family: &str, change: impl FnOnce(&mut LoadOptions)) -> Engine {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(family);
    let mut options = LoadOptions {
        arithmetic: Arithmetic::Fast,
        threads: 2,
        ..LoadOptions::default()
    };
    change(&mut options);
    Engine::load(&dir, &options, &mut |_| {}).unwrap()
}

fn budget(max_tokens: usize) -> StopRule {
    StopRule {
        max_tokens,
        end_tokens: Vec::new(),
    }
}

fn greedy() -> Sampler {
    Sampler::new(SamplerOptions::default())
}

fn generate(engine: &Engine, sampler: Sampler, stop: StopRule) -> (Vec<u32>, Option<StopReason>) {
    let mut sequence = engine.new_sequence().unwrap();
    let mut generator = Generator::new(&mut sequence, sampler, stop);
    let mut ids = vec![generator.prefill(&PROMPT).unwrap().token];
    while let Some(decoded) = generator.next().unwrap() {
        ids.push(decoded.token);
    }
    let stopped = generator.stopped();
    generator.finish().unwrap();
    (ids, stopped)
}

fn sequential(engine: &Engine, count: usize) -> Vec<u32> {
    let mut sequence = engine.new_sequence().unwrap();
    let ticket = prefill(&mut sequence, &PROMPT, StepRequest::greedy()).unwrap();
    let mut ids = vec![engine.read(ticket).unwrap().token.unwrap()];
    while ids.len() < count {
        let output = step(&mut sequence, ids[ids.len() - 1], StepRequest::greedy()).unwrap();
        ids.push(output.token.unwrap());
    }
    ids
}

#[test]
fn launching_before_reading_gives_the_sequential_tokens_beyond_the_window() {
    for family in ["gemma3_text", "llama", "qwen3"] {
        let engine = engine(family, |_| {});
        // The window of the Gemma fixture is 32 tokens: 80 wrap it twice.
        let (ids, stopped) = generate(&engine, greedy(), budget(80));
        assert_eq!(ids, sequential(&engine, 80), "{family}");
        assert_eq!(stopped, Some(StopReason::MaxTokens));
    }
}

#[test]
fn tokens_do_not_depend_on_the_number_of_threads() {
    let ids = |threads| {
        generate(
            &engine("gemma3_text", |o| o.threads = threads),
            greedy(),
            budget(60),
        )
        .0
    };
    assert_eq!(ids(1), ids(3));
}

#[test]
fn float32_tokens_do_not_depend_on_the_prefill_chunks() {
    let ids = |chunk| {
        let engine = engine("gemma3_text", |options| {
            options.arithmetic = Arithmetic::Float32;
            options.prefill_chunk_tokens = chunk;
        });
        generate(&engine, greedy(), budget(40)).0
    };
    assert_eq!(ids(2048), ids(1));
    assert_eq!(ids(2048), ids(2));
}

#[test]
fn an_end_token_stops_the_text_and_is_its_last() {
    let engine = engine("llama", |_| {});
    let all = sequential(&engine, 30);
    let end = all[7];
    let wanted = all.iter().position(|&id| id == end).unwrap() + 1;
    let stop = StopRule {
        max_tokens: 30,
        end_tokens: vec![end],
    };
    let (ids, stopped) = generate(&engine, greedy(), stop);
    assert_eq!(ids, all[..wanted]);
    assert_eq!(stopped, Some(StopReason::EndToken));
}

#[test]
fn the_pass_past_the_end_is_dropped_and_counted() {
    let engine = engine("llama", |_| {});
    let mut sequence = engine.new_sequence().unwrap();
    let mut generator = Generator::new(&mut sequence, greedy(), budget(2));
    generator.prefill(&PROMPT).unwrap();
    generator.next().unwrap().unwrap();
    assert_eq!(generator.next().unwrap(), None);
    let statistics = generator.finish().unwrap();
    assert_eq!(statistics.dropped_steps, 1);
    assert_eq!((statistics.undo_rows_recorded, statistics.rewinds), (0, 0));
    assert_eq!(sequence.offset_tokens(), PROMPT.len() + 2);
}

#[test]
fn a_seed_fixes_the_text_and_another_changes_it() {
    let engine = engine("qwen3", |_| {});
    let text = |seed| {
        let options = SamplerOptions {
            temperature: 1.5,
            top_p: 0.95,
            seed,
        };
        generate(&engine, Sampler::new(options), budget(20)).0
    };
    assert_eq!(text(1), text(1));
    assert_ne!(text(1), text(2));
}

#[test]
fn sequences_do_not_disturb_each_other() {
    let engine = engine("gemma3_text", |_| {});
    let alone = sequential(&engine, 20);
    let mut first = engine.new_sequence().unwrap();
    let mut second = engine.new_sequence().unwrap();
    let ticket = prefill(&mut first, &PROMPT, StepRequest::greedy()).unwrap();
    let mut token = engine.read(ticket).unwrap().token.unwrap();
    for &wanted in &alone {
        assert_eq!(token, wanted);
        step(&mut second, 250 - token % 100, StepRequest::greedy()).unwrap();
        token = step(&mut first, token, StepRequest::greedy())
            .unwrap()
            .token
            .unwrap();
    }
}

#[test]
fn misuse_is_an_error_and_leaves_the_sequence_as_it_was() {
    let engine = engine("llama", |options| options.max_context_tokens = Some(8));
    let mut sequence = engine.new_sequence().unwrap();
    let request = StepRequest::greedy();
    let submitted = sequence.submit(TokenSource::Host(vec![256]), request);
    let out_of_range = BackendError::TokenOutOfRange {
        token: 256,
        vocab_size: 256,
    };
    assert_eq!(submitted, Err(out_of_range));
    assert_eq!(
        sequence.submit(TokenSource::Host(Vec::new()), request),
        Err(BackendError::EmptyStep)
    );
    let too_long = sequence.submit(TokenSource::Host(vec![1; 9]), request);
    assert!(matches!(too_long, Err(BackendError::ContextFull { .. })));
    assert_eq!(sequence.offset_tokens(), 0);

    let ticket = sequence
        .submit(TokenSource::Host(vec![1, 2]), request)
        .unwrap();
    engine.read(ticket).unwrap();
    let again = engine.read(ticket);
    assert_eq!(again, Err(BackendError::StaleTicket { ticket: ticket.0 }));
}

#[test]
fn dropping_a_sequence_frees_its_caches() {
    let engine = engine("llama", |_| {});
    let step_once = |sequence: &mut mlxcel_engine::Sequence| {
        step(sequence, 1, StepRequest::greedy()).unwrap();
    };
    let mut first = engine.new_sequence().unwrap();
    step_once(&mut first);
    step_once(&mut first);
    let with_one = engine.memory_bytes();
    let mut second = engine.new_sequence().unwrap();
    step_once(&mut second);
    step_once(&mut second);
    assert!(engine.memory_bytes() > with_one);
    drop(second);
    step_once(&mut first);
    step_once(&mut first);
    assert_eq!(engine.memory_bytes(), with_one);
}

#[test]
fn the_last_row_alone_has_the_logits_that_it_has_among_all_rows() {
    let ids: Vec<u32> = (0..45).map(|i| i * 37 % 256).collect();
    for family in ["gemma3_text", "llama", "qwen3"] {
        let engine = engine(family, |options| options.prefill_chunk_tokens = 20);
        let last_logits = |head: HeadRequest| {
            let mut sequence = engine.new_sequence().unwrap();
            let request = StepRequest {
                head,
                ..StepRequest::greedy()
            };
            let ticket = prefill(&mut sequence, &ids, request).unwrap();
            let logits = engine.read(ticket).unwrap().logits;
            logits[logits.len() - 256..].to_vec()
        };
        let alone = last_logits(HeadRequest::TokenAndLogits);
        assert_eq!(alone, last_logits(HeadRequest::AllLogits), "{family}");
    }
}
