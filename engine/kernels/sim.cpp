// The kernels on the CPU, behind two C functions for the tests in Rust. Built once a layout.
#define KPORT_CPU 1
#include "kernels.cu"

#if defined(KPORT_RDNA3)
#define NAMED(name) mlxcel_sim_rdna3_##name
#else
#define NAMED(name) mlxcel_sim_nv_##name
#include "sim_switch.h"
#endif

// `shape`: grid, threads of a block, blocks of a cluster, the order of threads. Null when all went well,
// otherwise what was wrong.
extern "C" const char* NAMED(launch)(const char* kernel, const int* shape, const void* args) {
#define X(name, Args)                                                                     \
    if (!strcmp(kernel, #name)) {                                                         \
        Args a;                                                                           \
        memcpy(&a, args, sizeof(a));                                                      \
        bool ok = sim::launch(shape[0], shape[1], shape[2], shape[4], [&] { name(a); }, shape[3]); \
        return ok && !sim::fault ? nullptr : sim::fault;                                  \
    }
#include "kernels.list"
#undef X
    return "no kernel of this name";
}

// Size of the arguments of a kernel, or of what draws leave for each other; 0 for an unknown name.
extern "C" size_t NAMED(args_bytes)(const char* kernel) {
    if (!strcmp(kernel, "DrawState")) return sizeof(DrawState);
#define X(name, Args) if (!strcmp(kernel, #name)) return sizeof(Args);
#include "kernels.list"
#undef X
    return 0;
}
