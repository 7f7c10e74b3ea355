// Attention of many new tokens on the matrix units: a warp takes 16 queries of one head, a block 64,
// and walks over the keys 32 at a time (FlashAttention, Dao et al. 2022, algorithm 1).
//
// Queries, keys and values are bf16, scores, probabilities' sums and results float32; probabilities
// become bf16 operands.
#pragma once
#include "heads.h"
#include "activations.h"

#define TILE_QUERIES 64
#define TILE_KEYS 32
#define TILE_PAD 8 // elements behind a row in shared memory, against bank conflicts

// Rows of queries or keys from `first` on into shared memory; zeros from `end` on.
template <int DIM> DEV void load_key_tile(bf16_t* to, const bf16_t* from, long row_stride, int first, int end) {
    const int PIECES = DIM / 8;
    for (int i = TID_X; i < TILE_KEYS * PIECES; i += BDIM_X) {
        int row = i / PIECES, piece = i % PIECES;
        U4 v = {0, 0, 0, 0};
        if (first + row < end) v = *(const U4*)(from + (first + row) * row_stride + piece * 8);
        *(U4*)(to + row * (DIM + TILE_PAD) + piece * 8) = v;
    }
}

template <int DIM> DEV void load_query_tile(bf16_t* to, const PrefillAttentionArgs& a, int first, int head) {
    long row = (long)(a.heads + 2 * a.kv_heads) * DIM;
    for (int i = TID_X; i < TILE_QUERIES * DIM / 2; i += BDIM_X) {
        int query = i / (DIM / 2), d = i % (DIM / 2) * 2;
        u32 pair = 0;
        if (first + query < a.tokens) {
            const float* q = a.qkv + (a.first_token + first + query) * row + head * DIM + d;
            pair = pack2(q[0] * a.scale, q[1] * a.scale);
        }
        *(u32*)(to + query * (DIM + TILE_PAD) + d) = pair;
    }
}

// What a lane knows of the rows that it holds.
struct RowState { float most[ROW_SLOTS], sum[ROW_SLOTS]; };
DEV void start_rows(RowState& state) {
#pragma unroll
    for (int r = 0; r < ROW_SLOTS; r++) { state.most[r] = NO_SCORE; state.sum[r] = 0.0f; }
}

template <int TILES> DEV void clear_sums(Acc* sums) {
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int i = 0; i < 8; i++) sums[t].v[i] = 0.0f;
}
template <int TILES> DEV void shrink_sums(Acc* sums, const float* shrink) {
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int i = 0; i < 8; i++) sums[t].v[i] *= shrink[row_slot(i)];
}

// Scores of KEYS keys from `row` on that the queries from `query` on do not see; keys end at `end`.
template <int KEYS> DEV void hide_unseen(Acc* scores, const PrefillAttentionArgs& a, int row, int query, int end) {
#pragma unroll
    for (int t = 0; t < KEYS / 16; t++)
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int key = row + t * 16 + acc_column(i), q = query + acc_row(i);
            if (key < q + a.oldest || key > q + a.newest || key >= end) scores[t].v[i] = NO_SCORE;
        }
}

// Scores of KEYS keys to probabilities, in place; what was found before shrinks by `shrink`.
template <int KEYS> DEV void soften(Acc* scores, RowState& state, float* shrink) {
#pragma unroll
    for (int r = 0; r < ROW_SLOTS; r++) {
        float top = state.most[r];
#pragma unroll
        for (int t = 0; t < KEYS / 16; t++)
#pragma unroll
            for (int i = 0; i < 8; i++)
                if (row_slot(i) == r) top = larger(top, scores[t].v[i]);
#pragma unroll
        for (int m = 1; m < ROW_LANES; m *= 2) top = larger(top, shfl_xor(top, m));
        shrink[r] = fast_exp2(state.most[r] - top);
        state.most[r] = top;
        float sum = 0.0f;
#pragma unroll
        for (int t = 0; t < KEYS / 16; t++)
#pragma unroll
            for (int i = 0; i < 8; i++)
                if (row_slot(i) == r) {
                    float p = scores[t].v[i] > 0.5f * NO_SCORE ? fast_exp2(scores[t].v[i] - top) : 0.0f;
                    scores[t].v[i] = p;
                    sum += p;
                }
#pragma unroll
        for (int m = 1; m < ROW_LANES; m *= 2) sum += shfl_xor(sum, m);
        state.sum[r] = state.sum[r] * shrink[r] + sum;
    }
}

