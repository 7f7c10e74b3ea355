//! mxfp4 modules run on every back end as the affine ones that they are, without loss.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "other tests use the rest")]
mod folders;
mod whole_model;

use std::collections::BTreeMap;
use std::path::Path;

use folders::{Tensor, config, tensors, write_folder};
use half::bf16;
use mlxcel_engine::quant::{AffineFormat, dequantize_row, mxfp4, pack};
use mlxcel_engine::weights::SafetensorsFile;
use mlxcel_engine::{Arithmetic, BackendChoice, Engine, LoadOptions};
use serde_json::{Value, json};
use whole_model::{logits, rms};

type Tensors = BTreeMap<String, Tensor>;

const GATE: &str = "model.layers.1.mlp.gate_proj";

/// The weights from the definition: code by code, sign, exponent and mantissa taken apart.
fn weights(codes: &[u8], exponents: &[u8]) -> Vec<f32> {
    let code = |index: usize| codes[index / 2] >> (index % 2 * 4) & 15;
    let value = |code: u8| {
        let (exponent, mantissa) = (i32::from(code >> 1 & 3), f64::from(code & 1));
        let size = match exponent {
            0 => 0.5 * mantissa,
            _ => (1.0 + 0.5 * mantissa) * 2f64.powi(exponent - 1),
        };
        if code & 8 == 0 { size } else { -size }
    };
    (0..codes.len() * 2)
        .map(|index| {
            let scale = 2f64.powi(i32::from(exponents[index / 32]) - 127);
            (value(code(index)) * scale) as f32
        })
        .collect()
}

/// The Llama fixture with the codes of every module, four bits in groups of 32, read as E2M1, and
/// exponents that keep the weights' size.
fn mxfp4_tensors() -> Tensors {
    let mut all = tensors("llama");
    let scales: Vec<String> = all
        .keys()
        .filter(|k| k.ends_with(".scales"))
        .cloned()
        .collect();
    for name in scales {
        let scales = all.get_mut(&name).unwrap();
        let exponent = |pair: &[u8]| {
            let scale = bf16::from_le_bytes([pair[0], pair[1]]).to_f32();
            (scale.abs().log2().round() + 128.0) as u8
        };
        scales.bytes = scales.bytes.chunks(2).map(exponent).collect();
        scales.dtype = "U8".to_owned();
        all.remove(&name.replace(".scales", ".biases"));
    }
    all
}

fn mxfp4_config() -> Value {
    let mut config = config("llama");
    config["quantization"] = json!({"group_size": 32, "bits": 4, "mode": "mxfp4"});
    config
}

/// Replaces the modules that `chosen` names by what `with` makes of codes and exponents.
fn replaced(
    all: &Tensors,
    chosen: fn(&str) -> bool,
    with: fn(&mut Tensors, &str, &Tensor, &Tensor),
) -> Tensors {
    let mut new = all.clone();
    for (name, scales) in all {
        let Some(path) = name.strip_suffix(".scales").filter(|path| chosen(path)) else {
            continue;
        };
        let codes = &all[&format!("{path}.weight")];
        with(&mut new, path, codes, scales);
    }
    new
}

fn add(tensors: &mut Tensors, name: String, dtype: &str, shape: [usize; 2], bytes: Vec<u8>) {
    let (dtype, shape) = (dtype.to_owned(), shape.to_vec());
    tensors.insert(
        name,
        Tensor {
            dtype,
            shape,
            bytes,
        },
    );
}

/// As float32, from the definition.
fn plain(tensors: &mut Tensors, path: &str, codes: &Tensor, scales: &Tensor) {
    let values = weights(&codes.bytes, &scales.bytes);
    let shape = [codes.shape[0], codes.shape[1] * 8];
    let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    add(tensors, format!("{path}.weight"), "F32", shape, bytes);
    tensors.remove(&format!("{path}.scales"));
}

/// As affine groups, packed by the reference packer.
fn affine(tensors: &mut Tensors, path: &str, codes: &Tensor, scales: &Tensor) {
    let ones = vec![127; scales.bytes.len()];
    let q: Vec<u8> = weights(&codes.bytes, &ones)
        .iter()
        .map(|v| (2.0 * v + 12.0) as u8)
        .collect();
    let bytes = pack::pack_row(&q, 5)
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    let [rows, columns] = [codes.shape[0], codes.shape[1] * 8];
    add(
        tensors,
        format!("{path}.weight"),
        "U32",
        [rows, columns * 5 / 32],
        bytes,
    );
    for (part, factor) in [("scales", 0.5), ("biases", -6.0)] {
        let value = |e: &u8| bf16::from_f32(factor * 2f32.powi(i32::from(*e) - 127)).to_le_bytes();
        let bytes = scales.bytes.iter().flat_map(value).collect();
        add(
            tensors,
            format!("{path}.{part}"),
            "BF16",
            [rows, columns / 32],
            bytes,
        );
    }
}

