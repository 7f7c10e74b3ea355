// Attention of one new token, with everything between the projections around it: norms and rotation
// of q and k, the append to the cache, and the before-image of the row that the append overwrites.
//
// Grid: splits of the rows x kv heads (x pieces of G query heads); a split has at least `least_rows`
// rows, so of a short context most blocks have none. The last block of a kv head to arrive adds up the
// splits, in their order. Every block works out the new key itself and takes its row from there, so
// none waits for the append; one block writes it.
//
// Rows that earlier steps appended are asked for before the kernel ahead is waited for: that kernel let
// this one start only when it had itself waited for all those before it.
#pragma once
#include "attend.h"
#include "shares.h"

// Fewer on fibers, which share one core.
#if defined(KPORT_CPU)
#define ATTENTION_WARPS 2
#else
#define ATTENTION_WARPS 8
#endif

// LANES lanes walk over rows of their own, SPAN such walkers a block. A lane holds E = 8 elements of each
// row, which it loads at once.
#define SPAN(LANES) (ATTENTION_WARPS * (WARP / (LANES)))
template <int LANES> DEV int walker() { return warp_of_block() * (WARP / LANES) + lane_id() / LANES; }
template <int E, int LANES> DEV int first_element() { return lane_id() % LANES * E; }

// A walker's next rows, as the cache has them.
template <int E, int N> struct PackedRows { u32 k[N][E / 2], v[N][E / 2]; };
// So many that scores and results of G heads find room in registers beside them.
#define ROWS_OF(G) ((G) > 2 ? 2 : 4)

// Keys and values of one kv head and where its rows lie.
struct HeadCache { bf16_t *k, *v; long row_stride; Ring ring; int dim; };

// Rows row, row + SPAN, ... below end; zeros for the others.
template <int E, int LANES, int N> DEV void load_rows(u32 (*words)[E / 2], const bf16_t* from, const HeadCache& c, int row, int end) {
    int at = first_element<E, LANES>();
#pragma unroll
    for (int n = 0; n < N; n++) {
        int r = row + n * SPAN(LANES);
#pragma unroll
        for (int e = 0; e < E / 2; e++) words[n][e] = 0;
        if (r >= end || at >= c.dim) continue;
        U4 v = load_fresh((const U4*)(from + slot_of(c.ring, r) * c.row_stride + at));
        words[n][0] = v.x; words[n][1] = v.y; words[n][2] = v.z; words[n][3] = v.w;
    }
}

// Scores of N rows, [row][head], in every lane of the walker.
template <int E, int G, int N, int LANES> DEV void score_rows(const Walk<E, G>& w, const u32 (*k)[E / 2], float* score) {
#pragma unroll
    for (int n = 0; n < N; n++) {
        float key[E];
        unpack<E>(k[n], key);
#pragma unroll
        for (int g = 0; g < G; g++) {
            float dot = 0.0f;
#pragma unroll
            for (int e = 0; e < E; e++) dot += w.query[g][e] * key[e];
            score[n * G + g] = dot;
        }
    }
    sums_of_lanes<N * G, LANES>(score);
}

// What N rows with these scores add to the walk; rows that do not count have NO_SCORE.
template <int E, int G, int N> DEV void add_rows(Walk<E, G>& w, const u32 (*v)[E / 2], float* score) {
#pragma unroll
    for (int g = 0; g < G; g++) {
        float top = w.most[g];
#pragma unroll
        for (int n = 0; n < N; n++) top = larger(top, score[n * G + g]);
        float shrink = fast_exp2(w.most[g] - top);
        w.most[g] = top;
        w.sum[g] *= shrink;
#pragma unroll
        for (int e = 0; e < E; e++) w.out[g][e] *= shrink;
#pragma unroll
        for (int n = 0; n < N; n++) w.sum[g] += score[n * G + g] = score[n * G + g] > NO_SCORE ? fast_exp2(score[n * G + g] - top) : 0.0f;
    }
#pragma unroll
    for (int n = 0; n < N; n++) {
        float value[E];
        unpack<E>(v[n], value);
#pragma unroll
        for (int g = 0; g < G; g++)
#pragma unroll
            for (int e = 0; e < E; e++) w.out[g][e] += score[n * G + g] * value[e];
    }
}

