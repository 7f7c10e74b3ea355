// A token drawn from the smallest set of likeliest tokens whose probabilities reach a share of all, in
// whole numbers: whatever the order in which sums are formed, it is the token that `src/backend/sample.rs`
// chooses, where the numbers are explained. Three kernels, the second of which runs twice where not all tokens
// are kept; each is a look at all logits, and its block that arrives last goes on with the sums of all.
#pragma once
#include "args.h"

#define OCTAVE_STEPS (1u << 16)
#define FARTHEST (29 * OCTAVE_STEPS)
#define BIN_STEPS ((u32)DRAW_BIN_STEPS)
#define DRAW_ONE (1u << 24)
static_assert(FARTHEST / BIN_STEPS <= DRAW_BINS, "a bin for every distance");
static_assert(OCTAVE_STEPS % BIN_STEPS == 0, "the weights of a bin have one exponent");

// ---- numbers --------------------------------------------------------------------------------------

// Distance of a logit from the largest in steps; FARTHEST: too far, or no number.
DEV u32 distance_of(float logit, float largest, float scale) {
    if (logit == largest) return 0;
    float steps = (largest - logit) * scale;
    return steps < (float)FARTHEST ? (u32)larger(steps, 0.0f) : FARTHEST;
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

// Of the threads before this one; `sums` holds one a thread.
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

// Weights from `first` on, a thread's neighbours, and what they sum up to; so many are on their way at a time.
#define PART_BATCH 8
struct Part { int first, end; u64 sum, before; };
template <class W> DEV void load_weights(int from, int end, u64* to, W weight) {
#pragma unroll
    for (int j = 0; j < PART_BATCH; j++) to[j] = weight(least(from + j, end - 1));
#pragma unroll
    for (int j = 0; j < PART_BATCH; j++)
        if (from + j >= end) to[j] = 0;
}
// Of `count` weights. The last of `sums` is the sum of all.
template <class W> DEV Part part_of(int count, u64* sums, W weight) {
    int each = (count + BDIM_X - 1) / BDIM_X;
    Part part = {TID_X * each, least((TID_X + 1) * each, count), 0, 0};
    for (int i = part.first; i < part.end; i += PART_BATCH) {
        u64 weights[PART_BATCH];
        load_weights(i, part.end, weights, weight);
#pragma unroll
        for (int j = 0; j < PART_BATCH; j++) part.sum += weights[j];
    }
    part.before = sum_before(part.sum, sums);
    return part;
}

// The first weight with which their sum passes a target, and the sum before it; NO_BIN where none does.
struct Crossing { u32 bin; u64 before; };
#define NO_BIN 0xffffffffu
template <class W> DEV Crossing crossing_in(const Part& part, u64 target, W weight) {
    SHARED Crossing found;
    if (TID_X == 0) found = Crossing{NO_BIN, 0};
    block_sync();
    u64 left = target - part.before;
    if (part.before <= target && left < part.sum) {
        for (int i = part.first; i < part.end; i += PART_BATCH) {
            u64 weights[PART_BATCH];
            load_weights(i, part.end, weights, weight);
#pragma unroll
            for (int j = 0; j < PART_BATCH; j++) {
                if (left < weights[j]) {
                    found = Crossing{(u32)(i + j), target - left};
                    i = part.end;
                    break;
                }
                left -= weights[j];
            }
        }
    }
    block_sync();
    return found;
}

// Leaves the coarse bin of `target` for the next kernel to look into.
template <class W> DEV void look_into_bin(DrawState* state, const Part& part, u64 target, W weight) {
    Crossing bin = crossing_in(part, target, weight);
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
    // A bin's weights have one exponent: mantissas are summed up here, of fewer than 2^17 logits.
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
    auto coarse = [&](int i) { return load_fresh(&a.state->coarse[i]); };
    Part part = part_of(DRAW_BINS, sums, coarse);
    u64 total = sums[BDIM_X - 1], wanted = share_up(total, a.keep);
    look_into_bin(a.state, part, a.keep < DRAW_ONE ? wanted - 1 : share_down(total, a.uniform), coarse);
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
    if (bin == NO_BIN) return; // no logit is a number: nobody is at the distance of the draw before
    auto fine = [&](int i) { return load_fresh(&a.state->fine[i]) * weight_of(first + i); };
    Crossing at = crossing_in(part_of(BIN_STEPS, sums, fine), target - nearer, fine);
    for (int i = TID_X; i < (int)BIN_STEPS; i += BDIM_X) a.state->fine[i] = 0;
    u64 before = nearer + at.before, weight = weight_of(first + at.bin);
    if (a.finds_kept) {
        u64 wanted = load_fresh(&a.state->wanted), kept = before + (wanted - before + weight - 1) / weight * weight;
        auto coarse = [&](int i) { return load_fresh(&a.state->coarse[i]); };
        look_into_bin(a.state, part_of(DRAW_BINS, sums, coarse), share_down(kept, a.uniform), coarse);
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
    if (TID_X == 0) a.state->ties[BID_X] = (u32)sums[BDIM_X - 1];
    if (!arrives_last(a.state)) return;
    for (int i = TID_X; i < DRAW_BINS; i += BDIM_X) a.state->coarse[i] = 0;
    auto ties = [&](int i) { return (u64)load_fresh(&a.state->ties[i]); };
    Crossing in_piece = crossing_in(part_of(GDIM_X, sums, ties), rank, ties);
    if (in_piece.bin == NO_BIN) return;
    int first = (int)in_piece.bin * piece;
    auto is_tie = [&](int i) { return (u64)(distance_of(a.logits[first + i], largest, a.scale) == distance); };
    Crossing token = crossing_in(part_of(least(piece, a.count - first), sums, is_tie), rank - in_piece.before, is_tie);
    if (TID_X != 0) return;
    u32 id = (u32)first + token.bin;
    a.tokens[a.slot] = id;
    a.host_tokens[a.slot] = id;
    system_fence();
}