fn load(dir: &Path, arithmetic: Arithmetic, choice: BackendChoice) -> Result<Engine, String> {
    let options = LoadOptions {
        arithmetic,
        backend: choice,
        threads: 2,
        ..LoadOptions::default()
    };
    Engine::load(dir, &options, &mut |_| {}).map_err(|error| error.to_string())
}

fn run(config: &Value, all: &Tensors, arithmetic: Arithmetic, choice: BackendChoice) -> Vec<f32> {
    let dir = tempfile::tempdir().unwrap();
    write_folder(dir.path(), config, all, 1);
    logits(&load(dir.path(), arithmetic, choice).unwrap())
}

/// The three forms of one model on a back end.
fn assert_the_same_model(choice: BackendChoice) {
    let stored = mxfp4_tensors();
    let floats = replaced(&stored, |_| true, plain);
    let groups = replaced(&stored, |_| true, affine);
    let (entry, default) = (mxfp4_config(), config("llama"));
    let reference = run(&default, &floats, Arithmetic::Float32, choice);
    let exact = run(&entry, &stored, Arithmetic::Float32, choice);
    assert_eq!(exact, reference, "float32 takes the same weights");
    let fast = run(&entry, &stored, Arithmetic::Fast, choice);
    assert_eq!(fast, run(&default, &groups, Arithmetic::Fast, choice));
    // Noise of int8 activations; with one wrong group it is several times as much.
    let far = rms(&fast, &reference);
    assert!(far > 0.0 && far < 0.05, "{far}");
}

#[test]
fn a_processor_runs_the_same_model_in_all_three_forms() {
    assert_the_same_model(BackendChoice::Cpu);
}

#[cfg(feature = "sim")]
#[test]
fn a_gpu_runs_the_same_model_in_all_three_forms() {
    assert_the_same_model(BackendChoice::Sim);
}

#[test]
fn the_reference_implementation_means_the_same_weights() {
    let path = folders::fixture("quant").join("quant.safetensors");
    let file = SafetensorsFile::open(&path).unwrap();
    let tensor = |part: &str| file.tensor(&format!("mxfp4_4_32.{part}")).unwrap();
    let wanted = tensor("dequant").to_f32().unwrap();
    let (codes, exponents) = (tensor("weight").bytes, tensor("scales").bytes);
    assert_eq!(weights(codes, exponents), wanted);
    let mut stream = Vec::new();
    mxfp4::widen_codes(codes, &mut stream);
    let pairs = exponents.iter().map(|e| mxfp4::affine_scale(*e).unwrap());
    let (scales, biases): (Vec<f32>, Vec<f32>) = pairs
        .map(|(scale, bias)| (scale.to_f32(), bias.to_f32()))
        .unzip();
    let mut got = vec![0.0; wanted.len()];
    dequantize_row(AffineFormat::OF_MXFP4, &stream, &scales, &biases, &mut got);
    assert_eq!(got, wanted);
}

#[test]
fn an_entry_without_a_mode_is_affine_under_a_top_level_mxfp4() {
    let of_gate = |path: &str| path == GATE;
    let stored = mxfp4_tensors();
    let mixed = replaced(&stored, of_gate, affine);
    let mut entry = mxfp4_config();
    entry["quantization"][GATE] = json!({"group_size": 32, "bits": 5});
    let wanted = run(
        &mxfp4_config(),
        &stored,
        Arithmetic::Fast,
        BackendChoice::Cpu,
    );
    assert_eq!(
        run(&entry, &mixed, Arithmetic::Fast, BackendChoice::Cpu),
        wanted
    );
    // Nor does it need an entry: scales and biases in floating point are affine.
    let silent = run(
        &mxfp4_config(),
        &mixed,
        Arithmetic::Fast,
        BackendChoice::Cpu,
    );
    assert_eq!(silent, wanted);
    assert_refused(
        &entry,
        &stored,
        &[&format!("{GATE}.scales"), "F32, F16 or BF16", "got U8"],
    );
}

#[test]
fn one_module_may_be_mxfp4_under_a_top_level_affine() {
    let stored = mxfp4_tensors();
    let rest_affine = replaced(&stored, |path| path != GATE, affine);
    let mut entry = config("llama");
    entry["quantization"][GATE] = json!({"mode": "mxfp4"});
    let wanted = run(
        &mxfp4_config(),
        &stored,
        Arithmetic::Fast,
        BackendChoice::Cpu,
    );
    for config in [entry, config("llama")] {
        assert_eq!(
            run(&config, &rest_affine, Arithmetic::Fast, BackendChoice::Cpu),
            wanted
        );
    }
}

