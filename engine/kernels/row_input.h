// The prologue of a product with one row: the residual stream is brought up to date, normed, rounded
// to bf16 and kept in shared memory by every block, which is cheaper than a kernel of its own.
//
// A thread takes four elements at a time; the first ROUNDS of its fours stay in registers, so that
// rows of up to 16 * threads elements are read once.
#pragma once
#include "args.h"
#include "fragments.h"

#define SUM_COLUMNS 32 // inputs that share a sum: the smallest group there is
#define ROUNDS 4

// What a block keeps of its input.
struct StagedRow { bf16_t* x; float* sums; float* scratch; };

struct alignas(16) F4 { float v[4]; };

DEV StagedRow staged_row(unsigned char* shared, int column_tiles) {
    int padded = column_tiles * TILE_COLUMNS;
    StagedRow s;
    s.x = (bf16_t*)shared;
    s.sums = (float*)(shared + 2 * padded);
    s.scratch = s.sums + padded / SUM_COLUMNS;
    return s;
}
DEV float* behind(const StagedRow& s) { return s.scratch + WARP; }

// Elements i .. i + 3 of `count`, zeros beyond them.
DEV F4 load_four(const float* p, int i, int count) {
    if (i + 4 <= count) return *(const F4*)(p + i);
    F4 four;
#pragma unroll
    for (int j = 0; j < 4; j++) four.v[j] = i + j < count ? p[i + j] : 0.0f;
    return four;
}
DEV float squares(const F4& four) {
    return four.v[0] * four.v[0] + four.v[1] * four.v[1] + four.v[2] * four.v[2] + four.v[3] * four.v[3];
}
DEV int four_of(int round) { return (round * BDIM_X + TID_X) * 4; }

// Four inputs in their final form, with the sum of the 32 that they belong to. All lanes take part.
DEV void stage_four(const StagedRow& s, int i, int padded, const F4& four) {
    U2 pairs = {pack2(four.v[0], four.v[1]), pack2(four.v[2], four.v[3])};
    float sum = low(pairs.x) + high(pairs.x) + low(pairs.y) + high(pairs.y);
#pragma unroll
    for (int m = 1; m < 8; m *= 2) sum += shfl_xor(sum, m);
    if (i >= padded) return;
    *(U2*)(s.x + i) = pairs;
    if (i % SUM_COLUMNS == 0) s.sums[i / SUM_COLUMNS] = sum;
}

// x + norm(c), four elements.
DEV F4 updated(const RowInput& in, const F4& x, const F4& c, float c_factor, int i, int columns) {
    F4 v = x;
    if (!in.c) return v;
    F4 weight;
    if (in.c_norm) weight = load_four(in.c_norm, i, columns);
#pragma unroll
    for (int j = 0; j < 4; j++) v.v[j] += in.c_norm ? c.v[j] * c_factor * weight.v[j] : c.v[j];
    return v;
}

DEV void stage_normed(const RowInput& in, int columns, int padded, const StagedRow& s) {
    int rounds = (padded + 4 * BDIM_X - 1) / (4 * BDIM_X);
    const F4 none = {{0.0f, 0.0f, 0.0f, 0.0f}};
    F4 x[ROUNDS], c[ROUNDS];
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
        x[r] = load_four(in.x, four_of(r), columns);
        c[r] = in.c ? load_four(in.c, four_of(r), columns) : none;
    }
    float c_factor = 1.0f;
    if (in.c && in.c_norm) {
        float sum = 0.0f;
#pragma unroll
        for (int r = 0; r < ROUNDS; r++) sum += squares(c[r]);
        for (int r = ROUNDS; r < rounds; r++) sum += squares(load_four(in.c, four_of(r), columns));
        c_factor = fast_rsqrt(block_sum(sum, s.scratch) / (float)columns + in.c_eps);
    }
    // Rounds beyond the registers are worked out twice.
    auto again = [&](int r) {
        F4 add = in.c ? load_four(in.c, four_of(r), columns) : none;
        return updated(in, load_four(in.x, four_of(r), columns), add, c_factor, four_of(r), columns);
    };
    float sum = 0.0f;
#pragma unroll
    for (int r = 0; r < ROUNDS; r++) {
        x[r] = updated(in, x[r], c[r], c_factor, four_of(r), columns);
        sum += squares(x[r]);
    }
    for (int r = ROUNDS; r < rounds; r++) sum += squares(again(r));
    float factor = fast_rsqrt(block_sum(sum, s.scratch) / (float)columns + in.eps);
    auto finish = [&](int r, F4 v) {
        int i = four_of(r);
        if (in.x_out && BID_X == 0)
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (i + j < columns) in.x_out[i + j] = v.v[j];
        F4 weight = load_four(in.norm, i, columns);
#pragma unroll
        for (int j = 0; j < 4; j++) v.v[j] *= factor * weight.v[j];
        stage_four(s, i, padded, v);
    };
#pragma unroll
    for (int r = 0; r < ROUNDS; r++)
        if (r < rounds) finish(r, x[r]);
    for (int r = ROUNDS; r < rounds; r++) finish(r, again(r));
}

DEV void stage_row(const RowInput& in, int columns, int column_tiles, const StagedRow& s) {
    int padded = column_tiles * TILE_COLUMNS;
    if (in.norm) {
        stage_normed(in, columns, padded, s);
    } else {
        int rounds = (padded + 4 * BDIM_X - 1) / (4 * BDIM_X);
        for (int first = 0; first < rounds; first += ROUNDS) {
            F4 v[ROUNDS];
#pragma unroll
            for (int r = 0; r < ROUNDS; r++) v[r] = load_four(in.x, four_of(first + r), columns);
#pragma unroll
            for (int r = 0; r < ROUNDS; r++)
                if (first + r < rounds) stage_four(s, four_of(first + r), padded, v[r]);
        }
    }
    block_sync();
}
