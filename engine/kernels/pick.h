// The largest logit, the smallest id among equals.
#pragma once
#include "args.h"
#include "linear_vector.h"

DEV Best best_of_block(Best best) {
    SHARED Best bests[WARP];
    return best_of_block(best, bests);
}

// A block takes every gridDim-th piece.
KERNEL LAUNCH_BOUNDS(1024) block_best(const BlockBestArgs a) {
    Best best = {-3.4e38f, 0xffffffffu};
    for (int i = BID_X * BDIM_X + TID_X; i < a.count; i += GDIM_X * BDIM_X)
        if (better(a.logits[i], (u32)i, best)) best = Best{a.logits[i], (u32)i};
    best = best_of_block(best);
    if (TID_X == 0) a.best[BID_X] = best;
}

KERNEL LAUNCH_BOUNDS(1024) pick(const PickArgs a) {
    wait_previous_kernel();
    allow_next_kernel();
    Best best = {-3.4e38f, 0xffffffffu};
    for (int i = TID_X; i < a.count; i += BDIM_X)
        if (better(a.best[i].value, a.best[i].id, best)) best = a.best[i];
    best = best_of_block(best);
    if (TID_X == 0) {
        int slot = a.state ? a.state->token_slot : a.slot;
        // Logits that are no numbers are never larger than anything: the first id then.
        u32 id = best.id == 0xffffffffu ? 0u : best.id;
        a.tokens[slot] = id;
        a.host_tokens[slot] = id;
        system_fence();
    }
}
