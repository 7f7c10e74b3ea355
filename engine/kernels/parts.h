// Products of codes with activations in 8-bit parts: exact integer sums on the matrix units.
//
// A decode step has one row of activations, and a matrix unit takes at least eight. So an input becomes
// a whole number of 15 bits in a unit of its tile's own, x = unit (256 high + low); high and low parts
// are rows of their own, and the rows that are left belong, two and two, to the next tiles of a unit of
// UNIT_TILES. For each tile only its own two rows hold anything but zeros, so in the end the sums of all
// tiles of the unit lie side by side in the lanes, and each lane scales those that it holds.
//
// Codes go in as they lie in memory (fragments.h): every other one of eight is a register of four.
#pragma once
#include "fragments.h"

#define UNIT_TILES 4
#define TILE_PART_BYTES (2 * TILE_COLUMNS) // high parts, then low parts
#define BYTE_STEPS (TILE_COLUMNS / BYTE_STEP_COLUMNS)

struct BytesA { u32 r[4]; };

// The lowest bytes.
DEV u32 four_bytes(u32 a, u32 b, u32 c, u32 d) { return (a & 255) | ((b & 255) << 8) | ((c & 255) << 16) | (d << 24); }

#if defined(KPORT_RDNA3)
#define BYTE_STEP_COLUMNS 16
#define VECTOR_LANES 16 // that share a row of the result
struct BytesB { u32 r[4]; };
struct Counts { int v[8]; };
// Tile of the unit whose inputs the lane passes on, and whose sums it holds; from UNIT_TILES on none.
DEV int given_tile() { return (lane_id() & 15) >> 1; }
DEV int held_tile() { return (lane_id() & 15) >> 1; }
// Lanes hold the sums of high or of low parts; the latter also count what comes once.
DEV bool counts_once() { return lane_id() & 1; }
DEV int joined(const Counts& c, int i) { return lane_id() & 1 ? c.v[i] : 256 * c.v[i]; }
DEV int part_place() { return (lane_id() & 1) * TILE_COLUMNS; }
DEV void load_parts(const unsigned char* from, BytesB* b) {
#pragma unroll
    for (int step = 0; step < BYTE_STEPS; step++) {
        U4 v = ((const U4*)from)[step];
        b[step] = BytesB{{v.x, v.y, v.z, v.w}};
    }
}
// Where eight inputs from `column` on lie in a tile's parts, and the order of each four bytes.
DEV int place_of_eight(int column) { return column; }
#define BYTES_OF_WORD(x, word) four_bytes(x[2 * (word)], x[2 * (word) + 4], x[2 * (word) + 1], x[2 * (word) + 5])
#else
#define BYTE_STEP_COLUMNS 32
#define VECTOR_LANES 4
struct BytesB { u32 r[2]; };
struct Counts { int v[4]; };
DEV int given_tile() { return lane_id() >> 3; }
DEV int held_tile() { return lane_id() & 3; }
DEV bool counts_once() { return true; }
DEV int joined(const Counts& c, int i) { return 256 * c.v[2 * i] + c.v[2 * i + 1]; }
DEV int part_place() { return ((lane_id() >> 2) & 1) * TILE_COLUMNS + (lane_id() & 3) * 16; }
DEV void load_parts(const unsigned char* from, BytesB* b) {
    U4 v = *(const U4*)from;
    b[0] = BytesB{{v.x, v.y}};
    b[1] = BytesB{{v.z, v.w}};
}
DEV int place_of_eight(int column) { return column % 32 * 2 + column / 32 * 8; }
#define BYTES_OF_WORD(x, word) four_bytes(x[4 * (word)], x[4 * (word) + 2], x[4 * (word) + 1], x[4 * (word) + 3])
#endif

// Eight inputs that follow one another, whole numbers in the lower halves of `x`.
DEV void store_parts(unsigned char* tile, int column, u32* x) {
    U2* to = (U2*)(tile + place_of_eight(column));
    to[TILE_COLUMNS / 8] = U2{BYTES_OF_WORD(x, 0), BYTES_OF_WORD(x, 1)};
#pragma unroll
    for (int j = 0; j < 8; j++) x[j] = (x[j] + 128) >> 8;
    *to = U2{BYTES_OF_WORD(x, 0), BYTES_OF_WORD(x, 1)};
}

// ---- the matrix unit ----------------------------------------------------------------------------

#if defined(KPORT_HIP)
typedef int v4i __attribute__((ext_vector_type(4)));
typedef int v8i __attribute__((ext_vector_type(8)));
DEV void mma_bytes(Counts& c, const BytesA& a, const BytesB& b) {
    v4i x, y;
    v8i z;
    for (int i = 0; i < 4; i++) { x[i] = (int)a.r[i]; y[i] = (int)b.r[i]; }
    for (int i = 0; i < 8; i++) z[i] = c.v[i];
    z = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(false, x, true, y, z, false);
    for (int i = 0; i < 8; i++) c.v[i] = z[i];
}
#elif defined(KPORT_CUDA)
DEV void mma_bytes(Counts& c, const BytesA& a, const BytesB& b) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+r"(c.v[0]), "+r"(c.v[1]), "+r"(c.v[2]), "+r"(c.v[3])
        : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b.r[0]), "r"(b.r[1]));
}
#else
// Element by element, from the layouts that the manuals give.
struct ByteOperands { BytesA a; BytesB b; };
DEV void mma_bytes(Counts& c, const BytesA& a, const BytesB& b) {
    sim::exchange(ByteOperands{a, b}, [&](auto at) {
        int lane = lane_id();
        for (int i = 0; i < (int)(sizeof(c.v) / sizeof(int)); i++)
            for (int k = 0; k < BYTE_STEP_COLUMNS; k++) {
                int byte = k % 4 * 8;
#if defined(KPORT_RDNA3)
                int row = 2 * i + lane / 16, column = lane % 16;
                u32 x = at(row).a.r[k / 4], y = at(column).b.r[k / 4];
#else
                int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2, t = k % 16 / 4;
                u32 x = at(row % 8 * 4 + t).a.r[row / 8 + k / 16 * 2], y = at(column * 4 + t).b.r[k / 16];
#endif
                c.v[i] += (int)(x >> byte & 255) * (signed char)(y >> byte & 255);
            }
        return 0;
    });
}
#endif

// ---- codes to operands --------------------------------------------------------------------------

// Eight codes of a lane's stream: the even ones and the odd ones.
template <int BITS> DEV void bytes_of_eight(const u32* words, int eight, u32* out) {
    if (BITS == 4) {
        out[0] = words[eight] & 0x0f0f0f0fu;
        out[1] = (words[eight] >> 4) & 0x0f0f0f0fu;
        return;
    }
    u32 q[8];
    codes_of_eight<BITS>(words, eight, q);
#pragma unroll
    for (int odd = 0; odd < 2; odd++) out[odd] = q[odd] | (q[2 + odd] << 8) | (q[4 + odd] << 16) | (q[6 + odd] << 24);
}

template <int BITS> DEV BytesA bytes_operand(const u32* words, int step) {
    BytesA a;
    bytes_of_eight<BITS>(words, 2 * step, a.r);
    bytes_of_eight<BITS>(words, 2 * step + 1, a.r + 2);
    return a;
}
