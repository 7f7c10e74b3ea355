// Operands of 16 x 16 tiles from bf16 matrices in shared memory, in the layouts of the manuals (weights
// have an order of their own, fragments.h).
#pragma once
#include "fragments.h"

#define NO_SCORE -1.0e30f

#if defined(KPORT_RDNA3)
// Rows whose sums a lane holds, and lanes that share a row.
#define ROW_SLOTS 8
#define ROW_LANES 16
DEV int row_slot(int i) { return i; }
// Row l % 16 of the tile, columns 0 .. 15.
DEV FragA load_rows_a(const bf16_t* p, int stride) {
    FragA a;
#pragma unroll
    for (int i = 0; i < 8; i++) a.r[i] = *(const u32*)(p + (lane_id() & 15) * stride + 2 * i);
    return a;
}
DEV FragB load_rows_b(const bf16_t* p, int stride) {
    FragB b;
#pragma unroll
    for (int i = 0; i < 8; i++) b.r[i] = *(const u32*)(p + (lane_id() & 15) * stride + 2 * i);
    return b;
}
// Column l % 16 of the tile, rows 0 .. 15.
DEV FragB load_columns_b(const bf16_t* p, int stride) {
    FragB b;
    const bf16_t* column = p + (lane_id() & 15);
#pragma unroll
    for (int i = 0; i < 8; i++) b.r[i] = (u32)column[2 * i * stride] | ((u32)column[(2 * i + 1) * stride] << 16);
    return b;
}
// Sums become an operand by way of shared memory, 16 rows of 24.
DEV FragA sums_to_a(const Acc& c, bf16_t* scratch) {
    warp_sync();
#pragma unroll
    for (int i = 0; i < 8; i++) scratch[acc_row(i) * 24 + acc_column(i)] = f2bf(c.v[i]);
    warp_sync();
    return load_rows_a(scratch, 24);
}
#else
#define ROW_SLOTS 2
#define ROW_LANES 4
DEV int row_slot(int i) { return (i >> 1) & 1; }
DEV u32 two(const bf16_t* p) { return *(const u32*)p; }
DEV FragA load_rows_a(const bf16_t* p, int stride) {
    const bf16_t* q = p + (lane_id() >> 2) * stride + 2 * (lane_id() & 3);
    return FragA{{two(q), two(q + 8 * stride), two(q + 8), two(q + 8 * stride + 8)}};
}
DEV FragB load_rows_b(const bf16_t* p, int stride) {
    const bf16_t* q = p + (lane_id() >> 2) * stride + 2 * (lane_id() & 3);
    return FragB{{two(q), two(q + 8), two(q + 8 * stride), two(q + 8 * stride + 8)}};
}
#if defined(KPORT_CUDA)
// ldmatrix gives each lane two rows of its column: lane l names row l % 8 of the 8 x 8 matrix l / 8.
DEV FragB load_columns_b(const bf16_t* p, int stride) {
    int matrix = lane_id() >> 3;
    const bf16_t* row = p + ((matrix & 1) * 8 + (lane_id() & 7)) * stride + (matrix >> 1) * 8;
    FragB b;
    u64 address;
    asm("cvta.to.shared.u64 %0,%1;" : "=l"(address) : "l"(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(b.r[0]), "=r"(b.r[1]), "=r"(b.r[2]), "=r"(b.r[3]) : "l"(address) : "memory");
    return b;
}
#else
DEV FragB load_columns_b(const bf16_t* p, int stride) {
    const bf16_t* q = p + 2 * (lane_id() & 3) * stride + (lane_id() >> 2);
    FragB b;
    for (int i = 0; i < 4; i++) {
        const bf16_t* pair = q + (i & 1) * 8 * stride + (i >> 1) * 8;
        b.r[i] = (u32)pair[0] | ((u32)pair[stride] << 16);
    }
    return b;
}
#endif
// A lane's sums are its part of the operand already.
DEV FragA sums_to_a(const Acc& c, bf16_t*) {
    return FragA{{pack2(c.v[0], c.v[1]), pack2(c.v[2], c.v[3]), pack2(c.v[4], c.v[5]), pack2(c.v[6], c.v[7])}};
}
#endif
