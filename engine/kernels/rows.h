// What happens to many rows between products.
#pragma once
#include "activations.h"
#include "gate.h"
#include "heads.h"
#include "row_input.h"

#define KEPT 4 // fours of a thread that stay in registers

DEV int four_of(int round) { return (round * BDIM_X + TID_X) * 4; }
DEV float squares(const F4& four) {
    return four.v[0] * four.v[0] + four.v[1] * four.v[1] + four.v[2] * four.v[2] + four.v[3] * four.v[3];
}

// Elements i .. i + 3 of a row of many, zeros beyond it.
DEV F4 row_four(const float* row, int i, int width) {
    if (width % 4 == 0 && i < width) return *(const F4*)(row + i);
    F4 four;
#pragma unroll
    for (int j = 0; j < 4; j++) four.v[j] = i + j < width ? row[i + j] : 0.0f;
    return four;
}
DEV void store_row_four(float* row, int i, int width, const F4& four) {
    if (width % 4 == 0 && i < width) *(F4*)(row + i) = four;
    else
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (i + j < width) row[i + j] = four.v[j];
}
// To a product's inputs.
DEV void store_input_four(float* out, int i, const FoldNormArgs& a, const F4& four) {
    store_row_four(out + (long)BID_X * a.stride, i, a.stride, four);
}
DEV void store_input_four(bf16_t* out, int i, const FoldNormArgs& a, const F4& four) {
    if (i >= a.stride) return;
    // Pairs of neighbours stay neighbours.
    *(u32*)input_at(out, BID_X, i, GDIM_X, 0) = pack2(four.v[0], four.v[1]);
    *(u32*)input_at(out, BID_X, i + 2, GDIM_X, 0) = pack2(four.v[2], four.v[3]);
}

// x += norm(c), then out = norm(x): a block a row.
template <class T> DEV void fold_norm(const FoldNormArgs& a) {
    SHARED float scratch[WARP];
    float* x = a.x + (long)BID_X * a.width;
    const float* c = a.c ? a.c + (long)BID_X * a.width : nullptr;
    int rounds = (a.stride + 4 * BDIM_X - 1) / (4 * BDIM_X);
    F4 kept[KEPT], add[KEPT];
#pragma unroll
    for (int r = 0; r < KEPT; r++) {
        kept[r] = row_four(x, four_of(r), a.width);
        if (c) add[r] = row_four(c, four_of(r), a.width);
    }
    float c_factor = 1.0f, sum = 0.0f;
    if (c && a.c_norm) {
#pragma unroll
        for (int r = 0; r < KEPT; r++) sum += squares(add[r]);
        for (int r = KEPT; r < rounds; r++) sum += squares(row_four(c, four_of(r), a.width));
        c_factor = fast_rsqrt(block_sum(sum, scratch) / (float)a.width + a.c_eps);
        sum = 0.0f;
    }
    auto fold = [&](const F4& old, const F4& more, int r) {
        F4 v = old, weight;
        if (c && a.c_norm) weight = row_four(a.c_norm, four_of(r), a.width);
        if (c)
#pragma unroll
            for (int j = 0; j < 4; j++) v.v[j] += a.c_norm ? more.v[j] * c_factor * weight.v[j] : more.v[j];
        if (c) store_row_four(x, four_of(r), a.width, v);
        sum += squares(v);
        return v;
    };
#pragma unroll
    for (int r = 0; r < KEPT; r++) kept[r] = fold(kept[r], add[r], r);
    for (int r = KEPT; r < rounds; r++)
        fold(row_four(x, four_of(r), a.width), c ? row_four(c, four_of(r), a.width) : kept[0], r);
    if (!a.norm) return;
    float factor = fast_rsqrt(block_sum(sum, scratch) / (float)a.width + a.eps);
    auto finish = [&](F4 v, int r) {
        F4 weight = row_four(a.norm, four_of(r), a.width);
#pragma unroll
        for (int j = 0; j < 4; j++) v.v[j] *= factor * weight.v[j];
        store_input_four((T*)a.out, four_of(r), a, v);
    };
#pragma unroll
    for (int r = 0; r < KEPT; r++) finish(kept[r], r);
    for (int r = KEPT; r < rounds; r++) finish(row_four(x, four_of(r), a.width), r);
}
KERNEL LAUNCH_BOUNDS(256) fold_norm_bf16(const FoldNormArgs a) { fold_norm<bf16_t>(a); }
KERNEL LAUNCH_BOUNDS(256) fold_norm_f32(const FoldNormArgs a) { fold_norm<float>(a); }

// The slow twin's gate: y holds gate | up, a block a row.
KERNEL LAUNCH_BOUNDS(256) gate_rows(const GateRowsArgs a) {
    const float* y = a.y + (long)BID_X * 2 * a.width;
    for (int i = TID_X; i < a.width; i += BDIM_X)
        a.out[(long)BID_X * a.width + i] = gated(a.gate, y[i], y[a.width + i]);
}
