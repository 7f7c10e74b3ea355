//! An uploader that counts what passes through it: progress, formats, bytes that a step reads.

use std::collections::BTreeMap;

use crate::backend::interface::{
    GatedId, HostLinear, HostWeights, LinearId, RopeId, Uploader, VectorId,
};
use crate::error::LoadError;
use crate::model::family::{EMBEDDING, HEAD};

/// Wraps an uploader.
pub struct Census<'a> {
    inner: &'a mut dyn Uploader,
    on_bytes: &'a mut dyn FnMut(u64),
    done_bytes: u64,
    matrix_bytes: u64,
    embedding_bytes: u64,
    has_head: bool,
    bytes_by_format: BTreeMap<String, u64>,
}

impl<'a> Census<'a> {
    /// Counts what goes to `inner`; `on_bytes` hears the bytes passed on so far.
    pub fn new(inner: &'a mut dyn Uploader, on_bytes: &'a mut dyn FnMut(u64)) -> Self {
        Self {
            inner,
            on_bytes,
            done_bytes: 0,
            matrix_bytes: 0,
            embedding_bytes: 0,
            has_head: false,
            bytes_by_format: BTreeMap::new(),
        }
    }

    /// Bytes of matrices that a decode step reads: all of them, except an embedding table that is
    /// not the head, of which it reads one row.
    pub fn bytes_per_token(&self) -> u64 {
        if self.has_head {
            self.matrix_bytes - self.embedding_bytes
        } else {
            self.matrix_bytes
        }
    }

    /// Formats, the one with the most bytes first, e.g. `affine 4-bit g64, affine 6-bit g64` or
    /// `mxfp4 as affine 5-bit g32`.
    pub fn formats(&self) -> String {
        let mut by_size: Vec<_> = self.bytes_by_format.iter().collect();
        by_size.sort_by_key(|(_, bytes)| std::cmp::Reverse(**bytes));
        let names: Vec<&str> = by_size.iter().map(|(name, _)| name.as_str()).collect();
        names.join(", ")
    }
}

impl Census<'_> {
    fn count(&mut self, part: &HostLinear<'_>) {
        let bytes = part.bytes();
        let format = match &part.weights {
            HostWeights::Plain(tensor) => format!("{:?}", tensor.dtype).to_lowercase(),
            HostWeights::Affine { format, .. } => format.to_string(),
        };
        let format = match part.stored_as {
            Some(stored) => format!("{stored} as {format}"),
            None => format,
        };
        *self.bytes_by_format.entry(format).or_default() += bytes;
        self.matrix_bytes += bytes;
        self.done_bytes += bytes;
        if part.name == EMBEDDING {
            self.embedding_bytes = bytes;
        }
        self.has_head |= part.name == HEAD;
        (self.on_bytes)(self.done_bytes);
    }
}

impl Uploader for Census<'_> {
    fn linear(&mut self, parts: &[HostLinear<'_>]) -> Result<LinearId, LoadError> {
        let id = self.inner.linear(parts)?;
        parts.iter().for_each(|part| self.count(part));
        Ok(id)
    }

    fn gated(&mut self, gate: &HostLinear<'_>, up: &HostLinear<'_>) -> Result<GatedId, LoadError> {
        let id = self.inner.gated(gate, up)?;
        self.count(gate);
        self.count(up);
        Ok(id)
    }

    fn vector(&mut self, values: Vec<f32>) -> Result<VectorId, LoadError> {
        self.inner.vector(values)
    }

    fn rope(&mut self, inverse_frequencies: Vec<f32>) -> Result<RopeId, LoadError> {
        self.inner.rope(inverse_frequencies)
    }
}
