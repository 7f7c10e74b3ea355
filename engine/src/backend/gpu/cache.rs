//! Keys and values of a sequence on the device: one buffer for all layers of a kind, so that growing
//! is one allocation.

use std::sync::Arc;

use crate::backend::gpu::args::{LayerCache, MAX_CACHE_KINDS};
use crate::backend::gpu::buffer::Buffer;
use crate::backend::gpu::machine::Machine;
use crate::backend::interface::{LayerCacheShape, UndoWork};
use crate::error::BackendError;
use crate::kv_cache::{AppendUndo, CachePlan, CacheUndo, Compaction, RowUndo, SaveMethod};

/// Rows that can be saved a layer: more than any journal is deep.
const SAVED_ROWS: usize = 8;

/// Slots beyond what a plan asks for, so that decoding does not begin with growing.
const SPARE_SLOTS: usize = 256;

/// The caches of one sequence.
#[derive(Debug)]
pub(crate) struct SequenceCaches {
    machine: Arc<dyn Machine>,
    kinds: Vec<KindCaches>,
    layers: Vec<LayerCacheShape>,
    /// The layers' addresses, for kernels of a captured graph.
    table: Buffer,
    table_is_stale: bool,
    undo_work: UndoWork,
}

/// The layers of one kind, `[layer][key or value][slot][kv_head][head_dim]`.
#[derive(Debug)]
struct KindCaches {
    layers: Vec<usize>,
    row_bytes: usize,
    slots: usize,
    offset_tokens: usize,
    rows: Buffer,
    saved: Buffer,
}

impl SequenceCaches {
    /// Empty caches; `element_bytes` is the size of a stored key element.
    pub(crate) fn new(
        machine: &Arc<dyn Machine>,
        layers: &[LayerCacheShape],
        element_bytes: usize,
    ) -> Result<Self, BackendError> {
        let count = layers
            .iter()
            .map(|layer| layer.cache_kind + 1)
            .max()
            .unwrap_or(0);
        if count > MAX_CACHE_KINDS {
            return Err(BackendError::Unavailable {
                backend: machine.profile().backend,
                reason: format!("{count} kinds of caches, expected at most {MAX_CACHE_KINDS}"),
            });
        }
        let kind = |kind| -> Result<KindCaches, BackendError> {
            let of_kind = |layer: &usize| layers[*layer].cache_kind == kind;
            let members: Vec<usize> = (0..layers.len()).filter(of_kind).collect();
            let row_bytes = members.first().map_or(0, |&layer| {
                layers[layer].kv_heads * layers[layer].head_dim * element_bytes
            });
            Ok(KindCaches {
                rows: Buffer::zeroed(machine, 0)?,
                saved: Buffer::zeroed(machine, members.len() * 2 * SAVED_ROWS * row_bytes)?,
                layers: members,
                row_bytes,
                slots: 0,
                offset_tokens: 0,
            })
        };
        Ok(Self {
            machine: Arc::clone(machine),
            kinds: (0..count).map(kind).collect::<Result<_, _>>()?,
            layers: layers.to_vec(),
            table: Buffer::zeroed(machine, layers.len() * size_of::<LayerCache>())?,
            table_is_stale: true,
            undo_work: UndoWork::default(),
        })
    }

    /// Compacts and makes room for the rows of a step; copies what is to be kept, where that is work
    /// of its own.
    pub(crate) fn prepare(&mut self, plans: &[CachePlan]) -> Result<(), BackendError> {
        for (kind, plan) in self.kinds.iter_mut().zip(plans) {
            if let Some(compaction) = plan.compact {
                kind.compact(self.machine.as_ref(), compaction)?;
            }
            if plan.capacity_rows > kind.slots {
                kind.grow(&self.machine, plan)?;
                self.table_is_stale = true;
            }
            kind.offset_tokens = plan.offset_tokens;
            let Some(save) = plan.save else { continue };
            if save.entry >= SAVED_ROWS {
                return Err(BackendError::CannotRewind {
                    reason: format!("a journal deeper than {SAVED_ROWS} rows"),
                });
            }
            self.undo_work.rows_copied += 2 * kind.layers.len() as u64;
            if save.method == SaveMethod::OwnCopies {
                self.undo_work.launches += 2 * kind.layers.len() as u64;
                kind.each_row(save.slot, save.entry, |row, saved, bytes| {
                    self.machine.copy(saved, row, bytes)
                })?;
            }
        }
        Ok(())
    }

    /// What was done so that appends can be taken back.
    pub(crate) fn undo_work(&self) -> UndoWork {
        self.undo_work
    }

    /// Where the table of layers is, up to date.
    pub(crate) fn table(&mut self) -> Result<u64, BackendError> {
        if self.table_is_stale {
            let layers: Vec<LayerCache> = (0..self.layers.len()).map(|l| self.layer(l)).collect();
            let bytes = crate::backend::gpu::buffer::as_bytes(&layers);
            self.machine.write(self.table.address(), bytes)?;
            self.table_is_stale = false;
        }
        Ok(self.table.address())
    }

