//! A number that is not finite must not become one that is: int8 codes, clamps and maxima could
//! each hide a broken weight behind plausible logits.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "other tests use the rest")]
mod folders;
mod packed;

use std::path::Path;
use std::sync::Arc;

use folders::{Tensor, config, tensors, write_folder};
use mlxcel_engine::backend::cpu::kernel::{
    Activations, CpuFeatures, FloatKind, KernelChoice, Kernels, QuantisedMatrix,
};
use mlxcel_engine::backend::cpu::routed::{Choose, RoutedProducts};
use mlxcel_engine::backend::interface::{HeadRequest, TokenSource};
use mlxcel_engine::engine::StepRequest;
use mlxcel_engine::qmm::{QmmOptions, Route};
use mlxcel_engine::{Arithmetic, BackendChoice, Engine, LoadOptions, backend};
use packed::{Packed, activations};

const ODD: [f32; 3] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];

/// Routes of one mechanism give the same bits; one stands for each.
const MECHANISMS: [Choose; 2] = [|_, _, _| Route::Tiled, |_, _, _| Route::DequantGemm];

fn product(kernels: &Kernels, table: Choose, matrix: &Arc<QuantisedMatrix>, x: &[f32]) -> Vec<f32> {
    let products = RoutedProducts::with_table(table, kernels.isa(), None, QmmOptions::default());
    let mut y = vec![0.0; x.len() / matrix.columns() * matrix.rows()];
    products.product(kernels, matrix, &mut Activations::new(), x, &mut y);
    y
}

fn every_isa() -> Vec<Kernels> {
    let isas = CpuFeatures::detect().available();
    isas.into_iter()
        .map(|isa| Kernels::new(KernelChoice::Force(isa), 2).unwrap())
        .collect()
}

#[test]
fn a_token_that_is_not_finite_gives_no_finite_output_and_spoils_no_other() {
    for kernels in every_isa() {
        for table in MECHANISMS {
            for bits in [3, 4, 6, 8] {
                for tokens in [1, 3, 9] {
                    spoil_the_middle_token(&kernels, table, bits, tokens);
                }
            }
        }
    }
}

fn spoil_the_middle_token(kernels: &Kernels, table: Choose, bits: usize, tokens: usize) {
    let (rows, columns) = (37, 192);
    let packed = Packed::random((rows, columns), bits, 64, FloatKind::Bf16);
    let matrix = Arc::new(QuantisedMatrix::repack(kernels, &[packed.source()]).unwrap());
    let sound = activations(tokens * columns, 7);
    let expected = product(kernels, table, &matrix, &sound);
    for odd in ODD {
        let (mut x, token) = (sound.clone(), tokens / 2);
        x[token * columns + 100] = odd;
        let y = product(kernels, table, &matrix, &x);
        for (index, (y, expected)) in y.chunks(rows).zip(expected.chunks(rows)).enumerate() {
            let what = format!("{} {bits}-bit {odd} token {index}", kernels.isa());
            if index == token {
                assert!(y.iter().all(|y| !y.is_finite()), "{what}: {y:?}");
            } else {
                assert_eq!(y, expected, "{what}");
            }
        }
    }
}

/// The first element of `tensor` replaced by NaN.
fn spoilt(tensor: &Tensor) -> Tensor {
    let mut spoilt = tensor.clone();
    let nan = match tensor.dtype.as_str() {
        "BF16" => half::bf16::NAN.to_le_bytes().to_vec(),
        "F16" => half::f16::NAN.to_le_bytes().to_vec(),
        _ => f32::NAN.to_le_bytes().to_vec(),
    };
    spoilt.bytes[..nan.len()].copy_from_slice(&nan);
    spoilt
}

/// Logits after a prompt and after one more step.
fn logits(folder: &Path, backend: BackendChoice, arithmetic: Arithmetic) -> Vec<f32> {
    let options = LoadOptions {
        backend,
        arithmetic,
        threads: 1,
        ..LoadOptions::default()
    };
    let engine = Engine::load(folder, &options, &mut |_| {}).unwrap();
    let mut sequence = engine.new_sequence().unwrap();
    let request = StepRequest {
        head: HeadRequest::TokenAndLogits,
        ..StepRequest::greedy()
    };
    let mut all = Vec::new();
    for tokens in [vec![0, 1, 2, 3], vec![0]] {
        let ticket = sequence.submit(TokenSource::Host(tokens), request).unwrap();
        all.extend(engine.read(ticket).unwrap().logits);
    }
    all
}

/// Every float tensor of the first layer and outside of layers, one at a time.
fn no_weight_is_hidden(backend: BackendChoice, family: &str) {
    let sound = tensors(family);
    let chosen = sound.iter().filter(|(name, tensor)| {
        tensor.dtype != "U32" && (name.contains("layers.0.") || !name.contains("layers."))
    });
    for (name, tensor) in chosen {
        let mut broken = sound.clone();
        broken.insert(name.clone(), spoilt(tensor));
        let folder = tempfile::tempdir().unwrap();
        write_folder(folder.path(), &config(family), &broken, 1);
        for arithmetic in [Arithmetic::Float32, Arithmetic::Fast] {
            let logits = logits(folder.path(), backend, arithmetic);
            assert!(
                logits.iter().any(|logit| !logit.is_finite()),
                "{family}: {name} in {arithmetic:?}"
            );
        }
    }
}

#[test]
fn no_weight_that_is_nan_is_hidden_from_the_logits_of_a_processor() {
    for family in ["gemma3_text", "llama", "qwen3"] {
        no_weight_is_hidden(BackendChoice::Cpu, family);
    }
}

// Where the build has it (feature sim).
#[test]
fn no_weight_that_is_nan_is_hidden_from_the_logits_of_a_gpu() {
    if backend::require(BackendChoice::Sim).is_ok() {
        no_weight_is_hidden(BackendChoice::Sim, "qwen3");
    }
}
