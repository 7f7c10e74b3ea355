// Blocks of a cluster run side by side and reach each other's shared memory (PTX ISA: barrier.cluster,
// mapa). The cluster of a block is a row of the grid.
#pragma once
#include "copies.h"
#include "fragments.h"

#if (defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900) || (defined(KPORT_CPU) && defined(KPORT_NV))
#define KPORT_CLUSTERS 1
#endif

#if defined(KPORT_CLUSTERS) && defined(KPORT_CUDA)
// What a thread did before it arrived is known to all of the cluster who have waited.
DEV void cluster_arrive() { asm volatile("barrier.cluster.arrive.aligned;" ::: "memory"); }
DEV void cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }
// Writes to the place of `mine` in the shared memory of block `rank`, which has begun and not ended.
DEV void store_at_peer(F2* mine, int rank, F2 value) {
    u32 there;
    asm("mapa.shared::cluster.u32 %0,%1,%2;" : "=r"(there) : "r"(shared_address(mine)), "r"(rank));
    asm volatile("st.shared::cluster.v2.f32 [%0],{%1,%2};" ::"r"(there), "f"(value.x), "f"(value.y) : "memory");
}
#elif defined(KPORT_CLUSTERS)
DEV void cluster_arrive() { sim::arrive_cluster(); }
DEV void cluster_wait() { sim::wait_cluster(); }
DEV void store_at_peer(F2* mine, int rank, F2 value) { *(F2*)sim::of_peer(mine, rank) = value; }
#endif
