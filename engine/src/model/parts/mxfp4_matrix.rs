//! An mxfp4 matrix of the file, converted once to the affine one that back ends execute.

use crate::backend::interface::HostWeights;
use crate::error::LoadError;
use crate::quant::{AffineFormat, mxfp4};
use crate::weights::{Dtype, TensorView};

/// The matrix as affine groups with bf16 scales and biases, owned.
#[derive(Debug)]
pub(super) struct Mxfp4Matrix<'a> {
    /// Where it came from, for errors of a back end.
    weight: TensorView<'a>,
    scales: TensorView<'a>,
    code_shape: [usize; 2],
    group_shape: [usize; 2],
    codes: Vec<u8>,
    scale_bytes: Vec<u8>,
    bias_bytes: Vec<u8>,
}

impl<'a> Mxfp4Matrix<'a> {
    /// Checks and converts `weight`, U32 `[out, in / 8]`, and `scales`, U8 `[out, in / 32]`.
    ///
    /// # Errors
    /// When a tensor has another type or shape, or an exponent is above [`mxfp4::MAX_EXPONENT`].
    pub(super) fn read(
        weight: TensorView<'a>,
        scales: TensorView<'a>,
        [out_features, in_features]: [usize; 2],
    ) -> Result<Self, LoadError> {
        if !in_features.is_multiple_of(mxfp4::GROUP) {
            return Err(weight.mismatch(format!(
                "no mxfp4 codes: {in_features} inputs are not a multiple of {}",
                mxfp4::GROUP
            )));
        }
        let groups = in_features / mxfp4::GROUP;
        if scales.dtype != Dtype::U8 || scales.shape != [out_features, groups] {
            return Err(scales.mismatch(format!(
                "U8 [{out_features}, {groups}], an exponent for each {} mxfp4 codes",
                mxfp4::GROUP
            )));
        }
        weight.expect_shape(&[out_features, in_features * mxfp4::BITS / 32])?;
        let format = AffineFormat::OF_MXFP4;
        let mut matrix = Self {
            code_shape: [out_features, format.words_per_row(in_features)],
            group_shape: [out_features, groups],
            codes: Vec::with_capacity(out_features * format.bytes_per_row(in_features)),
            scale_bytes: Vec::with_capacity(2 * scales.bytes.len()),
            bias_bytes: Vec::with_capacity(2 * scales.bytes.len()),
            weight,
            scales,
        };
        // Rows are whole words in both widths, so all of them are one stream.
        mxfp4::widen_codes(weight.bytes, &mut matrix.codes);
        for (index, exponent) in scales.bytes.iter().enumerate() {
            let (scale, bias) = mxfp4::affine_scale(*exponent)
                .ok_or_else(|| exponent_error(&scales, (index / groups, index % groups)))?;
            matrix.scale_bytes.extend_from_slice(&scale.to_le_bytes());
            matrix.bias_bytes.extend_from_slice(&bias.to_le_bytes());
        }
        Ok(matrix)
    }

    /// The affine matrix.
    pub(super) fn host(&self) -> HostWeights<'_> {
        let floats = |bytes| TensorView {
            dtype: Dtype::Bf16,
            shape: &self.group_shape,
            bytes,
            ..self.scales
        };
        HostWeights::Affine {
            format: AffineFormat::OF_MXFP4,
            codes: TensorView {
                shape: &self.code_shape,
                bytes: &self.codes,
                ..self.weight
            },
            scales: floats(&self.scale_bytes),
            biases: floats(&self.bias_bytes),
        }
    }
}

fn exponent_error(scales: &TensorView<'_>, (row, group): (usize, usize)) -> LoadError {
    let groups = scales.shape.last().copied().unwrap_or(0);
    let got = scales.bytes[row * groups + group];
    LoadError::Tensor {
        path: scales.path.to_owned(),
        tensor: scales.name.to_owned(),
        expected: format!(
            "exponents up to {}: float32 has no room for more, and 255 is NaN",
            mxfp4::MAX_EXPONENT
        ),
        got: format!("{got} in row {row}, group {group}"),
    }
}
