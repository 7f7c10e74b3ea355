//! The tokenizers of SmolLM2 and Gemma 3 against ids that programs without a line in common with
//! the engine's found for the same texts (scripts/make_tokenizer_references.py).
//!
//! SmolLM2's is rebuilt from its pieces and merges, which may be passed on (HuggingFaceTB/SmolLM2,
//! Apache-2.0). Gemma's may not: its test needs the folder that scripts/fetch_gemma3_270m.sh makes
//! (below MODELS, else models/), and says so where there is none.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write;
use std::path::{Path, PathBuf};

use mlxcel_engine::tokenizer::TextTokenizer;
use serde_json::{Map, Value, json};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/tokenizers/real")
        .join(name)
}

fn lines(name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(fixture(name)).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// SmolLM2's tokenizer.json: digits apart, then GPT-2's bytes; ids are first the special tokens,
/// then the bytes, then what the merges make, in their order.
fn smollm2() -> Value {
    let (first, merges) = (lines("smollm2_pieces.txt"), lines("smollm2_merges.txt"));
    let mut vocabulary = Map::new();
    let merged = merges.iter().map(|merge| merge.replace(' ', ""));
    for (id, piece) in first.iter().cloned().chain(merged).enumerate() {
        vocabulary.insert(piece, json!(id));
    }
    let is_special = |piece: &&String| piece.len() > 2 && piece.starts_with('<');
    let special: Vec<Value> = first
        .iter()
        .filter(is_special)
        .map(|piece| {
            json!({"id": vocabulary[piece], "content": piece, "single_word": false, "lstrip": false,
                   "rstrip": false, "normalized": false, "special": true})
        })
        .collect();
    json!({
        "added_tokens": special,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": true},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        ]},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": merges},
    })
}

fn smollm2_folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("tokenizer.json"), smollm2().to_string()).unwrap();
    dir
}

/// The folder of a fetch script, or `None` with a word about it.
fn fetched(name: &str, script: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let models = std::env::var_os("MODELS").map_or(root.join("models"), PathBuf::from);
    let folder = models.join("mlx").join(name);
    if folder.join("tokenizer.json").exists() {
        return Some(folder);
    }
    let skipped = format!(
        "SKIPPED: no {}; scripts/{script} makes it\n",
        folder.display()
    );
    // Past the test harness, which does not show what a passing test prints.
    std::io::stderr().write_all(skipped.as_bytes()).unwrap();
    None
}

/// Compares every text that has reference ids in `column`.
fn assert_ids(tokenizer: &TextTokenizer, column: &str) {
    let mut compared = 0;
    for line in &lines("texts.jsonl")[1..] {
        let row: Value = serde_json::from_str(line).unwrap();
        let Some(ids) = row[column].as_array() else {
            continue;
        };
        let text = row["text"].as_str().unwrap();
        let found = tokenizer.encode_plain(text).unwrap();
        assert_eq!(json!(found), json!(ids), "{text:?}");
        compared += 1;
    }
    assert!(compared > 700, "only {compared} texts have references");
}

#[test]
fn ids_of_smollm2_are_those_of_llama_cpp_and_tiktoken() {
    let dir = smollm2_folder();
    assert_ids(&TextTokenizer::load(dir.path()).unwrap(), "smollm2");
}

#[test]
fn the_converted_smollm2_has_the_same_tokenizer() {
    let Some(folder) = fetched("smollm2-135m-instruct", "fetch_smollm2.sh") else {
        return;
    };
    assert_ids(&TextTokenizer::load(&folder).unwrap(), "smollm2");
    let file = std::fs::read(folder.join("tokenizer.json")).unwrap();
    let file: Value = serde_json::from_slice(&file).unwrap();
    assert_eq!(file["model"]["vocab"], smollm2()["model"]["vocab"]);
    assert_eq!(file["added_tokens"], smollm2()["added_tokens"]);
}

#[test]
fn ids_of_gemma_3_are_those_of_llama_cpp_and_sentencepiece() {
    let Some(folder) = fetched("gemma-3-270m", "fetch_gemma3_270m.sh") else {
        return;
    };
    assert_ids(&TextTokenizer::load(&folder).unwrap(), "gemma3");
}
