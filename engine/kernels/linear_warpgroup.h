// The same product on Hopper: a block makes 256 rows of W x TOKENS tokens, a warpgroup half of the rows.
//
// Codes go from memory to registers and become operands there while the matrix unit works on the
// operands before them; activations come to shared memory by the copy engine, STAGES tiles of 64
// columns in turn. So weights need no copy in bf16, and nothing waits for their arithmetic.
#pragma once
#include "linear_matrix.h"
#include "row_input.h"
#include "warpgroup.h"

#if defined(KPORT_WARPGROUPS)
#define GROUP_ROWS 2        // row tiles of a warp, 64 rows of the warpgroup each
#define GROUP_BLOCK_TILES 16 // row tiles of a block
#define STAGES 4

// Codes of a column tile, with the scales and biases of their rows.
template <int BITS> struct Codes { u32 words[GROUP_ROWS][LANE_WORDS(BITS)], pairs[GROUP_ROWS][OPERAND_ROWS]; };

// Where a warp's row tiles lie.
struct RowTiles { int tile[GROUP_ROWS]; };

template <int BITS> DEV void load_tile(const TileMatrix& w, const RowTiles& rows, int column_tile, Codes<BITS>& codes) {
#pragma unroll
    for (int r = 0; r < GROUP_ROWS; r++) {
        load_codes<BITS>(w.codes + ((long)rows.tile[r] * w.column_tiles + column_tile) * TILE_WORDS(BITS), codes.words[r]);
        load_scales<BITS>(w, rows.tile[r], column_tile, codes.pairs[r]);
    }
}

// scale * q + bias of two weights, rounded once.
DEV u32 scaled(u32 codes, u32 pair, float offset) {
#if defined(KPORT_CUDA)
    u32 q = codes, scale = pair << 16 | (pair & 0xffff), bias = pair >> 16 | (pair & 0xffff0000), weights;
    if (offset != 0.0f) asm("sub.rn.bf16x2 %0,%1,%2;" : "=r"(q) : "r"(codes), "r"(f2u(offset) >> 16 | f2u(offset))); // exact
    asm("fma.rn.bf16x2 %0,%1,%2,%3;" : "=r"(weights) : "r"(q), "r"(scale), "r"(bias));
    return weights;
#else
    auto once = [&](double code) {
        double exact = low(pair) * (code - offset) + high(pair);
        u32 bits = f2u((float)exact);
        // Between two float32 numbers the odd one is taken, so that the second rounding sees no false middle.
        if (u2f(bits) != exact && !(bits & 1)) bits += std::fabs(u2f(bits)) > std::fabs(exact) ? -1 : 1;
        return (u32)f2bf(u2f(bits));
    };
    return once(low(codes)) | once(high(codes)) << 16;
#endif
}

// Steps 2 half and 2 half + 1 of a column tile.
typedef FragA Operands2[GROUP_ROWS][2];
template <int BITS> DEV void make_operands(Operands2& out, const Codes<BITS>& codes, int half) {
#pragma unroll
    for (int r = 0; r < GROUP_ROWS; r++)
#pragma unroll
        for (int s = 0; s < 2; s++) {
            out[r][s] = operand<BITS>(codes.words[r], 2 * half + s);
#pragma unroll
            for (int j = 0; j < OPERAND_REGISTERS; j++)
                out[r][s].r[j] = scaled(out[r][s].r[j], codes.pairs[r][ROW_OF_REGISTER(j)], CODE_OFFSET(BITS));
        }
}

template <int TOKENS> DEV void multiply_half(Acc (*sums)[TOKENS / 16], const Operands2& weights, const bf16_t* x, int half) {
    begin_products();
#pragma unroll
    for (int s = 0; s < 2; s++)
#pragma unroll
        for (int r = 0; r < GROUP_ROWS; r++) multiply<TOKENS>(sums[r], weights[r][s], x, 2 * half + s);
    end_products();
}