// Rows first, first + SPAN, ... below end, of which `rows` has the first. Walkers of a warp go on as
// long as one of them has rows; `lowest` is its first.
template <int E, int G, int LANES> DEV void walk_packed(Walk<E, G>& w, PackedRows<E, ROWS_OF(G)>& rows, const HeadCache& c, int lowest, int first, int end) {
    const int N = ROWS_OF(G);
    for (int done = 0; lowest + done < end; done += SPAN(LANES) * N) {
        float score[N * G];
        int row = first + done, next = row + SPAN(LANES) * N;
        bool goes_on = lowest + done + SPAN(LANES) * N < end;
        score_rows<E, G, N, LANES>(w, rows.k, score);
        if (goes_on) load_rows<E, LANES, N>(rows.k, c.k, c, next, end);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int g = 0; g < G; g++) score[n * G + g] = row + n * SPAN(LANES) < end ? score[n * G + g] : NO_SCORE;
        add_rows<E, G, N>(w, rows.v, score);
        if (goes_on) load_rows<E, LANES, N>(rows.v, c.v, c, next, end);
    }
}

// The new token's own row, as the cache will have it.
template <int E, int G, int LANES> DEV void add_new(Walk<E, G>& w, const float* new_k, const float* new_v) {
    u32 key[1][E / 2], value[1][E / 2];
    float score[G];
#pragma unroll
    for (int e = 0; e < E / 2; e++) {
        int i = first_element<E, LANES>() + 2 * e;
        key[0][e] = pack2(new_k[i], new_k[i + 1]);
        value[0][e] = pack2(new_v[i], new_v[i + 1]);
    }
    score_rows<E, G, 1, LANES>(w, key, score);
    // One walker of the warp takes it.
#pragma unroll
    for (int g = 0; g < G; g++) score[g] = lane_id() < LANES ? score[g] : NO_SCORE;
    add_rows<E, G, 1>(w, value, score);
}

// What norm and rotation of one head need beside the head, which no kernel of a step writes: pairs
// lane_id(), lane_id() + WARP, ...; lanes without a pair repeat the last one.
template <int DIM> struct Turn { float a_norm[DIM / 2 / WARP], b_norm[DIM / 2 / WARP]; F2 angle[DIM / 2 / WARP]; };
template <int DIM> DEV Turn<DIM> load_turn(const float* norm, const F2* angles, Divisor pairs) {
    Turn<DIM> turn;
#pragma unroll
    for (int e = 0; e < DIM / 2 / WARP; e++) {
        int i = least(lane_id() + e * WARP, pairs.value - 1);
        turn.a_norm[e] = norm ? norm[i] : 1.0f;
        turn.b_norm[e] = norm ? norm[i + pairs.value] : 1.0f;
        turn.angle[e] = angles[i];
    }
    return turn;
}

// Norm and rotation of one head by a warp, all of it in registers; `write` takes an element and its place.
template <int DIM, class Write> DEV void finish_in_lanes(const float* in, const Turn<DIM>& turn, bool has_norm, float eps, Divisor pairs, Write write) {
    const int PAIRS = DIM / 2 / WARP;
    int half = pairs.value, last = half - 1;
    float a[PAIRS], b[PAIRS], squares = 0.0f;
#pragma unroll
    for (int e = 0; e < PAIRS; e++) {
        int i = least(lane_id() + e * WARP, last);
        a[e] = in[i];
        b[e] = in[i + half];
    }
#pragma unroll
    for (int e = 0; e < PAIRS; e++)
        if (lane_id() + e * WARP <= last) squares += a[e] * a[e] + b[e] * b[e];
    float factor = has_norm ? fast_rsqrt(warp_sum(squares) * 0.5f * pairs.reciprocal + eps) : 1.0f;
#pragma unroll
    for (int e = 0; e < PAIRS; e++) {
        int i = least(lane_id() + e * WARP, last);
        float x = a[e] * factor * turn.a_norm[e], y = b[e] * factor * turn.b_norm[e];
        write(i, x * turn.angle[e].x - y * turn.angle[e].y);
        write(i + half, y * turn.angle[e].x + x * turn.angle[e].y);
    }
}

