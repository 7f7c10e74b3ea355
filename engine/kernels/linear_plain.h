// The slow twin of every product: float32 inputs, weights dequantised one by one in the order of
// the file, a warp an element of the result.
#pragma once
#include "weights.h"

KERNEL LAUNCH_BOUNDS(256) plain_product(const PlainMatrixArgs a) {
    int row = BID_X * (BDIM_X / WARP) + TID_X / WARP;
    if (row >= a.w.rows) return;
    const float* x = a.x + (long)BID_Y * a.stride;
    float sum = 0.0f;
    for (int k = lane_id(); k < a.w.columns; k += WARP) sum += element(a.w, row, k) * x[k];
    sum = warp_sum(sum);
    if (lane_id() == 0) a.y[(long)BID_Y * a.y_stride + row] = sum + (a.w.bias ? a.w.bias[row] : 0.0f);
}
