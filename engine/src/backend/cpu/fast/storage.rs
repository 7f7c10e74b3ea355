//! Keys and values as the attention kernels read them: `[kv_head][slot][head_dim]`, a layer.
//!
//! A sequence's buffers are cut from an arena of its own: most are smaller than a huge page, and on
//! ordinary pages attention at depth waits for page tables.

use half::f16;

use crate::backend::cpu::kernel::{AlignedBuffer, Arena, KvView};
use crate::backend::interface::LayerCacheShape;
use crate::kv_cache::{CachePlan, Compaction};

/// The caches of one sequence.
#[derive(Debug, Default)]
pub(super) struct FastSequence {
    /// Where their buffers are cut from.
    pub(super) arena: Arena,
    /// One a layer.
    pub(super) layers: Vec<FastCache>,
}

/// Two buffers of equal shape.
#[derive(Debug)]
pub(super) struct FastCache {
    shape: LayerCacheShape,
    slots: usize,
    /// Keys.
    pub(super) k: AlignedBuffer<f16>,
    /// Values.
    pub(super) v: AlignedBuffer<f16>,
}

impl FastCache {
    /// An empty cache.
    pub(super) fn new(shape: LayerCacheShape) -> Self {
        Self {
            shape,
            slots: 0,
            k: AlignedBuffer::zeroed(0),
            v: AlignedBuffer::zeroed(0),
        }
    }

    /// Slots of each head.
    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    /// Both buffers, for attention.
    pub(super) fn view(&self) -> KvView<'_, f16> {
        KvView {
            keys: &self.k,
            values: &self.v,
            slots: self.slots,
        }
    }

    /// Compacts and makes room, so that `plan`'s rows can be written.
    pub(super) fn prepare(&mut self, plan: &CachePlan, arena: &Arena) {
        if let Some(compaction) = plan.compact {
            self.compact(compaction);
        }
        if plan.capacity_rows > self.slots {
            // Heads are apart by the number of slots, so growth moves every head: at least half as
            // much again keeps the moves few.
            let slots = plan.capacity_rows.max(self.slots + self.slots / 2);
            let rows = plan.first_slot;
            self.k = grown(arena, &self.k, self.shape, (self.slots, slots), rows);
            self.v = grown(arena, &self.v, self.shape, (self.slots, slots), rows);
            self.slots = slots;
        }
    }

    /// Bytes allocated.
    pub(super) fn bytes(&self) -> u64 {
        ((self.k.len() + self.v.len()) * size_of::<f16>()) as u64
    }

    fn compact(&mut self, compaction: Compaction) {
        let dim = self.shape.head_dim;
        let head_len = self.slots * dim;
        let elements = |(start, end): (usize, usize)| start * dim..end * dim;
        let (older, newer) = (elements(compaction.head), elements(compaction.tail));
        let mut sorted = Vec::with_capacity(older.len() + newer.len());
        for buffer in [&mut self.k, &mut self.v] {
            for head in buffer.chunks_exact_mut(head_len) {
                sorted.clear();
                sorted.extend_from_slice(&head[older.clone()]);
                sorted.extend_from_slice(&head[newer.clone()]);
                head[..sorted.len()].copy_from_slice(&sorted);
            }
        }
    }
}

/// A larger buffer with the first `rows` slots of each head.
fn grown(
    arena: &Arena,
    old: &AlignedBuffer<f16>,
    shape: LayerCacheShape,
    (old_slots, slots): (usize, usize),
    rows: usize,
) -> AlignedBuffer<f16> {
    let dim = shape.head_dim;
    let mut new = arena.zeroed(shape.kv_heads * slots * dim);
    let kept = rows.min(old_slots) * dim;
    if kept > 0 {
        let heads = new.chunks_exact_mut(slots * dim);
        for (to, from) in heads.zip(old.chunks_exact(old_slots * dim)) {
            to[..kept].copy_from_slice(&from[..kept]);
        }
    }
    new
}