template <int DIM> DEV void tile_attention(const PrefillAttentionArgs& a) {
    const int STRIDE = DIM + TILE_PAD, STEPS = DIM / 16;
    DYNAMIC_SHARED(shared);
    bf16_t* queries = (bf16_t*)shared;
    bf16_t* keys = queries + TILE_QUERIES * STRIDE;
    bf16_t* values = keys + TILE_KEYS * STRIDE;
    int warp = TID_X / WARP, head = BID_Y, kv_head = head / (a.heads / a.kv_heads);
    bf16_t* scratch = values + TILE_KEYS * STRIDE + warp * 16 * 24;
    int first = BID_X * TILE_QUERIES, last = least(first + TILE_QUERIES, a.tokens) - 1;
    // Rows that any query of the block sees.
    int lo = most(0, a.first_token + first + a.oldest), hi = least(a.rows, a.first_token + last + a.newest + 1);
    long row_stride = (long)a.kv_heads * DIM;
    const bf16_t* k = (const bf16_t*)a.cache.k + kv_head * DIM;
    const bf16_t* v = (const bf16_t*)a.cache.v + kv_head * DIM;

    Acc out[STEPS];
    clear_sums<STEPS>(out);
    RowState state;
    start_rows(state);

    load_query_tile<DIM>(queries, a, first, head);
    const bf16_t* mine = queries + warp * 16 * STRIDE;
    int query = a.first_token + first + warp * 16;
    for (int row = lo; row < hi; row += TILE_KEYS) {
        block_sync();
        load_key_tile<DIM>(keys, k, row_stride, row, hi);
        load_key_tile<DIM>(values, v, row_stride, row, hi);
        block_sync();
        Acc scores[TILE_KEYS / 16];
        clear_sums<TILE_KEYS / 16>(scores);
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
            FragA q = load_rows_a(mine + s * 16, STRIDE);
#pragma unroll
            for (int t = 0; t < TILE_KEYS / 16; t++) mma(scores[t], q, load_rows_b(keys + t * 16 * STRIDE + s * 16, STRIDE));
        }
        hide_unseen<TILE_KEYS>(scores, a, row, query, hi);
        float shrink[ROW_SLOTS];
        soften<TILE_KEYS>(scores, state, shrink);
        shrink_sums<STEPS>(out, shrink);
#pragma unroll
        for (int t = 0; t < TILE_KEYS / 16; t++) {
            FragA p = sums_to_a(scores[t], scratch);
#pragma unroll
            for (int s = 0; s < STEPS; s++) mma(out[s], p, load_columns_b(values + t * 16 * STRIDE + s * 16, STRIDE));
        }
    }
#pragma unroll
    for (int s = 0; s < STEPS; s++)
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int token = first + warp * 16 + acc_row(i);
            if (token < a.tokens)
                *input_at((bf16_t*)a.out, token, head * DIM + s * 16 + acc_column(i), a.tokens, 0) = f2bf(out[s].v[i] / state.sum[row_slot(i)]);
        }
}

KERNEL LAUNCH_BOUNDS(128) tile_attention_64(const PrefillAttentionArgs a) { tile_attention<64>(a); }
KERNEL LAUNCH_BOUNDS(128) tile_attention_128(const PrefillAttentionArgs a) { tile_attention<128>(a); }
KERNEL LAUNCH_BOUNDS(128) tile_attention_256(const PrefillAttentionArgs a) { tile_attention<256>(a); }
