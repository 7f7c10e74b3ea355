// Scales, biases and single elements of weights in tiles.
#pragma once
#include "args.h"
#include "fragments.h"

struct Scale { float scale, bias; };

// A pair of 16 bits each.
DEV Scale scale_of(u32 pair, int kind) {
    if (kind == SCALE_BF16) return Scale{low(pair), high(pair)};
    return Scale{half_to_float(pair & 0xffff), half_to_float(pair >> 16)};
}

DEV Scale read_scale(const void* scales, int kind, int index) {
    if (kind == SCALE_F32) {
        F2 pair = ((const F2*)scales)[index];
        return Scale{pair.x, pair.y};
    }
    return scale_of(((const u32*)scales)[index], kind);
}

// Index of the pair of row 0 of a row tile for the group of `column`.
DEV int scale_index(const TileMatrix& w, int row_tile, int column) {
    // Groups are 32, 64 or 128 columns; a division would cost more than the tile's product.
    int shift = w.group == 32 ? 5 : w.group == 64 ? 6 : 7;
    int groups = (w.column_tiles * TILE_COLUMNS) >> shift;
    return (row_tile * groups + (column >> shift)) * TILE_ROWS;
}

// Scales and biases are bf16, for groups of at least a tile's columns; then nothing about the format
// has to be asked in a loop.
DEV bool is_usual(const TileMatrix& w) { return w.scale_kind == SCALE_BF16 && w.group >= TILE_COLUMNS; }

// The code that begins at `bit` of a little-endian stream.
DEV u32 code_at(const u32* words, int bit, int bits) {
    int shift = bit % 32;
    u32 code = words[bit / 32] >> shift;
    if (shift + bits > 32) code |= words[bit / 32 + 1] << (32 - shift);
    return code & ((1u << bits) - 1);
}

// One element; the way from (row, column) to (lane, place in its stream) is that of fragments.h.
DEV float element(const TileMatrix& w, int row, int column) {
    int r = row % TILE_ROWS, c = column % TILE_COLUMNS;
#if defined(KPORT_RDNA3)
    int lane = r, pair = c % 8 / 2, place = c / 8 * 8 + pair + 4 * (c % 2);
#else
    int in_step = c % 4, pair = (r >> 3) + 2 * (in_step >> 1), step = c / 32 * 2 + c % 8 / 4;
    int lane = (r % 8) * 4 + c % 32 / 8, place = step * 8 + pair + 4 * (in_step & 1);
#endif
    const u32* tile = w.codes + ((long)(row / TILE_ROWS) * w.column_tiles + column / TILE_COLUMNS) * TILE_WORDS(w.bits);
    const u32* words = tile + lane * LANE_WORDS(w.bits);
    if (w.bits == 16) {
        u32 word = words[place / 8 * 4 + place % 4];
        return place % 8 < 4 ? low(word) : high(word);
    }
    u32 code = code_at(words, place * w.bits, w.bits);
    Scale s = read_scale(w.scales, w.scale_kind, scale_index(w, row / TILE_ROWS, column) + r);
    return s.scale * (float)code + s.bias;
}

// The same of a matrix in the order of the file.
DEV float element(const PlainMatrix& w, int row, int column) {
    if (!w.codes) return w.scales[(long)row * w.columns + column];
    u32 code = code_at(w.codes + (long)row * (w.columns * w.bits / 32), column * w.bits, w.bits);
    long group = (long)row * (w.columns / w.group) + column / w.group;
    return w.scales[group] * (float)code + w.biases[group];
}
