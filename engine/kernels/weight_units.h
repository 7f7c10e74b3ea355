// Weights of a product with one row, a unit at a time, and those of a warp that are on their way: in
// registers, or in shared memory, where more of them have room.
#pragma once
#include "copies.h"
#include "parts.h"
#include "weights.h"

#define TILES_OF_UNIT(BITS) ((BITS) == 16 ? 1 : UNIT_TILES)

// A unit in registers: the lane's codes, and scales of the tile whose sums it holds.
template <int BITS> struct Unit {
    u32 words[TILES_OF_UNIT(BITS)][LANE_WORDS(BITS)];
    u32 scales[VECTOR_ACCS]; // of the tile's first group; float32 ones are read when they are used
};

struct Place { int row_tile, unit; };
DEV void go_on(Place& at, int units) {
    if (++at.unit < units) return;
    at.unit = 0;
    at.row_tile++;
}

template <int BITS> DEV void load_codes_once(const u32* tile, u32* words) {
    if (LANE_WORDS(BITS) % 4) return load_codes<BITS>(tile, words);
#pragma unroll
    for (int i = 0; i < LANE_WORDS(BITS) / 4; i++) {
        U4 v = load_once((const U4*)(tile + TILE_LANE * LANE_WORDS(BITS)) + i);
        words[4 * i] = v.x; words[4 * i + 1] = v.y; words[4 * i + 2] = v.z; words[4 * i + 3] = v.w;
    }
}

// USUAL: see is_usual; whole units and no columns beyond them, too.
template <int BITS, bool USUAL> DEV void load_unit(const TileMatrix& w, Place at, Unit<BITS>& u) {
    const int TILES = TILES_OF_UNIT(BITS);
    int first = at.unit * TILES, tiles = USUAL ? TILES : least(TILES, w.column_tiles - first);
    const u32* tile = w.codes + ((long)at.row_tile * w.column_tiles + first) * TILE_WORDS(BITS);
#pragma unroll
    for (int j = 0; j < TILES; j++) {
        if (USUAL || j < tiles) load_codes_once<BITS>(tile + j * TILE_WORDS(BITS), u.words[j]);
        else
#pragma unroll
            for (int i = 0; i < LANE_WORDS(BITS); i++) u.words[j][i] = 0;
    }
    if (BITS == 16 || (!USUAL && w.scale_kind == SCALE_F32) || held_tile() >= tiles) return;
    const u32* pairs = (const u32*)w.scales + scale_index(w, at.row_tile, (first + held_tile()) * TILE_COLUMNS);
#pragma unroll
    for (int i = 0; i < VECTOR_ACCS; i++) u.scales[i] = load_once(pairs + acc_row(VECTOR_ACC(i)));
}

// ---- on their way: UNITS of them ------------------------------------------------------------------
// Inputs come out of the same memory as weights and behind all that were asked for before, those of other
// blocks too: a warp asks for a first unit, then for its inputs, then for the rest.

template <int BITS, bool USUAL> struct HeldUnits {
    static const int UNITS = BITS <= 4 ? 2 : 1;
    // In shared memory or not. There the place of a unit is free once it has been taken out, in registers
    // once it has been used.
    static const bool QUEUED = false;
    Unit<BITS> units[UNITS];
};
// Makes room in shared memory; returns what lies behind.
template <int BITS, bool USUAL> DEV unsigned char* open_queue(HeldUnits<BITS, USUAL>&, unsigned char* shared) { return shared; }
template <int BITS, bool USUAL> DEV void ask(HeldUnits<BITS, USUAL>& q, const TileMatrix& w, Place at, int slot, bool there) {
    if (there) load_unit<BITS, USUAL>(w, at, q.units[slot]);
}
template <int BITS, bool USUAL> DEV const Unit<BITS>& take(const HeldUnits<BITS, USUAL>& q, int slot) { return q.units[slot]; }

#if defined(KPORT_COPIES) && defined(KPORT_NV)
#define QUEUED_UNIT_BYTES (UNIT_TILES * (TILE_WORDS(4) + TILE_ROWS) * 4)
static_assert(VECTOR_ACCS * WARP == UNIT_TILES * TILE_ROWS, "a lane has a place for each of its scales");

// Units of four bits in the usual form. A lane copies what it reads itself, so no lane waits for another.
template <int N> struct QueuedUnits {
    static const int UNITS = N;
    static const bool QUEUED = true;
    unsigned char* units; // of the warp
};
template <int N> DEV unsigned char* open_queue(QueuedUnits<N>& q, unsigned char* shared) {
    q.units = shared + warp_of_block() * (N * QUEUED_UNIT_BYTES);
    return shared + BDIM_X / WARP * (N * QUEUED_UNIT_BYTES);
}
template <int N> DEV u32* queued_codes(const QueuedUnits<N>& q, int slot, int tile) {
    return (u32*)(q.units + slot * QUEUED_UNIT_BYTES) + tile * TILE_WORDS(4) + lane_id() * LANE_WORDS(4);
}
template <int N> DEV u32* queued_scale(const QueuedUnits<N>& q, int slot, int i) {
    return (u32*)(q.units + slot * QUEUED_UNIT_BYTES) + UNIT_TILES * TILE_WORDS(4) + i * WARP + lane_id();
}
// One batch of copies, which is empty when there is no such unit, so that `take` can count on batches.
template <int N> DEV void ask(QueuedUnits<N>& q, const TileMatrix& w, Place at, int slot, bool there) {
    if (there) {
        int first = at.unit * UNIT_TILES;
        const u32* tile = w.codes + ((long)at.row_tile * w.column_tiles + first) * TILE_WORDS(4);
#pragma unroll
        for (int j = 0; j < UNIT_TILES; j++) copy_16(queued_codes(q, slot, j), tile + j * TILE_WORDS(4) + lane_id() * LANE_WORDS(4), true);
        const u32* pairs = (const u32*)w.scales + scale_index(w, at.row_tile, (first + held_tile()) * TILE_COLUMNS);
#pragma unroll
        for (int i = 0; i < VECTOR_ACCS; i++) copy_4(queued_scale(q, slot, i), pairs + acc_row(VECTOR_ACC(i)));
    }
    end_copies();
}
// The oldest batch on its way is this unit's. The lane has read it when this returns, so the place is free.
template <int N> DEV Unit<4> take(const QueuedUnits<N>& q, int slot) {
    Unit<4> u;
    wait_copies<N - 1>();
#pragma unroll
    for (int j = 0; j < UNIT_TILES; j++) {
        U4 v = *(const U4*)queued_codes(q, slot, j);
        u.words[j][0] = v.x; u.words[j][1] = v.y; u.words[j][2] = v.z; u.words[j][3] = v.w;
    }
#pragma unroll
    for (int i = 0; i < VECTOR_ACCS; i++) u.scales[i] = *queued_scale(q, slot, i);
    return u;
}
#endif
