// A product with one row, y = W x: decode.
//
// A block takes row tiles in turn and its warps split the columns, so that enough loads are in
// flight; partial products meet in shared memory and are added in a fixed order. Codes go to the
// matrix unit as they are; with S the sum of a group's inputs,
// y = sum over groups of scale (raw - offset S) + bias S.
#pragma once
#include "gate.h"
#include "row_input.h"
#include "weights.h"

// Tiles of a warp that are on their way at once: what memory latency wants, as far as registers allow.
#if defined(KPORT_RDNA3)
#define TILES_AHEAD(BITS) ((BITS) <= 4 ? 2 : 1)
#else
#define TILES_AHEAD(BITS) ((BITS) <= 4 ? 5 : (BITS) <= 8 ? 3 : 1)
#endif

// A tile in registers: the lane's codes, and where it is.
template <int BITS> struct Tile {
    u32 words[LANE_WORDS(BITS)];
    u32 scales[VECTOR_ACCS]; // of the tile's first group; float32 ones are read when they are used
};

// Next of a warp's tiles: through the columns of a row tile, then on to the block's next row tile.
struct TileCursor { int row_tile, tile; };
DEV bool is_end(const TileMatrix& w, TileCursor c) { return c.row_tile >= w.row_tiles; }

template <int BITS, bool USUAL> DEV void load_tile(const TileMatrix& w, int row_tile, int tile, Tile<BITS>& t) {
    load_codes<BITS>(w.codes + ((long)row_tile * w.column_tiles + tile) * TILE_WORDS(BITS), t.words);
    if (BITS == 16 || (!USUAL && w.scale_kind == SCALE_F32)) return;
    int pair = scale_index(w, row_tile, tile * TILE_COLUMNS);
#pragma unroll
    for (int i = 0; i < VECTOR_ACCS; i++) t.scales[i] = ((const u32*)w.scales)[pair + acc_row(VECTOR_ACC(i))];
}

// Adds one tile to the lane's rows of column 0.
template <int BITS, bool USUAL>
DEV void add_tile(const TileMatrix& w, const Tile<BITS>& t, int row_tile, int column_tile, const StagedRow& s, float* y) {
    const bf16_t* x = s.x + column_tile * TILE_COLUMNS;
    const float* sums = s.sums + column_tile * (TILE_COLUMNS / SUM_COLUMNS);
    Acc raw[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
#pragma unroll
        for (int i = 0; i < 8; i++) raw[h].v[i] = 0.0f;
        FragB even, odd;
        load_x_pair(x, 0, h, even, odd);
        mma_vector(raw[h], operand<BITS>(t.words, 2 * h), even);
        mma_vector(raw[h], operand<BITS>(t.words, 2 * h + 1), odd);
    }
#pragma unroll
    for (int i = 0; i < VECTOR_ACCS; i++) {
        float first = raw[0].v[VECTOR_ACC(i)], second = raw[1].v[VECTOR_ACC(i)];
        if (BITS == 16) {
            y[i] += first + second;
            continue;
        }
        if (USUAL) {
            float scale = low(t.scales[i]), bias = high(t.scales[i]);
            y[i] += scale * (first + second) + (bias - CODE_OFFSET(BITS) * scale) * (sums[0] + sums[1]);
            continue;
        }
        int pair = scale_index(w, row_tile, column_tile * TILE_COLUMNS) + acc_row(VECTOR_ACC(i));
        Scale k = w.scale_kind == SCALE_F32 ? read_scale(w.scales, SCALE_F32, pair) : scale_of(t.scales[i], w.scale_kind);
        if (w.group == SUM_COLUMNS) {
            y[i] += k.scale * first + (k.bias - CODE_OFFSET(BITS) * k.scale) * sums[0];
            k = read_scale(w.scales, w.scale_kind, pair + TILE_ROWS);
            y[i] += k.scale * second + (k.bias - CODE_OFFSET(BITS) * k.scale) * sums[1];
        } else {
            y[i] += k.scale * (first + second) + (k.bias - CODE_OFFSET(BITS) * k.scale) * (sums[0] + sums[1]);
        }
    }
}

// A batch of a warp's tiles of one row tile, from `tile` on.
template <int BITS> struct Batch { Tile<BITS> tiles[TILES_AHEAD(BITS)]; };

template <int BITS, bool USUAL> DEV void load_batch(const TileMatrix& w, TileCursor at, Batch<BITS>& b) {
    int warps = BDIM_X / WARP;
    if (is_end(w, at)) return;
#pragma unroll
    for (int i = 0; i < TILES_AHEAD(BITS); i++) {
        int tile = at.tile + i * warps;
        if (tile < w.column_tiles) load_tile<BITS, USUAL>(w, at.row_tile, tile, b.tiles[i]);
    }
}

