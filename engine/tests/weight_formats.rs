//! Every weight format in whole models: mixed bits, plain tensors, biases, heads of their own.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod whole_model;

use std::collections::BTreeMap;
use std::path::Path;

use half::{bf16, f16};
use mlxcel_engine::quant::pack::pack_row;
use mlxcel_engine::quant::{AffineFormat, dequantize_row};
use mlxcel_engine::{Arithmetic, Engine, LoadOptions};
use serde_json::{Map, Value, json};
use whole_model::{logits, rms};

const HIDDEN: usize = 128;
const INNER: usize = 256;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const HEAD_DIM: usize = 32;
const VOCAB: usize = 96;
const LAYERS: usize = 2;

#[derive(Clone, Copy, PartialEq)]
enum Format {
    Affine(u64, u64),
    Bf16,
    F16,
    F32,
}

/// SplitMix64, so that a model is the same wherever it is made.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Uniform in `-1..1`.
    fn signed(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

/// A safetensors file in the making.
#[derive(Default)]
struct Tensors {
    header: Map<String, Value>,
    data: Vec<u8>,
}

impl Tensors {
    fn add(&mut self, name: &str, dtype: &str, shape: &[usize], bytes: &[u8]) {
        let begin = self.data.len();
        self.data.extend_from_slice(bytes);
        let entry = json!({
            "dtype": dtype, "shape": shape, "data_offsets": [begin, self.data.len()]
        });
        self.header.insert(name.to_owned(), entry);
    }

    fn add_floats(&mut self, name: &str, format: Format, shape: &[usize], values: &[f32]) {
        let (dtype, bytes): (&str, Vec<u8>) = match format {
            Format::Bf16 => (
                "BF16",
                values
                    .iter()
                    .flat_map(|v| bf16::from_f32(*v).to_le_bytes())
                    .collect(),
            ),
            Format::F16 => (
                "F16",
                values
                    .iter()
                    .flat_map(|v| f16::from_f32(*v).to_le_bytes())
                    .collect(),
            ),
            _ => ("F32", values.iter().flat_map(|v| v.to_le_bytes()).collect()),
        };
        self.add(name, dtype, shape, &bytes);
    }

    fn write(&self, path: &Path) {
        let header = Value::Object(self.header.clone()).to_string();
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(&self.data);
        std::fs::write(path, bytes).unwrap();
    }
}

/// What a tiny Llama looks like.
struct Tiny {
    /// Format of a module by its path.
    format: fn(&str) -> Format,
    own_head: bool,
    biases: bool,
    /// Store what the affine modules mean as F32 instead.
    dequantised: bool,
}

impl Default for Tiny {
    fn default() -> Self {
        Self {
            format: |_| Format::Affine(4, 64),
            own_head: false,
            biases: false,
            dequantised: false,
        }
    }
}

impl Tiny {
    fn modules(&self) -> Vec<(String, usize, usize)> {
        let mut modules = vec![("model.embed_tokens".to_owned(), VOCAB, HIDDEN)];
        if self.own_head {
            modules.push(("lm_head".to_owned(), VOCAB, HIDDEN));
        }
        for layer in 0..LAYERS {
            let at = |name: &str| format!("model.layers.{layer}.{name}");
            modules.extend([
                (at("self_attn.q_proj"), HEADS * HEAD_DIM, HIDDEN),
                (at("self_attn.k_proj"), KV_HEADS * HEAD_DIM, HIDDEN),
                (at("self_attn.v_proj"), KV_HEADS * HEAD_DIM, HIDDEN),
                (at("self_attn.o_proj"), HIDDEN, HEADS * HEAD_DIM),
                (at("mlp.gate_proj"), INNER, HIDDEN),
                (at("mlp.up_proj"), INNER, HIDDEN),
                (at("mlp.down_proj"), HIDDEN, INNER),
            ]);
        }
        modules
    }

    fn write(&self, dir: &Path) {
        let mut random = Random(7);
        let mut tensors = Tensors::default();
        let mut overrides = BTreeMap::new();
        for (path, rows, columns) in self.modules() {
            self.add_module(&mut tensors, &mut random, &path, (rows, columns));
            if let Format::Affine(bits, group_size) = (self.format)(&path) {
                overrides.insert(
                    path.clone(),
                    json!({"bits": bits, "group_size": group_size}),
                );
            }
            if self.biases && !path.contains("embed") {
                let bias: Vec<f32> = (0..rows).map(|_| 0.2 * random.signed()).collect();
                tensors.add_floats(&format!("{path}.bias"), Format::Bf16, &[rows], &bias);
            }
        }
        let norms = (0..LAYERS).flat_map(|layer| {
            ["input_layernorm", "post_attention_layernorm"]
                .map(|name| format!("model.layers.{layer}.{name}"))
        });
        for norm in norms.chain(["model.norm".to_owned()]) {
            let weight: Vec<f32> = (0..HIDDEN).map(|_| 1.0 + 0.3 * random.signed()).collect();
            let name = format!("{norm}.weight");
            tensors.add_floats(&name, Format::F32, &[HIDDEN], &weight);
        }
        tensors.write(&dir.join("model.safetensors"));
        let mut quantization = json!({"bits": 4, "group_size": 64});
        for (name, entry) in overrides.iter().filter(|_| !self.dequantised) {
            quantization[name] = entry.clone();
        }
        let config = json!({
            "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": INNER,
            "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM, "vocab_size": VOCAB,
            "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
            "tie_word_embeddings": !self.own_head, "quantization": quantization,
        });
        std::fs::write(dir.join("config.json"), config.to_string()).unwrap();
    }

    fn add_module(
        &self,
        tensors: &mut Tensors,
        random: &mut Random,
        path: &str,
        (rows, columns): (usize, usize),
    ) {
        // About the spread that keeps activations near one through a layer.
        let spread = 1.7 / (columns as f32).sqrt();
        let weight = format!("{path}.weight");
        let Format::Affine(bits, group) = (self.format)(path) else {
            let values: Vec<f32> = (0..rows * columns)
                .map(|_| spread * random.signed())
                .collect();
            tensors.add_floats(&weight, (self.format)(path), &[rows, columns], &values);
            return;
        };
        let format = AffineFormat::new(bits, group).unwrap();
        let groups = format.groups_per_row(columns);
        let (mut words, mut values) = (Vec::new(), vec![0.0; rows * columns]);
        let (mut scales, mut biases) = (Vec::new(), Vec::new());
        for row in values.chunks_exact_mut(columns) {
            let mask = u64::from(format.max_code());
            let codes: Vec<u8> = (0..columns).map(|_| (random.next() & mask) as u8).collect();
            let packed: Vec<u8> = pack_row(&codes, format.bits())
                .iter()
                .flat_map(|word| word.to_le_bytes())
                .collect();
            let sign = |random: &mut Random| if random.next() & 1 == 0 { 1.0 } else { -1.0 };
            let step = 2.0 * spread / f32::from(format.max_code());
            let row_scales: Vec<f32> = (0..groups)
                .map(|_| bf16::from_f32(step * sign(random)).to_f32())
                .collect();
            let row_biases: Vec<f32> = row_scales
                .iter()
                .map(|scale| bf16::from_f32(-0.45 * scale * f32::from(format.max_code())).to_f32())
                .collect();
            dequantize_row(format, &packed, &row_scales, &row_biases, row);
            words.extend_from_slice(&packed);
            scales.extend_from_slice(&row_scales);
            biases.extend_from_slice(&row_biases);
        }
        if self.dequantised {
            tensors.add_floats(&weight, Format::F32, &[rows, columns], &values);
            return;
        }
        tensors.add(
            &weight,
            "U32",
            &[rows, format.words_per_row(columns)],
            &words,
        );
        for (part, values) in [("scales", &scales), ("biases", &biases)] {
            tensors.add_floats(
                &format!("{path}.{part}"),
                Format::Bf16,
                &[rows, groups],
                values,
            );
        }
    }

    fn logits(&self, arithmetic: Arithmetic) -> Vec<f32> {
        let dir = tempfile::tempdir().unwrap();
        self.write(dir.path());
        logits(&engine(dir.path(), arithmetic))
    }
}

fn engine(dir: &Path, arithmetic: Arithmetic) -> Engine {
    let options = LoadOptions {
        arithmetic,
        threads: 2,
        ..LoadOptions::default()
    };
    Engine::load(dir, &options, &mut |_| {}).unwrap()
}

/// Int8 noise of two layers; a wrong row, group or bias is at least ten times as far.
const FAST_RMS: f32 = 0.035;

fn assert_fast_is_near(tiny: &Tiny) {
    let far = rms(
        &tiny.logits(Arithmetic::Fast),
        &tiny.logits(Arithmetic::Float32),
    );
    assert!(far < FAST_RMS, "{far}");
}

#[test]
fn float32_gives_the_same_bits_for_codes_and_for_what_they_mean() {
    let format = |path: &str| match path.len() % 6 {
        0 => Format::Affine(2, 32),
        1 => Format::Affine(3, 64),
        2 => Format::Affine(4, 128),
        3 => Format::Affine(5, 32),
        4 => Format::Affine(6, 64),
        _ => Format::Affine(8, 128),
    };
    let quantised = Tiny {
        format,
        ..Tiny::default()
    };
    let twin = Tiny {
        format,
        dequantised: true,
        ..Tiny::default()
    };
    assert_eq!(
        quantised.logits(Arithmetic::Float32),
        twin.logits(Arithmetic::Float32)
    );
}

#[test]
fn fast_arithmetic_takes_every_affine_format() {
    macro_rules! formats {
        ($(($bits:literal, $group:literal)),* $(,)?) => {
            [$((|_: &str| Format::Affine($bits, $group)) as fn(&str) -> Format),*]
        };
    }
    let formats = formats![
        (2, 32),
        (2, 64),
        (2, 128),
        (3, 32),
        (3, 64),
        (3, 128),
        (4, 32),
        (4, 64),
        (4, 128),
        (5, 32),
        (5, 64),
        (5, 128),
        (6, 32),
        (6, 64),
        (6, 128),
        (8, 32),
        (8, 64),
        (8, 128),
    ];
    for format in formats {
        assert_fast_is_near(&Tiny {
            format,
            ..Tiny::default()
        });
    }
}

#[test]
fn modules_of_one_block_may_differ_in_format() {
    let format = |path: &str| match path.rsplit('.').next() {
        Some("v_proj" | "up_proj" | "down_proj") => Format::Affine(6, 32),
        Some("k_proj" | "embed_tokens") => Format::Bf16,
        _ => Format::Affine(4, 64),
    };
    assert_fast_is_near(&Tiny {
        format,
        ..Tiny::default()
    });
}

#[test]
fn plain_tensors_of_each_type_are_as_exact_in_fast_arithmetic() {
    let formats: [fn(&str) -> Format; 3] = [|_| Format::Bf16, |_| Format::F16, |_| Format::F32];
    for format in formats {
        let tiny = Tiny {
            format,
            ..Tiny::default()
        };
        let far = rms(
            &tiny.logits(Arithmetic::Fast),
            &tiny.logits(Arithmetic::Float32),
        );
        // Only the f16 cache is inexact.
        assert!(far < 1e-3, "{far}");
    }
}

#[test]
fn biases_of_modules_are_added_in_both_arithmetics() {
    let with = Tiny {
        biases: true,
        ..Tiny::default()
    };
    let without = Tiny::default().logits(Arithmetic::Float32);
    assert!(
        rms(&with.logits(Arithmetic::Float32), &without) > 0.1,
        "biases change nothing"
    );
    assert_fast_is_near(&with);
    let plain = |_: &str| Format::Bf16;
    assert_fast_is_near(&Tiny {
        biases: true,
        format: plain,
        ..Tiny::default()
    });
}

#[test]
fn a_head_of_its_own_is_used_when_the_file_says_so() {
    let own = Tiny {
        own_head: true,
        ..Tiny::default()
    };
    assert_fast_is_near(&own);
    let tied = Tiny::default().logits(Arithmetic::Float32);
    assert!(rms(&own.logits(Arithmetic::Float32), &tied) > 0.5);
}

#[test]
fn a_head_that_the_file_says_not_to_use_is_ignored() {
    let dir = tempfile::tempdir().unwrap();
    Tiny {
        own_head: true,
        ..Tiny::default()
    }
    .write(dir.path());
    let before = logits(&engine(dir.path(), Arithmetic::Float32));
    let path = dir.path().join("config.json");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(
        &path,
        text.replace(
            "\"tie_word_embeddings\":false",
            "\"tie_word_embeddings\":true",
        ),
    )
    .unwrap();
    let after = logits(&engine(dir.path(), Arithmetic::Float32));
    assert!(rms(&after, &before) > 0.5);
}

#[test]
fn the_summary_counts_the_bytes_that_a_step_reads() {
    let dir = tempfile::tempdir().unwrap();
    Tiny {
        own_head: true,
        format: |_| Format::Bf16,
        ..Tiny::default()
    }
    .write(dir.path());
    let engine = engine(dir.path(), Arithmetic::Fast);
    let layer = 2 * HIDDEN * (HEADS + KV_HEADS) * HEAD_DIM + 3 * HIDDEN * INNER;
    let wanted = 2 * (LAYERS * layer + VOCAB * HIDDEN);
    assert_eq!(engine.model().bytes_per_token, wanted as u64);
    assert_eq!(engine.model().quantisation, "bf16");
}

#[test]
fn a_text_model_inside_a_multimodal_file_reads_like_one_that_stands_alone() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/gemma3_text");
    let alone = logits(&engine(&source, Arithmetic::Float32));
    let dir = tempfile::tempdir().unwrap();
    let config: Value =
        serde_json::from_slice(&std::fs::read(source.join("config.json")).unwrap()).unwrap();
    let outer = json!({
        "model_type": "gemma3", "text_config": config, "quantization": config["quantization"],
    });
    std::fs::write(dir.path().join("config.json"), outer.to_string()).unwrap();
    let bytes = std::fs::read(source.join("model.safetensors")).unwrap();
    let (length, rest) = bytes.split_first_chunk::<8>().unwrap();
    let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let header: Map<String, Value> = serde_json::from_slice(header).unwrap();
    let mut inside = Tensors {
        header: header
            .into_iter()
            .map(|(name, entry)| match name.as_str() {
                "__metadata__" => (name, entry),
                _ => (format!("language_model.{name}"), entry),
            })
            .collect(),
        data: data.to_vec(),
    };
    inside.add(
        "vision_tower.patch.weight",
        "F32",
        &[1],
        &1.0f32.to_le_bytes(),
    );
    inside.write(&dir.path().join("model.safetensors"));
    assert_eq!(logits(&engine(dir.path(), Arithmetic::Float32)), alone);
}
