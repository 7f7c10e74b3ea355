//! Dequantised weights that are kept for the next product, the last used first.
//!
//! Weights are dequantised outside the lock: two threads that miss the same entry both do the work,
//! and the first to come back is kept. An entry keeps whatever its value refers to alive, so the
//! addresses in a key cannot come to mean another matrix.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::options::QmmOptions;
use super::problem::Float;

/// Which weights, and how they were dequantised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DequantKey {
    /// Address of the codes.
    pub weight: usize,
    /// Address of the scales.
    pub scales: usize,
    /// Address of the biases.
    pub biases: usize,
    /// Columns that share a scale.
    pub group: usize,
    /// Bits of a code.
    pub bits: usize,
    /// Queue of the device.
    pub stream: usize,
    /// Whether the matrix is used transposed.
    pub transpose: bool,
    /// Type of the dequantised weights.
    pub dtype: Float,
}

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DequantLimits {
    /// Entries; 0 turns the cache off.
    pub entries: usize,
    /// Bytes of all entries; 0 turns the cache off.
    pub bytes: u64,
}

impl DequantLimits {
    /// Those of the options.
    #[must_use]
    pub fn of(options: &QmmOptions) -> Self {
        Self {
            entries: options.dequant_cache_entries,
            bytes: options.dequant_cache_max_bytes,
        }
    }

    fn is_off(self) -> bool {
        self.entries == 0 || self.bytes == 0
    }
}

/// What happened so far, and what is kept now.
///
/// `inserts − evictions = entries`. A miss is an insert unless its matrix is larger than the cache
/// or another thread had made the same entry meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct DequantStats {
    /// Products that found their weights.
    pub hits: u64,
    /// Products that looked and did not.
    pub misses: u64,
    /// Entries made.
    pub inserts: u64,
    /// Entries given up for others.
    pub evictions: u64,
    /// Products that did not look.
    pub bypasses: u64,
    /// Entries now.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The cache. `V` is a dequantised weight with what keeps its sources alive.
#[derive(Debug)]
pub struct DequantLru<V> {
    limits: DequantLimits,
    state: Mutex<State<V>>,
}

#[derive(Debug)]
struct State<V> {
    /// The last used first.
    entries: VecDeque<Entry<V>>,
    /// Its `entries` and `bytes` are kept up to date.
    stats: DequantStats,
}

#[derive(Debug)]
struct Entry<V> {
    key: DequantKey,
    /// Rows and columns.
    shape: (usize, usize),
    bytes: u64,
    value: Arc<V>,
}

impl<V> DequantLru<V> {
    /// Nothing kept yet.
    #[must_use]
    pub fn new(limits: DequantLimits) -> Self {
        Self {
            limits,
            state: Mutex::new(State {
                entries: VecDeque::new(),
                stats: DequantStats::default(),
            }),
        }
    }

    /// The weights of `key` and `shape` (rows, columns), made by `dequantise` if they are not kept;
    /// they take `bytes`. A cache that is off counts nothing.
    pub fn get(
        &self,
        key: DequantKey,
        shape: (usize, usize),
        bytes: u64,
        dequantise: impl FnOnce() -> V,
    ) -> Arc<V> {
        if self.limits.is_off() {
            return Arc::new(dequantise());
        }
        {
            let mut state = self.state();
            if let Some(value) = state.touch(&key, shape) {
                state.stats.hits += 1;
                return value;
            }
            state.stats.misses += 1;
        }
        let value = Arc::new(dequantise());
        if bytes <= self.limits.bytes {
            let entry = Entry {
                key,
                shape,
                bytes,
                value: Arc::clone(&value),
            };
            let evicted = self.state().insert(entry, self.limits);
            // Freed here, not under the lock.
            drop(evicted);
        }
        value
    }

    /// Counts a product that dequantised its weights without looking here.
    pub fn bypass(&self) {
        self.state().stats.bypasses += 1;
    }

    /// What happened so far.
    #[must_use]
    pub fn stats(&self) -> DequantStats {
        self.state().stats
    }

    /// No change is left half made by a panic, so poison means nothing.
    fn state(&self) -> MutexGuard<'_, State<V>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V> State<V> {
    /// Finds an entry and moves it to the front.
    fn touch(&mut self, key: &DequantKey, shape: (usize, usize)) -> Option<Arc<V>> {
        let mut entries = self.entries.iter();
        let index = entries.position(|entry| entry.key == *key && entry.shape == shape)?;
        let entry = self.entries.remove(index)?;
        let value = Arc::clone(&entry.value);
        self.entries.push_front(entry);
        Some(value)
    }

    /// Puts `entry` in front; returns what had to go.
    fn insert(&mut self, entry: Entry<V>, limits: DequantLimits) -> Vec<Entry<V>> {
        if self.touch(&entry.key, entry.shape).is_some() {
            // Another thread was faster; its twin stays.
            return vec![entry];
        }
        self.stats.inserts += 1;
        self.stats.entries += 1;
        self.stats.bytes += entry.bytes;
        self.entries.push_front(entry);
        let mut evicted = Vec::new();
        while self.entries.len() > limits.entries || self.stats.bytes > limits.bytes {
            let Some(last) = self.entries.pop_back() else {
                break;
            };
            self.stats.evictions += 1;
            self.stats.entries -= 1;
            self.stats.bytes -= last.bytes;
            evicted.push(last);
        }
        evicted
    }
}

#[cfg(test)]
#[path = "dequant_lru_tests.rs"]
mod tests;
