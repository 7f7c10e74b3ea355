// Copies to shared memory that go on by themselves until they are waited for (PTX ISA: cp.async).
#pragma once
#include "compat/kport.h"

#if defined(KPORT_CPU) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800)
#define KPORT_COPIES 1
#endif

#if defined(KPORT_COPIES) && defined(KPORT_CUDA)
DEV u32 shared_address(const void* p) {
    u64 address;
    asm("cvta.to.shared.u64 %0,%1;" : "=l"(address) : "l"(p));
    return (u32)address;
}
// 16 bytes, zeros unless `there`. The lane itself sees them after wait_copies, the warp after a barrier
// of the warp; products of a warpgroup after publish_copies and a barrier of the block.
DEV void copy_16(void* to, const void* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0],[%1],16,%2;" ::"r"(shared_address(to)), "l"(from), "r"(there ? 16 : 0) : "memory");
}
// 4 bytes.
DEV void copy_4(void* to, const void* from) {
    asm volatile("cp.async.ca.shared.global [%0],[%1],4;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
// Ends a batch. All but the last N batches are waited for.
DEV void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> DEV void wait_copies() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
DEV void publish_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
#elif defined(KPORT_COPIES)
DEV void copy_16(void* to, const void* from, bool there) { sim::begin_copy(to, there ? from : nullptr, 16); }
DEV void copy_4(void* to, const void* from) { sim::begin_copy(to, from, 4); }
DEV void end_copies() { sim::block->current->batches++; }
template <int N> DEV void wait_copies() { sim::finish_copies(N); }
DEV void publish_copies() {}
#endif