// Walkers to block to memory; a partial result is head_dim elements, the largest score, the sum.
// `merged`: of each head and walker LANES E elements, then of each head and walker the largest score
// and the sum.
template <int E, int G, int LANES> DEV void leave_partial(Walk<E, G>& w, float* merged, float* partials, int heads, Divisor pairs) {
    const int DIM = LANES * E, WALKERS = SPAN(LANES);
    int mine = walker<LANES>(), dim = 2 * pairs.value, width = dim + 2;
    float *tops = merged + WALKERS * G * DIM, *sums = tops + WALKERS * G;
    if (lane_id() % LANES == 0)
#pragma unroll
        for (int g = 0; g < G; g++) tops[g * WALKERS + mine] = w.most[g];
    block_sync();
#pragma unroll
    for (int g = 0; g < G; g++) {
        float top = NO_SCORE;
#pragma unroll
        for (int j = 0; j < WALKERS; j++) top = larger(top, tops[g * WALKERS + j]);
        float shrink = fast_exp2(w.most[g] - top);
        if (lane_id() % LANES == 0) sums[g * WALKERS + mine] = w.sum[g] * shrink;
        float* out = merged + (g * WALKERS + mine) * DIM + first_element<E, LANES>();
#pragma unroll
        for (int e = 0; e < E; e++) out[e] = w.out[g][e] * shrink;
    }
    block_sync();
#pragma unroll 1
    for (int i = TID_X; i < heads * pairs.value; i += BDIM_X) {
        Quotient at = divide(i, pairs);
        int g = at.whole, d = 2 * at.rest;
        F2 out = {0.0f, 0.0f};
#pragma unroll
        for (int j = 0; j < WALKERS; j++) {
            F2 part = *(const F2*)(merged + (g * WALKERS + j) * DIM + d);
            out.x += part.x;
            out.y += part.y;
        }
        float* to = partials + (long)g * GDIM_X * width;
        *(F2*)(to + d) = out;
        if (d) continue;
        F2 scores = {NO_SCORE, 0.0f};
#pragma unroll
        for (int j = 0; j < WALKERS; j++) {
            scores.x = larger(scores.x, tops[g * WALKERS + j]);
            scores.y += sums[g * WALKERS + j];
        }
        *(F2*)(to + dim) = scores;
    }
}

#define SPLITS_AHEAD 16 // whose loads are in flight at once
#define MOST_SPLITS 64

// Two elements of SPLITS_AHEAD partial results.
struct Parts { F2 at[SPLITS_AHEAD]; };
DEV Parts load_split_parts(const float* p, int width, int first, int splits) {
    Parts parts;
#pragma unroll
    for (int j = 0; j < SPLITS_AHEAD; j++) {
        parts.at[j] = F2{0.0f, 0.0f};
        if (first + j < splits) parts.at[j] = load_fresh((const F2*)(p + (long)(first + j) * width));
    }
    return parts;
}

