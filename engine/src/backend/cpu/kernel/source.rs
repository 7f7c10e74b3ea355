//! Weight tensors as files hold them, before repacking, and what can be wrong
//! with them.

use half::{bf16, f16};

/// How floats are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FloatKind {
    /// bfloat16, 2 bytes.
    Bf16,
    /// IEEE half, 2 bytes.
    F16,
    /// IEEE single, 4 bytes.
    F32,
}

impl FloatKind {
    /// Bytes of one value.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            FloatKind::Bf16 | FloatKind::F16 => 2,
            FloatKind::F32 => 4,
        }
    }
}

/// Floats as little-endian bytes, at any alignment (a mapped file).
#[derive(Debug, Clone, Copy)]
pub struct FloatSource<'a> {
    /// How each value is stored.
    pub kind: FloatKind,
    /// The values, one after the other.
    pub bytes: &'a [u8],
}

impl FloatSource<'_> {
    /// Value number `index`.
    ///
    /// # Panics
    /// When `index` is outside the source.
    #[must_use]
    pub fn get(&self, index: usize) -> f32 {
        let size = self.kind.bytes();
        let bytes = &self.bytes[index * size..(index + 1) * size];
        match self.kind {
            FloatKind::Bf16 => bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
            FloatKind::F16 => f16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
            FloatKind::F32 => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
        }
    }
}

/// An affine quantised matrix as MLX files store it: w = scale · q + bias.
#[derive(Debug, Clone, Copy)]
pub struct AffineSource<'a> {
    /// Outputs.
    pub rows: usize,
    /// Inputs, a multiple of `group`.
    pub columns: usize,
    /// 2, 3, 4, 5, 6 or 8.
    pub bits: usize,
    /// Columns that share a scale and a bias: 32, 64 or 128.
    pub group: usize,
    /// Each row a little-endian bit stream of its codes: rows × columns · bits / 8 bytes.
    pub codes: &'a [u8],
    /// rows × columns / group.
    pub scales: FloatSource<'a>,
    /// rows × columns / group.
    pub biases: FloatSource<'a>,
}

/// A plain matrix, row after row.
#[derive(Debug, Clone, Copy)]
pub struct PlainSource<'a> {
    /// Outputs.
    pub rows: usize,
    /// Inputs.
    pub columns: usize,
    /// rows × columns.
    pub values: FloatSource<'a>,
}

/// Why a matrix cannot be repacked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RepackError {
    /// No kernel for this number of bits.
    #[error("{bits}-bit codes have no kernel, expected 2, 3, 4, 5, 6 or 8")]
    Bits {
        /// The number asked.
        bits: usize,
    },
    /// No kernel for this group.
    #[error("groups of {group} columns have no kernel, expected 32, 64 or 128")]
    Group {
        /// The group asked.
        group: usize,
    },
    /// Columns that are no multiple of the group.
    #[error("{columns} columns are not a multiple of the group of {group}")]
    Columns {
        /// Columns of the matrix.
        columns: usize,
        /// Columns of a group.
        group: usize,
    },
    /// A tensor whose size contradicts the shape.
    #[error("{tensor} of a {rows} × {columns} matrix: got {got} bytes, expected {expected}")]
    Size {
        /// Which tensor.
        tensor: &'static str,
        /// Rows of the matrix.
        rows: usize,
        /// Columns of the matrix.
        columns: usize,
        /// Bytes given.
        got: usize,
        /// Bytes that the shape needs.
        expected: usize,
    },
    /// Matrices that cannot be stacked.
    #[error("stacked matrices differ in {what}: got {got}, expected {expected}")]
    Stack {
        /// What differs.
        what: &'static str,
        /// The later matrix's.
        got: usize,
        /// The first matrix's.
        expected: usize,
    },
    /// Nothing to repack.
    #[error("no matrix with at least one row and one column given")]
    Empty,
}

pub(super) fn check_affine(part: &AffineSource<'_>) -> Result<(), RepackError> {
    let &AffineSource {
        rows,
        columns,
        bits,
        group,
        ..
    } = part;
    if ![32, 64, 128].contains(&group) {
        return Err(RepackError::Group { group });
    }
    if !columns.is_multiple_of(group) {
        return Err(RepackError::Columns { columns, group });
    }
    if rows == 0 || columns == 0 {
        return Err(RepackError::Empty);
    }
    let expected = rows * (columns * bits / 8);
    if part.codes.len() != expected {
        let got = part.codes.len();
        return Err(RepackError::Size {
            tensor: "codes",
            rows,
            columns,
            got,
            expected,
        });
    }
    check_size(
        "scales",
        part.scales,
        rows,
        columns,
        rows * (columns / group),
    )?;
    check_size(
        "biases",
        part.biases,
        rows,
        columns,
        rows * (columns / group),
    )
}

pub(super) fn check_size(
    tensor: &'static str,
    source: FloatSource<'_>,
    rows: usize,
    columns: usize,
    values: usize,
) -> Result<(), RepackError> {
    let (got, expected) = (source.bytes.len(), values * source.kind.bytes());
    if got == expected {
        Ok(())
    } else {
        Err(RepackError::Size {
            tensor,
            rows,
            columns,
            got,
            expected,
        })
    }
}

/// The part that holds row `row` of the stack, and its row there.
pub(super) fn locate<T>(
    parts: &[T],
    row: usize,
    rows: impl Fn(&T) -> usize,
) -> Option<(&T, usize)> {
    let mut row = row;
    for part in parts {
        if row < rows(part) {
            return Some((part, row));
        }
        row -= rows(part);
    }
    None
}

/// Every kind holds the values of its own source exactly; f32 holds all.
pub(super) fn write_float(to: &mut [u8], kind: FloatKind, index: usize, value: f32) {
    let to = &mut to[index * kind.bytes()..(index + 1) * kind.bytes()];
    match kind {
        FloatKind::Bf16 => to.copy_from_slice(&bf16::from_f32(value).to_le_bytes()),
        FloatKind::F16 => to.copy_from_slice(&f16::from_f32(value).to_le_bytes()),
        FloatKind::F32 => to.copy_from_slice(&value.to_le_bytes()),
    }
}
