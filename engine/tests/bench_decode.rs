//! The program `mlxcel-bench-decode`, run as other tools run it.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::path::Path;
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::TempDir;

/// One cache for all tests of this file, so that a tiny model is made once.
fn cache() -> &'static Path {
    static CACHE: OnceLock<TempDir> = OnceLock::new();
    CACHE.get_or_init(|| tempfile::tempdir().unwrap()).path()
}

fn bench(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mlxcel-bench-decode"))
        .args(arguments.split_whitespace())
        .env("MLXCEL_SYNTH_CACHE", cache())
        .output()
        .unwrap()
}

fn json(arguments: &str) -> Value {
    let output = bench(&format!("{arguments} --json"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments}: {error}");
    assert_eq!(
        error, "",
        "a program that is not on a terminal reports no progress"
    );
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 1);
    serde_json::from_str(&text).unwrap()
}

fn failure(arguments: &str, code: i32) -> String {
    let output = bench(arguments);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments}: {error}");
    assert_eq!(output.stdout, b"", "{arguments}");
    error
}

const SMALL: &str =
    "-m synthetic:tiny-gemma3 --prompt-tokens 40 -n 24 --warmup-tokens 3 --ignore-eos";

/// Numbers become `#`, so that only words and shape are compared.
fn redacted(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '0'..='9' if out.ends_with('#') => {}
            '0'..='9' => out.push('#'),
            '.' if out.ends_with('#') => {}
            c => out.push(c),
        }
    }
    out
}

#[test]
fn the_text_keeps_its_lines_and_labels() {
    let output = bench(SMALL);
    assert!(output.status.success());
    let text = redacted(&String::from_utf8(output.stdout).unwrap());
    let shape: Vec<&str> = text.lines().take(11).collect();
    let memory = "active # GB, cache # GB, active+cache # GB, phase peak # GB";
    let expected = [
        "[Load] wall: # s  MLX peak: # GB".to_owned(),
        format!("[Memory] after load: {memory}"),
        format!("[Memory] after warmup (prefill + warmup tokens): {memory}"),
        format!("[Memory] after measured pass: {memory}"),
        "[Profile Results]".to_owned(),
        "  Prompt tokens:    #".to_owned(),
        "  Generated tokens: #".to_owned(),
        "  Prefill:          # ms (# tok/s)".to_owned(),
        "  Decode:           # ms (# tok/s)".to_owned(),
        "  Decode path:      engine".to_owned(),
        "  MLX peak memory:  # GB".to_owned(),
    ];
    assert_eq!(shape, expected);
    assert!(text.contains("[Model] synthetic gemma#"), "{text}");
}

#[test]
fn the_json_has_every_documented_field_and_only_finite_numbers() {
    let report = json(SMALL);
    let fields = report.as_object().unwrap();
    let names: Vec<&str> = fields.keys().map(String::as_str).collect();
    assert_eq!(names, FIELDS);
    // Only these may be null: the first outside git, the others where the
    // model, the operating system or the loop has none.
    let nullable = [
        "dirty",
        "window_tokens",
        "peak_resident_bytes",
        "sync_reason",
    ];
    for (name, value) in fields {
        assert!(
            !value.is_null() || nullable.contains(&name.as_str()),
            "{name}"
        );
        if let Some(number) = value.as_f64() {
            assert!(number.is_finite() && number >= 0.0, "{name}: {number}");
        }
    }
    for speed in [
        "prefill_tok_s",
        "decode_tok_s",
        "read_bandwidth_bytes_s",
        "bandwidth_share",
    ] {
        assert!(report[speed].as_f64().unwrap() > 0.0, "{speed}");
    }
}

#[rustfmt::skip]
const FIELDS: [&str; 80] = [
    "program", "version", "commit", "dirty", "features", "target", "profile",
    "model", "synthetic", "model_hash", "family", "layers", "vocab_size", "window_tokens",
    "quantisation", "tokenizer", "chat_template",
    "backend", "device", "architecture", "threads", "arithmetic", "kernels", "kv_dtype",
    "prompt_tokens", "requested_tokens", "warmup_tokens", "prefill_chunk_tokens", "ignore_eos",
    "temperature", "top_p", "seed",
    "load_ms", "prefill_ms", "prefill_tok_s", "ttft_ms", "decode_ms", "decode_tok_s",
    "inter_token_p50_ms", "inter_token_p99_ms",
    "generated_tokens", "stopped", "distinct_tokens", "token_sha256", "logits_sha256",
    "logits_finite",
    "decode_path", "lookahead_steps", "undo_rows_recorded", "undo_rows_copied", "undo_launches",
    "rewinds", "appends_rewound", "dropped_steps", "wrapped", "forced_sync", "undo_policy",
    "sync_reason",
    "route_profile", "route_profile_foreign", "route_counts", "qmm_options",
    "dequant_cache_hits", "dequant_cache_misses", "dequant_cache_inserts",
    "dequant_cache_evictions", "dequant_cache_bypasses", "dequant_cache_entries",
    "dequant_cache_bytes",
    "active_bytes", "cache_bytes", "peak_bytes", "peak_resident_bytes", "memory",
    "weight_bytes_per_token", "kv_bytes_per_token", "decode_bytes_s", "read_bandwidth_bytes_s",
    "read_bandwidth_best_bytes_s", "bandwidth_share",
];