// Tiles of activations on their way: `full` and `empty` are barriers a stage.
template <int TOKENS> struct Stages {
    bf16_t* x;
    Arrivals *full, *empty;
    const bf16_t* from;
    int tokens, bytes;
};
template <int TOKENS> DEV bf16_t* stage_of(const Stages<TOKENS>& s, int tile) { return s.x + tile % STAGES * TOKENS * TILE_COLUMNS; }
template <int TOKENS> DEV void fill(const Stages<TOKENS>& s, int tile) {
    arrive_with_copy(s.full + tile % STAGES, stage_of(s, tile), s.from + (long)tile * s.tokens * TILE_COLUMNS, s.bytes);
}

// Rows of tokens beyond the last are whatever was in shared memory: their sums are not written.
template <int TOKENS> DEV Stages<TOKENS> start_stages(const MatrixArgs& a, unsigned char* shared) {
    Stages<TOKENS> s;
    s.x = (bf16_t*)(((u64)shared + 1023) & ~1023ull);
    s.full = (Arrivals*)(s.x + STAGES * TOKENS * TILE_COLUMNS);
    s.empty = s.full + STAGES;
    int first = BID_Y * TOKENS;
    s.from = a.x + (long)first * TILE_COLUMNS;
    s.tokens = a.tokens;
    s.bytes = least(TOKENS, a.tokens - first) * TILE_COLUMNS * 2;
    if (TID_X == 0) {
        for (int i = 0; i < STAGES; i++) {
            set_arrivals(s.full + i, 1);
            set_arrivals(s.empty + i, BDIM_X / WARP);
        }
        publish_arrivals();
    }
    block_sync();
    if (TID_X == 0)
        for (int tile = 0; tile < STAGES && tile < a.w.column_tiles; tile++) fill(s, tile);
    return s;
}

// Sums go to memory by way of the stages' memory, so that whole lines are written. A warpgroup's 64 rows
// a pass, their fours of rows exchanged by the token against bank conflicts.
template <int TOKENS> DEV void write_rows(const MatrixArgs& a, Acc (*sums)[TOKENS / 16], float* image) {
    int warp = TID_X / WARP, group = warp / 4, thread = TID_X % 128;
    image += group * TOKENS * 64;
    bool whole = a.y_stride % 4 == 0 && ((u64)a.y & 15) == 0;
#pragma unroll
    for (int r = 0; r < GROUP_ROWS; r++) {
        block_sync();
#pragma unroll
        for (int t = 0; t < TOKENS / 16; t++)
#pragma unroll
            for (int i = 0; i < 8; i++) {
                int token = t * 16 + acc_column(i), row = warp % 4 * 16 + acc_row(i);
                image[token * 64 + ((row >> 2 ^ (token & 6)) << 2) + (row & 3)] = sums[r][t].v[i];
            }
        block_sync();
        int first_row = (BID_X * GROUP_BLOCK_TILES + (group * GROUP_ROWS + r) * 4) * TILE_ROWS;
        for (int p = thread; p < TOKENS * 16; p += 128) {
            int token = p / 16, row = first_row + p % 16 * 4;
            if (BID_Y * TOKENS + token >= a.tokens || row >= a.w.rows) continue;
            F4 four = *(const F4*)(image + token * 64 + ((p % 16 ^ (token & 6)) << 2));
            float* to = (float*)a.y + (long)(BID_Y * TOKENS + token) * a.y_stride + row;
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (a.w.bias) four.v[j] += a.w.bias[row + j]; // of whole row tiles
            if (whole && row + 4 <= a.w.rows) *(F4*)to = four;
            else
#pragma unroll
                for (int j = 0; j < 4; j++)
                    if (row + j < a.w.rows) to[j] = four.v[j];
        }
    }
}

