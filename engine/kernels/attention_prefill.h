// Attention of many new tokens whose keys lie in the cache already: a warp takes a query and G of
// its heads. Neighbouring warps walk over nearly the same rows, which the first-level cache shares.
#pragma once
#include "activations.h"
#include "attend.h"

// A warp finishes one head of one token: q in place, k and v into the cache.
template <class T> DEV void finish_rows(const FinishRowsArgs& a) {
    int heads = a.heads + 2 * a.kv_heads;
    int unit = BID_X * (BDIM_X / WARP) + TID_X / WARP;
    if (unit >= a.tokens * heads) return;
    int token = unit / heads, head = unit % heads, dim = a.head_dim;
    float* in = a.qkv + ((long)token * heads + head) * dim;
    const F2* angles = (const F2*)a.rope + (long)(a.first_position + token) * (dim / 2);
    if (head < a.heads) {
        finish_head(in, in, a.q_norm, a.q_eps, angles, dim);
        return;
    }
    bool is_key = head < a.heads + a.kv_heads;
    int kv_head = head - a.heads - (is_key ? 0 : a.kv_heads);
    if (is_key) finish_head(in, in, a.k_norm, a.k_eps, angles, dim);
    long row_stride = (long)a.kv_heads * dim;
    T* row = (T*)(is_key ? a.cache.k : a.cache.v) + (a.first_slot + token) * row_stride + kv_head * dim;
    T* saved = (T*)(is_key ? a.cache.saved_k : a.cache.saved_v) + a.save_entry * row_stride + kv_head * dim;
    warp_sync(); // lanes read what others wrote
    append_head<T>(in, row, a.save_entry < 0 ? nullptr : saved, dim);
}
KERNEL LAUNCH_BOUNDS(256) finish_rows_bf16(const FinishRowsArgs a) { finish_rows<bf16_t>(a); }
KERNEL LAUNCH_BOUNDS(256) finish_rows_f32(const FinishRowsArgs a) { finish_rows<float>(a); }

template <class T, int E, int G> DEV void prefill_attention(const PrefillAttentionArgs& a) {
    int token = BID_X * (BDIM_X / WARP) + TID_X / WARP, dim = a.head_dim;
    if (token >= a.tokens) return;
    int group = a.heads / a.kv_heads, pieces = (group + G - 1) / G;
    int kv_head = BID_Y / pieces, piece = BID_Y % pieces;
    int first_head = kv_head * group + piece * G, heads = least(G, group - piece * G);
    int i = a.first_token + token;
    int lo = most(0, i + a.oldest), hi = least(a.rows, i + a.newest + 1);
    Walk<E, G> w;
    start_walk(w, a.qkv + ((long)i * (a.heads + 2 * a.kv_heads) + first_head) * dim, dim, heads, dim, a.scale, lane_id() * E);
    long row_stride = (long)a.kv_heads * dim;
    walk_rows<T, E, G>(w, (const T*)a.cache.k + kv_head * dim, (const T*)a.cache.v + kv_head * dim, row_stride, Ring{a.oldest_slot, a.ring_slots}, lo, hi, 1, dim);
#pragma unroll
    for (int g = 0; g < G; g++)
#pragma unroll
        for (int e = 0; e < E; e++) {
            int d = lane_id() * E + e;
            if (g < heads && d < dim) store_as(input_at((T*)a.out, token, (first_head + g) * dim + d, a.tokens, a.out_stride), w.out[g][e] / w.sum[g]);
        }
}

#define PREFILL_ATTENTION(E, G) \
    KERNEL LAUNCH_BOUNDS(256) prefill_attention_bf16_##E##_##G(const PrefillAttentionArgs a) { prefill_attention<bf16_t, E, G>(a); } \
    KERNEL LAUNCH_BOUNDS(256) prefill_attention_f32_##E##_##G(const PrefillAttentionArgs a) { prefill_attention<float, E, G>(a); }
PREFILL_ATTENTION(2, 2)
PREFILL_ATTENTION(2, 4)
PREFILL_ATTENTION(4, 2)
PREFILL_ATTENTION(4, 4)
PREFILL_ATTENTION(8, 2)
PREFILL_ATTENTION(8, 4)
