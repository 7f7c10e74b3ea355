//! Splits a buffer by rows over threads.

/// Calls `work(row, the row)` for every row of `buffer`.
pub(super) fn for_each_row<T: Send>(
    _pool: &Pool,
    buffer: &mut [T],
    row_len: usize,
    work: impl Fn(usize, &mut [T]) + Sync,
) {
    for (row, values) in buffer.chunks_exact_mut(row_len).enumerate() {
        work(row, values);
    }
}

pub(super) struct Pool;
