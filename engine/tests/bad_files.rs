//! Truncated, lying and foreign files: one clear error each, no panic, no huge allocation.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use mlxcel_engine::weights::SafetensorsFile;
use mlxcel_engine::{Arithmetic, Engine, LoadError, LoadOptions};
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

fn fixture(family: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(family)
}

/// A copy of a fixture to break.
fn copy_of(family: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(fixture(family).join(name), dir.path().join(name)).unwrap();
    }
    dir
}

fn copy() -> TempDir {
    copy_of("qwen3")
}

fn load(dir: &Path, arithmetic: Arithmetic) -> Result<Engine, LoadError> {
    let options = LoadOptions {
        arithmetic,
        threads: 1,
        ..LoadOptions::default()
    };
    Engine::load(dir, &options, &mut |_| {})
}

/// The error's text, which must name everything in `parts`; both arithmetics must agree on it.
fn assert_refused(dir: &Path, parts: &[&str]) {
    for arithmetic in [Arithmetic::Float32, Arithmetic::Fast] {
        let error = load(dir, arithmetic).err().map(|error| error.to_string());
        let text = error.unwrap_or_else(|| "loaded without an error".to_owned());
        for part in parts {
            assert!(text.contains(part), "`{part}` is not in `{text}`");
        }
    }
}

fn header_and_data(bytes: &[u8]) -> (Value, Vec<u8>) {
    let (length, rest) = bytes.split_first_chunk::<8>().unwrap();
    let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
    (serde_json::from_slice(header).unwrap(), data.to_vec())
}

fn file_bytes(header: &Value, data: &[u8]) -> Vec<u8> {
    let header = header.to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(data);
    bytes
}

/// A copy of the fixture whose header was changed.
fn with_header(change: impl FnOnce(&mut Value)) -> TempDir {
    let dir = copy();
    let path = dir.path().join("model.safetensors");
    let (mut header, data) = header_and_data(&std::fs::read(&path).unwrap());
    change(&mut header);
    std::fs::write(&path, file_bytes(&header, &data)).unwrap();
    dir
}

