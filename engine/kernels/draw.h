// A token drawn from the smallest set of likeliest tokens whose probabilities reach a share of all, in
// whole numbers: whatever the order in which sums are formed, it is the token that `src/backend/sample.rs`
// chooses, where the numbers are explained. Four kernels, each a look at all logits; the block of a kernel
// that arrives last goes on with the sums of all.
#pragma once
#include "args.h"

#define OCTAVE_STEPS (1u << 16)
#define FARTHEST (29 * OCTAVE_STEPS)
#define BIN_STEPS ((u32)DRAW_BIN_STEPS)
#define DRAW_ONE (1u << 24)

// ---- numbers --------------------------------------------------------------------------------------

// Distance of a logit from the largest in steps; FARTHEST: too far, or no number.
DEV u32 distance_of(float logit, float largest, float scale) {
    if (logit == largest) return 0;
    float steps = (largest - logit) * scale;
    return steps < (float)FARTHEST ? (u32)steps : FARTHEST;
}
DEV u32 times_fraction(u32 x, u32 y) { return (u32)(((u64)x * y) >> 32); }
// 2^15 2^-fraction.
DEV u32 mantissa_of(u32 distance) {
    u32 x = distance << 16;
    u32 below = times_fraction(x, 0x1bc31ceu);
    below = times_fraction(x, 0xd99c653u - below);
    below = times_fraction(x, 0x3d49b07eu - below);
    below = times_fraction(x, 0xb16c1bf9u - below);
    return 32768 - ((below + (1 << 16)) >> 17);
}
DEV u64 weight_of(u32 distance) { return (u64)mantissa_of(distance) << (28 - distance / OCTAVE_STEPS); }
// `part` of `whole` in 2^-24, rounded down or up.
DEV u64 share_down(u64 whole, u32 part) { return (whole >> 24) * part + (((whole % DRAW_ONE) * part) >> 24); }
DEV u64 share_up(u64 whole, u32 part) {
    return (whole >> 24) * part + (((whole % DRAW_ONE) * part + DRAW_ONE - 1) >> 24);
}

// ---- sums over a block ----------------------------------------------------------------------------

// Of the threads before this one; `sums` holds one a thread, the last of them the sum of all.
DEV u64 sum_before(u64 mine, u64* sums) {
    block_sync();
    sums[TID_X] = mine;
    block_sync();
    for (int step = 1; step < BDIM_X; step *= 2) {
        u64 more = TID_X >= step ? sums[TID_X - step] : 0;
        block_sync();
        sums[TID_X] += more;
        block_sync();
    }
    return sums[TID_X] - mine;
}

// Whether all other blocks have left what they have to leave.
DEV bool arrives_last(DrawState* state) {
    SHARED bool is_last;
    block_sync();
    if (TID_X == 0) is_last = atomic_count(&state->arrived) == (u32)(GDIM_X - 1);
    block_sync();
    if (is_last && TID_X == 0) state->arrived = 0;
    return is_last;
}

struct Crossing { u32 bin; u64 before; };

// The first of `count` weights with which their sum passes `target`, and the sum before it; a bin of
// `count` where it does not. Threads have neighbouring weights.
template <class W> DEV Crossing crossing_of(int count, u64 target, u64* sums, W weight) {
    SHARED Crossing found;
    int each = (count + BDIM_X - 1) / BDIM_X, first = TID_X * each, end = least(first + each, count);
    u64 mine = 0;
    for (int i = first; i < end; i++) mine += weight(i);
    u64 before = sum_before(mine, sums);
    if (TID_X == 0) found = Crossing{(u32)count, 0};
    block_sync();
    if (before <= target && target - before < mine) {
        int i = first;
        for (u64 w; target - before >= (w = weight(i)); i++) before += w;
        found = Crossing{(u32)i, before};
    }
    block_sync();
    return found;
}

// The coarse bin of `target`, for the next kernel to look into.
DEV void look_into_bin(DrawState* state, u64 target, u64* sums) {
    Crossing bin = crossing_of(DRAW_BINS, target, sums, [&](int i) { return load_fresh(&state->coarse[i]); });
    if (TID_X != 0) return;
    state->bin = bin.bin;
    state->nearer = bin.before;
    state->target = target;
}

// ---- kernels --------------------------------------------------------------------------------------

// What the likeliest token has, which `pick` has chosen.
DEV float largest_logit(const DrawArgs& a) { return a.logits[load_fresh(a.tokens + a.slot)]; }

// Calls `each` with every distance below FARTHEST of the logits from `first` on, one in `step`.
// Several loads are on their way at a time.
template <class E> DEV void each_distance(const DrawArgs& a, float largest, int first, int end, int step, E each) {
    const int BATCH = 8;
    for (int i = first; i < end; i += BATCH * step) {
        float logits[BATCH];
#pragma unroll
        for (int j = 0; j < BATCH; j++) logits[j] = a.logits[least(i + j * step, end - 1)];
#pragma unroll
        for (int j = 0; j < BATCH; j++) {
            u32 distance = distance_of(logits[j], largest, a.scale);
            if (i + j * step < end && distance < FARTHEST) each(distance);
        }
    }
}

