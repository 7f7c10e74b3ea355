// One head of q or k after its projection: norm, rotation, and the row of the cache it goes to.
#pragma once
#include "args.h"

// Elements as the cache holds them.
DEV void store_as(float* p, float v) { *p = v; }
DEV void store_as(bf16_t* p, float v) { *p = f2bf(v); }

// A warp norms `in` (unless `norm` is null) and rotates it by `angles` ([head_dim / 2] cosines and
// sines; halves pair). `out` may be `in`.
DEV void finish_head(const float* in, float* out, const float* norm, float eps, const F2* angles, int head_dim) {
    int half = head_dim / 2;
    float factor = 1.0f;
    if (norm) {
        float squares = 0.0f;
        for (int i = lane_id(); i < head_dim; i += WARP) squares += in[i] * in[i];
        factor = fast_rsqrt(warp_sum(squares) / (float)head_dim + eps);
    }
    for (int i = lane_id(); i < half; i += WARP) {
        float a = in[i], b = in[i + half];
        F2 angle = angles[i];
        if (norm) {
            a *= factor * norm[i];
            b *= factor * norm[i + half];
        }
        out[i] = a * angle.x - b * angle.y;
        out[i + half] = b * angle.x + a * angle.y;
    }
}

// A warp writes one head of a row and, if `saved` is not null, keeps there what was in its place.
template <class T> DEV void append_head(const float* head, T* row, T* saved, int head_dim) {
    for (int i = lane_id(); i < head_dim; i += WARP) {
        if (saved) saved[i] = row[i];
        store_as(row + i, head[i]);
    }
}