fn with_config(change: impl FnOnce(&mut Value)) -> TempDir {
    let dir = copy();
    let path = dir.path().join("config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut config);
    std::fs::write(&path, config.to_string()).unwrap();
    dir
}

// ---- safetensors --------------------------------------------------------------------------------

#[test]
fn a_file_cut_anywhere_is_refused() {
    let dir = copy();
    let path = dir.path().join("model.safetensors");
    let whole = std::fs::read(&path).unwrap();
    let cuts = [0, 1, 7, 8, 9, 1000, whole.len() / 2, whole.len() - 1];
    for cut in cuts {
        std::fs::write(&path, &whole[..cut]).unwrap();
        assert_refused(
            dir.path(),
            &["model.safetensors", "not a valid safetensors file"],
        );
    }
}

#[test]
fn bytes_after_the_last_tensor_are_refused() {
    let dir = copy();
    let path = dir.path().join("model.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.push(0);
    std::fs::write(&path, &bytes).unwrap();
    assert_refused(dir.path(), &["tensors cover", "the file has"]);
}

#[test]
fn a_header_longer_than_the_file_is_refused() {
    let dir = copy();
    let path = dir.path().join("model.safetensors");
    for length in [u64::MAX, 1 << 40, 99_000_000] {
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[..8].copy_from_slice(&length.to_le_bytes());
        std::fs::write(&path, &bytes).unwrap();
        assert_refused(dir.path(), &["header length of", &length.to_string()]);
    }
}

#[test]
fn a_header_that_is_no_json_object_is_refused() {
    let dir = copy();
    let path = dir.path().join("model.safetensors");
    for header in ["[1, 2]", "{\"a\": ", "\u{1}\u{2}"] {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        std::fs::write(&path, &bytes).unwrap();
        assert_refused(dir.path(), &["header is"]);
    }
}

const NORM: &str = "model.norm.weight";

#[test]
fn offsets_beyond_the_file_are_refused() {
    let dir = with_header(|h| h[NORM]["data_offsets"] = json!([0, 1u64 << 60]));
    assert_refused(dir.path(), &[NORM, "data_offsets [0, 1152921504606846976]"]);
    let dir = with_header(|h| h[NORM]["data_offsets"] = json!([512, 256]));
    assert_refused(dir.path(), &[NORM, "expected ascending"]);
}

#[test]
fn overlapping_tensors_and_holes_are_refused() {
    let dir = with_header(|header| {
        let offsets = &mut header["model.layers.1.input_layernorm.weight"]["data_offsets"];
        let (begin, end) = (offsets[0].as_u64().unwrap(), offsets[1].as_u64().unwrap());
        *offsets = json!([begin - 256, end - 256]);
    });
    assert_refused(dir.path(), &["overlaps the tensor before it"]);
    let dir = with_header(|header| {
        header
            .as_object_mut()
            .unwrap()
            .remove("model.embed_tokens.biases");
    });
    assert_refused(dir.path(), &["leaves a hole before it"]);
}

#[test]
fn a_size_that_contradicts_type_and_shape_is_refused() {
    let dir = with_header(|header| header[NORM]["dtype"] = json!("F32"));
    assert_refused(
        dir.path(),
        &[NORM, "F32 [128] is 512 bytes, data_offsets hold 256"],
    );
    let dir = with_header(|header| header[NORM]["shape"] = json!([1u64 << 40, 1u64 << 40]));
    assert_refused(dir.path(), &[NORM, "overflows"]);
    let dir = with_header(|header| header[NORM]["shape"] = json!([-1]));
    assert_refused(dir.path(), &[NORM, "`shape` holds -1"]);
    let dir = with_header(|header| header[NORM]["dtype"] = json!("F7"));
    assert_refused(dir.path(), &[NORM, "unknown dtype `F7`"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_change_of_the_first_bytes_makes_the_reader_panic(
        changes in prop::collection::vec((0usize..2000, any::<u8>()), 1..4),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.safetensors");
        let mut bytes = std::fs::read(fixture("qwen3").join("model.safetensors")).unwrap();
        for (at, value) in changes {
            bytes[at] = value;
        }
        std::fs::write(&path, &bytes).unwrap();
        if let Ok(file) = SafetensorsFile::open(&path) {
            for name in file.names() {
                // Whatever the header now says, the bytes are there.
                prop_assert!(file.tensor(name).is_some());
            }
        }
    }
}

// ---- tensors ------------------------------------------------------------------------------------

#[test]
fn a_missing_tensor_is_named() {
    let dir = with_header(|header| {
        let map = header.as_object_mut().unwrap();
        let tensor = map.remove("model.layers.2.mlp.up_proj.weight").unwrap();
        map.insert("something.else".to_owned(), tensor);
    });
    assert_refused(
        dir.path(),
        &["`model.layers.2.mlp.up_proj.weight` is missing"],
    );
}

#[test]
fn a_wrong_shape_is_named_with_both_shapes() {
    let dir = with_header(|header| header[NORM]["shape"] = json!([2, 64]));
    assert_refused(
        dir.path(),
        &[NORM, "expected shape [128]", "got Bf16 [2, 64]"],
    );
    let dir = with_config(|config| config["vocab_size"] = json!(255));
    assert_refused(
        dir.path(),
        &["model.embed_tokens.weight", "expected shape [255, 16]"],
    );
}

#[test]
fn codes_that_fit_no_format_are_refused() {
    let dir = with_config(|config| config["hidden_size"] = json!(96));
    assert_refused(dir.path(), &["model.embed_tokens.weight", "affine format"]);
    let name = "model.layers.0.mlp.down_proj";
    let dir = with_config(|config| {
        config["quantization"][name] = json!({"bits": 8, "group_size": 64});
    });
    assert_refused(
        dir.path(),
        &[name, "expected shape [128, 48]", "got U32 [128, 24]"],
    );
    let dir = with_config(|config| config["quantization"][name] = json!(false));
    assert_refused(dir.path(), &[name, "no scales"]);
}

#[test]
fn codes_of_the_wrong_type_are_refused() {
    let name = "model.layers.0.mlp.down_proj.weight";
    let dir = with_header(|header| header[name]["dtype"] = json!("I32"));
    assert_refused(dir.path(), &[name, "expected U32 codes", "got I32"]);
}

#[test]
fn a_tensor_in_two_shards_is_refused() {
    let dir = copy();
    let path = dir.path().join("model.safetensors");
    std::fs::copy(&path, dir.path().join("model-2.safetensors")).unwrap();
    assert_refused(
        dir.path(),
        &["is both in", "model-2.safetensors", "model.safetensors"],
    );
}

#[test]
fn a_folder_without_weights_is_refused() {
    let dir = copy();
    std::fs::remove_file(dir.path().join("model.safetensors")).unwrap();
    assert_refused(dir.path(), &["no model*.safetensors"]);
}

// ---- config.json --------------------------------------------------------------------------------

#[test]
fn an_unsupported_family_is_named_with_those_there_are() {
    let dir = with_config(|config| config["model_type"] = json!("mamba9"));
    assert_refused(
        dir.path(),
        &["config.json", "`mamba9`", "gemma3", "llama", "qwen3"],
    );
}

#[test]
fn keys_that_are_missing_or_wrong_are_named() {
    type Change = fn(&mut Value);
    let cases: [(Change, &[&str]); 11] = [
        (
            |c| c["vocab_size"] = json!((1 << 20) + 1),
            &[
                "`vocab_size`",
                "a whole number from 1 to 1048576",
                "got 1048577",
            ],
        ),
        (
            |c| c["head_dim"] = json!(1u64 << 30),
            &[
                "`head_dim`",
                "an even number from 2 to 8192",
                "got 1073741824",
            ],
        ),
        (
            |c| drop(c.as_object_mut().unwrap().remove("hidden_size")),
            &["`hidden_size`", "got nothing"],
        ),
        (
            |c| c["hidden_size"] = json!(-3),
            &["`hidden_size`", "got -3"],
        ),
        (
            |c| c["num_hidden_layers"] = json!(1u64 << 40),
            &["`num_hidden_layers`", "from 1 to 4096", "got 1099511627776"],
        ),
        (
            |c| c["num_key_value_heads"] = json!(3),
            &[
                "`num_key_value_heads`",
                "a divisor of num_attention_heads = 4",
                "got 3",
            ],
        ),
        (
            |c| c["rms_norm_eps"] = json!("small"),
            &["`rms_norm_eps`", "got \"small\""],
        ),
        (
            |c| c["rope_scaling"] = json!({"rope_type": "yarn"}),
            &["`rope_scaling.rope_type`", "got \"yarn\""],
        ),
        (
            |c| c["quantization"]["bits"] = json!(7),
            &["`quantization.bits, group_size`", "7 bits"],
        ),
        (
            |c| c["quantization"]["mode"] = json!("nvfp4"),
            &["`quantization.mode`", "affine or mxfp4", "got \"nvfp4\""],
        ),
        (
            |c| c["use_sliding_window"] = json!(true),
            &["`use_sliding_window`", "got true"],
        ),
    ];
    for (change, parts) in cases {
        assert_refused(with_config(change).path(), parts);
    }
}

#[test]
fn heads_that_leave_nothing_for_each_are_refused() {
    let dir = copy_of("llama");
    let path = dir.path().join("config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    config.as_object_mut().unwrap().remove("head_dim");
    config["num_attention_heads"] = json!(256);
    config["num_key_value_heads"] = json!(256);
    std::fs::write(&path, config.to_string()).unwrap();
    assert_refused(dir.path(), &["`head_dim`", "got 0"]);
}

/// What a mistaken or malicious config.json may hold anywhere.
fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0u64..300).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z_]{0,8}".prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
        Just(json!(["full_attention"])),
        Just(json!({"rope_type": "llama3", "factor": 8.0})),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn no_value_of_any_keys_makes_loading_panic(
        family in prop::sample::select(vec!["gemma3_text", "llama", "qwen3"]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any_value()), 1..3),
    ) {
        let dir = copy_of(family);
        let path = dir.path().join("config.json");
        let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let keys: Vec<String> = config.as_object().unwrap().keys().cloned().collect();
        for (index, value) in changes {
            config[index.get(&keys).as_str()] = value;
        }
        std::fs::write(&path, config.to_string()).unwrap();
        // An error or a model, in either arithmetic; a panic fails the test by itself.
        let float32 = load(dir.path(), Arithmetic::Float32);
        let fast = load(dir.path(), Arithmetic::Fast);
        prop_assert!(float32.is_ok() || fast.is_err());
    }
}

#[test]
fn a_config_that_is_no_json_or_not_there_is_refused() {
    let dir = copy();
    let path = dir.path().join("config.json");
    std::fs::write(&path, "{\"model_type\": \"qwen3\",").unwrap();
    assert_refused(dir.path(), &["config.json", "line 1"]);
    std::fs::write(&path, "[]").unwrap();
    assert_refused(dir.path(), &["config.json", "expected an object"]);
    std::fs::remove_file(&path).unwrap();
    assert_refused(dir.path(), &["config.json"]);
}

#[test]
fn fast_arithmetic_says_when_a_head_does_not_fit_its_vectors() {
    let dir = copy_of("llama");
    let path = dir.path().join("config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    // The same rows in shorter heads: still a consistent model.
    config["num_attention_heads"] = json!(16);
    config["num_key_value_heads"] = json!(8);
    config["head_dim"] = json!(8);
    std::fs::write(&path, config.to_string()).unwrap();
    assert!(load(dir.path(), Arithmetic::Float32).is_ok());
    let text = load(dir.path(), Arithmetic::Fast)
        .err()
        .unwrap()
        .to_string();
    assert!(
        text.contains("head_dim that is a multiple of 16, got 8"),
        "{text}"
    );
}
