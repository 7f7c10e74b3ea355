//! Tiny models of every family against outputs of the reference implementation.

use std::path::{Path, PathBuf};

use mlxcel_engine::backend::interface::{Arithmetic, HeadRequest, Sampling, TokenSource};
use mlxcel_engine::engine::StepRequest;
use mlxcel_engine::weights::SafetensorsFile;
use mlxcel_engine::{Engine, LoadOptions};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

#[test]
fn prefill_logits_match_the_reference() {
    for family in ["gemma3_text", "llama", "qwen3"] {
        let dir = folder(family);
        let options = LoadOptions {
            arithmetic: Arithmetic::Float32,
            ..LoadOptions::default()
        };
        let engine = Engine::load(&dir, &options, &mut |_| {}).unwrap();
        let file = SafetensorsFile::open(&dir.join("reference.safetensors")).unwrap();
        let ids: Vec<u32> = file
            .tensor("prompt_ids")
            .unwrap()
            .to_i32()
            .unwrap()
            .iter()
            .map(|&i| i as u32)
            .collect();
        let want = file.tensor("prefill_logits").unwrap().to_f32().unwrap();
        let mut sequence = engine.new_sequence().unwrap();
        let request = StepRequest {
            head: HeadRequest::AllLogits,
            sampling: Sampling::Greedy,
            capture_hidden: true,
        };
        let ticket = sequence.submit(TokenSource::Host(ids), request).unwrap();
        let out = engine.read(ticket).unwrap();
        let worst = out
            .logits
            .iter()
            .zip(&want)
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f32::max);

        assert!(worst < 1e-3);
    }
}