    /// Where the keys and values of `layer` are.
    pub(crate) fn layer(&self, layer: usize) -> LayerCache {
        let kind = &self.kinds[self.layers[layer].cache_kind];
        let index = kind.layers.iter().position(|l| *l == layer).unwrap_or(0);
        LayerCache {
            k: kind.row(index, 0, 0),
            v: kind.row(index, 1, 0),
            saved_k: kind.saved_row(index, 0, 0),
            saved_v: kind.saved_row(index, 1, 0),
        }
    }

    /// Takes appends back, newest first, one entry a kind.
    pub(crate) fn rewind(&mut self, undo: &[CacheUndo]) -> Result<(), BackendError> {
        for (kind, undo) in self.kinds.iter_mut().zip(undo) {
            for append in &undo.appends {
                kind.take_back(self.machine.as_ref(), append, &mut self.undo_work)?;
            }
        }
        Ok(())
    }
}

impl KindCaches {
    fn row(&self, layer: usize, value: usize, slot: usize) -> u64 {
        let row = (layer * 2 + value) * self.slots + slot;
        self.rows.address() + (row * self.row_bytes) as u64
    }

    fn saved_row(&self, layer: usize, value: usize, entry: usize) -> u64 {
        let row = (layer * 2 + value) * SAVED_ROWS + entry;
        self.saved.address() + (row * self.row_bytes) as u64
    }

    /// Every layer's key and value row of `slot`, with its saved row of `entry`.
    fn each_row(
        &self,
        slot: usize,
        entry: usize,
        mut act: impl FnMut(u64, u64, usize) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        for layer in 0..self.layers.len() {
            for value in 0..2 {
                let row = self.row(layer, value, slot);
                act(row, self.saved_row(layer, value, entry), self.row_bytes)?;
            }
        }
        Ok(())
    }

    fn grow(&mut self, machine: &Arc<dyn Machine>, plan: &CachePlan) -> Result<(), BackendError> {
        let wanted = plan.capacity_rows + SPARE_SLOTS;
        let slots = wanted.max(self.slots + self.slots / 2);
        let bytes = self.layers.len() * 2 * slots * self.row_bytes;
        let grown = Buffer::zeroed(machine, bytes)?;
        let kept = plan.first_slot.min(self.slots) * self.row_bytes;
        for half in 0..self.layers.len() * 2 {
            let to = grown.address() + (half * slots * self.row_bytes) as u64;
            if kept > 0 {
                machine.copy(to, self.row(half / 2, half % 2, 0), kept)?;
            }
        }
        self.rows = grown;
        self.slots = slots;
        Ok(())
    }

    fn compact(&self, machine: &dyn Machine, compaction: Compaction) -> Result<(), BackendError> {
        let (head, tail) = (compaction.head, compaction.tail);
        let bytes = |(start, end): (usize, usize)| (end - start) * self.row_bytes;
        // By way of a copy: the ranges overlap.
        let sorted = machine.allocate((bytes(head) + bytes(tail)).max(16))?;
        let mut moved = Ok(());
        for half in 0..self.layers.len() * 2 {
            let row = |slot| self.row(half / 2, half % 2, slot);
            let newer = sorted + bytes(head) as u64;
            moved = moved
                .and_then(|()| copy(machine, sorted, row(head.0), bytes(head)))
                .and_then(|()| copy(machine, newer, row(tail.0), bytes(tail)))
                .and_then(|()| copy(machine, row(0), sorted, bytes(head) + bytes(tail)));
        }
        machine.free(sorted);
        moved
    }

    fn take_back(
        &mut self,
        machine: &dyn Machine,
        append: &AppendUndo,
        work: &mut UndoWork,
    ) -> Result<(), BackendError> {
        if self.offset_tokens <= append.offset_before {
            // Never ran here. Caches that lack earlier tokens, too, have nothing to compact yet.
            return match append.compact {
                Some(compaction) if self.offset_tokens == append.offset_before => {
                    self.compact(machine, compaction)
                }
                _ => Ok(()),
            };
        }
        self.offset_tokens = append.offset_before;
        match append.row {
            RowUndo::Keep => Ok(()),
            RowUndo::Zero { slot } => {
                self.each_row(slot, 0, |row, _, bytes| machine.zero(row, bytes))
            }
            RowUndo::Restore { slot, entry } => {
                work.rows_restored += 2 * self.layers.len() as u64;
                self.each_row(slot, entry, |row, saved, bytes| {
                    machine.copy(row, saved, bytes)
                })
            }
        }
    }
}

fn copy(machine: &dyn Machine, to: u64, from: u64, bytes: usize) -> Result<(), BackendError> {
    match bytes {
        0 => Ok(()),
        bytes => machine.copy(to, from, bytes),
    }
}
