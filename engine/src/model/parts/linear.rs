//! A linear module of the file, checked: quantised where it has scales, plain where it has not.

use super::mxfp4_matrix::Mxfp4Matrix;
use crate::backend::interface::{HostLinear, HostWeights, LinearId};
use crate::error::LoadError;
use crate::model::ModelConfig;
use crate::model::parts::Loading;
use crate::model::quantisation::ModuleFormat;
use crate::quant::{AffineFormat, mxfp4};
use crate::weights::{Dtype, TensorView, WeightStore};

/// A linear module as it was read, with what had to be converted for a back end to execute it.
#[derive(Debug)]
pub struct FileLinear<'a> {
    name: String,
    out_features: usize,
    in_features: usize,
    weights: FileWeights<'a>,
    bias: Option<Vec<f32>>,
}

#[derive(Debug)]
enum FileWeights<'a> {
    /// Executed as they are.
    Stored(HostWeights<'a>),
    Mxfp4(Mxfp4Matrix<'a>),
}

impl FileLinear<'_> {
    /// What a back end takes.
    pub fn host(&self) -> HostLinear<'_> {
        let (weights, stored_as) = match &self.weights {
            FileWeights::Stored(weights) => (*weights, None),
            FileWeights::Mxfp4(matrix) => (matrix.host(), Some("mxfp4")),
        };
        HostLinear {
            name: self.name.clone(),
            out_features: self.out_features,
            in_features: self.in_features,
            weights,
            stored_as,
            bias: self.bias.clone(),
        }
    }
}

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
) -> Result<FileLinear<'a>, LoadError> {
    let shape = [out_features, in_features];
    let weight = store.tensor(&format!("{path}.weight"))?;
    let scales_name = format!("{path}.scales");
    let weights = if store.contains(&scales_name) {
        let scales = store.tensor(&scales_name)?;
        read_quantised(config, store, path, (weight, scales), shape)?
    } else {
        expect_float(&weight)?;
        weight.expect_shape(&shape)?;
        FileWeights::Stored(HostWeights::Plain(weight))
    };
    Ok(FileLinear {
        name: path.to_owned(),
        out_features,
        in_features,
        weights,
        bias: read_bias(store, path, out_features)?,
    })
}

fn read_quantised<'a>(
    config: &ModelConfig,
    store: &'a WeightStore,
    path: &str,
    (weight, scales): (TensorView<'a>, TensorView<'a>),
    [out_features, in_features]: [usize; 2],
) -> Result<FileWeights<'a>, LoadError> {
    let biases_name = format!("{path}.biases");
    let has_biases = store.contains(&biases_name);
    let format = match module_format(config, path, (&weight, &scales, has_biases), in_features)? {
        ModuleFormat::Affine(format) => format,
        ModuleFormat::Mxfp4 if has_biases => {
            let biases = store.tensor(&biases_name)?;
            return Err(biases.mismatch("no biases beside mxfp4 codes".to_owned()));
        }
        ModuleFormat::Mxfp4 => {
            let matrix = Mxfp4Matrix::read(weight, scales, [out_features, in_features])?;
            return Ok(FileWeights::Mxfp4(matrix));
        }
        ModuleFormat::Plain => {
            return Err(scales.mismatch("no scales: config.json says `false` here".to_owned()));
        }
    };
    expect_float(&scales)?;
    let biases = store.tensor(&biases_name)?;
    weight.expect_shape(&[out_features, format.words_per_row(in_features)])?;
    scales.expect_shape(&[out_features, format.groups_per_row(in_features)])?;
    biases.expect_shape(&[out_features, format.groups_per_row(in_features)])?;
    expect_float(&biases)?;
    Ok(FileWeights::Stored(HostWeights::Affine {
        format,
        codes: weight,
        scales,
        biases,
    }))
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
    let modules = modules
        .iter()
        .map(|(path, out)| read(loading.config, loading.store, path, *out, in_features))
        .collect::<Result<Vec<_>, _>>()?;
    let parts: Vec<HostLinear<'_>> = modules.iter().map(FileLinear::host).collect();
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

/// An override has the last word; without one the tensors tell, as in published loaders, because
/// mixed recipes do not always list every module: scales of one byte are no affine ones, and the
/// shapes tell bits and group.
fn module_format(
    config: &ModelConfig,
    path: &str,
    (weight, scales, has_biases): (&TensorView<'_>, &TensorView<'_>, bool),
    in_features: usize,
) -> Result<ModuleFormat, LoadError> {
    if weight.dtype != Dtype::U32 {
        return Err(weight.mismatch("U32 codes beside scales".to_owned()));
    }
    let quantisation = &config.quantisation;
    if let Some(format) = quantisation.overrides.get(path) {
        return Ok(*format);
    }
    let (&[_, words], &[_, groups]) = (weight.shape, scales.shape) else {
        return Err(weight.mismatch("two axes".to_owned()));
    };
    let exact =
        |total: usize, part: usize| (part > 0 && total.is_multiple_of(part)).then(|| total / part);
    let bits = words.checked_mul(32).and_then(|b| exact(b, in_features));
    let group = exact(in_features, groups);
    let found = bits.zip(group);
    let says_mxfp4 = quantisation.default == Some(ModuleFormat::Mxfp4) && !has_biases;
    if scales.dtype == Dtype::U8 || says_mxfp4 {
        return match found {
            Some((4, 16)) => Err(without_kernel(weight, "nvfp4")),
            Some((8, 32)) => Err(without_kernel(weight, "mxfp8")),
            // Whatever else is wrong with it, its own checks say.
            _ => Ok(ModuleFormat::Mxfp4),
        };
    }
    found
        .and_then(|(bits, group)| AffineFormat::new(bits as u64, group as u64).ok())
        .map(ModuleFormat::Affine)
        .ok_or_else(|| {
            weight.mismatch(format!(
                "codes of {in_features} inputs in an affine format (scales are {:?})",
                scales.shape
            ))
        })
}

fn without_kernel(weight: &TensorView<'_>, mode: &str) -> LoadError {
    weight.mismatch(format!(
        "codes in an affine format or mxfp4 ({}-bit, groups of {}); no kernel reads {mode}",
        mxfp4::BITS,
        mxfp4::GROUP
    ))
}

fn expect_float(tensor: &TensorView<'_>) -> Result<(), LoadError> {
    if tensor.dtype.is_float() {
        return Ok(());
    }
    Err(tensor.mismatch("F32, F16 or BF16 elements".to_owned()))
}
