// Tiles of 16 x 16 x 16 in bf16 with float32 sums, and weights as they lie in memory for them.
//
// A weight tile is 16 rows x 64 columns; each lane's codes are contiguous and in the order in which
// it uses them, so a lane reads its part of a tile with one wide load. Which row and column a code
// belongs to depends on the matrix unit (arrange.h puts it there):
//
// * NVIDIA (PTX ISA, mma.m16n8k16): lane = 4 g + t holds rows g and g + 8, and of each half of the
//   columns eight that follow one another from 8 t on. The sum over columns is free in its order, so
//   each of the half's two steps takes four of them.
// * RDNA3 (ISA, WMMA): lane l holds row l % 16, all columns; the upper half repeats the lower.
//
// Eight codes make four registers of two: register j holds codes j and j + 4 of the eight, which for
// four bits is one shift and one mask.
#pragma once
#include "compat/kport.h"

#define TILE_ROWS 16
#define TILE_COLUMNS 64

struct Acc { float v[8]; };

#if defined(KPORT_HIP) || (defined(KPORT_CPU) && defined(KPORT_LAYOUT_RDNA3))
#define KPORT_RDNA3 1
#define LANE_CODES 64 // codes of a tile that one lane holds
#define TILE_LANE (lane_id() & 15)
struct FragA { u32 r[8]; };
struct FragB { u32 r[8]; };
DEV int acc_row(int i) { return 2 * i + (lane_id() >> 4); }
DEV int acc_column(int) { return lane_id() & 15; }
// Accumulators of column 0: those that hold a matrix-vector product.
#define VECTOR_ACCS 8
#define VECTOR_ACC(i) (i)
DEV bool holds_vector() { return (lane_id() & 15) == 0; }
// The accumulator eight rows below accumulator i.
#define PAIRED_ACCS 4
#define PAIRED_ACC(i) (i)
#define BELOW(i) ((i) + 4)
DEV U4 ld4(const bf16_t* p) { return *(const U4*)p; }
// Steps 2 h and 2 h + 1 of 64 inputs, the same in all columns.
DEV void load_x_pair(const bf16_t* x, int h, FragB& even, FragB& odd) {
    const bf16_t* row = x + 32 * h;
    for (int half = 0; half < 2; half++) {
        U4 a = ld4(row + 8 * half), b = ld4(row + 16 + 8 * half);
        even.r[4 * half] = a.x; even.r[4 * half + 1] = a.y; even.r[4 * half + 2] = a.z; even.r[4 * half + 3] = a.w;
        odd.r[4 * half] = b.x; odd.r[4 * half + 1] = b.y; odd.r[4 * half + 2] = b.z; odd.r[4 * half + 3] = b.w;
    }
}
#else
#define KPORT_NV 1
#define LANE_CODES 32
#define TILE_LANE (lane_id())
struct FragA { u32 r[4]; };
struct FragB { u32 r[4]; };
DEV int acc_row(int i) { return (lane_id() >> 2) + ((i >> 1) & 1) * 8; }
DEV int acc_column(int i) { return (lane_id() & 3) * 2 + (i & 1) + (i >> 2) * 8; }
#define VECTOR_ACCS 2
#define VECTOR_ACC(i) (2 * (i))
DEV bool holds_vector() { return (lane_id() & 3) == 0; }
#define PAIRED_ACCS 4
#define PAIRED_ACC(i) ((i) < 2 ? (i) : (i) + 2)
#define BELOW(i) ((i) + 2)
DEV void load_x_pair(const bf16_t* x, int h, FragB& even, FragB& odd) {
    U4 a = *(const U4*)(x + 32 * h + 8 * (lane_id() & 3));
    even.r[0] = a.x; even.r[1] = a.y; odd.r[0] = a.z; odd.r[1] = a.w;
    even.r[2] = a.x; even.r[3] = a.y; odd.r[2] = a.z; odd.r[3] = a.w;
}
#endif

