//! A text is the same whichever loop decodes it, and however it ends.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mlxcel_engine::decode::{LookaheadOptions, LoopChoice, SamplerOptions};
use mlxcel_engine::generate::{Ending, GenerateOptions, Generated, generate};
use mlxcel_engine::tokenizer::TextTokenizer;
use mlxcel_engine::{Arithmetic, Engine, LoadOptions};

/// Written by every test: past the end of the fixture's window of 32 tokens, twice.
const MAX_TOKENS: usize = 80;

const PROMPT: [u32; 5] = [3, 200, 17, 90, 4];

/// What the programs use unless the environment says otherwise.
fn pipelined() -> LoopChoice {
    LoopChoice::Engine(LookaheadOptions::default())
}

struct Model {
    engine: Engine,
    tokenizer: TextTokenizer,
}

impl Model {
    fn load() -> Self {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        let load = LoadOptions {
            arithmetic: Arithmetic::Fast,
            threads: 2,
            ..LoadOptions::default()
        };
        let model: PathBuf = fixtures.join("gemma3_text");
        Self {
            engine: Engine::load(&model, &load, &mut |_| {}).unwrap(),
            tokenizer: TextTokenizer::load(&fixtures.join("tokenizers/bytelevel")).unwrap(),
        }
    }

    fn write(&self, options: &GenerateOptions, decode_loop: LoopChoice) -> Generated {
        let options = GenerateOptions {
            decode_loop,
            cancel: Arc::default(),
            ..options.clone()
        };
        let mut discard = |_: &str| Ok(());
        generate(
            &self.engine,
            &self.tokenizer,
            &PROMPT,
            &options,
            &mut discard,
        )
        .unwrap()
    }

    /// The text by the pipelined loop, which the pre-epic one must write as well.
    fn both(&self, options: &GenerateOptions) -> Generated {
        let generator = self.write(options, LoopChoice::Generator);
        let engine = self.write(options, pipelined());
        assert_same(&engine, &generator);
        engine
    }
}

fn assert_same(engine: &Generated, generator: &Generated) {
    assert_eq!(engine.ids, generator.ids);
    assert_eq!(engine.text, generator.text);
    assert_eq!(engine.ending, generator.ending);
    assert_eq!(generator.statistics.decode_path, "generator");
    assert_eq!(engine.statistics.decode_path, "engine");
    assert_eq!(engine.statistics.sync_reason, None);
    // A text of one token has nothing to run ahead of.
    assert!(engine.statistics.lookahead_steps > 0 || engine.ids.len() == 1);
}

fn options(temperature: f32, seed: u64) -> GenerateOptions {
    GenerateOptions {
        sampler: SamplerOptions {
            temperature,
            top_p: 0.95,
            seed,
        },
        max_tokens: MAX_TOKENS,
        stop_strings: Vec::new(),
        ignore_end_tokens: true,
        decode_loop: pipelined(),
        cancel: Arc::default(),
    }
}

#[test]
fn greedy_and_sampled_texts_are_the_same() {
    let model = Model::load();
    for (temperature, seed) in [(0.0, 0), (1.0, 1), (1.0, 2), (4.0, 3)] {
        let text = model.both(&options(temperature, seed));
        assert_eq!(text.ids.len(), MAX_TOKENS);
        assert_eq!(text.ending, Ending::MaxTokens);
        assert!(text.statistics.wrapped);
    }
}

#[test]
fn a_stop_string_ends_both_at_the_same_token() {
    let model = Model::load();
    let mut ends_before_the_budget = 0;
    for seed in 0..4 {
        let whole = model.both(&options(1.0, seed));
        let characters: Vec<(usize, char)> = whole.text.char_indices().collect();
        for start in (0..characters.len().saturating_sub(3)).step_by(11) {
            let stop = &whole.text[characters[start].0..characters[start + 3].0];
            let text = model.both(&GenerateOptions {
                stop_strings: vec![stop.to_owned()],
                ..options(1.0, seed)
            });
            assert_eq!(text.ending, Ending::StopString(stop.to_owned()));
            assert!(whole.ids.starts_with(&text.ids));
            ends_before_the_budget += usize::from(text.ids.len() < MAX_TOKENS);
        }
    }
    assert!(ends_before_the_budget > 10, "{ends_before_the_budget}");
}

#[test]
fn an_end_token_ends_both() {
    let model = Model::load();
    let mut ended = 0;
    for seed in 0..24 {
        // Hot enough that some of the texts draw the tokenizer's end token.
        let text = model.both(&GenerateOptions {
            ignore_end_tokens: false,
            ..options(8.0, seed)
        });
        if text.ending == Ending::EndToken {
            ended += 1;
            assert!(text.ids.len() <= MAX_TOKENS);
        }
    }
    assert!(ended > 0);
}

#[test]
fn a_cancelled_text_is_the_beginning_of_the_whole_one() {
    let model = Model::load();
    let whole = model.both(&options(1.0, 5));
    for cancelled_at_piece in [1, 4, 8] {
        let write = |decode_loop| {
            let cancel = Arc::new(AtomicBool::new(false));
            let options = GenerateOptions {
                cancel: Arc::clone(&cancel),
                decode_loop,
                ..options(1.0, 5)
            };
            let mut pieces = 0;
            generate(
                &model.engine,
                &model.tokenizer,
                &PROMPT,
                &options,
                &mut |_| {
                    pieces += 1;
                    cancel.fetch_or(pieces == cancelled_at_piece, Ordering::Relaxed);
                    Ok(())
                },
            )
            .unwrap()
        };
        let text = write(pipelined());
        assert_same(&text, &write(LoopChoice::Generator));
        assert_eq!(text.ending, Ending::Cancelled);
        assert!(text.ids.len() < MAX_TOKENS && whole.ids.starts_with(&text.ids));
        assert!(whole.text.starts_with(&text.text));
    }
}
