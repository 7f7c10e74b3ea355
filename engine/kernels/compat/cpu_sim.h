// Runs a GPU kernel on the CPU, one fiber a GPU thread. Tests only.
//
// Finds wrong indices, wrong fragment layouts, missing barriers (through the order in which warps
// and lanes run) and barriers or shuffles that some threads skip. Does not find races that only a
// weaker memory model shows, and says nothing about speed.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <vector>
#if !defined(__x86_64__) || defined(SIM_UCONTEXT)
#define SIM_USES_UCONTEXT 1
#include <ucontext.h>
#endif

namespace sim {

// ---- switching between fibers -------------------------------------------------------------------
#if defined(SIM_USES_UCONTEXT)
struct Context { ucontext_t c; };
inline void prepare(Context& context, char* stack, size_t bytes, void (*entry)()) {
    getcontext(&context.c);
    context.c.uc_stack.ss_sp = stack;
    context.c.uc_stack.ss_size = bytes;
    context.c.uc_link = nullptr;
    makecontext(&context.c, entry, 0);
}
inline void switch_to(Context& from, Context& to) { swapcontext(&from.c, &to.c); }
#else
// swapcontext saves the signal mask, a system call each time: this keeps registers only.
struct Context { void* stack_pointer; };
extern "C" void mlxcel_sim_switch(void** from, void* to);
inline void prepare(Context& context, char* stack, size_t bytes, void (*entry)()) {
    auto top = ((size_t)stack + bytes) & ~(size_t)15;
    void** slots = (void**)top - 8; // six registers, the entry, a return address that is never used
    for (int i = 0; i < 6; i++) slots[i] = nullptr;
    slots[6] = (void*)entry;
    slots[7] = nullptr;
    context.stack_pointer = slots;
}
inline void switch_to(Context& from, Context& to) {
    mlxcel_sim_switch(&from.stack_pointer, to.stack_pointer);
}
#endif

// ---- a block ------------------------------------------------------------------------------------
enum class State { Running, AtBlockBarrier, AtWarpBarrier, Polling, Done };
// Bytes under way to shared memory; null: zeros.
struct Copy { void* to; const void* from; int bytes, batch; };
struct Fiber {
    Context context;
    int thread, warp, lane;
    State state;
    unsigned exchanges;
    int cluster_waits, batches; // batches of copies begun
    std::vector<Copy> copies;
};
constexpr size_t STACK_BYTES = 64 << 10, SLOT_BYTES = 256, SHARED_BYTES = 112 << 10;
constexpr int MOST_POLLS = 100000; // rounds of a block in a row in which somebody polls
struct Block {
    std::vector<Fiber> fibers;
    std::vector<char> stacks;
    Context scheduler;
    int x, y, threads, grid_x, serial = 0;
    Fiber* current;
    std::function<void()> body;
    std::vector<unsigned char> slots; // two exchange areas a warp, SLOT_BYTES a lane
    std::vector<unsigned char> shared_memory;
    std::vector<int> lanes; // the order in which they run
    int idle = 0;
    bool is_done = false;
};
inline thread_local Block* block = nullptr;

inline void yield() { switch_to(block->current->context, block->scheduler); }
inline void entry() {
    block->body();
    block->current->state = State::Done;
    yield();
}
inline void wait_block() { block->current->state = State::AtBlockBarrier; yield(); }
// Lets the others run, and comes back.
inline void poll() { block->current->state = State::Polling; yield(); }
inline void wait_warp() { block->current->state = State::AtWarpBarrier; yield(); }
inline unsigned char* dynamic_shared() {
    return (unsigned char*)(((size_t)block->shared_memory.data() + 63) & ~(size_t)63);
}

// Every lane of the warp leaves `mine`; then `read` sees all 32 through its argument. Areas take
// turns, so that a fast lane cannot overwrite what a slow one has not read.
template <class T, class R> inline auto exchange(const T& mine, R read) {
    static_assert(sizeof(T) <= SLOT_BYTES, "the exchange area is too small");
    Fiber* me = block->current;
    size_t area = (me->warp * 2 + (me->exchanges++ & 1)) * WARP * SLOT_BYTES;
    unsigned char* base = block->slots.data() + area;
    memcpy(base + me->lane * SLOT_BYTES, &mine, sizeof(T));
    wait_warp();
    return read([&](int lane) -> const T& { return *(const T*)(base + lane * SLOT_BYTES); });
}

// Set to say what is wrong instead of ending the process.
inline thread_local const char* fault = nullptr;
inline bool report(const char* what, int x, int y, int warp) {
    fprintf(stderr, "sim: %s in block (%d,%d) warp %d\n", what, x, y, warp);
    fault = what;
    return false;
}

// Runs each warp until all of its lanes wait at the block barrier or have ended.
inline bool run_warp(Block& b, std::vector<int>& lanes, int warp, int order, std::mt19937& rng,
                     int& live, int& waiting, int& polling) {
    int lo = warp * WARP, hi = std::min(b.threads, lo + WARP);
    for (;;) {
        if (order > 1) std::shuffle(lanes.begin() + lo, lanes.begin() + hi, rng);
        for (int k = lo; k < hi; k++) {
            Fiber& f = b.fibers[lanes[k]];
            if (f.state != State::Running) continue;
            b.current = &f;
            switch_to(b.scheduler, f.context);
        }
        int alive = 0, at_warp = 0, at_block = 0, polls = 0;
        for (int i = lo; i < hi; i++) {
            alive += b.fibers[i].state != State::Done;
            at_warp += b.fibers[i].state == State::AtWarpBarrier;
            at_block += b.fibers[i].state == State::AtBlockBarrier;
            polls += b.fibers[i].state == State::Polling;
        }
        if (polls) {
            for (int i = lo; i < hi; i++)
                if (b.fibers[i].state == State::Polling) b.fibers[i].state = State::Running;
            live += alive;
            polling += polls;
            return true;
        }
        if (at_warp == 0) {
            live += alive;
            waiting += at_block;
            if (at_block && at_block != hi - lo)
                return report("block barrier that some threads of the warp skipped", b.x, b.y, warp);
            return true;
        }
        if (at_warp != hi - lo) return report("shuffle or mma that some lanes skipped", b.x, b.y, warp);
        for (int i = lo; i < hi; i++) b.fibers[i].state = State::Running;
    }
}

// A block from its start.
inline void begin_block(Block& b, int x, int y) {
    b.x = x;
    b.y = y;
    static thread_local int serials = 0;
    b.serial = ++serials;
    b.idle = 0;
    b.is_done = false;
    // What a block leaves in shared memory is nothing the next may count on.
    std::memset(b.shared_memory.data(), 0xff, b.shared_memory.size());
    for (int i = 0; i < b.threads; i++) {
        Fiber& f = b.fibers[i];
        f.thread = i; f.warp = i / WARP; f.lane = i % WARP; f.state = State::Running; f.exchanges = 0;
        f.cluster_waits = f.batches = 0;
        f.copies.clear();
        prepare(f.context, b.stacks.data() + i * STACK_BYTES, STACK_BYTES, entry);
    }
}

// Runs each warp as far as it comes, then lets those at a barrier pass if all are there; false after a fault.
inline bool sweep(Block& b, int order, std::mt19937& rng) {
    int warps = b.threads / WARP, live = 0, waiting = 0, polling = 0;
    std::vector<int> sequence(warps);
    for (int i = 0; i < warps; i++) sequence[i] = order == 1 ? warps - 1 - i : i;
    if (order > 1) std::shuffle(sequence.begin(), sequence.end(), rng);
    block = &b;
    for (int warp : sequence)
        if (!run_warp(b, b.lanes, warp, order, rng, live, waiting, polling)) return false;
    if (live == 0) {
        b.is_done = true;
        return true;
    }
    if (polling) {
        if (++b.idle > MOST_POLLS) return report("barrier that is never passed", b.x, b.y, -1);
        return true;
    }
    b.idle = 0;
    if (waiting != b.threads) return report("block barrier that some warps skipped", b.x, b.y, -1);
    for (auto& f : b.fibers) f.state = State::Running;
    return true;
}

// ---- clusters: blocks that run side by side and write to each other's shared memory ---------------
struct Cluster { std::vector<Block> blocks; long arrived = 0; };
inline thread_local Cluster* cluster = nullptr;
inline long cluster_threads() { return (long)cluster->blocks.size() * block->threads; }
inline void arrive_cluster() { cluster->arrived++; }
inline void wait_cluster() {
    long wanted = ++block->current->cluster_waits * cluster_threads();
    while (cluster->arrived < wanted) poll();
}
// The same place of another block's shared memory.
inline void* of_peer(void* mine, int rank) {
    Block* me = block;
    Block& peer = cluster->blocks[rank];
    if (me->current->cluster_waits == 0) report("peer that may not have begun", me->x, me->y, -1);
    if (peer.is_done) report("peer that may have ended", me->x, me->y, -1);
    size_t place = (unsigned char*)mine - dynamic_shared();
    block = &peer;
    unsigned char* there = dynamic_shared();
    block = me;
    return there + place;
}

// ---- copies to shared memory: at once or as late as they may be -----------------------------------
inline thread_local bool late_copies = false;
inline void finish_copies(int batches_left) {
    Fiber& me = *block->current;
    size_t done = 0;
    for (; done < me.copies.size() && me.copies[done].batch < me.batches - batches_left; done++) {
        const Copy& c = me.copies[done];
        if (c.from) memcpy(c.to, c.from, c.bytes);
        else memset(c.to, 0, c.bytes);
    }
    me.copies.erase(me.copies.begin(), me.copies.begin() + done);
}
inline void begin_copy(void* to, const void* from, int bytes) {
    Fiber& me = *block->current;
    me.copies.push_back(Copy{to, from, bytes, me.batches});
    if (!late_copies) finish_copies(-1);
}

inline bool run_cluster(Cluster& c, int x, int y, int order, std::mt19937& rng) {
    int size = (int)c.blocks.size(), done = 0;
    c.arrived = 0;
    for (int i = 0; i < size; i++) begin_block(c.blocks[i], x + i, y);
    while (done < size) {
        done = 0;
        for (int i = 0; i < size; i++) {
            Block& b = c.blocks[order == 1 ? size - 1 - i : i];
            if (!b.is_done && !sweep(b, order, rng)) return false;
            done += b.is_done;
        }
    }
    return true;
}

// Runs a grid; false after a fault. Order 0 is forward, 1 reverse, more is random with that seed; in odd
// ones copies to shared memory are late.
// `size` blocks that follow one another in x are a cluster.
inline bool launch(int grid_x, int grid_y, int threads, int order, std::function<void()> body, int size = 1) {
    thread_local Cluster c;
    std::mt19937 rng(order);
    fault = nullptr;
    late_copies = order % 2;
    if (threads % WARP) return report("block that is no whole number of warps", 0, 0, -1);
    if (grid_x % size) return report("grid that is no whole number of clusters", 0, 0, -1);
    if (c.blocks.size() != (size_t)size) c.blocks = std::vector<Block>(size);
    cluster = &c;
    for (Block& b : c.blocks) {
        b.threads = threads;
        b.grid_x = grid_x;
        b.body = body;
        b.fibers.resize(threads);
        if (b.stacks.size() < threads * STACK_BYTES) b.stacks.resize(threads * STACK_BYTES);
        b.slots.resize(threads * 2 * SLOT_BYTES);
        b.shared_memory.resize(SHARED_BYTES + 64);
        b.lanes.resize(threads);
        for (int i = 0; i < threads; i++) b.lanes[i] = i;
        if (order == 1)
            for (int w = 0; w < threads / WARP; w++)
                std::reverse(b.lanes.begin() + w * WARP, b.lanes.begin() + (w + 1) * WARP);
    }
    for (int y = 0; y < grid_y; y++)
        for (int x = 0; x < grid_x; x += size)
            if (!run_cluster(c, x, y, order, rng)) return false;
    return true;
}

} // namespace sim
