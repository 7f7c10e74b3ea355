//! What both kinds of attention take: shapes, cache views, stored elements.

#![expect(
    unsafe_code,
    reason = "stored elements are read and written a vector at a time"
)]

use half::f16;

use super::super::Kernels;
use super::super::dispatch::isa_entry;
use super::super::huge_pages::Plain;
use super::super::lanes::{LANES, Lanes};

/// Heads and scale of an attention.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionShape {
    /// Query heads, a multiple of `kv_heads`; head h reads KV head h / (heads / kv_heads).
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Elements of a head, a multiple of 16.
    pub head_dim: usize,
    /// Multiplies q·k before the softmax.
    pub scale: f32,
}

impl AttentionShape {
    pub(super) fn check(&self) {
        assert!(
            self.kv_heads > 0 && self.heads.is_multiple_of(self.kv_heads) && self.heads > 0,
            "{} query heads over {} KV heads",
            self.heads,
            self.kv_heads
        );
        assert!(
            self.head_dim.is_multiple_of(LANES) && self.head_dim > 0,
            "head dimension {} is not a multiple of 16",
            self.head_dim
        );
    }

    /// Query heads that share a KV head.
    #[must_use]
    pub fn heads_per_kv(&self) -> usize {
        self.heads / self.kv_heads
    }
}

mod sealed {
    /// Only the types that the kernels know how to read.
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for half::f16 {}
}

/// A type that keys and values are stored as: `f32` or [`half::f16`].
pub trait KvElement: Plain + sealed::Sealed {
    /// The name used in reports.
    const NAME: &'static str;
    /// Whether it is f16, otherwise f32.
    const IS_HALF: bool;
}

impl KvElement for f32 {
    const NAME: &'static str = "f32";
    const IS_HALF: bool = false;
}

impl KvElement for f16 {
    const NAME: &'static str = "f16";
    const IS_HALF: bool = true;
}

/// Reads and widens 16 elements.
///
/// # Safety
/// Those of [`Lanes`]; 16 elements at `from`.
#[inline(always)]
pub(super) unsafe fn load<L: Lanes, T: KvElement>(from: *const T) -> L::F {
    // SAFETY: the caller's contract; f16 is a transparent u16.
    unsafe {
        if T::IS_HALF {
            L::load_f16(from.cast())
        } else {
            L::load(from.cast())
        }
    }
}

/// Narrows and writes 16 elements.
///
/// # Safety
/// Those of [`Lanes`]; room for 16 elements at `to`.
#[inline(always)]
unsafe fn store<L: Lanes, T: KvElement>(to: *mut T, value: L::F) {
    /// The largest finite f16.
    const LARGEST: f32 = 65504.0;
    // SAFETY: the caller's contract; f16 is a transparent u16.
    unsafe {
        if T::IS_HALF {
            // In this order NaN passes: where the second operand is NaN, it is taken.
            let value = L::max(L::splat(-LARGEST), L::min(L::splat(LARGEST), value));
            L::store_f16(to.cast(), value);
        } else {
            L::store(to.cast(), value);
        }
    }
}

/// One layer's keys and values, each `[kv_head][slot][head_dim]`.
#[derive(Debug, Clone, Copy)]
pub struct KvView<'a, T> {
    /// Keys.
    pub keys: &'a [T],
    /// Values.
    pub values: &'a [T],
    /// Slots of each head.
    pub slots: usize,
}

impl<T> KvView<'_, T> {
    pub(super) fn check(&self, shape: &AttentionShape, first: usize, rows: usize) {
        let len = shape.kv_heads * self.slots * shape.head_dim;
        assert!(
            self.keys.len() >= len && self.values.len() >= len,
            "cache shorter than its slots"
        );
        assert!(
            first + rows <= self.slots,
            "rows {first}+{rows} of {} slots",
            self.slots
        );
    }
}

/// The rows that one query sees, in the order of their positions.
#[derive(Debug, Clone, Copy)]
pub struct KvRing<'a, T> {
    /// Where the rows are.
    pub view: KvView<'a, T>,
    /// Slots of the ring: behind the last of them comes slot 0.
    pub ring_slots: usize,
    /// The slot of the first row.
    pub oldest_slot: usize,
    /// How many rows.
    pub rows: usize,
}

impl<T> KvRing<'_, T> {
    pub(super) fn check(&self, shape: &AttentionShape) {
        self.view.check(shape, 0, self.ring_slots);
        assert!(
            (1..=self.ring_slots).contains(&self.rows) && self.oldest_slot < self.ring_slots,
            "{} rows from slot {} of a ring of {}",
            self.rows,
            self.oldest_slot,
            self.ring_slots
        );
    }
}

