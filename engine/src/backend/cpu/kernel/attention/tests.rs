//! Both attentions against the definition in f64, on every instruction set.

use half::f16;

use super::super::testing::{every_isa, wave};
use super::interface::KvElement;
use super::*;

/// Weights and sums in f32 over at most some hundred keys.
const TOLERANCE: f64 = 2e-5;

/// The definition: for each head, softmax over the visible keys.
fn twin(
    shape: &AttentionShape,
    key: &dyn Fn(usize, usize) -> Vec<f64>,
    value: &dyn Fn(usize, usize) -> Vec<f64>,
    visible: &[usize],
    q: &[f32],
) -> Vec<f64> {
    let mut out = Vec::new();
    for (head, q) in q.chunks(shape.head_dim).enumerate() {
        let kv_head = head / shape.heads_per_kv();
        let scores: Vec<f64> = visible
            .iter()
            .map(|&row| {
                let dot: f64 = key(kv_head, row)
                    .iter()
                    .zip(q)
                    .map(|(k, &q)| k * f64::from(q))
                    .sum();
                dot * f64::from(shape.scale)
            })
            .collect();
        let largest = scores.iter().copied().fold(f64::MIN, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
        let total: f64 = weights.iter().sum();
        let mut sums = vec![0.0; shape.head_dim];
        for (&row, weight) in visible.iter().zip(&weights) {
            for (sum, v) in sums.iter_mut().zip(value(kv_head, row)) {
                *sum += weight / total * v;
            }
        }
        out.extend(sums);
    }
    out
}

/// A cache filled through `write_rows`, and what it holds, as f64.
struct Cache<T> {
    keys: Vec<T>,
    values: Vec<T>,
    slots: usize,
}

trait ToF64: KvElement {
    fn f64(self) -> f64;
    fn zero() -> Self;
}
impl ToF64 for f32 {
    fn f64(self) -> f64 {
        f64::from(self)
    }
    fn zero() -> Self {
        0.0
    }
}
impl ToF64 for f16 {
    fn f64(self) -> f64 {
        f64::from(self)
    }
    fn zero() -> Self {
        f16::ZERO
    }
}

impl<T: ToF64> Cache<T> {
    fn new(kernels: &super::super::Kernels, shape: &AttentionShape, slots: usize) -> Self {
        let width = shape.kv_heads * shape.head_dim;
        let mut cache = Cache {
            keys: vec![T::zero(); slots * width],
            values: vec![T::zero(); slots * width],
            slots,
        };
        let (k, v) = (wave(slots * width, 0.1), wave(slots * width, 0.2));
        write_rows(kernels, shape, &k, width, slots, &mut cache.keys, slots, 0);
        write_rows(
            kernels,
            shape,
            &v,
            width,
            slots,
            &mut cache.values,
            slots,
            0,
        );
        cache
    }

    fn view(&self) -> KvView<'_, T> {
        KvView {
            keys: &self.keys,
            values: &self.values,
            slots: self.slots,
        }
    }

    /// `rows` of the first `ring_slots` slots, the oldest in `oldest_slot`.
    fn ring(&self, ring_slots: usize, oldest_slot: usize, rows: usize) -> KvRing<'_, T> {
        KvRing {
            view: self.view(),
            ring_slots,
            oldest_slot,
            rows,
        }
    }

    fn row(&self, buffer: &[T], dim: usize, head: usize, slot: usize) -> Vec<f64> {
        let start = (head * self.slots + slot) * dim;
        buffer[start..start + dim].iter().map(|x| x.f64()).collect()
    }
}

fn assert_close(got: &[f32], expected: &[f64], what: &str) {
    assert_eq!(got.len(), expected.len());
    for (index, (&got, &expected)) in got.iter().zip(expected).enumerate() {
        assert!(
            (f64::from(got) - expected).abs() < TOLERANCE,
            "{what}: {index}: {got} {expected}"
        );
    }
}

fn shapes() -> [AttentionShape; 4] {
    let shape = |heads, kv_heads, head_dim| AttentionShape {
        heads,
        kv_heads,
        head_dim,
        scale: 0.11,
    };
    [
        shape(4, 1, 256),
        shape(9, 3, 64),
        shape(5, 1, 80),
        shape(2, 2, 16),
    ]
}

fn decode_matches<T: ToF64>(kernels: &super::super::Kernels) {
    let mut scratch = DecodeScratch::new();
    for shape in shapes() {
        let cache = Cache::<T>::new(kernels, &shape, 300);
        let q = wave(shape.heads * shape.head_dim, 0.3);
        for (ring_slots, oldest_slot, rows) in [
            (1, 0, 1),
            (2, 0, 2),
            (3, 2, 3),
            (5, 3, 5),
            (63, 0, 63),
            (66, 65, 64),
            (65, 1, 65),
            (130, 0, 130),
            (300, 200, 298),
        ] {
            let mut out = vec![f32::NAN; q.len()];
            let ring = cache.ring(ring_slots, oldest_slot, rows);
            decode_attention(kernels, &shape, ring, &q, &mut scratch, &mut out);
            let visible: Vec<usize> = (oldest_slot..oldest_slot + rows)
                .map(|slot| slot % ring_slots)
                .collect();
            let expected = twin(
                &shape,
                &|head, slot| cache.row(&cache.keys, shape.head_dim, head, slot),
                &|head, slot| cache.row(&cache.values, shape.head_dim, head, slot),
                &visible,
                &q,
            );
            assert_close(
                &out,
                &expected,
                &format!("{} {shape:?} {rows}", kernels.isa()),
            );
        }
    }
}

