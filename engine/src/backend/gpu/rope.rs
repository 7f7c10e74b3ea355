//! Cosines and sines of every position, worked out on the host in float64 as for the processor: a
//! GPU's own routines differ, and tables cost a few megabytes.

use std::sync::Arc;

use crate::backend::gpu::buffer::Buffer;
use crate::backend::gpu::machine::Machine;
use crate::error::BackendError;

/// Positions by which a table grows at least.
const GROWTH_POSITIONS: usize = 1024;

/// A table of `[position][pair]` cosines and sines.
#[derive(Debug)]
pub(crate) struct RopeTable {
    inverse_frequencies: Vec<f32>,
    positions: usize,
    table: Option<Buffer>,
}

impl RopeTable {
    /// No position yet.
    pub(crate) fn new(inverse_frequencies: Vec<f32>) -> Self {
        Self {
            inverse_frequencies,
            positions: 0,
            table: None,
        }
    }

    /// Where the table is; it has rows for all positions below `positions`.
    pub(crate) fn address(
        &mut self,
        machine: &Arc<dyn Machine>,
        positions: usize,
    ) -> Result<u64, BackendError> {
        if let Some(table) = &self.table
            && positions <= self.positions
        {
            return Ok(table.address());
        }
        let rows = (positions + GROWTH_POSITIONS).max(self.positions + self.positions / 2);
        let table = Buffer::of(machine, &self.rows(rows))?;
        let address = table.address();
        self.table = Some(table);
        self.positions = rows;
        Ok(address)
    }

    fn rows(&self, positions: usize) -> Vec<[f32; 2]> {
        let pair = |position: usize, frequency: f32| {
            let (sin, cos) = (position as f64 * f64::from(frequency)).sin_cos();
            [cos as f32, sin as f32]
        };
        let frequencies = &self.inverse_frequencies;
        let row = |position| frequencies.iter().map(move |f| pair(position, *f));
        (0..positions).flat_map(row).collect()
    }
}
