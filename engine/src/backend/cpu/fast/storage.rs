//! Keys and values as the attention kernels read them: `[kv_head][slot][head_dim]`, a layer.
//!
//! A sequence's buffers are cut from an arena of its own: most are smaller than a huge page, and on
//! ordinary pages attention at depth waits for page tables.

use half::f16;

use crate::backend::cpu::kernel::{
    AlignedBuffer, Arena, AttentionShape, Kernels, KvView, replace_row, write_rows,
};
use crate::backend::interface::{LayerCacheShape, UndoWork};
use crate::kv_cache::{AppendUndo, CachePlan, CacheUndo, Compaction, RowUndo, SaveMethod, SaveRow};

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
    offset_tokens: usize,
    /// Saved rows by entry, `[kv_head][head_dim]` each.
    undo_rows: Vec<(Vec<f16>, Vec<f16>)>,
    undo_work: UndoWork,
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
            offset_tokens: 0,
            undo_rows: Vec::new(),
            undo_work: UndoWork::default(),
            k: AlignedBuffer::zeroed(0),
            v: AlignedBuffer::zeroed(0),
        }
    }

    /// Which plan it follows.
    pub(super) fn kind(&self) -> usize {
        self.shape.cache_kind
    }

    /// What was done so that its appends can be taken back.
    pub(super) fn undo_work(&self) -> UndoWork {
        self.undo_work
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
        self.offset_tokens = plan.offset_tokens;
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

    /// Writes the rows of a step, of which `qkv` holds one a token, `row` floats apart; keys begin
    /// at `keys_at`, values follow them. Keeps what the plan says to keep.
    pub(super) fn append(
        &mut self,
        kernels: &Kernels,
        plan: &CachePlan,
        (qkv, row, keys_at): (&[f32], usize, usize),
    ) {
        let width = self.shape.kv_heads * self.shape.head_dim;
        let shape = AttentionShape {
            heads: self.shape.kv_heads,
            kv_heads: self.shape.kv_heads,
            head_dim: self.shape.head_dim,
            scale: 1.0,
        };
        let (slots, first_slot) = (self.slots, plan.first_slot);
        let sources = [&qkv[keys_at..], &qkv[keys_at + width..]];
        if let Some(save) = plan.save
            && save.method == SaveMethod::InAppend
        {
            let (kept_k, kept_v) = self.undo_entry(save.entry);
            let (mut kept_k, mut kept_v) = (std::mem::take(kept_k), std::mem::take(kept_v));
            let kept = [&mut kept_k, &mut kept_v];
            let buffers = [&mut self.k, &mut self.v];
            for ((source, buffer), kept) in sources.into_iter().zip(buffers).zip(kept) {
                kept.resize(width, f16::ZERO);
                replace_row(kernels, &shape, source, buffer, slots, save.slot, kept);
                self.undo_work.rows_copied += 1;
            }
            *self.undo_entry(save.entry) = (kept_k, kept_v);
            return;
        }
        if let Some(save) = plan.save {
            self.save(save);
        }
        let tokens = qkv.len() / row;
        for (source, buffer) in sources.into_iter().zip([&mut self.k, &mut self.v]) {
            write_rows(
                kernels, &shape, source, row, tokens, buffer, slots, first_slot,
            );
        }
    }

    fn undo_entry(&mut self, entry: usize) -> &mut (Vec<f16>, Vec<f16>) {
        if self.undo_rows.len() <= entry {
            self.undo_rows.resize_with(entry + 1, Default::default);
        }
        &mut self.undo_rows[entry]
    }

    /// Keeps a key and a value row that are about to be overwritten, in a pass of its own each.
    fn save(&mut self, save: SaveRow) {
        self.undo_entry(save.entry);
        let dim = self.shape.head_dim;
        let head_len = self.slots * dim;
        let (k, v) = &mut self.undo_rows[save.entry];
        for (kept, buffer) in [(k, &self.k), (v, &self.v)] {
            kept.clear();
            for head in buffer.chunks_exact(head_len) {
                kept.extend_from_slice(&head[save.slot * dim..][..dim]);
            }
            self.undo_work.rows_copied += 1;
            self.undo_work.launches += 1;
        }
    }

    /// Takes appends back, newest first.
    pub(super) fn rewind(&mut self, undo: &CacheUndo) {
        for append in &undo.appends {
            self.take_back(append);
        }
    }

    fn take_back(&mut self, append: &AppendUndo) {
        if self.offset_tokens <= append.offset_before {
            // Never ran here. A layer that lacks earlier tokens, too, has nothing to compact yet.
            if let Some(compaction) = append.compact
                && self.offset_tokens == append.offset_before
            {
                self.compact(compaction);
            }
            return;
        }
        self.offset_tokens = append.offset_before;
        let dim = self.shape.head_dim;
        let head_len = self.slots * dim;
        match append.row {
            RowUndo::Keep => {}
            RowUndo::Zero { slot } => {
                for buffer in [&mut self.k, &mut self.v] {
                    for head in buffer.chunks_exact_mut(head_len) {
                        head[slot * dim..][..dim].fill(f16::ZERO);
                    }
                }
            }
            RowUndo::Restore { slot, entry } => {
                let (k, v) = &self.undo_rows[entry];
                for (kept, buffer) in [(k, &mut self.k), (v, &mut self.v)] {
                    let heads = buffer.chunks_exact_mut(head_len);
                    for (head, row) in heads.zip(kept.chunks_exact(dim)) {
                        head[slot * dim..][..dim].copy_from_slice(row);
                    }
                }
                self.undo_work.rows_restored += 2;
            }
        }
    }

    /// Bytes allocated.
    pub(super) fn bytes(&self) -> u64 {
        let saved = self.undo_rows.iter();
        let saved: usize = saved.map(|(k, v)| k.capacity() + v.capacity()).sum();
        ((self.k.len() + self.v.len() + saved) * size_of::<f16>()) as u64
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
