//! The weight of an RMS norm, as it multiplies.

use crate::backend::interface::Norm;
use crate::error::LoadError;
use crate::model::Family;
use crate::model::parts::Loading;

/// Reads and uploads `<path>.weight`, `[width]`.
///
/// Gemma's norms multiply by `1 + w`. The sum is taken in the type of the activations: the
/// published implementation rounds it to bf16 because it runs in bf16; here both arithmetics keep
/// activations outside products in float32, so it is a float32 sum.
///
/// # Errors
/// When the tensor is missing or wrong.
pub fn upload(loading: &mut Loading<'_>, path: &str, width: usize) -> Result<Norm, LoadError> {
    let tensor = loading.store.tensor(&format!("{path}.weight"))?;
    tensor.expect_shape(&[width])?;
    let mut values = tensor.to_f32()?;
    if loading.config.family == Family::Gemma3 {
        values.iter_mut().for_each(|weight| *weight += 1.0);
    }
    Ok(Norm {
        weight: loading.uploader.vector(values)?,
        eps: loading.config.rms_norm_eps,
    })
}