template <int BITS> DEV TileCursor next_batch(const TileMatrix& w, TileCursor at) {
    int warps = BDIM_X / WARP;
    at.tile += TILES_AHEAD(BITS) * warps;
    if (at.tile < w.column_tiles) return at;
    return TileCursor{at.row_tile + GDIM_X, TID_X / WARP};
}

DEV float row_total(const float* part, int row) {
    float total = 0.0f;
    for (int warp = 0; warp < BDIM_X / WARP; warp++) total += part[warp * TILE_ROWS + row];
    return total;
}

DEV bool better(float value, u32 id, Best than) {
    return value > than.value || (value == than.value && id < than.id);
}

// What a thread below 16 does with its row of a finished tile.
DEV void write_row(const VectorArgs& a, const float* part, int row_tile, Best& best) {
    int row = row_tile * TILE_ROWS + TID_X;
    float y = row_total(part, TID_X) + (a.w.bias ? a.w.bias[row] : 0.0f);
    if (a.output == OUT_GATED) {
        if (TID_X >= 8) return;
        float up = row_total(part, TID_X + 8) + (a.w.bias ? a.w.bias[row + 8] : 0.0f);
        int out = row_tile * 8 + TID_X;
        if (out < a.w.rows / 2) a.y[out] = gated(a.gate, y, up);
    } else if (row < a.w.rows) {
        a.y[row] = y;
        if (a.output == OUT_BEST && better(y, (u32)row, best)) best = Best{y, (u32)row};
    }
}

// USUAL: see is_usual.
template <int BITS, bool USUAL> DEV void vector_product(const VectorArgs& a) {
    DYNAMIC_SHARED(shared);
    StagedRow s = staged_row(shared, a.w.column_tiles);
    int warps = BDIM_X / WARP, warp = TID_X / WARP, part_floats = warps * TILE_ROWS;
    float* parts = behind(s);
    // Weights depend on no other kernel, so they are asked for before it is waited for.
    Batch<BITS> next;
    TileCursor at = {BID_X, warp};
    load_batch<BITS, USUAL>(a.w, at, next);
    wait_previous_kernel();
    allow_next_kernel();
    stage_row(a.in, a.w.columns, a.w.column_tiles, s);
    Best best = {-3.4e38f, 0xffffffffu};
    int buffer = 0;
    for (int row_tile = BID_X; row_tile < a.w.row_tiles; row_tile += GDIM_X, buffer ^= 1) {
        float y[VECTOR_ACCS];
#pragma unroll
        for (int i = 0; i < VECTOR_ACCS; i++) y[i] = 0.0f;
        for (int tile = warp; tile < a.w.column_tiles; tile += TILES_AHEAD(BITS) * warps) {
            Batch<BITS> current = next;
            at = next_batch<BITS>(a.w, at);
            load_batch<BITS, USUAL>(a.w, at, next);
#pragma unroll
            for (int i = 0; i < TILES_AHEAD(BITS); i++)
                if (tile + i * warps < a.w.column_tiles) add_tile<BITS, USUAL>(a.w, current.tiles[i], row_tile, tile + i * warps, s, y);
        }
        // A warp without columns of its own goes from row tile to row tile with the others.
        if (warp >= a.w.column_tiles) at.row_tile += GDIM_X;
        float* part = parts + buffer * part_floats;
        if (holds_vector())
#pragma unroll
            for (int i = 0; i < VECTOR_ACCS; i++) part[warp * TILE_ROWS + acc_row(VECTOR_ACC(i))] = y[i];
        block_sync();
        if (TID_X < TILE_ROWS) write_row(a, part, row_tile, best);
    }
    if (a.output != OUT_BEST) return;
    Best* bests = (Best*)parts; // the parts have at least 16 pairs
    block_sync();
    if (TID_X < TILE_ROWS) bests[TID_X] = best;
    block_sync();
    if (TID_X == 0) {
        for (int i = 1; i < TILE_ROWS; i++)
            if (better(bests[i].value, bests[i].id, best)) best = bests[i];
        a.best[BID_X] = best;
    }
}

#define VECTOR_PRODUCT(BITS) \
    KERNEL LAUNCH_BOUNDS(512) vector_product_##BITS(const VectorArgs a) { vector_product<BITS, false>(a); }
VECTOR_PRODUCT(2)
VECTOR_PRODUCT(3)
VECTOR_PRODUCT(5)
VECTOR_PRODUCT(6)
VECTOR_PRODUCT(8)
VECTOR_PRODUCT(16)
KERNEL LAUNCH_BOUNDS(512) vector_product_4(const VectorArgs a) {
    if (is_usual(a.w)) vector_product<4, true>(a);
    else vector_product<4, false>(a);
}
