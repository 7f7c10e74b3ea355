// The prologue of a product with one row: the residual stream is brought up to date, normed, and kept
// in shared memory by every block, which is cheaper than a kernel of its own; for codes in parts
// (parts.h), for bf16 weights in bf16.
//
// A thread takes eight elements at a time; its first eight stay in registers, so that rows of up to
// 8 * threads elements are read once.
#pragma once
#include "args.h"
#include "parts.h"

#define INPUT_BYTES 128 // of a tile's inputs, in either form

// What a block keeps of its input. `tiles`: of each tile the sums of its halves, and its unit.
struct StagedRow { unsigned char* x; float* tiles; const unsigned char* zeros; float* scratch; };

struct F8 { float v[8]; };

DEV int padded_tiles(int column_tiles) { return (column_tiles + UNIT_TILES - 1) / UNIT_TILES * UNIT_TILES; }
DEV StagedRow staged_row(unsigned char* shared, int column_tiles) {
    int tiles = padded_tiles(column_tiles);
    StagedRow s;
    s.x = shared;
    s.tiles = (float*)(s.x + tiles * INPUT_BYTES);
    s.zeros = (unsigned char*)(s.tiles + tiles * 4);
    s.scratch = (float*)(s.zeros + TILE_COLUMNS);
    return s;
}
DEV float* behind(const StagedRow& s) { return s.scratch + 2 * WARP; }

// Elements i .. i + 7 of `count`, zeros beyond them. Buffers end at multiples of 16 bytes, so the last
// four may be read whole.
DEV F8 load_eight(const float* p, int i, int count) {
    F8 x;
#pragma unroll
    for (int half = 0; half < 8; half += 4) {
        F4 four = {{0.0f, 0.0f, 0.0f, 0.0f}};
        if (i + half < count) four = *(const F4*)(p + i + half);
#pragma unroll
        for (int j = 0; j < 4; j++) x.v[half + j] = count % 8 == 0 || i + half + j < count ? four.v[j] : 0.0f;
    }
    return x;
}
DEV void store_eight(float* p, int i, int count, const F8& x) {
#pragma unroll
    for (int half = 0; half < 8; half += 4) {
        if (i + half + 4 <= count) {
            *(F4*)(p + i + half) = F4{{x.v[half], x.v[half + 1], x.v[half + 2], x.v[half + 3]}};
            continue;
        }
#pragma unroll
        for (int j = 0; j < 3; j++)
            if (i + half + j < count) p[i + half + j] = x.v[half + j];
    }
}
DEV float squares(const F8& x) {
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < 8; j++) sum += x.v[j] * x.v[j];
    return sum;
}
DEV int eight_of(int round) { return (round * BDIM_X + TID_X) * 8; }
DEV bool is_round(int round, int padded) { return round * BDIM_X * 8 < padded; }

// The unit is 2^-13 of the largest power of two in the tile, so numbers are at most 2^14 and sums of
// them exact in float32. All lanes take part; the eight of a tile follow one another.
DEV void stage_parts(const StagedRow& s, int i, bool inside, const F8& in) {
    const float WHOLE = 12582912.0f; // 1.5 * 2^23: the last bits of a sum with it are a whole number
    float top = 0.0f;
#pragma unroll
    for (int j = 0; j < 8; j++) top = larger(top, __builtin_fabsf(in.v[j]));
#pragma unroll
    for (int m = 1; m < TILE_COLUMNS / 8; m *= 2) top = larger(top, shfl_xor(top, m));
    u32 exponent = f2u(top) >> 23;
    bool none = exponent < 16; // next to nothing, and no unit could be had
    float unit = none ? 0.0f : u2f((exponent - 13) << 23), inverse = none ? 0.0f : u2f((267 - exponent) << 23);
    u32 x[8];
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        float shifted = in.v[j] * inverse + WHOLE;
        x[j] = f2u(shifted);
        sum += shifted - WHOLE;
    }
#pragma unroll
    for (int m = 1; m < TILE_COLUMNS / 16; m *= 2) sum += shfl_xor(sum, m);
    if (!inside) return;
    int tile = i / TILE_COLUMNS, column = i % TILE_COLUMNS;
    store_parts(s.x + tile * TILE_PART_BYTES, column, x);
    if (column % (TILE_COLUMNS / 2) == 0) s.tiles[tile * 4 + column / (TILE_COLUMNS / 2)] = sum * unit;
    if (column == 0) s.tiles[tile * 4 + 2] = unit;
}

template <bool PARTS> DEV void stage_eight(const StagedRow& s, int i, int padded, const F8& x) {
    if (PARTS) {
        stage_parts(s, i, i < padded, x);
    } else if (i < padded) {
        U4 pairs = {pack2(x.v[0], x.v[1]), pack2(x.v[2], x.v[3]), pack2(x.v[4], x.v[5]), pack2(x.v[6], x.v[7])};
        *(U4*)(s.x + 2 * i) = pairs;
    }
}

