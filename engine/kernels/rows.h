// What happens to many rows between products.
#pragma once
#include "gate.h"
#include "heads.h"

// x += norm(c), then out = norm(x): a block a row.
template <class T> DEV void fold_norm(const FoldNormArgs& a) {
    SHARED float scratch[WARP];
    float* x = a.x + (long)BID_X * a.width;
    const float* c = a.c ? a.c + (long)BID_X * a.width : nullptr;
    float c_factor = 1.0f, squares = 0.0f;
    if (c && a.c_norm) {
        for (int i = TID_X; i < a.width; i += BDIM_X) squares += c[i] * c[i];
        c_factor = fast_rsqrt(block_sum(squares, scratch) / (float)a.width + a.c_eps);
        squares = 0.0f;
    }
    for (int i = TID_X; i < a.width; i += BDIM_X) {
        float v = x[i];
        if (c) {
            v += a.c_norm ? c[i] * c_factor * a.c_norm[i] : c[i];
            x[i] = v;
        }
        squares += v * v;
    }
    if (!a.norm) return;
    float factor = fast_rsqrt(block_sum(squares, scratch) / (float)a.width + a.eps);
    T* out = (T*)a.out + (long)BID_X * a.stride;
    for (int i = TID_X; i < a.stride; i += BDIM_X)
        store_as(out + i, i < a.width ? x[i] * factor * a.norm[i] : 0.0f);
}
KERNEL LAUNCH_BOUNDS(256) fold_norm_bf16(const FoldNormArgs a) { fold_norm<bf16_t>(a); }
KERNEL LAUNCH_BOUNDS(256) fold_norm_f32(const FoldNormArgs a) { fold_norm<float>(a); }

// The slow twin's gate: y holds gate | up, a block a row.
KERNEL LAUNCH_BOUNDS(256) gate_rows(const GateRowsArgs a) {
    const float* y = a.y + (long)BID_X * 2 * a.width;
    for (int i = TID_X; i < a.width; i += BDIM_X)
        a.out[(long)BID_X * a.width + i] = gated(a.gate, y[i], y[a.width + i]);
}