// Gates times ups: two column tiles of the next product's inputs, zeros beyond the last column.
template <int TOKENS> DEV void write_gated(const MatrixArgs& a, Acc (*sums)[TOKENS / 16], bf16_t* image) {
    int warp = TID_X / WARP, columns = a.w.rows / 2, column_tiles = (columns + TILE_COLUMNS - 1) / TILE_COLUMNS;
    block_sync();
#pragma unroll
    for (int r = 0; r < GROUP_ROWS; r++)
#pragma unroll
        for (int p = 0; p < PAIRED_ACCS; p++) {
            int i = PAIRED_ACC(p), tile = (warp / 4 * GROUP_ROWS + r) * 4 + warp % 4, column = tile * 8 + acc_row(i);
            int row = (BID_X * GROUP_BLOCK_TILES + tile) * TILE_ROWS + acc_row(i);
            bool there = BID_X * GROUP_BLOCK_TILES * 8 + column < columns;
            float gate_bias = there && a.w.bias ? a.w.bias[row] : 0.0f, up_bias = there && a.w.bias ? a.w.bias[row + 8] : 0.0f;
#pragma unroll
            for (int t = 0; t < TOKENS / 16; t++) {
                int token = t * 16 + acc_column(i);
                float value = gated(a.gate, sums[r][t].v[i] + gate_bias, sums[r][t].v[BELOW(i)] + up_bias);
                image[(column / TILE_COLUMNS * TOKENS + token) * TILE_COLUMNS + swizzled(token, place_in_tile(column % TILE_COLUMNS))] = there ? f2bf(value) : 0;
            }
        }
    block_sync();
    for (int p = TID_X; p < 2 * TOKENS * 8; p += BDIM_X) {
        int tile = BID_X * 2 + p / (TOKENS * 8), token = BID_Y * TOKENS + p / 8 % TOKENS;
        if (token < a.tokens && tile < column_tiles) ((U4*)a.y)[((long)tile * a.tokens + token) * 8 + p % 8] = ((const U4*)image)[p];
    }
}

template <int BITS, int TOKENS> DEV void warpgroup_product(const MatrixArgs& a) {
    DYNAMIC_SHARED(shared);
    int warp = TID_X / WARP, tiles = a.w.column_tiles;
    RowTiles rows;
    Acc sums[GROUP_ROWS][TOKENS / 16];
#pragma unroll
    for (int r = 0; r < GROUP_ROWS; r++) {
        int tile = BID_X * GROUP_BLOCK_TILES + (warp / 4 * GROUP_ROWS + r) * 4 + warp % 4;
        rows.tile[r] = least(tile, a.w.row_tiles - 1); // those beyond the end are not written
#pragma unroll
        for (int t = 0; t < TOKENS / 16; t++)
#pragma unroll
            for (int i = 0; i < 8; i++) sums[r][t].v[i] = 0.0f;
    }
    Codes<BITS> codes, next;
    load_tile<BITS>(a.w, rows, 0, codes);
    Stages<TOKENS> stages = start_stages<TOKENS>(a, shared);
    Operands2 even, odd;
    make_operands<BITS>(even, codes, 0);
    for (int tile = 0; tile < tiles; tile++) {
        load_tile<BITS>(a.w, rows, least(tile + 1, tiles - 1), next);
        const bf16_t* x = stage_of(stages, tile);
        wait_arrivals(stages.full + tile % STAGES, tile / STAGES & 1);
        multiply_half<TOKENS>(sums, even, x, 0);
        wait_products<1>();
        // The tile before is done with; the one before that by all warps, or nearly, so that its stage is
        // filled again without much of a wait.
        if (tile > 0 && lane_id() == 0) arrive(stages.empty + (tile - 1) % STAGES);
        if (TID_X == 0 && tile > 1 && tile - 2 + STAGES < tiles) {
            wait_arrivals(stages.empty + (tile - 2) % STAGES, (tile - 2) / STAGES & 1);
            fill(stages, tile - 2 + STAGES);
        }
        warp_sync();
        make_operands<BITS>(odd, codes, 1);
        multiply_half<TOKENS>(sums, odd, x, 1);
        wait_products<1>();
        codes = next;
        make_operands<BITS>(even, codes, 0);
    }
    wait_products<0>();
#pragma unroll
    for (int r = 0; r < GROUP_ROWS; r++)
#pragma unroll
        for (int t = 0; t < TOKENS / 16; t++) settle(sums[r][t]);
    if (a.gated) write_gated<TOKENS>(a, sums, stages.x);
    else write_rows<TOKENS>(a, sums, (float*)stages.x);
}

#define WARPGROUP_PRODUCT(BITS, TOKENS)                                                  \
    KERNEL LAUNCH_BOUNDS(256) warpgroup_product_##BITS##_##TOKENS(const MatrixArgs a) { \
        warpgroup_product<BITS, TOKENS>(a);                                             \
    }
WARPGROUP_PRODUCT(4, 64)
WARPGROUP_PRODUCT(4, 128)
WARPGROUP_PRODUCT(4, 160)
#endif