#[test]
fn what_was_asked_for_is_what_was_done() {
    let report = json(SMALL);
    assert_eq!(report["prompt_tokens"], 40);
    assert_eq!(report["generated_tokens"], 24);
    assert_eq!(report["stopped"], "max_tokens");
    assert_eq!(report["window_tokens"], 32);
    assert_eq!(
        report["wrapped"], true,
        "40 tokens of prompt fill a window of 32"
    );
    assert_eq!(report["synthetic"], true);
    assert_eq!(report["tokenizer"], "bytes");
    assert_eq!(report["backend"], "cpu");
    assert_eq!(report["logits_finite"], true);
    let weights = report["weight_bytes_per_token"].as_u64().unwrap();
    assert!(report["active_bytes"].as_u64().unwrap() > weights);
    assert!(report["peak_bytes"].as_u64() >= report["active_bytes"].as_u64());
}

#[test]
fn a_short_run_does_not_wrap_the_window() {
    let report = json("-m synthetic:tiny-gemma3 --prompt-tokens 8 -n 8 --ignore-eos");
    assert_eq!(report["wrapped"], false);
}

#[test]
fn the_same_call_gives_the_same_tokens_logits_and_memory() {
    let (one, two) = (json(SMALL), json(SMALL));
    for field in ["token_sha256", "logits_sha256", "model_hash"] {
        assert_eq!(one[field], two[field], "{field}");
    }
    // Messages to and from the device's thread may be under way when the account is read.
    let active = |report: &Value| report["active_bytes"].as_u64().unwrap();
    let difference = active(&one).abs_diff(active(&two));
    assert!(difference < MESSAGE_BYTES, "{difference} bytes");
}

/// More than the messages of a few steps take, less than any buffer of the model.
const MESSAGE_BYTES: u64 = 2048;

#[test]
fn thread_count_and_chunk_size_do_not_change_greedy_tokens() {
    let plain = json(&format!("{SMALL} --arithmetic float32"));
    let other = json(&format!(
        "{SMALL} --arithmetic float32 --threads 1 --prefill-chunk 7"
    ));
    assert_eq!(plain["token_sha256"], other["token_sha256"]);
    assert_eq!(other["threads"], 1);
    assert_eq!(other["prefill_chunk_tokens"], 7);
}

#[test]
fn sampling_follows_the_seed() {
    let warm = |seed: u32| {
        json(&format!(
            "{SMALL} --temperature 1.5 --top-p 0.95 --seed {seed}"
        ))["token_sha256"]
            .clone()
    };
    assert_eq!(warm(7), warm(7));
    assert_ne!(warm(7), warm(8));
}

#[test]
fn synthetic_models_of_every_family_do_not_repeat_themselves() {
    for name in ["tiny-gemma3", "tiny-llama", "tiny-qwen3"] {
        for arithmetic in ["float32", "fast"] {
            let report = json(&format!(
                "-m synthetic:{name} --prompt-tokens 40 -n 128 --ignore-eos --arithmetic {arithmetic}"
            ));
            let distinct = report["distinct_tokens"].as_u64().unwrap();
            assert!(distinct >= 32, "{name} {arithmetic}: {distinct}");
            assert_eq!(report["logits_finite"], true, "{name} {arithmetic}");
        }
    }
}

#[test]
fn without_a_warm_up_there_are_no_logits() {
    let report = json("-m synthetic:tiny-llama --prompt-tokens 4 -n 2 --warmup-tokens 0");
    assert!(report["logits_sha256"].is_null());
}

#[test]
fn a_text_prompt_is_tokenised_by_bytes() {
    let report = json("-m synthetic:tiny-llama -p hello -n 2 --warmup-tokens 1");
    assert_eq!(report["prompt_tokens"], 5);
}

