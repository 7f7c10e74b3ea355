// The matrix unit of Hopper, which a warpgroup of four warps shares: it multiplies operands in registers
// by a tile in shared memory, and goes on by itself until it is waited for (PTX ISA: wgmma). Tiles
// arrive there by the copy engine, which tells a barrier in shared memory (cp.async.bulk, mbarrier).
#pragma once
#include "activations.h"
#include "copies.h"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || (defined(KPORT_CPU) && defined(KPORT_NV))
#define KPORT_WARPGROUPS 1
#endif

#if defined(KPORT_WARPGROUPS) && defined(KPORT_CUDA)
typedef u64 Arrivals;
// A barrier that is passed once `count` have arrived and all bytes that were announced are there.
DEV void set_arrivals(Arrivals* b, int count) {
    asm volatile("mbarrier.init.shared.b64 [%0],%1;" ::"r"(shared_address(b)), "r"(count) : "memory");
}
// By the thread that has set them, ahead of a barrier of the block.
DEV void publish_arrivals() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
DEV void arrive(Arrivals* b) { asm volatile("mbarrier.arrive.shared.b64 _,[%0];" ::"r"(shared_address(b)) : "memory"); }
DEV void arrive_with_copy(Arrivals* b, void* to, const void* from, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _,[%0],%1;" ::"r"(shared_address(b)), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0],[%1],%2,[%3];" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(b)) : "memory");
}
// Rounds count from 0; `parity` is that of the round waited for.
DEV void wait_arrivals(Arrivals* b, int parity) {
    u32 passed;
    do
        asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p,[%1],%2; selp.u32 %0,1,0,p;}"
                     : "=r"(passed) : "r"(shared_address(b)), "r"(parity) : "memory");
    while (!passed);
}

// Registers that products read or write have been written otherwise.
DEV void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEV void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// All but the last N batches of products are done: their operands may change.
template <int N> DEV void wait_products() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
// Behind the last wait: sums are not read before this.
DEV void settle(Acc& c) {
    asm volatile("" : "+f"(c.v[0]), "+f"(c.v[1]), "+f"(c.v[2]), "+f"(c.v[3]), "+f"(c.v[4]), "+f"(c.v[5]), "+f"(c.v[6]), "+f"(c.v[7])::"memory");
}

// A tile of rows of 64 elements, 128-byte swizzle, eight rows a group (PTX ISA, matrix descriptor). It lies
// at a multiple of 1024 bytes. `next` is the way to the next 64 elements of a row, where they are looked
// for, in bytes.
DEV u64 tile_descriptor(const bf16_t* x, int next = 16) {
    return (u64)(shared_address(x) >> 4) | (u64)(next >> 4) << 16 | (1024ull >> 4) << 32 | 1ull << 62;
}

#define SUMS(c) "+f"((c).v[0]), "+f"((c).v[1]), "+f"((c).v[2]), "+f"((c).v[3]), "+f"((c).v[4]), "+f"((c).v[5]), "+f"((c).v[6]), "+f"((c).v[7])
#define SUMS_64(c) SUMS((c)[0]), SUMS((c)[1]), SUMS((c)[2]), SUMS((c)[3])
#define SUMS_128(c) SUMS_64(c), SUMS_64((c) + 4)
#define SUMS_160(c) SUMS_128(c), SUMS((c)[8]), SUMS((c)[9])
#define SUMS_256(c) SUMS_128(c), SUMS_128((c) + 8)
#define TEN(t) "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9"
#define THIRTY "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9," TEN(1) "," TEN(2)
#define SIXTY THIRTY "," TEN(3) "," TEN(4) "," TEN(5)
#define PRODUCT(TOKENS, D, OPERANDS) \
    "{.reg .pred p; setp.ne.b32 p,1,0; wgmma.mma_async.sync.aligned.m64n" #TOKENS "k16.f32.bf16.bf16 {" D "}," OPERANDS ";}"
// A in registers, B's rows follow B's descriptor; the last flag says that they are columns.
#define MULTIPLY(NAME, TOKENS, D, A, X, FLAGS)                                                 \
    DEV void NAME(Acc* c, const FragA& a, u64 x) {                                             \
        asm volatile(PRODUCT(TOKENS, D, "{" A "}," X ",p,1,1," FLAGS)                          \
                     : SUMS_##TOKENS(c)                                                        \
                     : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "l"(x));            \
    }
#define D_64 THIRTY ",%30,%31"
#define D_128 SIXTY ",%60,%61,%62,%63"
#define D_160 SIXTY "," TEN(6) "," TEN(7)
#define D_256 D_160 "," TEN(8) "," TEN(9) "," TEN(10) "," TEN(11) ",%120,%121,%122,%123,%124,%125,%126,%127"
MULTIPLY(multiply_64, 64, D_64, "%32,%33,%34,%35", "%36", "0")
MULTIPLY(multiply_128, 128, D_128, "%64,%65,%66,%67", "%68", "0")
MULTIPLY(multiply_160, 160, D_160, "%80,%81,%82,%83", "%84", "0")
MULTIPLY(multiply_columns_64, 64, D_64, "%32,%33,%34,%35", "%36", "1")
MULTIPLY(multiply_columns_128, 128, D_128, "%64,%65,%66,%67", "%68", "1")
MULTIPLY(multiply_columns_256, 256, D_256, "%128,%129,%130,%131", "%132", "1")

