//! Whole conversions: a folder with reference outputs goes to GGUF and comes back, and must still
//! give those outputs; small vocabularies give the tokenizer.json that they should.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{ConvertError, ConvertOptions, convert};
use crate::check::{CheckOptions, check};
use crate::quant::{AffineFormat, dequantize_row};
use crate::weights::WeightStore;
use crate::weights::gguf::BlockType;
use crate::weights::gguf::testing::Builder;
use crate::{Arithmetic, BackendChoice};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// A vocabulary that a model of 256 rows can have.
fn add_vocabulary(file: &mut Builder) {
    let pieces = [
        "<unk>",
        "<s>",
        "</s>",
        "<|im_end|>",
        "\u{2581}",
        "a",
        "b",
        "ab",
        "\u{2581}ab",
        "<0x0A>",
        "  ",
    ];
    file.text("tokenizer.ggml.model", "llama")
        .texts("tokenizer.ggml.tokens", &pieces)
        .integers(
            "tokenizer.ggml.token_type",
            &[2, 3, 3, 3, 1, 1, 1, 1, 1, 6, 4],
        )
        .floats(
            "tokenizer.ggml.scores",
            &[0.0, 0.0, 0.0, 0.0, -9.0, -9.0, -9.0, -1.0, -2.0, 0.0, 0.0],
        )
        .u32("tokenizer.ggml.bos_token_id", 1)
        .u32("tokenizer.ggml.eos_token_id", 2)
        .u32("tokenizer.ggml.unknown_token_id", 0);
}

/// The values of a module of the folder, row after row.
fn matrix(store: &WeightStore, path: &str, group: u64) -> (Vec<usize>, Vec<f32>) {
    let weight = store.tensor(&format!("{path}.weight")).unwrap();
    let scales = store.tensor(&format!("{path}.scales")).unwrap();
    let biases = store.tensor(&format!("{path}.biases")).unwrap();
    let (scales, biases) = (scales.to_f32().unwrap(), biases.to_f32().unwrap());
    let format = AffineFormat::new(4, group).unwrap();
    let (rows, columns) = (weight.shape[0], weight.shape[1] * 8);
    let groups = format.groups_per_row(columns);
    let mut values = vec![0.0; rows * columns];
    for (row, out) in values.chunks_mut(columns).enumerate() {
        let of = |all: &[f32]| all[row * groups..(row + 1) * groups].to_vec();
        let stream = &weight.bytes[row * format.bytes_per_row(columns)..];
        dequantize_row(format, stream, &of(&scales), &of(&biases), out);
    }
    (vec![rows, columns], values)
}

/// What llama.cpp's converter does to q and k: the two halves of a head become pairs.
fn pairs_together(shape: &[usize], values: &[f32], head_dim: usize) -> Vec<f32> {
    let columns = shape[1];
    let row = |row: usize| {
        let (head, at) = (row / head_dim, row % head_dim);
        let source = head * head_dim + at % 2 * (head_dim / 2) + at / 2;
        &values[source * columns..(source + 1) * columns]
    };
    (0..shape[0]).flat_map(row).copied().collect()
}

