//! Matrices that are not quantised, in the order in which the kernels read
//! them: blocks of 16 rows, for every column 16 values.

use super::Kernels;
use super::huge_pages::AlignedBuffer;
use super::repack::BLOCK_ROWS;
use super::source::{
    FloatKind, FloatSource, PlainSource, RepackError, check_size, locate, write_float,
};

/// A plain matrix in blocks of 16 rows: for every column, 16 values.
#[derive(Debug)]
pub struct PlainMatrix {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) kind: FloatKind,
    pub(super) data: AlignedBuffer<u8>,
}

impl PlainMatrix {
    /// Repacks `parts`, one below the other, on the pool of `kernels`. Parts
    /// of different kinds are stored as f32.
    ///
    /// # Errors
    /// When a size contradicts its shape or the parts differ in columns.
    pub fn repack(kernels: &Kernels, parts: &[PlainSource<'_>]) -> Result<Self, RepackError> {
        let first = parts.first().ok_or(RepackError::Empty)?;
        let columns = first.columns;
        for part in parts {
            check_size(
                "values",
                part.values,
                part.rows,
                columns,
                part.rows * part.columns,
            )?;
            if part.columns != columns {
                let (got, expected) = (part.columns, columns);
                return Err(RepackError::Stack {
                    what: "columns",
                    got,
                    expected,
                });
            }
        }
        let uniform = parts
            .iter()
            .all(|part| part.values.kind == first.values.kind);
        let kind = if uniform {
            first.values.kind
        } else {
            FloatKind::F32
        };
        let rows: usize = parts.iter().map(|part| part.rows).sum();
        if rows == 0 || columns == 0 {
            return Err(RepackError::Empty);
        }
        let (blocks, block_bytes) = (
            rows.div_ceil(BLOCK_ROWS),
            columns * BLOCK_ROWS * kind.bytes(),
        );
        let mut data = kernels.arena().zeroed(blocks * block_bytes);
        kernels
            .pool()
            .for_chunks(&mut data, block_bytes, |block, bytes| {
                for lane in 0..BLOCK_ROWS.min(rows - block * BLOCK_ROWS) {
                    let Some((part, row)) = locate(parts, block * BLOCK_ROWS + lane, |p| p.rows)
                    else {
                        continue;
                    };
                    for column in 0..columns {
                        let value = part.values.get(row * columns + column);
                        write_float(bytes, kind, column * BLOCK_ROWS + lane, value);
                    }
                }
            });
        Ok(PlainMatrix {
            rows,
            columns,
            kind,
            data,
        })
    }

    /// Outputs.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// How the values are stored.
    #[must_use]
    pub fn kind(&self) -> FloatKind {
        self.kind
    }

    /// Bytes that one product with a vector reads.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    /// Bytes for which huge pages were asked and the request was accepted.
    #[must_use]
    pub fn advised_bytes(&self) -> usize {
        self.data.advised_bytes()
    }

    /// Writes row `row` to `out` of `columns` elements.
    ///
    /// # Panics
    /// When `row` or the length of `out` does not fit.
    pub fn copy_row(&self, row: usize, out: &mut [f32]) {
        assert!(
            row < self.rows && out.len() == self.columns,
            "row or output does not fit"
        );
        let block = &self.data[row / BLOCK_ROWS * self.block_bytes()..][..self.block_bytes()];
        let values = FloatSource {
            kind: self.kind,
            bytes: block,
        };
        for (column, out) in out.iter_mut().enumerate() {
            *out = values.get(column * BLOCK_ROWS + row % BLOCK_ROWS);
        }
    }

    pub(super) fn blocks(&self) -> usize {
        self.rows.div_ceil(BLOCK_ROWS)
    }

    pub(super) fn block_bytes(&self) -> usize {
        self.columns * BLOCK_ROWS * self.kind.bytes()
    }
}
