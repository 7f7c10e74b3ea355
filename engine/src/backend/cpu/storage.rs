//! Keys and values of one layer: a buffer of rows that obeys the cursors' plans.

use crate::backend::interface::LayerCacheShape;
use crate::kv_cache::{CachePlan, Compaction};

/// Rows of keys and rows of values, `[row][kv_head][head_dim]` each.
#[derive(Debug)]
pub(super) struct LayerCache<T> {
    row_len: usize,
    /// Keys.
    pub(super) k: Vec<T>,
    /// Values.
    pub(super) v: Vec<T>,
}

impl<T: Copy + Default> LayerCache<T> {
    /// An empty cache.
    pub(super) fn new(shape: LayerCacheShape) -> Self {
        Self {
            row_len: shape.kv_heads * shape.head_dim,
            k: Vec::new(),
            v: Vec::new(),
        }
    }

    /// Compacts and makes room, so that `plan`'s rows can be written.
    pub(super) fn prepare(&mut self, plan: &CachePlan) {
        let row_len = self.row_len;
        for buffer in [&mut self.k, &mut self.v] {
            if let Some(compaction) = plan.compact {
                compact(buffer, row_len, compaction);
            }
            let missing = (plan.capacity_rows * row_len).saturating_sub(buffer.len());
            buffer.reserve_exact(missing);
            buffer.resize(plan.physical_rows * row_len, T::default());
        }
    }

    /// Key and value rows of `slot`, to be written.
    pub(super) fn row_mut(&mut self, slot: usize) -> (&mut [T], &mut [T]) {
        let range = slot * self.row_len..(slot + 1) * self.row_len;
        (&mut self.k[range.clone()], &mut self.v[range])
    }

    /// Bytes allocated.
    pub(super) fn bytes(&self) -> u64 {
        ((self.k.capacity() + self.v.capacity()) * size_of::<T>()) as u64
    }
}

fn compact<T: Copy>(buffer: &mut Vec<T>, row_len: usize, compaction: Compaction) {
    let rows = |(start, end): (usize, usize)| start * row_len..end * row_len;
    if compaction.tail.0 == compaction.tail.1 {
        let kept = rows(compaction.head);
        let len = kept.len();
        buffer.copy_within(kept, 0);
        buffer.truncate(len);
    } else {
        let mut sorted = Vec::with_capacity(buffer.len());
        sorted.extend_from_slice(&buffer[rows(compaction.head)]);
        sorted.extend_from_slice(&buffer[rows(compaction.tail)]);
        *buffer = sorted;
    }
}
