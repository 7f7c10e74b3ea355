//! A linear module of the file, checked: quantised where it has scales, plain where it has not.

use crate::backend::interface::{HostLinear, HostWeights, LinearId};
use crate::error::LoadError;
use crate::model::ModelConfig;
use crate::model::config::ModuleFormat;
use crate::model::parts::Loading;
use crate::quant::AffineFormat;
use crate::weights::{TensorView, WeightStore};

/// Reads `<path>.weight` and what goes with it as a `[out_features, in_features]` matrix.
///
/// # Errors
/// When a tensor is missing or its shape or type is not what `config` implies.
pub fn read<'a>(
    config: &ModelConfig,
    store: &'a WeightStore,
    path: &str,
    out_features: usize,
    in_features: usize,
) -> Result<HostLinear<'a>, LoadError> {
    let weight = store.tensor(&format!("{path}.weight"))?;
    let scales_name = format!("{path}.scales");
    let weights = if store.contains(&scales_name) {
        let scales = store.tensor(&scales_name)?;
        let biases = store.tensor(&format!("{path}.biases"))?;
        let format = affine_format(config, path, &weight, &scales, in_features)?;
        weight.expect_shape(&[out_features, format.words_per_row(in_features)])?;
        scales.expect_shape(&[out_features, format.groups_per_row(in_features)])?;
        biases.expect_shape(&[out_features, format.groups_per_row(in_features)])?;
        for tensor in [&scales, &biases] {
            expect_float(tensor)?;
        }
        HostWeights::Affine {
            format,
            codes: weight,
            scales,
            biases,
        }
    } else {
        expect_float(&weight)?;
        weight.expect_shape(&[out_features, in_features])?;
        HostWeights::Plain(weight)
    };
    Ok(HostLinear {
        name: path.to_owned(),
        out_features,
        in_features,
        weights,
        bias: read_bias(store, path, out_features)?,
    })
}

/// Reads several modules with the same input and uploads them stacked.
///
/// # Errors
/// As [`read`], or when the device refuses.
pub fn upload_stacked(
    loading: &mut Loading<'_>,
    modules: &[(String, usize)],
    in_features: usize,
) -> Result<LinearId, LoadError> {
    let parts = modules
        .iter()
        .map(|(path, out)| read(loading.config, loading.store, path, *out, in_features))
        .collect::<Result<Vec<_>, _>>()?;
    loading.uploader.linear(&parts)
}

fn read_bias(
    store: &WeightStore,
    path: &str,
    out_features: usize,
) -> Result<Option<Vec<f32>>, LoadError> {
    let name = format!("{path}.bias");
    if !store.contains(&name) {
        return Ok(None);
    }
    let bias = store.tensor(&name)?;
    bias.expect_shape(&[out_features])?;
    bias.to_f32().map(Some)
}

/// An override has the last word; without one the shapes tell bits and group, as published loaders
/// do, because mixed recipes do not always list every module.
fn affine_format(
    config: &ModelConfig,
    path: &str,
    weight: &TensorView<'_>,
    scales: &TensorView<'_>,
    in_features: usize,
) -> Result<AffineFormat, LoadError> {
    if weight.dtype != crate::weights::Dtype::U32 {
        return Err(weight.mismatch("U32 codes beside scales".to_owned()));
    }
    match config.quantisation.overrides.get(path) {
        Some(ModuleFormat::Affine(format)) => return Ok(*format),
        Some(ModuleFormat::Plain) => {
            return Err(scales.mismatch("no scales: config.json says `false` here".to_owned()));
        }
        None => {}
    }
    let (&[_, words], &[_, groups]) = (weight.shape, scales.shape) else {
        return Err(weight.mismatch("two axes".to_owned()));
    };
    let exact =
        |total: usize, part: usize| (part > 0 && total.is_multiple_of(part)).then(|| total / part);
    let bits = words.checked_mul(32).and_then(|b| exact(b, in_features));
    let group = exact(in_features, groups);
    bits.zip(group)
        .and_then(|(bits, group)| AffineFormat::new(bits as u64, group as u64).ok())
        .ok_or_else(|| {
            weight.mismatch(format!(
                "codes of {in_features} inputs in an affine format (scales are {:?})",
                scales.shape
            ))
        })
}

fn expect_float(tensor: &TensorView<'_>) -> Result<(), LoadError> {
    if tensor.dtype.is_float() {
        return Ok(());
    }
    Err(tensor.mismatch("F32, F16 or BF16 elements".to_owned()))
}
