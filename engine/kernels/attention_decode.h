// Attention of one new token, with everything between the projections around it: norms and rotation
// of q and k, the append to the cache, and the before-image of the row that the append overwrites.
//
// Grid: splits of the rows x kv heads (x pieces of G query heads). The last block of a kv head to
// arrive adds up the splits, in their order. Every block works out the new key itself and takes its
// row from there, so none waits for the append; one block writes it.
#pragma once
#include "attend.h"

// out and the partial results hold, a head: head_dim elements, the largest score, the sum.
template <int G> DEV void combine(const DecodeAttentionArgs& a, int first_head, int heads, int splits, float* weights) {
    const int AHEAD = 8; // loads in flight
    int width = a.head_dim + 2;
    for (int i = TID_X / WARP; i < heads; i += BDIM_X / WARP) {
        const float* p = a.partials + (long)(first_head + i) * splits * width + a.head_dim;
        float top = NO_SCORE;
        for (int s = lane_id(); s < splits; s += WARP) top = larger(top, load_fresh(p + (long)s * width));
        top = warp_max(top);
        float sum = 0.0f;
        for (int s = lane_id(); s < splits; s += WARP) {
            float weight = fast_exp2(load_fresh(p + (long)s * width) - top);
            weights[i * splits + s] = weight;
            sum += weight * load_fresh(p + (long)s * width + 1);
        }
        sum = warp_sum(sum);
        if (lane_id() == 0) weights[heads * splits + i] = 1.0f / sum;
    }
    block_sync();
    for (int i = TID_X; i < heads * a.head_dim; i += BDIM_X) {
        int head = i / a.head_dim, d = i % a.head_dim;
        const float* p = a.partials + (long)(first_head + head) * splits * width + d;
        float out = 0.0f;
        for (int first = 0; first < splits; first += AHEAD) {
            float part[AHEAD];
#pragma unroll
            for (int j = 0; j < AHEAD; j++) part[j] = first + j < splits ? load_fresh(p + (long)(first + j) * width) : 0.0f;
#pragma unroll
            for (int j = 0; j < AHEAD; j++)
                if (first + j < splits) out += weights[head * splits + first + j] * part[j];
        }
        a.out[(first_head + head) * a.head_dim + d] = out * weights[heads * splits + head];
    }
}

template <class T, int E, int G> DEV void decode_attention(const DecodeAttentionArgs& a) {
    const int DIM = 32 * E; // of E = 8: the largest head, 256
    SHARED float query[G * DIM];
    SHARED float new_k[DIM], new_v[DIM];
    SHARED float weights[G * 65];
    SHARED u32 is_last;
    DYNAMIC_SHARED(shared);
    wait_previous_kernel();
    allow_next_kernel();
    const StepState& state = *a.state;
    const KindState kind = state.kinds[a.kind];
    const LayerCache cache = state.layers[a.layer];
    int warp = TID_X / WARP, warps = BDIM_X / WARP, lane = lane_id(), dim = a.head_dim, splits = GDIM_X;
    int group = a.heads / a.kv_heads, pieces = (group + G - 1) / G;
    int kv_head = BID_Y / pieces, piece = BID_Y % pieces;
    int first_head = kv_head * group + piece * G, heads = least(G, group - piece * G);

    const F2* angles = (const F2*)state.ropes[a.rope] + (long)state.position * (dim / 2);
    const float* k_in = a.qkv + (a.heads + kv_head) * dim;
    const float* v_in = a.qkv + (a.heads + a.kv_heads + kv_head) * dim;
    for (int job = warp; job < heads + 2; job += warps) {
        if (job < heads) finish_head(a.qkv + (first_head + job) * dim, query + job * DIM, a.q_norm, a.q_eps, angles, dim);
        else if (job == heads) finish_head(k_in, new_k, a.k_norm, a.k_eps, angles, dim);
        else for (int i = lane; i < dim; i += WARP) new_v[i] = v_in[i];
    }
    block_sync();

    int per_split = (kind.rows + splits - 1) / splits;
    int lo = BID_X * per_split, hi = least(kind.rows - 1, lo + per_split);
    long row_stride = (long)a.kv_heads * dim;
    T* k = (T*)cache.k + kv_head * dim;
    T* v = (T*)cache.v + kv_head * dim;
    // The new row is the last one; the walk is over those before it.
    bool has_new = kind.rows > lo && kind.rows <= lo + per_split;
    if (has_new && piece == 0 && warp < 2) {
        T* row = (warp ? v : k) + kind.slot * row_stride;
        T* saved = (T*)(warp ? cache.saved_v : cache.saved_k) + kind.save_entry * row_stride + kv_head * dim;
        append_head<T>(warp ? new_v : new_k, row, kind.save_entry < 0 ? nullptr : saved, dim);
    }
    Walk<E, G> w;
    start_walk(w, query, DIM, heads, dim, a.scale);
    walk_rows<T, E, G>(w, k, v, row_stride, Ring{kind.oldest_slot, kind.ring_slots}, lo + warp, hi, warps, dim);
    if (has_new && warp == warps - 1) {
        float key[1][E], value[1][E];
        bool seen[1] = {true};
#pragma unroll
        for (int e = 0; e < E; e++) {
            int i = lane * E + e;
            key[0][e] = i < dim ? rounded_to<T>(new_k[i]) : 0.0f;
            value[0][e] = i < dim ? rounded_to<T>(new_v[i]) : 0.0f;
        }
        visit<E, G, 1>(w, key, value, seen);
    }

    // Warps to block: [warp][head][DIM + 2].
    float* merged = (float*)shared;
#pragma unroll
    for (int g = 0; g < G; g++) {
        float* mine = merged + (warp * G + g) * (DIM + 2);
#pragma unroll
        for (int e = 0; e < E; e++) mine[lane * E + e] = w.out[g][e];
        if (lane == 0) { mine[DIM] = w.most[g]; mine[DIM + 1] = w.sum[g]; }
    }
    block_sync();
    int width = dim + 2;
    for (int i = TID_X; i < heads * dim; i += BDIM_X) {
        int g = i / dim, d = i % dim;
        const float* from = merged + g * (DIM + 2);
        float top = NO_SCORE, out = 0.0f, sum = 0.0f;
        for (int j = 0; j < warps; j++) top = larger(top, from[j * G * (DIM + 2) + DIM]);
        for (int j = 0; j < warps; j++) {
            const float* part = from + j * G * (DIM + 2);
            float weight = fast_exp2(part[DIM] - top);
            out += weight * part[d];
            sum += weight * part[DIM + 1];
        }
        float* to = a.partials + ((long)(first_head + g) * splits + BID_X) * width;
        to[d] = out;
        if (d == 0) { to[dim] = top; to[dim + 1] = sum; }
    }
    device_fence();
    block_sync();
    if (TID_X == 0) is_last = atomic_add(a.arrived + BID_Y, 1) == (u32)(splits - 1);
    block_sync();
    if (!is_last) return;
    device_fence();
    combine<G>(a, first_head, heads, splits, weights);
    if (TID_X == 0) a.arrived[BID_Y] = 0;
}

// Splits are at most 64.
#define DECODE_ATTENTION(E, G) \
    KERNEL LAUNCH_BOUNDS(256) decode_attention_##E##_##G(const DecodeAttentionArgs a) { decode_attention<bf16_t, E, G>(a); }
DECODE_ATTENTION(2, 2)
DECODE_ATTENTION(2, 4)
DECODE_ATTENTION(4, 2)
DECODE_ATTENTION(4, 4)
DECODE_ATTENTION(8, 2)
DECODE_ATTENTION(8, 4)