// Sums of weights by coarse bins, and the bin of the last token that is kept; of the drawn token where
// all are kept.
KERNEL LAUNCH_BOUNDS(1024) draw_coarse(const DrawArgs a) {
    // A bin's weights have one exponent: mantissas are summed up here.
    SHARED u32 mantissas[DRAW_BINS];
    SHARED u64 sums[1024];
    for (int i = TID_X; i < DRAW_BINS; i += BDIM_X) mantissas[i] = 0;
    wait_previous_kernel();
    allow_next_kernel();
    float largest = largest_logit(a);
    block_sync();
    each_distance(a, largest, BID_X * BDIM_X + TID_X, a.count, GDIM_X * BDIM_X,
                  [&](u32 distance) { add_in_block(&mantissas[distance / BIN_STEPS], mantissa_of(distance)); });
    block_sync();
    for (int i = TID_X; i < DRAW_BINS; i += BDIM_X)
        if (mantissas[i]) add_in_device(&a.state->coarse[i], (u64)mantissas[i] << (28 - i * BIN_STEPS / OCTAVE_STEPS));
    if (!arrives_last(a.state)) return;
    u64 mine = 0;
    for (int i = TID_X; i < DRAW_BINS; i += BDIM_X) mine += load_fresh(&a.state->coarse[i]);
    sum_before(mine, sums);
    u64 total = sums[BDIM_X - 1], wanted = share_up(total, a.keep);
    look_into_bin(a.state, a.keep < DRAW_ONE ? wanted - 1 : share_down(total, a.uniform), sums);
    if (TID_X == 0) a.state->wanted = wanted;
}

// Tokens of a coarse bin by distance, and the one with which the sum of weights passes the target. Where
// that is the last of those that are kept, the coarse bin of the drawn one.
KERNEL LAUNCH_BOUNDS(1024) draw_fine(const DrawArgs a) {
    SHARED u32 tokens[BIN_STEPS];
    SHARED u64 sums[1024];
    for (int i = TID_X; i < (int)BIN_STEPS; i += BDIM_X) tokens[i] = 0;
    wait_previous_kernel();
    allow_next_kernel();
    float largest = largest_logit(a);
    u32 bin = load_fresh(&a.state->bin), first = bin * BIN_STEPS;
    block_sync();
    each_distance(a, largest, BID_X * BDIM_X + TID_X, a.count, GDIM_X * BDIM_X, [&](u32 distance) {
        if (distance / BIN_STEPS == bin) add_in_block(&tokens[distance - first], 1);
    });
    block_sync();
    for (int i = TID_X; i < (int)BIN_STEPS; i += BDIM_X)
        if (tokens[i]) add_in_device(&a.state->fine[i], tokens[i]);
    if (!arrives_last(a.state)) return;
    u64 nearer = load_fresh(&a.state->nearer), target = load_fresh(&a.state->target);
    Crossing at = crossing_of(BIN_STEPS, target - nearer, sums, [&](int i) {
        u32 count = load_fresh(&a.state->fine[i]);
        return count ? count * weight_of(first + i) : 0;
    });
    for (int i = TID_X; i < (int)BIN_STEPS; i += BDIM_X) a.state->fine[i] = 0;
    if (at.bin == BIN_STEPS) return; // no logit is a number: nobody is at the distance of the draw before
    u64 before = nearer + at.before, weight = weight_of(first + at.bin);
    if (a.finds_kept) {
        u64 wanted = load_fresh(&a.state->wanted), kept = before + (wanted - before + weight - 1) / weight * weight;
        look_into_bin(a.state, share_down(kept, a.uniform), sums);
        return;
    }
    if (TID_X != 0) return;
    a.state->distance = first + at.bin;
    a.state->rank = (u32)((target - before) / weight);
}

// Of the tokens at the distance that was drawn, the one that has `rank` of them before it.
KERNEL LAUNCH_BOUNDS(1024) draw_token(const DrawArgs a) {
    SHARED u64 sums[1024];
    wait_previous_kernel();
    allow_next_kernel();
    float largest = largest_logit(a);
    u32 distance = load_fresh(&a.state->distance), rank = load_fresh(&a.state->rank);
    int piece = (a.count + GDIM_X - 1) / GDIM_X;
    u64 mine = 0;
    each_distance(a, largest, BID_X * piece + TID_X, least((BID_X + 1) * piece, a.count), BDIM_X,
                  [&](u32 other) { mine += other == distance; });
    sum_before(mine, sums);
    if (TID_X == 0) a.state->equals[BID_X] = (u32)sums[BDIM_X - 1];
    if (!arrives_last(a.state)) return;
    Crossing in_piece = crossing_of(GDIM_X, rank, sums, [&](int i) { return (u64)load_fresh(&a.state->equals[i]); });
    int first = (int)in_piece.bin * piece, end = least(first + piece, a.count);
    Crossing token = crossing_of(most(end - first, 0), rank - in_piece.before, sums, [&](int i) {
        return (u64)(distance_of(a.logits[first + i], largest, a.scale) == distance);
    });
    for (int i = TID_X; i < DRAW_BINS; i += BDIM_X) a.state->coarse[i] = 0;
    if (TID_X != 0 || in_piece.bin == (u32)GDIM_X) return;
    u32 id = (u32)first + token.bin;
    a.tokens[a.slot] = id;
    a.host_tokens[a.slot] = id;
    system_fence();
}
