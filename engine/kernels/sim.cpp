// The kernels on the CPU, behind two C functions for the tests in Rust. Built once a layout.
#define KPORT_CPU 1
#include "kernels.cu"

#if defined(KPORT_RDNA3)
#define NAMED(name) mlxcel_sim_rdna3_##name
#else
#define NAMED(name) mlxcel_sim_nv_##name
#include "sim_switch.h"
#endif

// Null when all went well, otherwise what was wrong.
extern "C" const char* NAMED(launch)(const char* kernel, int grid_x, int grid_y, int threads, int order, const void* args) {
#define X(name, Args)                                                                     \
    if (!strcmp(kernel, #name)) {                                                         \
        Args a;                                                                           \
        memcpy(&a, args, sizeof(a));                                                      \
        bool ok = sim::launch(grid_x, grid_y, threads, order, [&] { name(a); });          \
        return ok && !sim::fault ? nullptr : sim::fault;                                  \
    }
#include "kernels.list"
#undef X
    return "no kernel of this name";
}

// Size of the arguments of a kernel, 0 for an unknown one.
extern "C" size_t NAMED(args_bytes)(const char* kernel) {
#define X(name, Args) if (!strcmp(kernel, #name)) return sizeof(Args);
#include "kernels.list"
#undef X
    return 0;
}
