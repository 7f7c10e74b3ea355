// One kernel source for three targets: CUDA (clang or nvcc), HIP (clang) and the CPU (cpu_sim.h).
//
// On a GPU nothing is included: bf16 is its bit pattern, everything else is a builtin (AMD) or
// inline PTX (NVIDIA), so an image needs neither vendor's headers to be built.
#pragma once

typedef unsigned short bf16_t; // bit pattern of a bfloat16
typedef unsigned int u32;
typedef unsigned long long u64;

#define WARP 32 // a CUDA warp; RDNA in wave32

struct alignas(16) U4 { u32 x, y, z, w; };
struct alignas(8) U2 { u32 x, y; };
struct alignas(8) F2 { float x, y; };
struct alignas(16) F4 { float v[4]; };

// ---- CPU ----------------------------------------------------------------------------------------
#if defined(KPORT_CPU)
#include "cpu_sim.h"
#define DEV static inline
#define KERNEL static void
#define LAUNCH_BOUNDS(n)
#define SHARED static thread_local
#define DYNAMIC_SHARED(name) unsigned char* name = sim::dynamic_shared()
#define TID_X (sim::block->current->thread)
#define BID_X (sim::block->x)
#define BID_Y (sim::block->y)
#define BDIM_X (sim::block->threads)
#define GDIM_X (sim::block->grid_x)
DEV float u2f(u32 u) { float f; __builtin_memcpy(&f, &u, 4); return f; }
DEV u32 f2u(float f) { u32 u; __builtin_memcpy(&u, &f, 4); return u; }
DEV int lane_id() { return sim::block->current->lane; }
DEV void block_sync() { sim::wait_block(); }
DEV void warp_sync() { sim::wait_warp(); }
DEV float shfl_xor(float v, int mask) {
    int lane = lane_id();
    return sim::exchange(v, [&](auto at) { return (float)at(lane ^ mask); });
}
DEV float shfl(float v, int lane) {
    return sim::exchange(v, [&](auto at) { return (float)at(lane); });
}
DEV int warp_of_block() { return TID_X / WARP; }
DEV float fast_exp2(float x) { return exp2f(x); }
DEV float fast_rsqrt(float x) { return 1.0f / sqrtf(x); }
DEV float fast_reciprocal(float x) { return 1.0f / x; }
DEV float half_to_float(u32 h) {
    u32 sign = (h & 0x8000u) << 16, e = (h >> 10) & 31, m = h & 1023;
    if (e == 0) { float f = (float)m * 5.9604644775390625e-8f; return sign ? -f : f; }
    return u2f(sign | ((e == 31 ? 255 : e + 112) << 23) | (m << 13));
}
// Counts; what the block did before (its barrier passed) is known to whoever counts later. On the CPU
// blocks run one after the other.
DEV u32 atomic_count(u32* p) { return (*p)++; }
DEV void add_in_block(u32* p, u32 v) { *p += v; }
template <class T> DEV void add_in_device(T* p, T v) { *p += v; }
DEV void system_fence() {}
template <class T> DEV T load_fresh(const T* p) { return *p; }
template <class T> DEV T load_once(const T* p) { return *p; }
DEV void wait_previous_kernel() {}
DEV void allow_next_kernel() {}

// ---- AMD ----------------------------------------------------------------------------------------
#elif defined(__HIP__)
#define KPORT_HIP 1
#define DEV static inline __attribute__((device, always_inline))
#define KERNEL extern "C" __attribute__((global)) void
#define LAUNCH_BOUNDS(n) __attribute__((amdgpu_flat_work_group_size(1, n)))
#define SHARED __attribute__((shared))
#define DYNAMIC_SHARED(name) unsigned char* name = (unsigned char*)dynamic_shared_memory
extern __attribute__((shared)) U4 dynamic_shared_memory[];
#define TID_X ((int)__builtin_amdgcn_workitem_id_x())
#define BID_X ((int)__builtin_amdgcn_workgroup_id_x())
#define BID_Y ((int)__builtin_amdgcn_workgroup_id_y())
#define BDIM_X ((int)__builtin_amdgcn_workgroup_size_x())
#define GDIM_X ((int)(__builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x()))
DEV float u2f(u32 u) { return __builtin_bit_cast(float, u); }
DEV u32 f2u(float f) { return __builtin_bit_cast(u32, f); }
DEV int lane_id() { return __builtin_amdgcn_mbcnt_lo(~0u, 0u); }
DEV void block_sync() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
DEV void warp_sync() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
DEV float shfl_xor(float v, int mask) {
    return u2f(__builtin_amdgcn_ds_bpermute((lane_id() ^ mask) << 2, f2u(v)));
}
DEV float shfl(float v, int lane) { return u2f(__builtin_amdgcn_ds_bpermute(lane << 2, f2u(v))); }
// In a way that tells the compiler that lanes agree.
DEV int warp_of_block() { return __builtin_amdgcn_readfirstlane(TID_X / WARP); }
DEV float fast_exp2(float x) { return __builtin_amdgcn_exp2f(x); }
DEV float fast_rsqrt(float x) { return __builtin_amdgcn_rsqf(x); }
DEV float fast_reciprocal(float x) { return __builtin_amdgcn_rcpf(x); }
DEV float half_to_float(u32 h) { return (float)__builtin_bit_cast(_Float16, (unsigned short)h); }
DEV u32 atomic_count(u32* p) {
    return __hip_atomic_fetch_add(p, 1u, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
}
// To shared memory, and to global memory; in no order but that of barriers and counts.
DEV void add_in_block(u32* p, u32 v) { __hip_atomic_fetch_add(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP); }
template <class T> DEV void add_in_device(T* p, T v) { __hip_atomic_fetch_add(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); }
DEV void system_fence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, ""); }
DEV u32 load_fresh(const u32* p) { return __hip_atomic_load(p, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); }
DEV float load_fresh(const float* p) { return u2f(load_fresh((const u32*)p)); }
DEV U2 load_fresh(const U2* p) { return U2{load_fresh(&p->x), load_fresh(&p->y)}; }
DEV U4 load_fresh(const U4* p) { return U4{load_fresh(&p->x), load_fresh(&p->y), load_fresh(&p->z), load_fresh(&p->w)}; }
template <class T> DEV T load_once(const T* p) { return *p; }
DEV void wait_previous_kernel() {}
DEV void allow_next_kernel() {}