#[test]
fn decode_is_softmax_over_the_visible_rows_on_every_isa() {
    for kernels in every_isa(2) {
        decode_matches::<f32>(&kernels);
        decode_matches::<f16>(&kernels);
    }
}

#[test]
fn decode_gives_the_same_bits_on_any_threads_and_isa() {
    let shape = shapes()[0];
    let q = wave(shape.heads * shape.head_dim, 0.3);
    let mut results: Vec<Vec<f32>> = Vec::new();
    for threads in [1, 2, 5] {
        for kernels in every_isa(threads) {
            let cache = Cache::<f16>::new(&kernels, &shape, 300);
            let mut out = vec![0.0; q.len()];
            let mut scratch = DecodeScratch::new();
            let ring = cache.ring(300, 0, 300);
            decode_attention(&kernels, &shape, ring, &q, &mut scratch, &mut out);
            results.push(out);
        }
    }
    assert!(results.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn decode_gives_the_same_bits_wherever_in_a_ring_the_rows_lie() {
    for kernels in every_isa(2) {
        for (shape, rows) in [(shapes()[0], 200), (shapes()[1], 129)] {
            let width = shape.kv_heads * shape.head_dim;
            let q = wave(shape.heads * shape.head_dim, 0.3);
            let (k, v) = (wave(rows * width, 0.1), wave(rows * width, 0.2));
            let attend = |ring_slots: usize, oldest_slot: usize| {
                let mut cache = Cache::<f16>::new(&kernels, &shape, ring_slots);
                for row in 0..rows {
                    let slot = (oldest_slot + row) % ring_slots;
                    for (source, buffer) in [(&k, &mut cache.keys), (&v, &mut cache.values)] {
                        let source = &source[row * width..];
                        write_rows(&kernels, &shape, source, width, 1, buffer, ring_slots, slot);
                    }
                }
                let mut out = vec![0.0; q.len()];
                let ring = cache.ring(ring_slots, oldest_slot, rows);
                let mut scratch = DecodeScratch::new();
                decode_attention(&kernels, &shape, ring, &q, &mut scratch, &mut out);
                out
            };
            let in_order = attend(rows, 0);
            for (ring_slots, oldest_slot) in
                [(rows, 1), (rows, rows - 1), (rows + 2, 0), (rows + 2, 67)]
            {
                let out = attend(ring_slots, oldest_slot);
                assert_eq!(out, in_order, "{} {oldest_slot}", kernels.isa());
            }
        }
    }
}

#[test]
fn decode_survives_scores_of_any_size() {
    for kernels in every_isa(1) {
        let shape = AttentionShape {
            heads: 1,
            kv_heads: 1,
            head_dim: 16,
            scale: 1.0,
        };
        let (mut keys, mut values) = (vec![0.0f32; 80 * 16], vec![0.0f32; 80 * 16]);
        // Key 70, in a later block, outweighs all the others.
        keys[70 * 16] = 5000.0;
        keys[3 * 16] = -9000.0;
        values[70 * 16] = 2.5;
        values[3 * 16] = 99.0;
        let ring = KvRing {
            view: KvView {
                keys: &keys,
                values: &values,
                slots: 80,
            },
            ring_slots: 80,
            oldest_slot: 0,
            rows: 80,
        };
        let mut q = [0.0; 16];
        q[0] = 1.0;
        let mut out = [0.0; 16];
        let mut scratch = DecodeScratch::new();
        decode_attention(&kernels, &shape, ring, &q, &mut scratch, &mut out);
        assert_eq!(out[0], 2.5);
    }
}

/// Queries at positions `first..first + tokens` over keys 0.., held as given.
fn prefill_matches<T: ToF64>(kernels: &super::super::Kernels, first: usize, tokens: usize) {
    for shape in shapes() {
        let (dim, total) = (shape.head_dim, first + tokens);
        let cache = Cache::<T>::new(kernels, &shape, total);
        let row = shape.heads * dim + 5;
        let q = wave(tokens * row, 0.4);
        // As one run, and as a wrapped ring: the later rows first.
        let cut = total / 3;
        let segment = |first: usize, rows: usize| KvSegment {
            view: cache.view(),
            first_slot: first,
            rows,
            first_position: first,
        };
        let runs = vec![segment(0, total)];
        let wrapped = vec![segment(cut, total - cut), segment(0, cut)];
        for window in [None, Some(1), Some(7), Some(100)] {
            for segments in [&runs, &wrapped] {
                let queries = PrefillQueries {
                    q: &q,
                    row,
                    tokens,
                    first_position: first,
                };
                let mut out = vec![f32::NAN; tokens * shape.heads * dim];
                prefill_attention(kernels, &shape, segments, &queries, window, &mut out);
                for (token, out) in out.chunks(shape.heads * dim).enumerate() {
                    let position = first + token;
                    let oldest = window.map_or(0, |window| (position + 1).saturating_sub(window));
                    let visible: Vec<usize> = (oldest..=position).collect();
                    let expected = twin(
                        &shape,
                        &|head, slot| cache.row(&cache.keys, dim, head, slot),
                        &|head, slot| cache.row(&cache.values, dim, head, slot),
                        &visible,
                        &q[token * row..][..shape.heads * dim],
                    );
                    let what = format!("{} {shape:?} {window:?} {token}", kernels.isa());
                    assert_close(out, &expected, &what);
                }
            }
        }
    }
}

#[test]
fn prefill_is_causal_softmax_within_the_window_on_every_isa() {
    for kernels in every_isa(2) {
        prefill_matches::<f16>(&kernels, 0, 1);
        prefill_matches::<f32>(&kernels, 70, 17);
        prefill_matches::<f16>(&kernels, 3, 75);
    }
}

#[test]
fn prefill_gives_the_same_bits_on_any_number_of_threads_and_isa() {
    let shape = shapes()[1];
    let q = wave(100 * shape.heads * shape.head_dim, 0.3);
    let mut results: Vec<Vec<f32>> = Vec::new();
    for threads in [1, 2, 5] {
        for kernels in every_isa(threads) {
            let cache = Cache::<f16>::new(&kernels, &shape, 100);
            let segment = KvSegment {
                view: cache.view(),
                first_slot: 0,
                rows: 100,
                first_position: 0,
            };
            let row = shape.heads * shape.head_dim;
            let queries = PrefillQueries {
                q: &q,
                row,
                tokens: 100,
                first_position: 0,
            };
            let mut out = vec![0.0; q.len()];
            prefill_attention(&kernels, &shape, &[segment], &queries, Some(50), &mut out);
            results.push(out);
        }
    }
    assert!(results.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn rows_are_written_to_their_slots_and_clamped_to_what_f16_holds() {
    for kernels in every_isa(1) {
        let shape = AttentionShape {
            heads: 2,
            kv_heads: 2,
            head_dim: 16,
            scale: 1.0,
        };
        let mut source = vec![1.0; 70];
        source[0] = 1e6;
        source[16] = -1e6;
        source[35] = 3.0;
        let mut buffer = vec![f16::ZERO; 2 * 5 * 16];
        write_rows(&kernels, &shape, &source, 35, 2, &mut buffer, 5, 3);
        let at = |head: usize, slot: usize| buffer[(head * 5 + slot) * 16].to_f32();
        assert_eq!(
            [at(0, 3), at(1, 3), at(0, 4), at(1, 4)],
            [65504.0, -65504.0, 3.0, 1.0]
        );
        assert_eq!(at(0, 2), 0.0);
    }
}

#[test]
fn nan_is_kept_and_reaches_every_query_that_sees_it() {
    let shape = shapes()[1];
    let (width, dim) = (shape.kv_heads * shape.head_dim, shape.head_dim);
    let (rows, odd) = (100, 70);
    for kernels in every_isa(2) {
        for in_keys in [true, false] {
            let mut cache = Cache::<f16>::new(&kernels, &shape, rows);
            let buffer = match in_keys {
                true => &mut cache.keys,
                false => &mut cache.values,
            };
            // Column 0 of every head, so that no output is spared.
            let nan = vec![f32::NAN; width];
            write_rows(&kernels, &shape, &nan, width, 1, buffer, rows, odd);
            assert!(buffer[odd * dim].is_nan(), "{}", kernels.isa());

            let q = wave(rows * shape.heads * dim, 0.3);
            let mut out = vec![0.0; shape.heads * dim];
            let (ring, query) = (cache.ring(rows, 0, rows), &q[..shape.heads * dim]);
            let mut scratch = DecodeScratch::new();
            decode_attention(&kernels, &shape, ring, query, &mut scratch, &mut out);
            assert!(out.iter().all(|x| x.is_nan()), "{}", kernels.isa());

            let mut out = vec![0.0; q.len()];
            let segment = KvSegment {
                view: cache.view(),
                first_slot: 0,
                rows,
                first_position: 0,
            };
            let queries = PrefillQueries {
                q: &q,
                row: shape.heads * dim,
                tokens: rows,
                first_position: 0,
            };
            prefill_attention(&kernels, &shape, &[segment], &queries, None, &mut out);
            let seen = &out[odd * shape.heads * dim..];
            assert!(seen.iter().all(|x| x.is_nan()), "{}", kernels.isa());
        }
    }
}
