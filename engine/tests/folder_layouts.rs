//! Folders as people have them: several shards, multimodal files, broken downloads.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod folders;

use std::path::Path;

use folders::{config, fixture, multimodal, shard_name, tensors, write_folder};
use mlxcel_engine::decode::{Generator, Sampler, SamplerOptions, StopRule};
use mlxcel_engine::{Arithmetic, Engine, LoadOptions};
use serde_json::json;

fn load(dir: &Path) -> Result<Engine, String> {
    let options = LoadOptions {
        arithmetic: Arithmetic::Float32,
        threads: 1,
        ..LoadOptions::default()
    };
    Engine::load(dir, &options, &mut |_| {}).map_err(|error| error.to_string())
}

/// Greedy tokens and their logits.
fn decode(engine: &Engine) -> Vec<(u32, Vec<f32>)> {
    let mut sequence = engine.new_sequence().unwrap();
    let stop = StopRule {
        max_tokens: 12,
        end_tokens: Vec::new(),
    };
    let sampler = Sampler::new(SamplerOptions::default());
    let mut generator = Generator::new(&mut sequence, sampler, stop).with_logits(true);
    let mut step = Some(generator.prefill(&[3, 1, 4, 1, 5]).unwrap());
    let mut all = Vec::new();
    while let Some(decoded) = step {
        all.push((decoded.token, decoded.logits));
        step = generator.next().unwrap();
    }
    all
}

#[test]
fn shards_with_an_index_are_the_same_model_as_one_file() {
    for (family, shards) in [("qwen3", 3), ("llama", 2)] {
        let dir = tempfile::tempdir().unwrap();
        write_folder(dir.path(), &config(family), &tensors(family), shards);
        let whole = load(&fixture(family)).unwrap();
        let sharded = load(dir.path()).unwrap();
        assert_eq!(decode(&whole), decode(&sharded), "{family}");
    }
}

#[test]
fn the_text_model_of_a_multimodal_folder_is_that_model() {
    let dir = tempfile::tempdir().unwrap();
    multimodal(dir.path(), 2);
    let text = load(&fixture("gemma3_text")).unwrap();
    let inner = load(dir.path()).unwrap();
    assert_eq!(decode(&text), decode(&inner));
    assert_eq!(text.model().window_tokens, inner.model().window_tokens);
    assert_eq!(text.model().bytes_per_token, inner.model().bytes_per_token);
}

#[test]
fn a_folder_may_hold_shards_that_its_index_does_not_name() {
    let dir = tempfile::tempdir().unwrap();
    write_folder(dir.path(), &config("qwen3"), &tensors("qwen3"), 2);
    // A consolidated copy beside the shards holds every tensor a second time.
    let whole = fixture("qwen3").join("model.safetensors");
    std::fs::copy(whole, dir.path().join("model.safetensors")).unwrap();
    assert!(load(dir.path()).is_ok());
    std::fs::remove_file(dir.path().join("model.safetensors.index.json")).unwrap();
    assert!(load(dir.path()).unwrap_err().contains("is both in"));
}

#[test]
fn a_shard_that_is_missing_is_named() {
    let dir = tempfile::tempdir().unwrap();
    write_folder(dir.path(), &config("qwen3"), &tensors("qwen3"), 3);
    std::fs::remove_file(dir.path().join(shard_name(1, 3))).unwrap();
    let error = load(dir.path()).unwrap_err();
    assert!(error.contains(&shard_name(1, 3)), "{error}");
    assert!(error.contains("is missing"), "{error}");
}

#[test]
fn the_generation_configuration_has_the_last_word_on_end_tokens() {
    let dir = tempfile::tempdir().unwrap();
    multimodal(dir.path(), 1);
    let path = dir.path().join("generation_config.json");
    std::fs::write(&path, json!({"eos_token_id": [1, 106]}).to_string()).unwrap();
    assert_eq!(load(dir.path()).unwrap().model().end_tokens, [1, 106]);
    std::fs::write(&path, json!({"eos_token_id": 7}).to_string()).unwrap();
    assert_eq!(load(dir.path()).unwrap().model().end_tokens, [7]);
}
