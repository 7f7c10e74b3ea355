//! Perplexity against the obvious way: one fresh sequence for every predicted token.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "other tests use the rest")]
mod folders;

use std::process::{Command, Output};

use folders::{config, fixture, tensors, write_folder};
use mlxcel_engine::backend::interface::{HeadRequest, TokenSource};
use mlxcel_engine::engine::StepRequest;
use mlxcel_engine::perplexity::windows::windows;
use mlxcel_engine::perplexity::{PerplexityOptions, measure};
use mlxcel_engine::{Arithmetic, Engine, LoadOptions};
use serde_json::{Value, json};

fn load(family: &str, arithmetic: Arithmetic, chunk: usize) -> Engine {
    let options = LoadOptions {
        arithmetic,
        threads: 1,
        prefill_chunk_tokens: chunk,
        ..LoadOptions::default()
    };
    Engine::load(&fixture(family), &options, &mut |_| {}).unwrap()
}

/// Ids below the fixtures' vocabulary without an obvious pattern.
fn text(tokens: usize) -> Vec<u32> {
    (0..tokens as u32)
        .map(|i| (i * i * 7 + i * 31 + 5) % 251)
        .collect()
}

/// `−ln p(token)` after `before`, the whole of it in one step.
fn surprise(engine: &Engine, before: &[u32], token: u32) -> f64 {
    let mut sequence = engine.new_sequence().unwrap();
    let request = StepRequest {
        head: HeadRequest::TokenAndLogits,
        ..StepRequest::greedy()
    };
    let ticket = sequence
        .submit(TokenSource::Host(before.to_vec()), request)
        .unwrap();
    let logits = engine.read(ticket).unwrap().logits;
    let sum: f64 = logits.iter().map(|l| f64::from(*l).exp()).sum();
    sum.ln() - f64::from(logits[token as usize])
}

#[test]
fn every_window_is_what_the_obvious_way_gives() {
    // The sliding window is 32 tokens: the longer context is past it.
    for (family, start, context, stride) in [
        ("gemma3_text", &[2u32][..], 45, 20),
        ("gemma3_text", &[2], 8, 3),
        ("llama", &[], 24, 12),
        ("qwen3", &[], 200, 100),
    ] {
        let text = text(56);
        let engine = load(family, Arithmetic::Float32, 7);
        let options = PerplexityOptions {
            context_tokens: context,
            stride_tokens: stride,
        };
        let report = measure(
            std::slice::from_ref(&engine),
            start,
            &text,
            options,
            &mut |_| {},
        )
        .unwrap();
        let mut sum = 0.0;
        for window in windows(text.len(), start.len(), context, stride) {
            for target in window.scored {
                let before = [start, &text[window.tokens.start..target]].concat();
                sum += surprise(&engine, &before, text[target]);
            }
        }
        let mean = sum / report.tokens as f64;
        assert_eq!(report.tokens, text.len() - usize::from(start.is_empty()));
        let got = report.results[0].mean_nats;
        assert!(
            (got - mean).abs() < 1e-5,
            "{family}: {got}, expected {mean}"
        );
        assert!((report.results[0].perplexity - mean.exp()).abs() < 1e-3 * mean.exp());
    }
}

#[test]
fn fast_is_compared_with_float32_on_the_same_tokens() {
    let engines = [
        load("gemma3_text", Arithmetic::Float32, 64),
        load("gemma3_text", Arithmetic::Fast, 64),
    ];
    let options = PerplexityOptions {
        context_tokens: 64,
        stride_tokens: 32,
    };
    let text = text(120);
    let both = measure(&engines, &[2], &text, options, &mut |_| {}).unwrap();
    for (index, engine) in engines.iter().enumerate() {
        let alone = measure(
            std::slice::from_ref(engine),
            &[2],
            &text,
            options,
            &mut |_| {},
        )
        .unwrap();
        assert_eq!(alone.results[0], both.results[index]);
        assert_eq!(alone.comparison, None);
    }
    let comparison = both.comparison.unwrap();
    // Int8 noise is there, and it is small: random models sit near the uniform distribution.
    assert!(
        comparison.mean_kl_nats > 0.0 && comparison.mean_kl_nats < 0.01,
        "{comparison:?}"
    );
    assert!(comparison.worst_kl_nats >= comparison.mean_kl_nats);
    assert!(comparison.equal_best_share > 0.8, "{comparison:?}");
    let same = measure(
        &[engines[0].clone(), engines[0].clone()],
        &[2],
        &text,
        options,
        &mut |_| {},
    );
    let same = same.unwrap().comparison.unwrap();
    assert_eq!(
        (
            same.mean_kl_nats,
            same.equal_best_share,
            same.perplexity_change
        ),
        (0.0, 1.0, 0.0)
    );
}

fn command(arguments: &[&str]) -> (tempfile::TempDir, Output) {
    let dir = tempfile::tempdir().unwrap();
    // The tokenizer has 512 tokens: a table of as many rows, the first ones repeated.
    let mut all = tensors("qwen3");
    let mut config = config("qwen3");
    let rows = config["vocab_size"].as_u64().unwrap() as usize;
    for (name, tensor) in &mut all {
        if tensor.shape.first() == Some(&rows) && (name.contains("embed") || name.contains("head"))
        {
            tensor.shape[0] = 2 * rows;
            tensor.bytes.extend_from_within(..);
        }
    }
    config["vocab_size"] = json!(2 * rows);
    write_folder(dir.path(), &config, &all, 1);
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        let from = fixture("tokenizers/sentencepiece").join(name);
        std::fs::copy(from, dir.path().join(name)).unwrap();
    }
    let file = dir.path().join("text.txt");
    let prose = "The road leaves the harbour along the sea wall and climbs slowly past the sheds. ";
    std::fs::write(&file, prose.repeat(4)).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_mlxcel"))
        .arg("perplexity")
        .arg("-m")
        .arg(dir.path())
        .arg("--file")
        .arg(&file)
        .args(arguments)
        .output()
        .unwrap();
    (dir, output)
}

#[test]
fn the_command_reports_both_arithmetics() {
    let (_dir, output) = command(&["--arithmetic", "both", "--context", "40", "--json"]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["context_tokens"], 40);
    assert_eq!(report["stride_tokens"], 20);
    assert_eq!(
        report["tokens"], report["text_tokens"],
        "a start token predicts the first one"
    );
    assert_eq!(report["results"][0]["arithmetic"], "float32");
    assert_eq!(report["results"][1]["arithmetic"], "fast");
    assert!(report["comparison"]["mean_kl_nats"].as_f64().unwrap() > 0.0);
    let (_dir, output) = command(&["--tokens", "30"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with("30 of 30 tokens predicted, 1 windows of "),
        "{text}"
    );
    assert!(text.contains("float32  perplexity "), "{text}");
}

#[test]
fn another_devices_routes_are_for_the_arithmetic_that_has_routes() {
    let gfx1151 = ["--route-profile", "gfx1151", "--tokens", "30"];
    let (_dir, output) = command(&[&gfx1151[..], &["--arithmetic", "both"]].concat());
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
    let (_dir, output) = command(&gfx1151);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("not for float32"), "{error}");
}

#[test]
fn a_file_that_is_no_text_is_an_error() {
    let (dir, _) = command(&["--tokens", "5"]);
    for (name, bytes) in [("empty", &b""[..]), ("binary", b"\xff\xfe")] {
        let file = dir.path().join(name);
        std::fs::write(&file, bytes).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_mlxcel"))
            .args(["perplexity", "-m"])
            .arg(dir.path())
            .arg("--file")
            .arg(&file)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{name}");
    }
}