// A warp finds out how much of one head's result each split is.
DEV void weigh_splits(const float* p, int width, int splits, float* weights) {
    const int ROUNDS_OF_LANES = MOST_SPLITS / WARP;
    F2 scores[ROUNDS_OF_LANES];
    float top = NO_SCORE, sum = 0.0f;
#pragma unroll
    for (int r = 0; r < ROUNDS_OF_LANES; r++) {
        int s = lane_id() + r * WARP;
        scores[r] = F2{NO_SCORE, 0.0f};
        if (s < splits) scores[r] = load_fresh((const F2*)(p + (long)s * width + width - 2));
        top = larger(top, scores[r].x);
    }
    top = warp_max(top);
#pragma unroll
    for (int r = 0; r < ROUNDS_OF_LANES; r++) {
        scores[r].x = fast_exp2(scores[r].x - top);
        sum += scores[r].x * scores[r].y;
    }
    sum = warp_sum(sum);
#pragma unroll
    for (int r = 0; r < ROUNDS_OF_LANES; r++) weights[lane_id() + r * WARP] = scores[r].x / sum;
}

// Adds up the partial results of the splits, in their order; a thread has two elements of a head at a time.
DEV void combine(const DecodeAttentionArgs& a, int first_head, int heads, int splits, float* weights, Divisor pairs) {
    int dim = 2 * pairs.value, width = dim + 2;
    long head_stride = (long)GDIM_X * width;
    const float* partials = a.partials + first_head * head_stride;
#pragma unroll 1
    for (int first_pair = 0; first_pair < heads * pairs.value; first_pair += BDIM_X) {
        bool mine = first_pair + TID_X < heads * pairs.value;
        Quotient at = divide(mine ? first_pair + TID_X : 0, pairs);
        const float* p = partials + at.whole * head_stride + 2 * at.rest;
        Parts parts = load_split_parts(p, width, 0, splits);
        if (first_pair == 0) {
#pragma unroll 1
            for (int head = warp_of_block(); head < heads; head += BDIM_X / WARP)
                weigh_splits(partials + head * head_stride, width, splits, weights + head * MOST_SPLITS);
            block_sync();
        }
        F2 out = {0.0f, 0.0f};
#pragma unroll 1
        for (int first = 0; first < splits; first += SPLITS_AHEAD) {
            if (first) parts = load_split_parts(p, width, first, splits);
#pragma unroll
            for (int j = 0; j < SPLITS_AHEAD; j++) {
                float weight = weights[at.whole * MOST_SPLITS + first + j];
                out.x += weight * parts.at[j].x;
                out.y += weight * parts.at[j].y;
            }
        }
        if (mine) *(F2*)(a.out + (first_head + at.whole) * dim + 2 * at.rest) = out;
    }
}