#[test]
fn misuse_is_exit_code_2_and_failure_is_1_with_one_line() {
    failure("", 2);
    failure("-m x --prompt-tokens 0", 2);
    failure("-m x --no-such-option", 2);
    for (arguments, expected) in [
        ("-m /no/such/folder", "/no/such/folder"),
        ("-m synthetic:gemma9-1t", "gemma9-1t"),
        ("-m synthetic:tiny-llama --backend cuda", "cuda"),
        ("-m synthetic:tiny-llama --backend rocm", "rocm"),
        ("-m Cargo.toml", "not a folder"),
        ("-m src", "config.json"),
    ] {
        let error = failure(arguments, 1);
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(error.starts_with("mlxcel-bench-decode: "), "{error}");
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn an_absent_back_end_is_reported_before_a_model_is_made() {
    let empty = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_mlxcel-bench-decode"))
        .args(["-m", "synthetic:llama-3.1-8b", "--backend", "cuda"])
        .env("MLXCEL_SYNTH_CACHE", empty.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(std::fs::read_dir(empty.path()).unwrap().count(), 0);
}

/// What the error must contain, and how the folder is spoiled.
type Damage = (&'static str, fn(&Path));

#[test]
fn damaged_folders_are_one_clear_line_that_names_the_file() {
    let cases: [Damage; 5] = [
        ("size in bytes", |folder| {
            truncate(&folder.join("model.safetensors"), 5000)
        }),
        ("model.safetensors", |folder| {
            std::fs::remove_file(folder.join("synthetic.json")).unwrap();
            truncate(&folder.join("model.safetensors"), 5000);
        }),
        ("config.json", |folder| {
            std::fs::remove_file(folder.join("synthetic.json")).unwrap();
            std::fs::write(folder.join("config.json"), "{ \"model_type\": ").unwrap();
        }),
        ("model_type", |folder| {
            std::fs::remove_file(folder.join("synthetic.json")).unwrap();
            std::fs::write(folder.join("config.json"), r#"{"model_type": "mamba9"}"#).unwrap();
        }),
        ("safetensors", |folder| {
            std::fs::remove_file(folder.join("synthetic.json")).unwrap();
            let path = folder.join("model.safetensors");
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[..8].copy_from_slice(&u64::MAX.to_le_bytes());
            std::fs::write(&path, bytes).unwrap();
        }),
    ];
    for (expected, damage) in cases {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().join("model");
        let made = Command::new(env!("CARGO_BIN_EXE_mlxcel"))
            .args(["synth", "tiny-llama"])
            .arg(&folder)
            .output()
            .unwrap();
        assert!(made.status.success());
        damage(&folder);
        let error = failure(&format!("-m {}", folder.display()), 1);
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

fn truncate(path: &Path, bytes: u64) {
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(bytes).unwrap();
}

fn json_with(environment: &[(&str, &str)], arguments: &str) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_mlxcel-bench-decode"))
        .args(format!("{arguments} --json").split_whitespace())
        .env("MLXCEL_SYNTH_CACHE", cache())
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn three_loops_give_one_text_and_say_how_they_worked() {
    let generator = json(&format!("{SMALL} --loop generator"));
    let engine = json(SMALL);
    // An empty value counts: the variable is there.
    let sync = json_with(&[("MLXCEL_FORCE_SYNC", "")], SMALL);
    for field in ["token_sha256", "logits_sha256"] {
        assert_eq!(generator[field], engine[field], "{field}");
        assert_eq!(generator[field], sync[field], "{field}");
    }
    assert_eq!(generator["decode_path"], "generator");
    assert_eq!(generator["dropped_steps"], 1);
    assert_eq!(generator["undo_rows_recorded"], 0);
    assert_eq!(engine["decode_path"], "engine");
    assert_eq!(engine["lookahead_steps"], 23);
    assert_eq!(engine["rewinds"], 0, "a spent budget has no step behind it");
    assert_eq!(engine["sync_reason"], Value::Null);
    assert_eq!(engine["undo_policy"], "slack");
    for counter in ["undo_rows_recorded", "undo_rows_copied", "undo_launches"] {
        assert_eq!(engine[counter], 0, "{counter}");
    }
    assert_eq!(sync["decode_path"], "engine");
    assert_eq!(sync["forced_sync"], true);
    assert_eq!(sync["sync_reason"], "forced_sync");
    assert_eq!(
        (&sync["lookahead_steps"], &sync["undo_rows_recorded"]),
        (&0.into(), &0.into())
    );
}

#[test]
fn every_undo_policy_gives_the_same_text_at_its_own_price() {
    let run = |policy| json_with(&[("MLXCEL_UNDO", policy)], SMALL);
    let plain = run("own_copies");
    // 24 steps over a full window; a key and a value in each windowed layer of the tiny model.
    let rows = 24 * 2 * 4;
    assert_eq!(
        (&plain["undo_rows_copied"], &plain["undo_launches"]),
        (&rows.into(), &rows.into())
    );
    let reports = ["in_append", "slack", "sync_once_full", "discard"].map(run);
    for report in &reports {
        assert_eq!(report["token_sha256"], plain["token_sha256"], "{report}");
        assert_eq!(report["logits_sha256"], plain["logits_sha256"], "{report}");
        assert_eq!(report["undo_launches"], 0, "{report}");
    }
    let [in_append, slack, sync, discard] = reports;
    assert_eq!(in_append["undo_rows_copied"], rows);
    assert_eq!(sync["sync_reason"], "window_full");
    assert_eq!(sync["lookahead_steps"], 0, "the prompt fills the window");
    assert_eq!(discard["lookahead_steps"], 23);
    assert_eq!(slack["lookahead_steps"], 23);
    assert_eq!(slack["wrapped"], true);
    assert_eq!(slack["undo_rows_recorded"], 0);
    for report in [slack, sync, discard] {
        assert_eq!(report["undo_rows_copied"], 0, "{report}");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_mlxcel-bench-decode"))
        .args(SMALL.split_whitespace())
        .env("MLXCEL_UNDO", "magic")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("expected one of slack"));
}
