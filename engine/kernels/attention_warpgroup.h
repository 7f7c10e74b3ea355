// The same attention on Hopper: a warpgroup takes 64 queries of one head and walks over the keys 64 at a
// time. The next keys come while the scores are worked on, the next values during the next scores; two
// or more blocks a multiprocessor fill each other's waits.
#pragma once
#include "attention_tiles.h"
#include "warpgroup.h"

#if defined(KPORT_WARPGROUPS)
#define GROUP_KEYS 64
#define GROUP_THREADS 128

// Rows of keys or values from `first` on, in tiles of 64 elements a row; zeros from `end` on.
template <int DIM> DEV void copy_keys(bf16_t* to, const bf16_t* from, long row_stride, int first, int end) {
    const int PIECES = DIM / 8;
#pragma unroll
    for (int n = 0; n < GROUP_KEYS * PIECES / GROUP_THREADS; n++) {
        int i = n * GROUP_THREADS + TID_X;
        int row = i / PIECES, piece = i % PIECES;
        bool there = first + row < end;
        const bf16_t* source = from + (there ? first + row : first) * row_stride + piece * 8;
        copy_16(to + (piece / 8 * GROUP_KEYS + row) * 64 + swizzled(row, piece % 8 * 8), source, there);
    }
    end_copies();
}

// Queries in the same tiles, scaled.
template <int DIM> DEV void stage_queries(bf16_t* to, const PrefillAttentionArgs& a, int first, int head) {
    long row = (long)(a.heads + 2 * a.kv_heads) * DIM;
    for (int i = TID_X; i < TILE_QUERIES * DIM / 2; i += BDIM_X) {
        int query = i / (DIM / 2), d = i % (DIM / 2) * 2;
        u32 pair = 0;
        if (first + query < a.tokens) {
            F2 q = *(const F2*)(a.qkv + (a.first_token + first + query) * row + head * DIM + d);
            pair = pack2(q.x * a.scale, q.y * a.scale);
        }
        *(u32*)(to + (d / 64 * TILE_QUERIES + query) * 64 + swizzled(query, d % 64)) = pair;
    }
}

template <int DIM> DEV void group_attention(const PrefillAttentionArgs& a) {
    const int STEPS = DIM / 16, KEY_TILES = GROUP_KEYS / 16;
    DYNAMIC_SHARED(shared);
    bf16_t* queries = (bf16_t*)(((u64)shared + 1023) & ~1023ull);
    bf16_t* keys = queries + TILE_QUERIES * DIM;
    bf16_t* values = keys + GROUP_KEYS * DIM;
    int warp = TID_X / WARP, head = BID_Y, kv_head = head / (a.heads / a.kv_heads);
    // The queries with the most keys come first, so that the short blocks fill the end.
    int first = (GDIM_X - 1 - BID_X) * TILE_QUERIES, last = least(first + TILE_QUERIES, a.tokens) - 1;
    int lo = most(0, a.first_token + first + a.oldest), hi = least(a.rows, a.first_token + last + a.newest + 1);
    long row_stride = (long)a.kv_heads * DIM;
    const bf16_t* k = (const bf16_t*)a.cache.k + kv_head * DIM;
    const bf16_t* v = (const bf16_t*)a.cache.v + kv_head * DIM;

    copy_keys<DIM>(keys, k, row_stride, lo, hi);
    copy_keys<DIM>(values, v, row_stride, lo, hi);
    stage_queries<DIM>(queries, a, first, head);
    Acc out[STEPS];
    clear_sums<STEPS>(out);
    RowState state;
    start_rows(state);

    int query = a.first_token + first + warp * 16;
    for (int row = lo; row < hi; row += GROUP_KEYS) {
        Acc scores[KEY_TILES];
        clear_sums<KEY_TILES>(scores);
        wait_copies<1>();
        publish_copies();
        block_sync();
        begin_products();
#pragma unroll
        for (int s = 0; s < STEPS; s++)
            multiply_tiles(scores, queries + s / 4 * TILE_QUERIES * 64, keys + s / 4 * GROUP_KEYS * 64, s % 4);
        end_products();
        wait_products<0>();
#pragma unroll
        for (int t = 0; t < KEY_TILES; t++) settle(scores[t]);
        block_sync();
        copy_keys<DIM>(keys, k, row_stride, row + GROUP_KEYS, hi);
        bool edge = row + GROUP_KEYS > hi || row < query + 15 + a.oldest || row + GROUP_KEYS - 1 > query + a.newest;
        if (edge) hide_unseen<GROUP_KEYS>(scores, a, row, query, hi);
        float shrink[ROW_SLOTS];
        soften<GROUP_KEYS>(scores, state, shrink);
        shrink_sums<STEPS>(out, shrink);
        FragA p[KEY_TILES];
#pragma unroll
        for (int t = 0; t < KEY_TILES; t++) p[t] = sums_to_a(scores[t], nullptr);
        wait_copies<1>();
        publish_copies();
        block_sync();
        begin_products();
#pragma unroll
        for (int t = 0; t < KEY_TILES; t++) multiply_columns<DIM>(out, p[t], values, t, GROUP_KEYS);
        end_products();
        wait_products<0>();
#pragma unroll
        for (int s = 0; s < STEPS; s++) settle(out[s]);
        block_sync();
        copy_keys<DIM>(values, v, row_stride, row + GROUP_KEYS, hi);
    }
    wait_copies<0>();
#pragma unroll
    for (int s = 0; s < STEPS; s++)
#pragma unroll
        for (int i = 0; i < 8; i += 2) {
            // Neighbouring columns of a row, which are neighbours in the next product's input, too.
            int token = first + warp * 16 + acc_row(i);
            float factor = 1.0f / state.sum[row_slot(i)];
            if (token < a.tokens)
                *(u32*)input_at((bf16_t*)a.out, token, head * DIM + s * 16 + acc_column(i), a.tokens, 0) = pack2(out[s].v[i] * factor, out[s].v[i + 1] * factor);
        }
}

KERNEL LAUNCH_BOUNDS(GROUP_THREADS) group_attention_64(const PrefillAttentionArgs a) { group_attention<64>(a); }
KERNEL LAUNCH_BOUNDS(GROUP_THREADS) group_attention_128(const PrefillAttentionArgs a) { group_attention<128>(a); }
KERNEL LAUNCH_BOUNDS(GROUP_THREADS) group_attention_256(const PrefillAttentionArgs a) { group_attention<256>(a); }
#endif
