//! The operations that kernels are written in.

#![expect(unsafe_code, reason = "a contract on the processor and on pointers")]

/// Lanes of a vector: rows of a weight block, or consecutive elements.
pub(in super::super) const LANES: usize = 16;

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Sixteen lanes of f32, of i32, and of four bytes each.
///
/// # Safety
/// Every function may only be called on a processor that has the instruction
/// set of the implementing type, and pointers must be valid for the bytes
/// named at the function (no alignment is needed). Implementations and generic
/// callers are `inline(always)`, so that they are compiled inside the function
/// that enables the instruction set.
pub(in super::super) unsafe trait Lanes: Copy + 'static {
    /// Sixteen f32.
    type F: Copy;
    /// Sixteen i32.
    type I: Copy;
    /// Sixteen lanes of four bytes.
    type B: Copy;

    /// Whether the registers hold the sums of two blocks of rows at a time.
    const HOLDS_TWO_BLOCKS: bool;

    /// All lanes `value`.
    unsafe fn splat(value: f32) -> Self::F;
    /// Reads 16 f32.
    unsafe fn load(from: *const f32) -> Self::F;
    /// Reads 16 IEEE half floats, widened.
    unsafe fn load_f16(from: *const u16) -> Self::F;
    /// Reads 16 bfloat16, widened.
    unsafe fn load_bf16(from: *const u16) -> Self::F;
    /// Writes 16 f32.
    unsafe fn store(to: *mut f32, value: Self::F);
    /// Writes 16 half floats, rounded to nearest even.
    unsafe fn store_f16(to: *mut u16, value: Self::F);
    /// `a + b`
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    /// `a − b`
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F;
    /// `a · b`
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    /// `a / b`
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F;
    /// `a · b + c`, rounded once.
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `c − a · b`, rounded once.
    unsafe fn fnma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `a > b ? a : b`, so `b` where either is NaN.
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F;
    /// `a < b ? a : b`, so `b` where either is NaN.
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F;
    /// The magnitude.
    unsafe fn abs(a: Self::F) -> Self::F;
    /// To the nearest integer, ties to even.
    unsafe fn round(a: Self::F) -> Self::F;
    /// `2^a` for integers −126 ≤ a ≤ 127.
    unsafe fn power_of_two(a: Self::F) -> Self::F;
    /// The sum of all lanes in halves: i + (i+8), then i + (i+4), i + (i+2), i + (i+1).
    unsafe fn sum(a: Self::F) -> f32;
    /// The largest lane; any of them where one is NaN.
    unsafe fn largest(a: Self::F) -> f32;
    /// Lane i is `sum(a[i])`.
    unsafe fn sums(a: [Self::F; LANES]) -> Self::F;
    /// i32 to f32, rounded to nearest even.
    unsafe fn to_f32(a: Self::I) -> Self::F;
    /// Rounds to nearest even and writes 16 i8; for lanes within ±127.
    unsafe fn store_i8(to: *mut i8, value: Self::F);

    /// All lanes 0.
    unsafe fn zero() -> Self::I;
    /// Reads 64 bytes.
    unsafe fn load_bytes(from: *const u8) -> Self::B;
    /// Reads 4 bytes into all lanes.
    unsafe fn splat_bytes(from: *const i8) -> Self::B;
    /// The low nibbles of all bytes.
    unsafe fn low_nibbles(a: Self::B) -> Self::B;
    /// The high nibbles of all bytes, moved down.
    unsafe fn high_nibbles(a: Self::B) -> Self::B;
    /// Adds to each lane the dot product of its four codes 0..=15 with four i8.
    unsafe fn dot_nibbles(sum: Self::I, codes: Self::B, x: Self::B) -> Self::I;
    /// Adds to each lane the dot product of its four codes 0..=255 with four
    /// i8 within ±127.
    unsafe fn dot_codes(sum: Self::I, codes: Self::B, x: Self::B) -> Self::I;
    /// Adds a byte vector's low nibbles · `x_low` and high nibbles · `x_high`.
    ///
    /// The two running sums are in units of the instruction set's choosing;
    /// [`Lanes::join`] gives their total.
    unsafe fn dot_packed(
        sums: (Self::I, Self::I),
        packed: Self::B,
        x_low: Self::B,
        x_high: Self::B,
    ) -> (Self::I, Self::I);
    /// The total of the sums of [`Lanes::dot_packed`].
    unsafe fn join(sums: (Self::I, Self::I)) -> Self::I;

    /// Asks for the cache line at `at`, which need not be ours to read: nothing is read.
    ///
    /// Into the second-level cache: asked for the first level, lines arrive no faster than its
    /// dozen miss buffers let them, and a block of values alone would fill it.
    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        let _ = at;
    }

    /// [`Lanes::prefetch`] of every line of `bytes` bytes.
    #[inline(always)]
    unsafe fn prefetch_lines(at: *const u8, bytes: usize) {
        for byte in (0..bytes).step_by(LINE_BYTES) {
            // SAFETY: the instruction set is the caller's; nothing is read.
            unsafe { Self::prefetch(at.wrapping_add(byte)) };
        }
    }
}
