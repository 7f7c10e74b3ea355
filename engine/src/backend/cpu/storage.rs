//! Keys and values of one layer: a buffer of rows that obeys the cursors' plans and takes appends
//! back.

use crate::backend::interface::{LayerCacheShape, UndoWork};
use crate::kv_cache::{AppendUndo, CachePlan, CacheUndo, Compaction, RowUndo, SaveMethod, SaveRow};

/// Rows of keys and rows of values, `[row][kv_head][head_dim]` each.
#[derive(Debug)]
pub(super) struct LayerCache<T> {
    kind: usize,
    row_len: usize,
    offset_tokens: usize,
    undo_rows: Vec<(Vec<T>, Vec<T>)>,
    undo_work: UndoWork,
    /// Keys.
    pub(super) k: Vec<T>,
    /// Values.
    pub(super) v: Vec<T>,
}

impl<T: Copy + Default> LayerCache<T> {
    /// An empty cache.
    pub(super) fn new(shape: LayerCacheShape) -> Self {
        Self {
            kind: shape.cache_kind,
            row_len: shape.kv_heads * shape.head_dim,
            offset_tokens: 0,
            undo_rows: Vec::new(),
            undo_work: UndoWork::default(),
            k: Vec::new(),
            v: Vec::new(),
        }
    }

    /// Which plan it follows.
    pub(super) fn kind(&self) -> usize {
        self.kind
    }

    /// What was done so that its appends can be taken back.
    pub(super) fn undo_work(&self) -> UndoWork {
        self.undo_work
    }

    /// Compacts and makes room, so that `plan`'s rows can be written.
    pub(super) fn prepare(&mut self, plan: &CachePlan) {
        let row_len = self.row_len;
        self.offset_tokens = plan.offset_tokens;
        for buffer in [&mut self.k, &mut self.v] {
            if let Some(compaction) = plan.compact {
                compact(buffer, row_len, compaction);
            }
            let missing = (plan.capacity_rows * row_len).saturating_sub(buffer.len());
            buffer.reserve_exact(missing);
            buffer.resize(plan.physical_rows * row_len, T::default());
        }
    }

    /// Keeps a key and a value row that are about to be overwritten.
    pub(super) fn save(&mut self, save: SaveRow) {
        if self.undo_rows.len() <= save.entry {
            self.undo_rows.resize_with(save.entry + 1, Default::default);
        }
        let row = save.slot * self.row_len..(save.slot + 1) * self.row_len;
        let (k, v) = &mut self.undo_rows[save.entry];
        for (kept, buffer) in [(k, &self.k), (v, &self.v)] {
            kept.clear();
            kept.extend_from_slice(&buffer[row.clone()]);
            self.undo_work.rows_copied += 1;
            // Here a copy of its own and one in the append are the same; what is counted differs.
            self.undo_work.launches += u64::from(save.method == SaveMethod::OwnCopies);
        }
    }

    /// Takes appends back, newest first.
    pub(super) fn rewind(&mut self, undo: &CacheUndo) {
        for append in &undo.appends {
            self.take_back(append);
        }
        for buffer in [&mut self.k, &mut self.v] {
            buffer.truncate(undo.physical_rows * self.row_len);
        }
    }

    fn take_back(&mut self, append: &AppendUndo) {
        if self.offset_tokens <= append.offset_before {
            // Never ran here. A layer that lacks earlier tokens, too, has nothing to compact yet.
            if let Some(compaction) = append.compact
                && self.offset_tokens == append.offset_before
            {
                compact(&mut self.k, self.row_len, compaction);
                compact(&mut self.v, self.row_len, compaction);
            }
            return;
        }
        self.offset_tokens = append.offset_before;
        let row = |slot: usize| slot * self.row_len..(slot + 1) * self.row_len;
        match append.row {
            RowUndo::Keep => {}
            RowUndo::Zero { slot } => {
                self.k[row(slot)].fill(T::default());
                self.v[row(slot)].fill(T::default());
            }
            RowUndo::Restore { slot, entry } => {
                let (k, v) = &self.undo_rows[entry];
                self.k[row(slot)].copy_from_slice(k);
                self.v[row(slot)].copy_from_slice(v);
                self.undo_work.rows_restored += 2;
            }
        }
    }

    /// Key and value rows of `slot`, to be written.
    pub(super) fn row_mut(&mut self, slot: usize) -> (&mut [T], &mut [T]) {
        let range = slot * self.row_len..(slot + 1) * self.row_len;
        (&mut self.k[range.clone()], &mut self.v[range])
    }

    /// Bytes allocated.
    pub(super) fn bytes(&self) -> u64 {
        let saved = self.undo_rows.iter();
        let saved: usize = saved.map(|(k, v)| k.capacity() + v.capacity()).sum();
        ((self.k.capacity() + self.v.capacity() + saved) * size_of::<T>()) as u64
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