// A float a warp, which nobody else uses afterwards, to their sum once all have passed a barrier.
DEV float sum_of_warps(const float* scratch) {
    return warp_sum(lane_id() < BDIM_X / WARP ? scratch[lane_id()] : 0.0f);
}
DEV void leave_sum(float v, float* scratch) {
    v = warp_sum(v);
    if (lane_id() == 0) scratch[TID_X / WARP] = v;
}

// Weights of the norms, which no kernel writes, so they are asked for before the one ahead is waited for.
struct NormWeights { F8 norm, c_norm; };
DEV NormWeights load_norms(const RowInput& in, int i, int columns) {
    NormWeights w;
    if (in.norm) w.norm = load_eight(in.norm, i, columns);
    if (in.c_norm) w.c_norm = load_eight(in.c_norm, i, columns);
    return w;
}

// What is added to the stream: one product may have left it in two pieces.
DEV F8 load_c(const RowInput& in, int i, int columns) {
    F8 c = {};
    if (in.c) c = load_eight(in.c, i, columns);
    if (!in.c_rest) return c;
    F8 rest = load_eight(in.c_rest, i, columns);
#pragma unroll
    for (int j = 0; j < 8; j++) c.v[j] += rest.v[j];
    return c;
}

// One over the root mean square of the row, which goes into the result as a factor at the very end:
// nothing before that has to wait for it.
DEV float row_factor(const RowInput& in, const StagedRow& s) {
    return in.norm ? fast_rsqrt(sum_of_warps(s.scratch + WARP) * in.one_over_columns + in.eps) : 1.0f;
}

// `w` is of the first round; `then` is done once its inputs have been asked for.
template <bool PARTS, class Then> DEV void stage_normed(const RowInput& in, const NormWeights& w, int columns, int padded, const StagedRow& s, Then then) {
    F8 x = load_eight(in.x, eight_of(0), columns), c = load_c(in, eight_of(0), columns);
    then();
    float c_factor = 1.0f;
    if (in.c_norm) {
        float sum = squares(c);
#pragma unroll 1
        for (int r = 1; is_round(r, padded); r++) sum += squares(load_c(in, eight_of(r), columns));
        leave_sum(sum, s.scratch);
        block_sync();
        c_factor = fast_rsqrt(sum_of_warps(s.scratch) * in.one_over_columns + in.c_eps);
    }
    float sum = 0.0f;
    auto finish = [&](int i, F8 v, const F8& add, const NormWeights& w) {
#pragma unroll
        for (int j = 0; j < 8; j++) v.v[j] += in.c_norm ? add.v[j] * c_factor * w.c_norm.v[j] : add.v[j];
        sum += squares(v);
        if (in.x_out && BID_X == 0) store_eight(in.x_out, i, columns, v);
#pragma unroll
        for (int j = 0; j < 8; j++) v.v[j] *= w.norm.v[j];
        stage_eight<PARTS>(s, i, padded, v);
    };
    finish(eight_of(0), x, c, w);
#pragma unroll 1
    for (int r = 1; is_round(r, padded); r++) {
        int i = eight_of(r);
        finish(i, load_eight(in.x, i, columns), load_c(in, i, columns), load_norms(in, i, columns));
    }
    leave_sum(sum, s.scratch + WARP);
}

template <bool PARTS, class Then> DEV void stage_plain(const RowInput& in, int columns, int padded, const StagedRow& s, Then then) {
    const int AHEAD = 3;
#pragma unroll 1
    for (int first = 0; is_round(first, padded); first += AHEAD) {
        F8 x[AHEAD];
#pragma unroll
        for (int r = 0; r < AHEAD; r++) x[r] = load_eight(in.x, eight_of(first + r), columns);
        if (first == 0) then();
#pragma unroll
        for (int r = 0; r < AHEAD; r++)
            if (is_round(first + r, padded)) stage_eight<PARTS>(s, eight_of(first + r), padded, x[r]);
    }
}

// The row but for its factor. `then` is done by all threads, once the first of it has been asked for.
template <bool PARTS, class Then> DEV void stage_row(const RowInput& in, const NormWeights& w, int columns, int column_tiles, const StagedRow& s, Then then) {
    int padded = padded_tiles(column_tiles) * TILE_COLUMNS;
    if (TID_X < TILE_COLUMNS / 4) ((u32*)s.zeros)[TID_X] = 0;
    if (in.norm) stage_normed<PARTS>(in, w, columns, padded, s, then);
    else stage_plain<PARTS>(in, columns, padded, s, then);
    block_sync();
}