// ---- the matrix unit ----------------------------------------------------------------------------

#if defined(KPORT_HIP)
typedef short v16s __attribute__((ext_vector_type(16)));
typedef u32 v8u __attribute__((ext_vector_type(8)));
typedef float v8f __attribute__((ext_vector_type(8)));
DEV void mma(Acc& c, const FragA& a, const FragB& b) {
    v8u x, y;
    v8f z;
    for (int i = 0; i < 8; i++) { x[i] = a.r[i]; y[i] = b.r[i]; z[i] = c.v[i]; }
    z = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(__builtin_bit_cast(v16s, x), __builtin_bit_cast(v16s, y), z);
    for (int i = 0; i < 8; i++) c.v[i] = z[i];
}
DEV void mma_vector(Acc& c, const FragA& a, const FragB& b) { mma(c, a, b); }
#elif defined(KPORT_CUDA)
DEV void mma8(float* c, const u32* a, const u32* b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
DEV void mma(Acc& c, const FragA& a, const FragB& b) {
    mma8(c.v, a.r, b.r);
    mma8(c.v + 4, a.r, b.r + 2);
}
// Of the 16 columns only the first eight, of which a vector needs one.
DEV void mma_vector(Acc& c, const FragA& a, const FragB& b) { mma8(c.v, a.r, b.r); }
#else
// Rebuilds both matrices from the layout that the manuals give, whatever the code above believes;
// once a warp, by whichever lane comes first.
struct Operands { FragA a; FragB b; };
struct Rebuilt { int block = -1, warp = -1; unsigned exchange = 0; float a[16][16], b[16][16]; };
template <class At> static inline void rebuild(Rebuilt& m, At at) {
    for (int l = 0; l < WARP; l++) {
        const Operands& o = at(l);
#if defined(KPORT_RDNA3)
        for (int k = 0; k < 16; k++) {
            float x = bf2f((o.a.r[k / 2] >> (16 * (k % 2))) & 0xffff);
            float y = bf2f((o.b.r[k / 2] >> (16 * (k % 2))) & 0xffff);
            if (l >= 16 && (f2u(x) != f2u(m.a[l - 16][k]) || f2u(y) != f2u(m.b[l - 16][k])))
                sim::report("WMMA operand that the upper half does not repeat", sim::block->x, sim::block->y, l);
            m.a[l & 15][k] = x;
            m.b[l & 15][k] = y;
        }
#else
        for (int r = 0; r < 4; r++)
            for (int h = 0; h < 2; h++) {
                int g = l / 4, k = (l % 4) * 2 + h;
                m.a[g + (r & 1) * 8][k + (r >> 1) * 8] = bf2f((o.a.r[r] >> (16 * h)) & 0xffff);
                m.b[g + (r >> 1) * 8][k + (r & 1) * 8] = bf2f((o.b.r[r] >> (16 * h)) & 0xffff);
            }
#endif
    }
}
DEV void mma(Acc& c, const FragA& a, const FragB& b) {
    sim::exchange(Operands{a, b}, [&](auto at) {
        static thread_local Rebuilt m;
        const sim::Fiber* me = sim::block->current;
        if (m.block != sim::block->serial || m.warp != me->warp || m.exchange != me->exchanges) {
            rebuild(m, at);
            m.block = sim::block->serial;
            m.warp = me->warp;
            m.exchange = me->exchanges;
        }
        for (int i = 0; i < 8; i++) {
#if defined(KPORT_RDNA3)
            int row = 2 * i + me->lane / 16, column = me->lane % 16;
#else
            int row = me->lane / 4 + (i / 2 % 2) * 8, column = me->lane % 4 * 2 + i % 2 + i / 4 * 8;
#endif
            float sum = c.v[i];
            for (int k = 0; k < 16; k++) sum += m.a[row][k] * m.b[column][k];
            c.v[i] = sum;
        }
        return 0;
    });
}
DEV void mma_vector(Acc& c, const FragA& a, const FragB& b) { mma(c, a, b); }
#endif

// ---- codes to operands --------------------------------------------------------------------------

// What every code of BITS bits is too large by as an operand: a code below 128 becomes bf16 128 + q
// by writing it into the significand. 16 bits are bf16 weights, which are no codes.
#define CODE_OFFSET(BITS) ((BITS) < 8 ? 128.0f : 0.0f)

// Eight codes of a lane's stream.
template <int BITS> DEV void codes_of_eight(const u32* words, int eight, u32* q) {
#pragma unroll
    for (int p = 0; p < 8; p++) {
        int bit = (eight * 8 + p) * BITS, word = bit / 32, shift = bit % 32;
        u32 value = words[word] >> shift;
        if (shift + BITS > 32) value |= words[word + 1] << (32 - shift);
        q[p] = value & ((1u << BITS) - 1);
    }
}

// The same as four registers of two.
template <int BITS> DEV void unpack8(const u32* words, int eight, u32* out) {
    if (BITS == 16) {
#pragma unroll
        for (int j = 0; j < 4; j++) out[j] = words[eight * 4 + j];
    } else if (BITS == 4) {
#pragma unroll
        for (int j = 0; j < 4; j++) out[j] = ((words[eight] >> (4 * j)) & 0x000f000fu) | 0x43004300u;
    } else {
        u32 q[8];
        codes_of_eight<BITS>(words, eight, q);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (BITS == 8) out[j] = (f2u((float)q[j]) >> 16) | (f2u((float)q[j + 4]) & 0xffff0000u);
            else out[j] = q[j] | (q[j + 4] << 16) | 0x43004300u;
        }
    }
}

