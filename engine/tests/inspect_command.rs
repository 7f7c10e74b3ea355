//! `mlxcel inspect`, run as a user runs it, on good, foreign and broken folders.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod folders;

use std::path::Path;
use std::process::Command;

use folders::{config, fixture, multimodal, shard_name, tensors, write_folder};
use serde_json::{Value, json};

fn run(dir: &Path, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_mlxcel"))
        .arg("inspect")
        .arg(dir)
        .args(arguments)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    String::from_utf8(output.stdout).unwrap()
}

fn inspect(dir: &Path) -> Value {
    serde_json::from_str(&run(dir, &["--json"])).unwrap()
}

fn problems(report: &Value) -> String {
    assert_eq!(report["loads"], report["problems"] == json!([]));
    report["problems"].to_string()
}

#[test]
fn a_good_folder_loads_and_its_sizes_add_up() {
    for family in ["gemma3_text", "llama", "qwen3"] {
        let report = inspect(&fixture(family));
        assert_eq!(report["loads"], true, "{report}");
        let sum = |list: &str| -> u64 {
            let list = report[list].as_array().unwrap();
            list.iter()
                .map(|entry| entry["bytes"].as_u64().unwrap())
                .sum()
        };
        let tensor_bytes: usize = tensors(family).values().map(|t| t.bytes.len()).sum();
        assert_eq!(sum("formats"), tensor_bytes as u64);
        assert_eq!(sum("modules"), tensor_bytes as u64);
        assert_eq!(sum("shards"), report["total_bytes"].as_u64().unwrap());
        assert_eq!(report["unused"], json!([]));
    }
}

#[test]
fn the_cache_is_that_of_the_configuration() {
    let report = inspect(&fixture("gemma3_text"));
    let config = config("gemma3_text");
    let number = |key: &str| config[key].as_u64().unwrap();
    let cache = &report["cache"];
    let layers = cache["full_layers"].as_u64().unwrap() + cache["window_layers"].as_u64().unwrap();
    assert_eq!(layers, number("num_hidden_layers"));
    let row = 2 * number("num_key_value_heads") * number("head_dim");
    let full = cache["full_layers"].as_u64().unwrap();
    assert_eq!(cache["bytes_per_1k_tokens"], full * row * 2 * 1024);
    assert_eq!(cache["window_tokens"], number("sliding_window"));
    assert_eq!(cache["estimated"], false);
}

#[test]
fn the_vision_tower_of_a_multimodal_folder_is_named_as_unused() {
    let dir = tempfile::tempdir().unwrap();
    multimodal(dir.path(), 2);
    let report = inspect(dir.path());
    assert_eq!(report["loads"], true, "{report}");
    assert_eq!(report["family"], "gemma3");
    let unused = json!([
        {"prefix": "multi_modal_projector", "tensors": 1},
        {"prefix": "vision_tower", "tensors": 2},
    ]);
    assert_eq!(report["unused"], unused);
}

#[test]
fn an_unknown_family_is_described_and_its_reason_given() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config("qwen3");
    config["model_type"] = json!("qwen9_moe");
    write_folder(dir.path(), &config, &tensors("qwen3"), 1);
    let report = inspect(dir.path());
    assert!(problems(&report).contains("unsupported model_type `qwen9_moe`"));
    assert_eq!(report["family"], Value::Null);
    assert_eq!(report["layers"], config["num_hidden_layers"]);
    assert_eq!(report["cache"]["estimated"], true);
    let known = inspect(&fixture("qwen3"));
    assert_eq!(report["formats"], known["formats"]);
    assert_eq!(
        report["cache"]["bytes_per_1k_tokens"],
        known["cache"]["bytes_per_1k_tokens"]
    );
}

#[test]
fn every_problem_is_reported_not_only_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config("qwen3");
    config["num_attention_heads"] = json!(-4);
    write_folder(dir.path(), &config, &tensors("qwen3"), 4);
    std::fs::remove_file(dir.path().join(shard_name(2, 4))).unwrap();
    std::fs::write(dir.path().join(shard_name(0, 4)), b"not a shard").unwrap();
    let found = problems(&inspect(dir.path()));
    for part in [
        "num_attention_heads",
        &shard_name(2, 4),
        "not a valid safetensors file",
    ] {
        assert!(found.contains(part), "`{part}` is not in {found}");
    }
}

