// A warp's walk over rows of keys and values for G query heads that share them: online softmax
// (Milakov and Gimelshein 2018), everything in registers.
//
// A lane holds E elements of each head that follow one another; lanes beyond the head hold none.
// Scores come in powers of two: queries carry scale * log2 e.
#pragma once
#include "heads.h"
#include "operands.h"

#define ROWS_AHEAD 4 // rows whose loads are in flight at once

template <int E, int G> struct Walk {
    float most[G], sum[G], out[G][E], query[G][E];
};

template <int E> DEV void unpack(const u32* words, float* to) {
#pragma unroll
    for (int e = 0; e < E / 2; e++) { to[2 * e] = low(words[e]); to[2 * e + 1] = high(words[e]); }
}

template <int E> DEV void load_elements(const float* p, float* out) {
#pragma unroll
    for (int e = 0; e < E; e++) out[e] = p[e];
}
template <int E> DEV void load_elements(const bf16_t* p, float* out) {
    u32 words[E / 2];
    if (E == 8) {
        U4 v = *(const U4*)p;
        words[0] = v.x; words[1 % (E / 2)] = v.y; words[2 % (E / 2)] = v.z; words[3 % (E / 2)] = v.w;
    } else if (E == 4) {
        U2 v = *(const U2*)p;
        words[0] = v.x; words[1 % (E / 2)] = v.y;
    } else words[0] = *(const u32*)p;
    unpack<E>(words, out);
}

template <int E, int G> DEV void start_walk(Walk<E, G>& w, const float* queries, int query_stride, int heads, int head_dim, float scale, int at) {
#pragma unroll
    for (int g = 0; g < G; g++) {
        w.most[g] = NO_SCORE;
        w.sum[g] = 0.0f;
#pragma unroll
        for (int e = 0; e < E; e++) {
            w.out[g][e] = 0.0f;
            w.query[g][e] = g < heads && at + e < head_dim ? queries[g * query_stride + at + e] * scale : 0.0f;
        }
    }
}

// N rows at once; `seen` says which of them count.
template <int E, int G, int N> DEV void visit(Walk<E, G>& w, const float (*k)[E], const float (*v)[E], const bool* seen) {
#pragma unroll
    for (int g = 0; g < G; g++) {
        float score[N], top = w.most[g];
#pragma unroll
        for (int n = 0; n < N; n++) {
            float dot = 0.0f;
#pragma unroll
            for (int e = 0; e < E; e++) dot += w.query[g][e] * k[n][e];
            score[n] = seen[n] ? warp_sum(dot) : (warp_sum(dot), NO_SCORE);
            top = larger(top, score[n]);
        }
        float shrink = fast_exp2(w.most[g] - top);
        w.most[g] = top;
        w.sum[g] *= shrink;
#pragma unroll
        for (int e = 0; e < E; e++) w.out[g][e] *= shrink;
#pragma unroll
        for (int n = 0; n < N; n++) {
            float p = seen[n] ? fast_exp2(score[n] - top) : 0.0f;
            w.sum[g] += p;
#pragma unroll
            for (int e = 0; e < E; e++) w.out[g][e] += p * v[n][e];
        }
    }
}

// Where rows lie: in the order of their positions from `oldest_slot` on, round the ring.
struct Ring { int oldest_slot, slots; };
DEV int slot_of(Ring ring, int row) {
    int slot = ring.oldest_slot + row;
    return slot < ring.slots ? slot : slot - ring.slots;
}

// Rows first, first + step, ... below end of one kv head. Rows are `row_stride` elements apart.
template <class T, int E, int G>
DEV void walk_rows(Walk<E, G>& w, const T* k, const T* v, long row_stride, Ring ring, int first, int end, int step, int head_dim) {
    int at = lane_id() * E;
    bool mine = at < head_dim;
    for (int row = first; row < end; row += step * ROWS_AHEAD) {
        float keys[ROWS_AHEAD][E], values[ROWS_AHEAD][E];
        bool seen[ROWS_AHEAD];
#pragma unroll
        for (int n = 0; n < ROWS_AHEAD; n++) {
            int r = row + n * step;
            seen[n] = r < end;
#pragma unroll
            for (int e = 0; e < E; e++) { keys[n][e] = 0.0f; values[n][e] = 0.0f; }
            if (seen[n] && mine) {
                long element = slot_of(ring, r) * row_stride + at;
                load_elements<E>(k + element, keys[n]);
                load_elements<E>(v + element, values[n]);
            }
        }
        visit<E, G, ROWS_AHEAD>(w, keys, values, seen);
    }
}