const MATRICES: [(&str, &str); 7] = [
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

const LLAMA_NORMS: [(&str, &str); 2] = [
    ("attn_norm", "input_layernorm"),
    ("ffn_norm", "post_attention_layernorm"),
];

const GEMMA_NORMS: [(&str, &str); 6] = [
    ("attn_norm", "input_layernorm"),
    ("post_attention_norm", "post_attention_layernorm"),
    ("ffn_norm", "pre_feedforward_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
];

/// The fixture as llama.cpp's converter would write it, in float32.
fn as_gguf(name: &str) -> Builder {
    let dir = fixture(name);
    let config = read_json(&dir.join("config.json"));
    let count = |key: &str| config[key].as_u64().unwrap() as u32;
    let gemma = name == "gemma3_text";
    let arch = if gemma { "gemma3" } else { "llama" };
    let mut file = Builder::default();
    file.text("general.architecture", arch);
    for (key, value) in [
        ("block_count", "num_hidden_layers"),
        ("context_length", "max_position_embeddings"),
        ("embedding_length", "hidden_size"),
        ("feed_forward_length", "intermediate_size"),
        ("attention.head_count", "num_attention_heads"),
        ("attention.head_count_kv", "num_key_value_heads"),
        ("attention.key_length", "head_dim"),
    ] {
        file.u32(&format!("{arch}.{key}"), count(value));
    }
    let number = |key: &str| config[key].as_f64().unwrap() as f32;
    file.f32(&format!("{arch}.rope.freq_base"), number("rope_theta"));
    let eps = format!("{arch}.attention.layer_norm_rms_epsilon");
    file.f32(&eps, number("rms_norm_eps"));
    if gemma {
        file.u32("gemma3.attention.sliding_window", count("sliding_window"));
    }
    add_vocabulary(&mut file);
    let store = WeightStore::open(&dir, "").unwrap();
    let group = config["quantization"]["group_size"].as_u64().unwrap();
    let (shape, values) = matrix(&store, "model.embed_tokens", group);
    file.floats_tensor("token_embd.weight", &shape, &values);
    let (plus, norms) = if gemma {
        (1.0, GEMMA_NORMS.as_slice())
    } else {
        (0.0, LLAMA_NORMS.as_slice())
    };
    let mut norm = |source: String, target: String| {
        let mut values = store.tensor(&source).unwrap().to_f32().unwrap();
        values.iter_mut().for_each(|value| *value += plus);
        file.floats_tensor(&target, &[values.len()], &values);
    };
    norm("model.norm.weight".into(), "output_norm.weight".into());
    for layer in 0..count("num_hidden_layers") {
        for (gguf, mlx) in norms {
            norm(
                format!("model.layers.{layer}.{mlx}.weight"),
                format!("blk.{layer}.{gguf}.weight"),
            );
        }
    }
    for layer in 0..count("num_hidden_layers") {
        for (gguf, mlx) in MATRICES {
            let (shape, mut values) = matrix(&store, &format!("model.layers.{layer}.{mlx}"), group);
            if !gemma && matches!(gguf, "attn_q" | "attn_k") {
                values = pairs_together(&shape, &values, count("head_dim") as usize);
            }
            file.floats_tensor(&format!("blk.{layer}.{gguf}.weight"), &shape, &values);
        }
    }
    file
}

struct Converted {
    _scratch: tempfile::TempDir,
    source: PathBuf,
    folder: PathBuf,
}

fn converted(file: &Builder) -> Result<Converted, ConvertError> {
    let scratch = tempfile::tempdir().unwrap();
    let source = scratch.path().join("model.gguf");
    let folder = scratch.path().join("folder");
    std::fs::write(&source, file.bytes()).unwrap();
    convert(&source, &folder, ConvertOptions::default(), &mut |_, _| {})?;
    Ok(Converted {
        _scratch: scratch,
        source,
        folder,
    })
}

/// Converts the fixture's GGUF and checks the folder against the fixture's reference outputs.
/// `keys` are those of config.json that a GGUF file has no place for and the fixture sets oddly.
fn comes_back(name: &str, keys: &[&str]) {
    let there = converted(&as_gguf(name)).unwrap();
    let path = there.folder.join("config.json");
    let mut config = read_json(&path);
    let original = read_json(&fixture(name).join("config.json"));
    for &key in keys {
        assert_ne!(config[key], original[key], "{key} needs no exception");
        config[key] = original[key].clone();
    }
    std::fs::write(&path, config.to_string()).unwrap();
    let reference = fixture(name).join("reference.safetensors");
    std::fs::copy(reference, there.folder.join("reference.safetensors")).unwrap();
    let options = CheckOptions {
        backend: BackendChoice::Cpu,
        arithmetics: vec![Arithmetic::Float32],
        threads: 2,
    };
    let report = check(&there.folder, &options, &mut |_| {}).unwrap();
    assert!(report.passed, "{report}");
}

#[test]
fn a_llama_that_went_to_gguf_and_came_back_is_the_same_model() {
    comes_back("llama", &["rope_scaling"]);
}

#[test]
fn a_gemma_that_went_to_gguf_and_came_back_is_the_same_model() {
    comes_back(
        "gemma3_text",
        &["sliding_window_pattern", "query_pre_attn_scalar"],
    );
}

fn refused(change: impl FnOnce(&mut Builder), expected: &[&str]) {
    let mut file = as_gguf("llama");
    change(&mut file);
    let error = converted(&file).err().unwrap().to_string();
    for part in expected {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn what_would_be_another_model_is_refused() {
    refused(
        |f| {
            f.text("general.architecture", "phi3");
        },
        &["general.architecture", "phi3", "gemma3"],
    );
    refused(
        |f| {
            f.u32("llama.expert_count", 8);
        },
        &["llama.expert_count", "no experts", "8"],
    );
    refused(
        |f| {
            f.text("llama.rope.scaling.type", "yarn");
        },
        &["llama.rope.scaling.type", "yarn"],
    );
    refused(
        |f| {
            f.u32("llama.rope.dimension_count", 8);
        },
        &["llama.rope.dimension_count"],
    );
    refused(
        |f| {
            f.remove("llama.block_count");
        },
        &["llama.block_count", "nothing"],
    );
    refused(
        |f| {
            f.remove("blk.1.ffn_up.weight");
        },
        &["blk.1.ffn_up.weight", "no such tensor"],
    );
    refused(
        |f| {
            f.floats_tensor("blk.1.ffn_exotic.weight", &[1], &[0.0]);
        },
        &["blk.1.ffn_exotic.weight"],
    );
    refused(
        |f| {
            f.floats_tensor("output_norm.weight", &[2], &[0.0; 2]);
        },
        &["output_norm.weight", "[128]", "[2]"],
    );
    refused(
        |f| {
            f.floats_tensor("output_norm.weight", &[128], &[f32::NAN; 128]);
        },
        &["output_norm.weight", "NaN at 0"],
    );
    refused(
        |f| {
            f.floats_tensor("rope_freqs.weight", &[16], &[3.0; 16]);
        },
        &["rope_freqs.weight", "Llama 3's bands"],
    );
    refused(
        |f| {
            f.text("tokenizer.ggml.model", "bert");
        },
        &["tokenizer.ggml.model", "bert"],
    );
}

#[test]
fn frequencies_of_llama_3_1_are_recognised() {
    let mut file = as_gguf("llama");
    file.f32("llama.rope.freq_base", 500_000.0);
    // By the definition in Llama 3.1's published code: divisors of 16 frequencies.
    let divisors: Vec<f32> = (0..16)
        .map(|i| {
            let wavelength = std::f64::consts::TAU * 500_000f64.powf(f64::from(i) / 16.0);
            if wavelength < 8192.0 / 4.0 {
                1.0
            } else if wavelength > 8192.0 {
                8.0
            } else {
                let smooth = (8192.0 / wavelength - 1.0) / 3.0;
                (1.0 / ((1.0 - smooth) / 8.0 + smooth)) as f32
            }
        })
        .collect();
    assert!(divisors.iter().any(|d| *d > 1.0 && *d < 8.0));
    file.floats_tensor("rope_freqs.weight", &[16], &divisors);
    let there = converted(&file).unwrap();
    let config = read_json(&there.folder.join("config.json"));
    assert_eq!(
        config["rope_scaling"],
        json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192.0})
    );
}

#[test]
fn a_folder_in_use_is_refused_and_left_alone() {
    let there = converted(&as_gguf("llama")).unwrap();
    let before = std::fs::metadata(there.folder.join("config.json")).unwrap();
    let again = convert(
        &there.source,
        &there.folder,
        ConvertOptions::default(),
        &mut |_, _| {},
    );
    let error = again.unwrap_err().to_string();
    assert!(error.contains("expected a new or empty folder"), "{error}");
    let after = std::fs::metadata(there.folder.join("config.json")).unwrap();
    assert_eq!(before.modified().unwrap(), after.modified().unwrap());
    let error = convert(
        &there.source,
        &there.source,
        ConvertOptions::default(),
        &mut |_, _| {},
    );
    assert!(error.unwrap_err().to_string().contains("got a file"));
}

#[test]
fn a_failed_conversion_leaves_nothing_behind() {
    let scratch = tempfile::tempdir().unwrap();
    let source = scratch.path().join("model.gguf");
    let mut file = as_gguf("llama");
    file.floats_tensor("output_norm.weight", &[128], &[f32::NAN; 128]);
    std::fs::write(&source, file.bytes()).unwrap();
    let folder = scratch.path().join("folder");
    assert!(convert(&source, &folder, ConvertOptions::default(), &mut |_, _| {}).is_err());
    let left: Vec<_> = std::fs::read_dir(scratch.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn progress_ends_at_the_whole_and_an_empty_folder_is_taken() {
    let scratch = tempfile::tempdir().unwrap();
    let source = scratch.path().join("model.gguf");
    std::fs::write(&source, as_gguf("llama").bytes()).unwrap();
    let folder = scratch.path().join("folder");
    std::fs::create_dir(&folder).unwrap();
    let mut last = (0, 1);
    convert(
        &source,
        &folder,
        ConvertOptions::default(),
        &mut |done, total| {
            assert!(last.0 <= done);
            last = (done, total);
        },
    )
    .unwrap();
    assert_eq!(last.0, last.1);
}

#[test]
fn the_config_says_what_each_type_became() {
    let mut file = as_gguf("llama");
    // Two layers' down projections with codes of their own: 128 rows of 6 or 2 blocks.
    file.tensor(
        "blk.0.ffn_down.weight",
        BlockType::Q4_1,
        &[128, 192],
        vec![0x11; 128 * 6 * 20],
    );
    let q8: Vec<u8> = (0..128 * 6)
        .flat_map(|_| [[0x00, 0x2c].as_slice(), &[3; 32]].concat())
        .collect();
    file.tensor("blk.1.ffn_down.weight", BlockType::Q8_0, &[128, 192], q8);
    let there = converted(&file).unwrap();
    let config = read_json(&there.folder.join("config.json"));
    let quantization = &config["quantization"];
    // One module each: which of the two is the default does not matter, the other is an override.
    let four = json!({"group_size": 32, "bits": 4});
    let eight = json!({"group_size": 32, "bits": 8});
    let default = json!({"group_size": quantization["group_size"], "bits": quantization["bits"]});
    let (other, at) = if default == four {
        (eight, 1)
    } else {
        (four, 0)
    };
    assert_eq!(
        quantization[format!("model.layers.{at}.mlp.down_proj")],
        other
    );
    assert_eq!(quantization.as_object().unwrap().len(), 3);
    let types = config["converted_from"]["types"].as_array().unwrap();
    let names: Vec<&str> = types.iter().map(|t| t["from"].as_str().unwrap()).collect();
    assert_eq!(names, ["F32", "Q4_1", "Q8_0"]);
    assert!(types.iter().all(|t| t["exact"] == true));
}

#[test]
fn merges_of_a_sentence_piece_vocabulary_are_its_splits_by_score() {
    let there = converted(&as_gguf("llama")).unwrap();
    let json = read_json(&there.folder.join("tokenizer.json"));
    let model = &json["model"];
    // "ab" scores higher than "▁ab"; the blank pair and the byte take no part.
    assert_eq!(model["merges"], json!([["a", "b"], ["\u{2581}", "ab"]]));
    assert_eq!(model["byte_fallback"], true);
    assert_eq!(model["unk_token"], "<unk>");
    assert_eq!(model["vocab"]["\u{2581}ab"], 8);
    let added: Vec<(&str, bool)> = json["added_tokens"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| {
            (
                t["content"].as_str().unwrap(),
                t["special"].as_bool().unwrap(),
            )
        })
        .collect();
    let expected = [
        ("<unk>", true),
        ("<s>", true),
        ("</s>", true),
        ("<|im_end|>", true),
        ("  ", false),
    ];
    assert_eq!(added, expected);
    assert_eq!(
        json["post_processor"]["single"][0]["SpecialToken"]["id"],
        "<s>"
    );
    assert_eq!(json["normalizer"]["normalizers"][0]["prepend"], "\u{2581}");
    let generation = read_json(&there.folder.join("generation_config.json"));
    assert_eq!(generation, json!({"bos_token_id": 1, "eos_token_id": 2}));
}

#[test]
fn a_chat_template_brings_the_end_of_a_turn() {
    let mut file = as_gguf("llama");
    file.text("tokenizer.chat_template", "{{ messages }}");
    file.bool("tokenizer.ggml.add_bos_token", false);
    file.bool("tokenizer.ggml.add_space_prefix", false);
    let there = converted(&file).unwrap();
    let generation = read_json(&there.folder.join("generation_config.json"));
    assert_eq!(generation["eos_token_id"], json!([2, 3]));
    let config = read_json(&there.folder.join("tokenizer_config.json"));
    assert_eq!(config["chat_template"], "{{ messages }}");
    let json = read_json(&there.folder.join("tokenizer.json"));
    assert_eq!(json["post_processor"], Value::Null);
    assert_eq!(json["normalizer"]["type"], "Replace");
}

#[test]
fn byte_level_merges_are_the_files_own() {
    let mut file = as_gguf("llama");
    file.text("tokenizer.ggml.model", "gpt2")
        .text("tokenizer.ggml.pre", "smollm")
        .texts("tokenizer.ggml.merges", &["a b", "\u{2581} ab"]);
    let there = converted(&file).unwrap();
    let json = read_json(&there.folder.join("tokenizer.json"));
    assert_eq!(
        json["model"]["merges"],
        json!([["a", "b"], ["\u{2581}", "ab"]])
    );
    let parts = json["pre_tokenizer"]["pretokenizers"].as_array().unwrap();
    let kinds: Vec<&str> = parts.iter().map(|p| p["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["Digits", "ByteLevel"]);
    assert_eq!(json["post_processor"], Value::Null);
}

#[test]
fn vocabularies_that_contradict_themselves_are_refused() {
    refused(
        |f| {
            f.floats("tokenizer.ggml.scores", &[0.0]);
        },
        &["1 scores, expected 11"],
    );
    refused(
        |f| {
            f.integers("tokenizer.ggml.token_type", &[1]);
        },
        &["1 token types, expected 11"],
    );
    refused(
        |f| {
            f.integers("tokenizer.ggml.token_type", &[9; 11]);
        },
        &["token 0: type 9"],
    );
    refused(
        |f| {
            f.u32("tokenizer.ggml.eos_token_id", 11);
        },
        &["eos_token_id", "an id below 11"],
    );
    refused(
        |f| {
            f.texts("tokenizer.ggml.tokens", &["a"; 11]);
        },
        &["tokens 0 and 1 are both \"a\""],
    );
    refused(
        |f| {
            let many: Vec<String> = (0..300).map(|id| id.to_string()).collect();
            let many: Vec<&str> = many.iter().map(String::as_str).collect();
            f.texts("tokenizer.ggml.tokens", &many)
                .integers("tokenizer.ggml.token_type", &[1; 300])
                .floats("tokenizer.ggml.scores", &[0.0; 300]);
        },
        &["300 tokens, expected at most the 256 rows"],
    );
    refused(
        |f| {
            f.text("tokenizer.ggml.model", "gpt2")
                .text("tokenizer.ggml.pre", "smollm")
                .texts("tokenizer.ggml.merges", &["a b", "a x"]);
        },
        &["merge 1 is \"a x\""],
    );
    refused(
        |f| {
            f.text("tokenizer.ggml.model", "gpt2")
                .text("tokenizer.ggml.pre", "exotic");
        },
        &["tokenizer.ggml.pre", "exotic", "smollm"],
    );
}
