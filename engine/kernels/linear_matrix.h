// A product with many rows, Y = X Wᵀ: prefill.
//
// A block makes 128 rows of W x 128 tokens, a warp 32 x 64 of them. Weights go from memory to
// registers and become bf16 operands there, scale and bias applied in float32 and rounded once;
// activations are shared by the block, the next 64 columns on their way meanwhile.
#pragma once
#include "activations.h"
#include "gate.h"
#include "weights.h"

#define BLOCK_TOKENS 128
#define BLOCK_ROW_TILES 8
#define WARP_ROW_TILES 2
#define WARP_TOKEN_TILES 4

// Codes to weights, in place of the operand.
template <int BITS> DEV void scale_operand(FragA& a, const Scale* scale) {
    if (BITS == 16) return;
#pragma unroll
    for (int j = 0; j < OPERAND_REGISTERS; j++) {
        Scale s = scale[ROW_OF_REGISTER(j)];
        float bias = s.bias;
        a.r[j] = pack2(s.scale * (low(a.r[j]) - CODE_OFFSET(BITS)) + bias, s.scale * (high(a.r[j]) - CODE_OFFSET(BITS)) + bias);
    }
}

struct XLoad { U4 v[4]; };

// A thread's pieces of a tile of activations; zeros beyond the last token.
DEV XLoad load_x_part(const MatrixArgs& a, int column_tile) {
    const int PIECES = TILE_COLUMNS / 8;
    int first = BID_Y * BLOCK_TOKENS;
    const U4* from = (const U4*)(a.x + ((long)column_tile * a.tokens + first) * TILE_COLUMNS);
    XLoad x;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int piece = i * BDIM_X + TID_X;
        x.v[i] = first + piece / PIECES < a.tokens ? from[piece] : U4{0, 0, 0, 0};
    }
    return x;
}
DEV void store_x_part(bf16_t* shared_x, const XLoad& x) {
#pragma unroll
    for (int i = 0; i < 4; i++) ((U4*)shared_x)[i * BDIM_X + TID_X] = x.v[i];
}

DEV void write_sums(const MatrixArgs& a, const Acc& sums, int row_tile, int first_token) {
    int first_row = row_tile * TILE_ROWS;
    if (a.gated) {
#pragma unroll
        for (int p = 0; p < PAIRED_ACCS; p++) {
            int i = PAIRED_ACC(p), token = first_token + acc_column(i);
            int row = acc_row(i), out = row_tile * 8 + row;
            float g = sums.v[i], up = sums.v[BELOW(i)];
            if (a.w.bias) { g += a.w.bias[first_row + row]; up += a.w.bias[first_row + row + 8]; }
            if (token < a.tokens && out < a.w.rows / 2)
                *input_at((bf16_t*)a.y, token, out, a.tokens, 0) = f2bf(gated(a.gate, g, up));
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        int row = first_row + acc_row(i), token = first_token + acc_column(i);
        if (token < a.tokens && row < a.w.rows)
            ((float*)a.y)[(long)token * a.y_stride + row] = sums.v[i] + (a.w.bias ? a.w.bias[row] : 0.0f);
    }
}

// Pairs of scale and bias of the rows that a lane holds, of the first group of a tile; of the usual
// formats only, whose groups are at least as wide as a tile.
template <int BITS>
DEV void load_scales(const TileMatrix& w, int row_tile, int column_tile, u32* pairs) {
    if (BITS == 16) return;
    int at = scale_index(w, row_tile, column_tile * TILE_COLUMNS);
#pragma unroll
    for (int i = 0; i < OPERAND_ROWS; i++) pairs[i] = ((const u32*)w.scales)[at + operand_row(i)];
}

// One column tile of a warp's row tiles and tokens.
template <int BITS, bool USUAL>
DEV void multiply_tile(const TileMatrix& w, const u32 (*words)[LANE_WORDS(BITS)], const u32 (*pairs)[OPERAND_ROWS], int first_row_tile, int column_tile, const bf16_t* x, Acc (*sums)[WARP_TOKEN_TILES]) {
    int halves = BITS != 16 && w.group == 32;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        FragA weights[WARP_ROW_TILES][2];
#pragma unroll
        for (int r = 0; r < WARP_ROW_TILES; r++) {
            Scale scale[OPERAND_ROWS];
            if (USUAL) {
#pragma unroll
                for (int i = 0; i < OPERAND_ROWS; i++) scale[i] = Scale{low(pairs[r][i]), high(pairs[r][i])};
            } else if (BITS != 16) {
                int row_tile = least(first_row_tile + r, w.row_tiles - 1);
                int at = scale_index(w, row_tile, column_tile * TILE_COLUMNS + (halves ? 32 * h : 0));
#pragma unroll
                for (int i = 0; i < OPERAND_ROWS; i++) scale[i] = read_scale(w.scales, w.scale_kind, at + operand_row(i));
            }
#pragma unroll
            for (int s = 0; s < 2; s++) {
                weights[r][s] = operand<BITS>(words[r], 2 * h + s);
                scale_operand<BITS>(weights[r][s], scale);
            }
        }
#pragma unroll
        for (int t = 0; t < WARP_TOKEN_TILES; t++) {
            FragB even = load_inputs(x + t * 16 * TILE_COLUMNS, 2 * h), odd = load_inputs(x + t * 16 * TILE_COLUMNS, 2 * h + 1);
#pragma unroll
            for (int r = 0; r < WARP_ROW_TILES; r++) {
                mma(sums[r][t], weights[r][0], even);
                mma(sums[r][t], weights[r][1], odd);
            }
        }
    }
}

