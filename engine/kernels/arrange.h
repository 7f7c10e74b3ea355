// Weights as the file has them into tiles (fragments.h), once, while a model is loaded.
#pragma once
#include "weights.h"

// ---- what the file has ----------------------------------------------------------------------------

DEV float float_at(const void* values, int kind, long at) {
    if (kind == FLOAT_F32) return ((const float*)values)[at];
    u32 half = ((const unsigned short*)values)[at];
    return kind == FLOAT_BF16 ? bf2f(half) : half_to_float(half);
}

// A code, or the bits of a bf16 weight; zero beyond the last column and in rows of nothing.
DEV u32 weight_of_file(const ArrangeArgs& a, FileRow row, int column) {
    if (row.matrix < 0 || column >= a.columns) return 0;
    const FileMatrix& m = a.matrices[row.matrix];
    long before = row.row - m.first_row;
    if (a.bits == 16) return f2bf(float_at(m.weights, m.weight_kind, before * a.columns + column));
    return code_at((const u32*)m.weights + before * (a.columns * a.bits / 32), column * a.bits, a.bits);
}

// ---- where it goes --------------------------------------------------------------------------------

struct TilePlace { int row, column; };

// Where in its tile the code `place` of a lane's stream belongs.
DEV TilePlace tile_place(int lane, int place) {
    int eight = place / 8, pair = place % 4, odd = place % 8 / 4;
#if defined(KPORT_RDNA3)
    return TilePlace{lane, 8 * eight + 2 * pair + odd};
#else
    return TilePlace{lane / 4 + 8 * (pair & 1), 32 * (eight / 2) + 8 * (lane % 4) + 4 * (eight % 2) + 2 * (pair >> 1) + odd};
#endif
}

// A thread makes what a lane holds of a tile.
KERNEL LAUNCH_BOUNDS(256) arrange_codes(const ArrangeArgs a) {
    const int LANES = TILE_ROWS * TILE_COLUMNS / LANE_CODES;
    long index = (long)BID_X * BDIM_X + TID_X, tile = index / LANES;
    if (tile >= (long)a.row_tiles * a.column_tiles) return;
    int lane = (int)(index % LANES), first_column = (int)(tile % a.column_tiles) * TILE_COLUMNS;
    const FileRow* rows = a.rows + tile / a.column_tiles * TILE_ROWS;
    u32* out = a.codes + tile * TILE_WORDS(a.bits) + lane * LANE_WORDS(a.bits);
    u64 stream = 0;
    int held = 0; // bits in it
    for (int i = 0; i < LANE_CODES; i++) {
        // bf16 weights lie as registers hold them: j beside j + 4 of eight.
        int place = a.bits == 16 ? i / 8 * 8 + i % 8 / 2 + i % 2 * 4 : i;
        TilePlace at = tile_place(lane, place);
        stream |= (u64)weight_of_file(a, rows[at.row], first_column + at.column) << held;
        held += a.bits;
        if (held < 32) continue;
        *out++ = (u32)stream;
        stream >>= 32;
        held -= 32;
    }
}

// A thread makes a pair of scale and bias.
KERNEL LAUNCH_BOUNDS(256) arrange_scales(const ArrangeArgs a) {
    long index = (long)BID_X * BDIM_X + TID_X, column = index / TILE_ROWS;
    int groups = a.column_tiles * TILE_COLUMNS / a.group, file_groups = a.columns / a.group, group = (int)(column % groups);
    if (column >= (long)a.row_tiles * groups) return;
    FileRow row = a.rows[column / groups * TILE_ROWS + index % TILE_ROWS];
    bool some = row.matrix >= 0 && group < file_groups;
    const FileMatrix& m = a.matrices[some ? row.matrix : 0];
    long at = some ? (long)(row.row - m.first_row) * file_groups + group : 0;
    if (a.scale_kind == SCALE_F32) {
        F2 pair = {0.0f, 0.0f};
        if (some) pair = F2{float_at(m.scales, m.scale_kind, at), float_at(m.biases, m.bias_kind, at)};
        ((F2*)a.scales)[index] = pair;
    } else {
        u32 pair = 0;
        if (some) pair = ((const unsigned short*)m.scales)[at] | ((u32)((const unsigned short*)m.biases)[at] << 16);
        ((u32*)a.scales)[index] = pair;
    }
}