template <int BITS> DEV FragA operand(const u32* words, int step) {
    FragA a;
#if defined(KPORT_RDNA3)
    unpack8<BITS>(words, 2 * step, a.r);
    unpack8<BITS>(words, 2 * step + 1, a.r + 4);
#else
    unpack8<BITS>(words, step, a.r);
#endif
    return a;
}

// Rows whose codes a lane holds, by register of the operand.
#if defined(KPORT_RDNA3)
#define OPERAND_ROWS 1
#define OPERAND_REGISTERS 8
#define ROW_OF_REGISTER(j) 0
DEV int operand_row(int) { return lane_id() & 15; }
#else
#define OPERAND_ROWS 2
#define OPERAND_REGISTERS 4
#define ROW_OF_REGISTER(j) ((j) & 1)
DEV int operand_row(int i) { return (lane_id() >> 2) + 8 * i; }
#endif

// Words of a lane in a tile of BITS-bit codes.
#define LANE_WORDS(BITS) (LANE_CODES * (BITS) / 32)
#define TILE_WORDS(BITS) (TILE_ROWS * TILE_COLUMNS * (BITS) / 32)

template <int BITS> DEV void load_codes(const u32* tile, u32* words) {
    const u32* mine = tile + TILE_LANE * LANE_WORDS(BITS);
    if (LANE_WORDS(BITS) % 4 == 0) {
#pragma unroll
        for (int i = 0; i < LANE_WORDS(BITS) / 4; i++) {
            U4 v = ((const U4*)mine)[i];
            words[4 * i] = v.x; words[4 * i + 1] = v.y; words[4 * i + 2] = v.z; words[4 * i + 3] = v.w;
        }
    } else if (LANE_WORDS(BITS) % 2 == 0) {
#pragma unroll
        for (int i = 0; i < LANE_WORDS(BITS) / 2; i++) {
            U2 v = ((const U2*)mine)[i];
            words[2 * i] = v.x; words[2 * i + 1] = v.y;
        }
    } else {
#pragma unroll
        for (int i = 0; i < LANE_WORDS(BITS); i++) words[i] = mine[i];
    }
}