#define X_BUFFER (BLOCK_TOKENS * TILE_COLUMNS)

// `x` is shared memory for two buffers of activations.
template <int BITS, bool USUAL> DEV void matrix_product(const MatrixArgs& a, bf16_t* x) {
    int warp = TID_X / WARP;
    int first_row_tile = BID_X * BLOCK_ROW_TILES + warp / 2 * WARP_ROW_TILES;
    int warp_token = warp % 2 * WARP_TOKEN_TILES * 16;
    Acc sums[WARP_ROW_TILES][WARP_TOKEN_TILES];
#pragma unroll
    for (int r = 0; r < WARP_ROW_TILES; r++)
#pragma unroll
        for (int t = 0; t < WARP_TOKEN_TILES; t++)
#pragma unroll
            for (int i = 0; i < 8; i++) sums[r][t].v[i] = 0.0f;

    u32 words[WARP_ROW_TILES][LANE_WORDS(BITS)], next[WARP_ROW_TILES][LANE_WORDS(BITS)];
    u32 pairs[WARP_ROW_TILES][OPERAND_ROWS], next_pairs[WARP_ROW_TILES][OPERAND_ROWS];
    const u32* tiles[WARP_ROW_TILES];
    int row_tiles[WARP_ROW_TILES];
#pragma unroll
    for (int r = 0; r < WARP_ROW_TILES; r++) {
        // Row tiles beyond the end repeat the last one and are not written.
        row_tiles[r] = least(first_row_tile + r, a.w.row_tiles - 1);
        tiles[r] = a.w.codes + (long)row_tiles[r] * a.w.column_tiles * TILE_WORDS(BITS);
        load_codes<BITS>(tiles[r], next[r]);
        if (USUAL) load_scales<BITS>(a.w, row_tiles[r], 0, next_pairs[r]);
    }
    store_x_part(x, load_x_part(a, 0));
    block_sync();
    for (int tile = 0; tile < a.w.column_tiles; tile++) {
        bool more = tile + 1 < a.w.column_tiles;
        XLoad x_next;
        if (more) x_next = load_x_part(a, tile + 1);
#pragma unroll
        for (int r = 0; r < WARP_ROW_TILES; r++) {
#pragma unroll
            for (int i = 0; i < LANE_WORDS(BITS); i++) words[r][i] = next[r][i];
#pragma unroll
            for (int i = 0; i < OPERAND_ROWS; i++) pairs[r][i] = next_pairs[r][i];
            if (more) load_codes<BITS>(tiles[r] + (long)(tile + 1) * TILE_WORDS(BITS), next[r]);
            if (more && USUAL) load_scales<BITS>(a.w, row_tiles[r], tile + 1, next_pairs[r]);
        }
        multiply_tile<BITS, USUAL>(a.w, words, pairs, first_row_tile, tile, x + (tile & 1) * X_BUFFER + warp_token * TILE_COLUMNS, sums);
        if (more) store_x_part(x + ((tile + 1) & 1) * X_BUFFER, x_next);
        block_sync();
    }
#pragma unroll
    for (int r = 0; r < WARP_ROW_TILES; r++)
#pragma unroll
        for (int t = 0; t < WARP_TOKEN_TILES; t++)
            if (first_row_tile + r < a.w.row_tiles)
                write_sums(a, sums[r][t], first_row_tile + r, BID_Y * BLOCK_TOKENS + warp_token + t * 16);
}

#define MATRIX_PRODUCT(BITS, PRODUCT)                                       \
    KERNEL LAUNCH_BOUNDS(256) matrix_product_##BITS(const MatrixArgs a) { \
        SHARED U4 memory[2 * X_BUFFER / 8];                                \
        bf16_t* x = (bf16_t*)memory;                                       \
        PRODUCT;                                                           \
    }
MATRIX_PRODUCT(2, (matrix_product<2, false>(a, x)))
MATRIX_PRODUCT(3, (matrix_product<3, false>(a, x)))
MATRIX_PRODUCT(4, (is_usual(a.w) ? matrix_product<4, true>(a, x) : matrix_product<4, false>(a, x)))
MATRIX_PRODUCT(5, (matrix_product<5, false>(a, x)))
MATRIX_PRODUCT(6, (matrix_product<6, false>(a, x)))
MATRIX_PRODUCT(8, (matrix_product<8, false>(a, x)))
MATRIX_PRODUCT(16, (matrix_product<16, false>(a, x)))