// ---- NVIDIA -------------------------------------------------------------------------------------
#else
#define KPORT_CUDA 1
#define DEV static inline __attribute__((device, always_inline))
#define KERNEL extern "C" __attribute__((global)) void
#define LAUNCH_BOUNDS(n) __attribute__((launch_bounds(n)))
#define SHARED __attribute__((shared))
#define DYNAMIC_SHARED(name) unsigned char* name = (unsigned char*)dynamic_shared_memory
extern __attribute__((shared)) U4 dynamic_shared_memory[];
#define TID_X ((int)__nvvm_read_ptx_sreg_tid_x())
#define BID_X ((int)__nvvm_read_ptx_sreg_ctaid_x())
#define BID_Y ((int)__nvvm_read_ptx_sreg_ctaid_y())
#define BDIM_X ((int)__nvvm_read_ptx_sreg_ntid_x())
#define GDIM_X ((int)__nvvm_read_ptx_sreg_nctaid_x())
DEV float u2f(u32 u) { return __builtin_bit_cast(float, u); }
DEV u32 f2u(float f) { return __builtin_bit_cast(u32, f); }
DEV int lane_id() { u32 r; asm("mov.u32 %0,%%laneid;" : "=r"(r)); return (int)r; }
DEV void block_sync() { __nvvm_bar_sync(0); }
DEV void warp_sync() { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }
DEV float shfl_xor(float v, int mask) {
    u32 r;
    asm volatile("shfl.sync.bfly.b32 %0,%1,%2,0x1f,0xffffffff;" : "=r"(r) : "r"(f2u(v)), "r"(mask));
    return u2f(r);
}
DEV float shfl(float v, int lane) {
    u32 r;
    asm volatile("shfl.sync.idx.b32 %0,%1,%2,0x1f,0xffffffff;" : "=r"(r) : "r"(f2u(v)), "r"(lane));
    return u2f(r);
}
// In a way that tells the compiler that lanes agree.
DEV int warp_of_block() { return (int)f2u(shfl(u2f((u32)(TID_X / WARP)), 0)); }
DEV float fast_exp2(float x) { float y; asm("ex2.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x)); return y; }
DEV float fast_rsqrt(float x) { float y; asm("rsqrt.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x)); return y; }
DEV float fast_reciprocal(float x) { float y; asm("rcp.approx.f32 %0,%1;" : "=f"(y) : "f"(x)); return y; }
DEV float half_to_float(u32 h) {
    float f;
    asm("cvt.f32.f16 %0,%1;" : "=f"(f) : "h"((unsigned short)h));
    return f;
}
DEV u32 atomic_count(u32* p) {
    u32 old;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0,[%1],1;" : "=r"(old) : "l"(p) : "memory");
    return old;
}
// To shared memory, and to global memory; in no order but that of barriers and counts.
DEV void add_in_block(u32* p, u32 v) { __nvvm_atom_add_gen_i((int*)p, (int)v); }
DEV void add_in_device(u32* p, u32 v) { asm volatile("red.relaxed.gpu.global.add.u32 [%0],%1;" :: "l"(p), "r"(v) : "memory"); }
DEV void add_in_device(u64* p, u64 v) { asm volatile("red.relaxed.gpu.global.add.u64 [%0],%1;" :: "l"(p), "l"(v) : "memory"); }
DEV void system_fence() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
// Past the first-level cache, which does not see what other multiprocessors wrote.
DEV u32 load_fresh(const u32* p) {
    u32 v;
    asm volatile("ld.global.cg.u32 %0,[%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
DEV U2 load_fresh(const U2* p) {
    U2 v;
    asm volatile("ld.global.cg.v2.u32 {%0,%1},[%2];" : "=r"(v.x), "=r"(v.y) : "l"(p) : "memory");
    return v;
}
DEV U4 load_fresh(const U4* p) {
    U4 v;
    asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3},[%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
    return v;
}
DEV float load_fresh(const float* p) { return u2f(load_fresh((const u32*)p)); }
// Of what no kernel writes and this one reads once. Volatile, so that it stays ahead of a wait.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define LOAD_ONCE "ld.global.nc.L1::no_allocate"
#else
#define LOAD_ONCE "ld.global.nc"
#endif
DEV u32 load_once(const u32* p) {
    u32 v;
    asm volatile(LOAD_ONCE ".u32 %0,[%1];" : "=r"(v) : "l"(p));
    return v;
}
DEV U4 load_once(const U4* p) {
    U4 v;
    asm volatile(LOAD_ONCE ".v4.u32 {%0,%1,%2,%3},[%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
// Programmatic dependent launch: a kernel may start before the one ahead of it has ended, and waits
// here for its results. Without the launch attribute both do nothing.
DEV void wait_previous_kernel() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
DEV void allow_next_kernel() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
#else
DEV void wait_previous_kernel() {}
DEV void allow_next_kernel() {}
#endif
#endif

// ---- common -------------------------------------------------------------------------------------

DEV float bf2f(u32 b) { return u2f(b << 16); }
// Round to nearest even. NaN stays NaN: added to its bits, the rounding would carry into the sign or
// leave infinity.
#if defined(KPORT_CUDA)
DEV bf16_t f2bf(float f) {
    bf16_t b;
    asm("cvt.rn.bf16.f32 %0,%1;" : "=h"(b) : "f"(f));
    return b;
}
#else
DEV bf16_t f2bf(float f) {
    u32 u = f2u(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (bf16_t)((u >> 16) | 0x40u);
    return (bf16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
#endif
#if defined(KPORT_CUDA)
DEV u32 pack2(float lo, float hi) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0,%1,%2;" : "=r"(pair) : "f"(hi), "f"(lo));
    return pair;
}
#else
DEV u32 pack2(float lo, float hi) { return (u32)f2bf(lo) | ((u32)f2bf(hi) << 16); }
#endif
DEV u64 load_fresh(const u64* p) {
    U2 v = load_fresh((const U2*)p);
    return v.x | (u64)v.y << 32;
}
DEV F2 load_fresh(const F2* p) {
    U2 v = load_fresh((const U2*)p);
    return F2{u2f(v.x), u2f(v.y)};
}
// A struct of words as other multiprocessors left it.
template <class S> DEV S read_fresh(const S* from) {
    struct Words { u32 at[sizeof(S) / 4]; } words;
#pragma unroll
    for (int i = 0; i < (int)(sizeof(S) / 4); i++) words.at[i] = load_fresh((const u32*)from + i);
    return __builtin_bit_cast(S, words);
}
DEV float low(u32 pair) { return u2f(pair << 16); }
DEV float high(u32 pair) { return u2f(pair & 0xffff0000u); }
DEV int least(int a, int b) { return a < b ? a : b; }
DEV int most(int a, int b) { return a > b ? a : b; }
DEV float larger(float a, float b) { return __builtin_fmaxf(a, b); }
DEV float warp_sum(float v) {
#pragma unroll
    for (int m = WARP / 2; m; m >>= 1) v += shfl_xor(v, m);
    return v;
}
// Sums of COUNT values over LANES lanes that follow one another, each sum in all of them: half of the
// values go to half of the lanes until each lane has its share.
template <int COUNT, int LANES> DEV void sums_of_lanes(float* v) {
    const int SHARE = COUNT > LANES ? COUNT / LANES : 1, LANES_OF_SHARE = LANES * SHARE / COUNT;
    int lane = lane_id(), mask = LANES / 2;
#pragma unroll
    for (int left = COUNT / 2; left >= SHARE && mask; left /= 2, mask /= 2) {
        bool upper = lane & mask;
#pragma unroll
        for (int i = 0; i < left; i++) {
            float keep = upper ? v[i + left] : v[i], give = upper ? v[i] : v[i + left];
            v[i] = keep + shfl_xor(give, mask);
        }
    }
#pragma unroll
    for (; mask; mask /= 2) v[0] += shfl_xor(v[0], mask);
    float mine[SHARE];
#pragma unroll
    for (int i = 0; i < SHARE; i++) mine[i] = v[i];
#pragma unroll
    for (int i = 0; i < COUNT; i++) v[i] = shfl(mine[i % SHARE], lane / LANES * LANES + i / SHARE * LANES_OF_SHARE);
}
DEV float warp_max(float v) {
#pragma unroll
    for (int m = WARP / 2; m; m >>= 1) v = larger(v, shfl_xor(v, m));
    return v;
}
// Over the block; `scratch` holds a float a warp and is free again afterwards.
DEV float block_sum(float v, float* scratch) {
    v = warp_sum(v);
    int warps = BDIM_X / WARP;
    if (lane_id() == 0) scratch[TID_X / WARP] = v;
    block_sync();
    v = 0.0f;
    for (int w = 0; w < warps; w++) v += scratch[w];
    block_sync();
    return v;
}