#[test]
fn a_format_without_a_kernel_is_named_with_its_modules() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = tensors("qwen3");
    let name = "model.layers.1.mlp.down_proj";
    // nvfp4: no biases, one byte of scale for 16 codes of 4 bits.
    all.remove(&format!("{name}.biases"));
    let rows = all[&format!("{name}.weight")].shape[0];
    let words = all[&format!("{name}.weight")].shape[1];
    let scales = all.get_mut(&format!("{name}.scales")).unwrap();
    scales.dtype = "U8".to_owned();
    scales.shape = vec![rows, words / 2];
    scales.bytes = vec![56; rows * words / 2];
    write_folder(dir.path(), &config("qwen3"), &all, 1);
    let report = inspect(dir.path());
    let found = problems(&report);
    assert!(found.contains("no kernel reads `nvfp4`"), "{found}");
    assert!(found.contains(name), "{found}");
}

#[test]
fn mxfp4_loads_and_what_it_is_executed_as_is_said() {
    let dir = tempfile::tempdir().unwrap();
    // The Llama fixture has four bits in groups of 32; its codes are as good as any.
    let mut all = tensors("llama");
    let name = "model.layers.1.mlp.down_proj";
    all.remove(&format!("{name}.biases"));
    let scales = all.get_mut(&format!("{name}.scales")).unwrap();
    scales.dtype = "U8".to_owned();
    scales.bytes = vec![120; scales.bytes.len() / 2];
    write_folder(dir.path(), &config("llama"), &all, 1);
    let report = inspect(dir.path());
    assert_eq!(report["loads"], true, "{report}");
    let share = &report["formats"][1];
    assert_eq!(
        (&share["format"], &share["modules"]),
        (&json!("mxfp4"), &json!(1))
    );
    assert_eq!(share["parameters"], 128 * 192);
    assert_eq!(share["executed_as"], "affine 5-bit g32");
    assert_eq!(report["formats"][0]["executed_as"], Value::Null);
    let text = run(dir.path(), &[]);
    assert!(text.contains("executed as affine 5-bit g32"), "{text}");
}

#[test]
fn a_missing_tensor_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = tensors("llama");
    all.remove("model.layers.0.mlp.up_proj.weight");
    write_folder(dir.path(), &config("llama"), &all, 2);
    let found = problems(&inspect(dir.path()));
    assert!(found.contains("model.layers.0.mlp.up_proj"), "{found}");
}

#[test]
fn the_text_says_what_the_json_says() {
    let text = run(&fixture("gemma3_text"), &[]);
    for part in [
        "Loads:     yes",
        "gemma3 (gemma3_text)",
        "per 1k tokens",
        "model.layers.*.mlp.down_proj",
    ] {
        assert!(text.contains(part), "`{part}` is not in\n{text}");
    }
}

#[test]
fn an_empty_folder_is_a_report_and_a_file_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let found = problems(&inspect(dir.path()));
    assert!(found.contains("config.json"), "{found}");
    assert!(found.contains("no model*.safetensors"), "{found}");
    let file = dir.path().join("config.json");
    std::fs::write(&file, "{}").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_mlxcel"))
        .arg("inspect")
        .arg(&file)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("is not a folder")
    );
}

#[test]
fn the_tokenizer_is_described_and_held_against_the_embedding() {
    let dir = tempfile::tempdir().unwrap();
    write_folder(dir.path(), &config("qwen3"), &tensors("qwen3"), 1);
    assert_eq!(inspect(dir.path())["tokenizer"], Value::Null);
    let file = dir.path().join("tokenizer.json");
    std::fs::copy(
        fixture("tokenizers/sentencepiece").join("tokenizer.json"),
        &file,
    )
    .unwrap();
    let report = inspect(dir.path());
    assert_eq!(report["tokenizer"]["tokens"], 512);
    assert_eq!(report["tokenizer"]["start_tokens"], json!([2]));
    assert_eq!(report["tokenizer"]["chat_template"], false);
    let found = problems(&report);
    assert!(
        found.contains("id 511, but the embedding has 256 rows"),
        "{found}"
    );
    std::fs::write(&file, "{}").unwrap();
    assert!(problems(&inspect(dir.path())).contains("tokenizer.json"));
}