// Each adds one step of 16 to the sums of the warpgroup's 64 rows: sums[column / 16].

// A (registers) times the transpose of COLUMNS rows of `x`; columns 16 step .. of both.
template <int COLUMNS> DEV void multiply(Acc* sums, const FragA& a, const bf16_t* x, int step) {
    u64 tile = tile_descriptor(x) + 2 * step; // 32 bytes a step
    if constexpr (COLUMNS == 64) multiply_64(sums, a, tile);
    else if constexpr (COLUMNS == 128) multiply_128(sums, a, tile);
    else multiply_160(sums, a, tile);
}
// The same for 64 rows of `a` in shared memory and 64 of `x`.
DEV void multiply_tiles(Acc* c, const bf16_t* a, const bf16_t* x, int step) {
    asm volatile(PRODUCT(64, D_64, "%32,%33,p,1,1,0,0") : SUMS_64(c) : "l"(tile_descriptor(a) + 2 * step), "l"(tile_descriptor(x) + 2 * step));
}
// A times rows 16 step .. of `x`, whose columns lie in tiles of 64, `rows` rows each.
template <int COLUMNS> DEV void multiply_columns(Acc* sums, const FragA& a, const bf16_t* x, int step, int rows) {
    u64 tile = tile_descriptor(x + step * 16 * 64, rows * 128);
    if constexpr (COLUMNS == 64) multiply_columns_64(sums, a, tile);
    else if constexpr (COLUMNS == 128) multiply_columns_128(sums, a, tile);
    else multiply_columns_256(sums, a, tile);
}

#elif defined(KPORT_WARPGROUPS)
// On fibers: a copy is done at once, products as late as they may be. So whoever overwrites a tile or an
// operand too early is found out.
struct Arrivals { int missing, count, round; };
DEV void set_arrivals(Arrivals* b, int count) { *b = Arrivals{count, count, 0}; }
DEV void publish_arrivals() {}
DEV void arrive(Arrivals* b) {
    if (--b->missing == 0) { b->missing = b->count; b->round++; }
}
DEV void arrive_with_copy(Arrivals* b, void* to, const void* from, int bytes) {
    memcpy(to, from, bytes);
    arrive(b);
}
DEV void wait_arrivals(Arrivals* b, int parity) {
    while ((b->round & 1) == parity) sim::poll();
}

// Batches of each thread's products that have not been waited for.
typedef std::vector<std::function<void()>> Products;
static thread_local std::vector<Products> pending[1024];
static inline std::vector<Products>& my_products() { return pending[TID_X]; }
DEV void begin_products() { my_products().emplace_back(); }
DEV void end_products() {}
DEV void settle(Acc&) {}
template <int N> DEV void wait_products() {
    auto& batches = my_products();
    while (batches.size() > N) {
        Products batch = std::move(batches.front());
        batches.erase(batches.begin());
        for (auto& product : batch) product();
    }
}
// Element of a tile of rows of 64, as the descriptor describes it.
DEV u32 tile_element(const bf16_t* x, int row, int column) { return x[row * 64 + ((column / 8) ^ (row % 8)) * 8 + column % 8]; }
template <class At> DEV u32 tile_pair(At at, int column) { return at(column) | at(column + 1) << 16; }
template <int COLUMNS> DEV void multiply(Acc* sums, const FragA& a, const bf16_t* x, int step) {
    my_products().back().push_back([=, &a] {
        for (int t = 0; t < COLUMNS / 16; t++) {
            FragB b;
            for (int i = 0; i < 4; i++)
                b.r[i] = tile_pair([&](int k) { return tile_element(x, 16 * t + lane_id() / 4 + i / 2 * 8, k); }, 16 * step + i % 2 * 8 + lane_id() % 4 * 2);
            mma(sums[t], a, b);
        }
    });
}
DEV void multiply_tiles(Acc* sums, const bf16_t* rows, const bf16_t* x, int step) {
    my_products().back().push_back([=] {
        FragA a;
        for (int i = 0; i < 4; i++)
            a.r[i] = tile_pair([&](int k) { return tile_element(rows, TID_X / WARP % 4 * 16 + lane_id() / 4 + i % 2 * 8, k); }, 16 * step + i / 2 * 8 + lane_id() % 4 * 2);
        for (int t = 0; t < 4; t++) {
            FragB b;
            for (int i = 0; i < 4; i++)
                b.r[i] = tile_pair([&](int k) { return tile_element(x, 16 * t + lane_id() / 4 + i / 2 * 8, k); }, 16 * step + i % 2 * 8 + lane_id() % 4 * 2);
            mma(sums[t], a, b);
        }
    });
}
template <int COLUMNS> DEV void multiply_columns(Acc* sums, const FragA& a, const bf16_t* x, int step, int rows) {
    my_products().back().push_back([=, &a] {
        for (int t = 0; t < COLUMNS / 16; t++) {
            FragB b;
            for (int i = 0; i < 4; i++) {
                int column = 16 * t + lane_id() / 4 + i / 2 * 8;
                const bf16_t* tile = x + column / 64 * rows * 64;
                b.r[i] = tile_pair([&](int k) { return tile_element(tile, k, column % 64); }, 16 * step + i % 2 * 8 + lane_id() % 4 * 2);
            }
            mma(sums[t], a, b);
        }
    });
}
#endif