// FULL: the lanes of a walker have all of a head and nothing else.
template <int E, int G, int LANES, bool FULL> DEV void decode_attention(const DecodeAttentionArgs& a) {
    const int DIM = LANES * E;
    SHARED float query[G * DIM];
    SHARED float new_k[DIM], new_v[DIM];
    SHARED float weights[G * MOST_SPLITS];
    SHARED u32 is_last;
    DYNAMIC_SHARED(shared);
    const KindState kind = read_fresh(&a.state->kinds[a.kind]);
    const int dim = FULL ? DIM : a.head_dim;
    const Divisor pairs = {dim / 2, 1.0f / (float)(dim / 2)};
    int warp = warp_of_block();
    int per_split = most(a.least_rows, (kind.rows + GDIM_X - 1) / GDIM_X), splits = (kind.rows + per_split - 1) / per_split;
    int lo = BID_X * per_split, hi = least(kind.rows - 1, lo + per_split);
    if (BID_X >= splits) return;
    // The new row is the last one; the walk is over those before it.
    bool has_new = kind.rows <= lo + per_split;
    int group = a.heads / a.kv_heads, pieces = (group + G - 1) / G;
    int kv_head = BID_Y / pieces, piece = BID_Y % pieces;
    int first_head = kv_head * group + piece * G, heads = least(G, group - piece * G);
    const LayerCache layer = read_fresh(read_fresh(&a.state->layers) + a.layer);
    HeadCache cache = {(bf16_t*)layer.k + kv_head * dim, (bf16_t*)layer.v + kv_head * dim, (long)a.kv_heads * dim, Ring{kind.oldest_slot, kind.ring_slots}, dim};
    const int N = ROWS_OF(G);
    PackedRows<E, N> rows;
    load_rows<E, LANES, N>(rows.k, cache.k, cache, lo + walker<LANES>(), hi);
    load_rows<E, LANES, N>(rows.v, cache.v, cache, lo + walker<LANES>(), hi);
    const F2* angles = (const F2*)read_fresh(&a.state->ropes[a.rope]) + (long)load_fresh((const u32*)&a.state->position) * (dim / 2);
    wait_previous_kernel();
    allow_next_kernel();

    const float* k_in = a.qkv + (a.heads + kv_head) * dim;
    const float* v_in = a.qkv + (a.heads + a.kv_heads + kv_head) * dim;
    for (int job = warp; job < heads + 2; job += ATTENTION_WARPS) {
        bool is_query = job < heads;
        if (job <= heads) {
            const float* norm = is_query ? a.q_norm : a.k_norm;
            float* out = is_query ? query + job * DIM : new_k;
            finish_in_lanes<DIM>(is_query ? a.qkv + (first_head + job) * dim : k_in, load_turn<DIM>(norm, angles, pairs), norm != nullptr,
                                 is_query ? a.q_eps : a.k_eps, pairs, [&](int i, float x) { out[i] = x; });
            for (int i = dim + lane_id(); i < DIM; i += WARP) out[i] = 0.0f;
        }
        else for (int i = lane_id(); i < DIM; i += WARP) new_v[i] = i < dim ? v_in[i] : 0.0f;
    }
    block_sync();
    Walk<E, G> w;
    start_walk(w, query, DIM, heads, dim, a.scale, first_element<E, LANES>());
    walk_packed<E, G, LANES>(w, rows, cache, lo + warp * (WARP / LANES), lo + walker<LANES>(), hi);
    if (has_new && warp == ATTENTION_WARPS - 1) add_new<E, G, LANES>(w, new_k, new_v);
    if (has_new && piece == 0 && warp < 2) {
        bf16_t* row = (warp ? cache.v : cache.k) + kind.slot * cache.row_stride;
        bf16_t* saved = (bf16_t*)(warp ? layer.saved_v : layer.saved_k) + kind.save_entry * cache.row_stride + kv_head * dim;
        append_head<bf16_t>(warp ? new_v : new_k, row, kind.save_entry < 0 ? nullptr : saved, dim);
    }

    leave_partial<E, G, LANES>(w, (float*)shared, a.partials + ((long)first_head * GDIM_X + BID_X) * (dim + 2), heads, pairs);
    block_sync();
    if (TID_X == 0) is_last = atomic_count(a.arrived + BID_Y) == (u32)(splits - 1);
    block_sync();
    if (!is_last) return;
    combine(a, first_head, heads, splits, weights, pairs);
    if (TID_X == 0) a.arrived[BID_Y] = 0;
}

// Heads of up to LANES * 8 elements. Registers for twice the threads: two blocks to a multiprocessor.
#define DECODE_ATTENTION(LANES, G)                                                                              \
    KERNEL LAUNCH_BOUNDS(2 * ATTENTION_WARPS * WARP) decode_attention_##LANES##_##G(const DecodeAttentionArgs a) { \
        if (a.head_dim == LANES * 8) decode_attention<8, G, LANES, true>(a);                                    \
        else decode_attention<8, G, LANES, false>(a);                                                           \
    }
DECODE_ATTENTION(8, 2)
DECODE_ATTENTION(8, 4)
DECODE_ATTENTION(16, 2)
DECODE_ATTENTION(16, 4)
DECODE_ATTENTION(32, 2)
DECODE_ATTENTION(32, 4)
