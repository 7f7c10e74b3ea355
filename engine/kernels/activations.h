// Inputs of a product with many rows, in the order in which the matrix units read them:
// [column tile][token][64]. A tile's activations follow one another, so that they go to shared memory
// as they are.
//
// The pieces of 8 columns of a token are exchanged by the token's number, so that the same piece of
// eight tokens lies in all banks (PTX ISA: 128-byte swizzle of a K-major matrix). On NVIDIA the columns
// have the order that the weights' operands have (fragments.h): the sum over columns is free in its order.
#pragma once
#include "operands.h"

DEV int place_in_tile(int column) {
#if defined(KPORT_RDNA3)
    return column;
#else
    return (column & 32) + (column & 4) * 4 + (column & 2) * 4 + (column >> 3 & 3) * 2 + (column & 1);
#endif
}
DEV int swizzled(int token, int place) { return ((place >> 3 ^ (token & 7)) << 3) + (place & 7); }
DEV long input_index(int token, int column, int tokens) {
    long row = (long)(column / TILE_COLUMNS) * tokens + token;
    return row * TILE_COLUMNS + swizzled(token, place_in_tile(column % TILE_COLUMNS));
}
// Where an input of `tokens` tokens goes; float32 inputs are [token][stride].
DEV bf16_t* input_at(bf16_t* inputs, int token, int column, int tokens, int) { return inputs + input_index(token, column, tokens); }
DEV float* input_at(float* inputs, int token, int column, int, int stride) { return inputs + (long)token * stride + column; }

// Step `step` of 16 columns of a tile in shared memory, for the 16 tokens from `x` on, the first of
// which has a number that eight divides.
DEV FragB load_inputs(const bf16_t* x, int step) {
    FragB b;
#if defined(KPORT_RDNA3)
    int token = lane_id() & 15;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        U4 v = *(const U4*)(x + token * TILE_COLUMNS + swizzled(token, 16 * step + 8 * half));
        b.r[4 * half] = v.x; b.r[4 * half + 1] = v.y; b.r[4 * half + 2] = v.z; b.r[4 * half + 3] = v.w;
    }
#elif defined(KPORT_CUDA)
    // Lane l names row l % 8 of the 8 x 8 matrix l / 8: the second half of the columns, then eight tokens on.
    int matrix = lane_id() >> 3, token = (matrix >> 1) * 8 + (lane_id() & 7);
    const bf16_t* row = x + token * TILE_COLUMNS + swizzled(token, 16 * step + 8 * (matrix & 1));
    u64 address;
    asm("cvta.to.shared.u64 %0,%1;" : "=l"(address) : "l"(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(b.r[0]), "=r"(b.r[1]), "=r"(b.r[2]), "=r"(b.r[3]) : "l"(address) : "memory");
#else
    for (int i = 0; i < 4; i++) {
        int token = (lane_id() >> 2) + 8 * (i >> 1);
        b.r[i] = *(const u32*)(x + token * TILE_COLUMNS + swizzled(token, 16 * step + 8 * (i & 1) + 2 * (lane_id() & 3)));
    }
#endif
    return b;
}