#[test]
fn the_summary_says_both_formats_and_the_bytes_that_are_read() {
    let dir = tempfile::tempdir().unwrap();
    write_folder(dir.path(), &mxfp4_config(), &mxfp4_tensors(), 1);
    let engine = load(dir.path(), Arithmetic::Fast, BackendChoice::Cpu).unwrap();
    assert_eq!(engine.model().quantisation, "mxfp4 as affine 5-bit g32");
    let codes: usize = mxfp4_tensors()
        .iter()
        .filter(|(name, tensor)| name.ends_with(".weight") && tensor.dtype == "U32")
        .map(|(_, tensor)| tensor.bytes.len())
        .sum();
    // Two codes a byte; five bits each and two times 16 for 32 of them are six bits.
    assert_eq!(engine.model().bytes_per_token, (codes * 2 * 6 / 8) as u64);
}

/// One error with `parts`, in both arithmetics.
fn assert_refused(config: &Value, all: &Tensors, parts: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    write_folder(dir.path(), config, all, 1);
    for arithmetic in [Arithmetic::Float32, Arithmetic::Fast] {
        let text = load(dir.path(), arithmetic, BackendChoice::Cpu).err();
        let text = text.unwrap_or_else(|| "loaded without an error".to_owned());
        for part in parts {
            assert!(text.contains(part), "`{part}` is not in `{text}`");
        }
    }
}

/// A file with one tensor of the gate changed: the error names file, tensor, expected and got.
fn assert_gate_refused(part: &str, change: fn(&mut Tensors, String), says: &[&str]) {
    let mut all = mxfp4_tensors();
    let name = format!("{GATE}.{part}");
    change(&mut all, name.clone());
    let mut parts = vec!["model-00001-of-00001.safetensors", name.as_str()];
    parts.extend(says);
    assert_refused(&mxfp4_config(), &all, &parts);
}

#[test]
fn what_is_not_mxfp4_gets_one_clear_error() {
    let floats = |all: &mut Tensors, name: String| {
        add(all, name, "BF16", [192, 4], vec![0; 192 * 4 * 2]);
    };
    let says = ["U8 [192, 4]", "got Bf16 [192, 4]"];
    assert_gate_refused("scales", floats, &says);
    let group_of_64 = |all: &mut Tensors, name: String| {
        add(all, name, "U8", [192, 2], vec![127; 192 * 2]);
    };
    let says = ["U8 [192, 4]", "got U8 [192, 2]"];
    assert_gate_refused("scales", group_of_64, &says);
    let biases = |all: &mut Tensors, name: String| {
        add(all, name, "BF16", [192, 4], vec![0; 192 * 4 * 2]);
    };
    let says = ["no biases beside mxfp4 codes", "got Bf16 [192, 4]"];
    assert_gate_refused("biases", biases, &says);
    let short = |all: &mut Tensors, name: String| {
        add(all, name, "U32", [192, 12], vec![0; 192 * 12 * 4]);
    };
    let says = ["shape [192, 16]", "got U32 [192, 12]"];
    assert_gate_refused("weight", short, &says);
    let exponent = |all: &mut Tensors, name: String| {
        all.get_mut(&name).unwrap().bytes[5] = 255;
    };
    let says = ["exponents up to 251", "got 255 in row 1, group 1"];
    assert_gate_refused("scales", exponent, &says);
}

#[test]
fn other_modes_are_refused_by_the_shapes_and_by_the_configuration() {
    let nvfp4 = |all: &mut Tensors, _: String| {
        add(
            all,
            format!("{GATE}.scales"),
            "U8",
            [192, 8],
            vec![56; 192 * 8],
        );
    };
    assert_gate_refused(
        "weight",
        nvfp4,
        &["no kernel reads nvfp4", "got U32 [192, 16]"],
    );
    let mxfp8 = |all: &mut Tensors, name: String| {
        add(all, name, "U32", [192, 32], vec![0; 192 * 32 * 4]);
    };
    assert_gate_refused(
        "weight",
        mxfp8,
        &["no kernel reads mxfp8", "got U32 [192, 32]"],
    );
    for (entry, parts) in [
        (
            json!({"mode": "nvfp4"}),
            ["`quantization.mode`", "affine or mxfp4", "got \"nvfp4\""],
        ),
        (
            json!({"mode": "mxfp4", "group_size": 64}),
            [
                "`quantization.bits, group_size`",
                "4 bits in groups of 32",
                "4 bits in groups of 64",
            ],
        ),
        (
            json!({"mode": 4}),
            ["`quantization.mode`", "affine or mxfp4", "got 4"],
        ),
    ] {
        let mut config = mxfp4_config();
        config["quantization"] = entry;
        assert_refused(&config, &mxfp4_tensors(), &parts);
    }
}
