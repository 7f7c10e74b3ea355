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
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use proptest::prelude::*;

    use super::*;

    const DEFAULT: DequantLimits = DequantLimits {
        entries: 8,
        bytes: 256 << 20,
    };

    fn key(weight: usize) -> DequantKey {
        DequantKey {
            weight,
            scales: weight + 1,
            biases: weight + 2,
            group: 64,
            bits: 4,
            stream: 0,
            transpose: true,
            dtype: Float::Bf16,
        }
    }

    /// Products of a layer as (N, K): fused QKV, o, gate, up, down.
    fn layer(hidden: usize, qkv: usize, heads: usize, inner: usize) -> [(usize, usize); 5] {
        let up = (inner, hidden);
        [(qkv, hidden), (hidden, heads), up, up, (hidden, inner)]
    }

    /// Two prefill passes over `layers` layers.
    fn prefill_twice(lru: &DequantLru<()>, layers: usize, shapes: [(usize, usize); 5]) {
        for _ in 0..2 {
            for (weight, (n, k)) in (0..layers).flat_map(|_| shapes).enumerate() {
                lru.get(key(weight * 8), (n, k), (n * k * 2) as u64, || ());
            }
        }
    }

    // Counters published for two models on gfx1151, before the ceiling route bypassed the cache:
    // they follow from the shapes and the rule alone.
    #[test]
    fn two_prefills_of_gemma_3_4b_leave_the_published_counters() {
        let lru = DequantLru::new(DEFAULT);
        prefill_twice(&lru, 34, layer(2560, 4096, 2048, 10_240));
        let expected = DequantStats {
            hits: 0,
            misses: 340,
            inserts: 340,
            evictions: 334,
            bypasses: 0,
            entries: 6,
            bytes: 241_172_480,
        };
        assert_eq!(lru.stats(), expected);
    }

    #[test]
    fn two_prefills_of_llama_3_1_8b_leave_the_published_counters() {
        let lru = DequantLru::new(DEFAULT);
        prefill_twice(&lru, 32, layer(4096, 6144, 4096, 14_336));
        let expected = DequantStats {
            hits: 0,
            misses: 320,
            inserts: 320,
            evictions: 318,
            bypasses: 0,
            entries: 2,
            bytes: 234_881_024,
        };
        assert_eq!(lru.stats(), expected);
    }

    #[test]
    fn a_bypass_is_counted_and_nothing_else_moves() {
        let lru = DequantLru::<()>::new(DEFAULT);
        for _ in 0..340 {
            lru.bypass();
        }
        let expected = DequantStats {
            bypasses: 340,
            ..DequantStats::default()
        };
        assert_eq!(lru.stats(), expected);
    }

    #[test]
    fn a_hit_returns_the_very_value_and_makes_it_the_last_to_go() {
        let limits = DequantLimits {
            entries: 2,
            ..DEFAULT
        };
        let lru = DequantLru::new(limits);
        let first = lru.get(key(0), (1, 1), 2, || 10);
        lru.get(key(8), (1, 1), 2, || 20);
        let again = lru.get(key(0), (1, 1), 2, || unreachable!("it is kept"));
        assert!(Arc::ptr_eq(&first, &again));
        lru.get(key(16), (1, 1), 2, || 30);
        // Entry 8 went, although it came later.
        lru.get(key(0), (1, 1), 2, || unreachable!("it is kept"));
        let mut made = false;
        lru.get(key(8), (1, 1), 2, || {
            made = true;
            20
        });
        assert!(made);
    }

    #[test]
    fn another_shape_or_any_other_part_of_the_key_is_a_miss() {
        let base = key(0);
        let others = [
            DequantKey { weight: 9, ..base },
            DequantKey { scales: 9, ..base },
            DequantKey { biases: 9, ..base },
            DequantKey { group: 32, ..base },
            DequantKey { bits: 8, ..base },
            DequantKey { stream: 1, ..base },
            DequantKey {
                transpose: false,
                ..base
            },
            DequantKey {
                dtype: Float::F16,
                ..base
            },
        ];
        let lru = DequantLru::new(DequantLimits {
            entries: 100,
            ..DEFAULT
        });
        lru.get(base, (4, 8), 64, || ());
        lru.get(base, (8, 4), 64, || ());
        for other in others {
            lru.get(other, (4, 8), 64, || ());
        }
        assert_eq!((lru.stats().hits, lru.stats().misses), (0, 10));
    }

    #[test]
    fn what_is_larger_than_the_cache_is_used_and_not_kept() {
        let lru = DequantLru::new(DequantLimits {
            entries: 8,
            bytes: 100,
        });
        lru.get(key(0), (1, 1), 100, || ());
        assert_eq!(*lru.get(key(8), (1, 1), 101, || ()), ());
        let stats = lru.stats();
        assert_eq!((stats.misses, stats.inserts, stats.evictions), (2, 1, 0));
        assert_eq!((stats.entries, stats.bytes), (1, 100));
    }

    #[test]
    fn a_cache_of_size_zero_is_off() {
        for (entries, bytes) in [(0, 100), (8, 0)] {
            let lru = DequantLru::new(DequantLimits { entries, bytes });
            lru.get(key(0), (1, 1), 2, || ());
            assert_eq!(lru.stats(), DequantStats::default());
        }
    }

    #[test]
    fn weights_are_dequantised_outside_the_lock() {
        let lru = DequantLru::new(DEFAULT);
        lru.get(key(0), (1, 1), 2, || {
            // With the lock held this would wait for ever.
            lru.get(key(8), (1, 1), 2, || ());
        });
        assert_eq!(lru.stats().inserts, 2);
    }

    #[test]
    fn threads_that_miss_together_get_equal_weights_and_one_entry() {
        let lru = DequantLru::new(DEFAULT);
        let (made, threads) = (AtomicUsize::new(0), 8);
        let together = std::sync::Barrier::new(threads);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    together.wait();
                    let value = lru.get(key(0), (1, 1), 2, || {
                        made.fetch_add(1, Ordering::Relaxed);
                        7
                    });
                    assert_eq!(*value, 7);
                });
            }
        });
        let stats = lru.stats();
        assert_eq!((stats.inserts, stats.entries, stats.evictions), (1, 1, 0));
        assert_eq!(stats.hits + stats.misses, threads as u64);
        assert_eq!(stats.misses, made.into_inner() as u64);
    }

    #[test]
    fn an_evicted_entry_lives_as_long_as_somebody_uses_it() {
        let lru = DequantLru::new(DequantLimits {
            entries: 1,
            ..DEFAULT
        });
        let kept = lru.get(key(0), (1, 1), 2, || vec![1, 2]);
        lru.get(key(8), (1, 1), 2, Vec::new);
        assert_eq!((*kept).clone(), [1, 2]);
        assert_eq!(Arc::strong_count(&kept), 1);
    }

    proptest! {
        /// Against a list that is searched and shifted by hand.
        #[test]
        fn it_keeps_what_a_plain_list_keeps(
            entries in 1usize..5,
            bytes in 1u64..20,
            uses in prop::collection::vec((0usize..8, 1u64..8), 0..60),
        ) {
            let lru = DequantLru::new(DequantLimits { entries, bytes });
            let mut list: Vec<(usize, u64)> = Vec::new();
            let mut expected = DequantStats::default();
            for (weight, size) in uses {
                // One matrix has one size.
                let size = size.min(1 + weight as u64);
                lru.get(key(weight * 8), (1, size as usize), size, || ());
                if let Some(at) = list.iter().position(|&item| item == (weight, size)) {
                    let item = list.remove(at);
                    list.insert(0, item);
                    expected.hits += 1;
                    continue;
                }
                expected.misses += 1;
                if size > bytes {
                    continue;
                }
                list.insert(0, (weight, size));
                expected.inserts += 1;
                while list.len() > entries || list.iter().map(|item| item.1).sum::<u64>() > bytes {
                    list.pop();
                    expected.evictions += 1;
                }
            }
            expected.entries = list.len() as u64;
            expected.bytes = list.iter().map(|item| item.1).sum();
            prop_assert_eq!(lru.stats(), expected);
        }
    }
}