/// Consecutive slots that hold consecutive positions.
///
/// A full cache is one segment, a wrapped ring two, and the rows of a chunk
/// that is not in the ring yet another.
#[derive(Debug, Clone, Copy)]
pub struct KvSegment<'a, T> {
    /// Where the rows are.
    pub view: KvView<'a, T>,
    /// The slot of the first row.
    pub first_slot: usize,
    /// How many rows.
    pub rows: usize,
    /// The position of the first row.
    pub first_position: usize,
}

/// Writes tokens' key or value rows into consecutive slots of a cache buffer.
///
/// Token t's heads are at `source[t · row..][..kv_heads · head_dim]` and go to
/// slot `first_slot + t` of `buffer`, `[kv_head][slot][head_dim]`.
///
/// # Panics
/// When the sizes do not fit.
#[expect(clippy::too_many_arguments, reason = "two strided arrays")]
pub fn write_rows<T: KvElement>(
    kernels: &Kernels,
    shape: &AttentionShape,
    source: &[f32],
    row: usize,
    tokens: usize,
    buffer: &mut [T],
    slots: usize,
    first_slot: usize,
) {
    shape.check();
    let width = shape.kv_heads * shape.head_dim;
    assert!(
        first_slot + tokens <= slots,
        "rows {first_slot}+{tokens} of {slots} slots"
    );
    assert!(
        buffer.len() >= shape.kv_heads * slots * shape.head_dim,
        "cache shorter than its slots"
    );
    assert!(
        tokens == 0 || source.len() >= (tokens - 1) * row + width,
        "length of the rows"
    );
    for token in 0..tokens {
        for head in 0..shape.kv_heads {
            let from = &source[token * row + head * shape.head_dim..][..shape.head_dim];
            let start = (head * slots + first_slot + token) * shape.head_dim;
            let to = &mut buffer[start..start + shape.head_dim];
            // SAFETY: equal lengths, multiples of 16; the instruction set is available.
            unsafe { narrow::<T>(kernels.isa(), from, to) };
        }
    }
}

/// Writes one token's row into `slot` as [`write_rows`] does, and moves what was there to `kept`,
/// `[kv_head][head_dim]`, in the same pass.
///
/// # Panics
/// When the sizes do not fit.
pub fn replace_row<T: KvElement>(
    kernels: &Kernels,
    shape: &AttentionShape,
    source: &[f32],
    buffer: &mut [T],
    slots: usize,
    slot: usize,
    kept: &mut [T],
) {
    shape.check();
    let (dim, width) = (shape.head_dim, shape.kv_heads * shape.head_dim);
    assert!(slot < slots, "slot {slot} of {slots}");
    assert!(
        source.len() >= width && kept.len() == width,
        "length of the rows"
    );
    // All heads are read before any is written: their lines are far apart, and so the loads wait for
    // memory together.
    for (head, kept) in kept.chunks_exact_mut(dim).enumerate() {
        kept.copy_from_slice(&buffer[(head * slots + slot) * dim..][..dim]);
    }
    for (head, from) in source[..width].chunks_exact(dim).enumerate() {
        let to = &mut buffer[(head * slots + slot) * dim..][..dim];
        // SAFETY: equal lengths, multiples of 16; the instruction set is available.
        unsafe { narrow::<T>(kernels.isa(), from, to) };
    }
}

isa_entry! {
    fn narrow[T: KvElement](from: &[f32], to: &mut [T]) {
        avx512: narrow_kernel::<crate::backend::cpu::kernel::lanes::Avx512, T>,
        avx2: narrow_kernel::<crate::backend::cpu::kernel::lanes::Avx2, T>,
        neon: narrow_kernel::<crate::backend::cpu::kernel::lanes::Neon, T>,
        scalar: narrow_kernel::<crate::backend::cpu::kernel::lanes::Scalar, T>,
    }
}

/// # Safety
/// Those of [`Lanes`]; equal lengths, multiples of 16.
#[inline(always)]
unsafe fn narrow_kernel<L: Lanes, T: KvElement>(from: &[f32], to: &mut [T]) {
    for start in (0..from.len()).step_by(LANES) {
        // SAFETY: the caller's contract.
        unsafe {
            let value = L::load(from.as_ptr().add(start));
            store::<L, T>(to.as_mut_ptr().add(start), value);
        }
    }
}
