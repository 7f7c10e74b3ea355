// Attention of one new token on the matrix units, as attention_decode.h, for NVIDIA GPUs whose blocks form
// clusters: the blocks of a cluster share out the rows of a kv head and bring their results together in
// shared memory, without a way through the device's memory.
//
// Grid: blocks of a cluster x kv heads (x pieces of CLUSTER_HEADS query heads). A warp takes tiles of
// T::ROWS rows, whose keys and values are copied to its own shared memory while the kernel ahead still
// runs. Heads are rows of the matrix unit for scores and columns for results:
//   scores [head][row] = q kT: the upper eight rows of the operand are the queries in bf16, the lower
//     eight what that rounds away, so queries keep 16 bits;
//   results [element][head] = vT pT: what a lane holds of the scores is its part of this operand.
// The order of a head's elements is free where they are summed up, and where they are rows of the result:
// a lane loads 16 bytes of keys or values at once and uses them as they come.
#pragma once
#include "attention_decode.h"
#include "cluster.h"

#if defined(KPORT_CLUSTERS)

#define CLUSTER_HEADS 8
#define MOST_CLUSTER_BLOCKS 16
#define TILES_AHEAD 2
// Further tiles that a block has room for, one each for its first warps: a context that is somewhat longer than
// what the others hold would wait for its last rows from end to end.
#define SPARE_TILES 2
// Fewer warps on fibers. With registers for CLUSTER_BOUND threads a block has room beside one of a product
// with 384: a quarter of a multiprocessor's registers has two warps of 96 and three of 96.
#if defined(KPORT_CPU)
#define CLUSTER_WARPS 2
#else
#define CLUSTER_WARPS 8
#endif
#define CLUSTER_BOUND 640

template <int DIM> struct Tiles {
    static const int ROWS = DIM > 128 ? 8 : 16, HALVES = ROWS / 8, CHUNKS = DIM / 8, WORDS = ROWS * CHUNKS; // of 16 bytes
    static const int COLUMN_BLOCKS = DIM / 64;
};

// Shared memory of a block, in the order in which it lies there.
template <int DIM> struct ClusterShared {
    U4* queries;           // high parts, then low parts: [2 CLUSTER_HEADS][chunk]
    float *new_k, *new_v;  // [DIM]
    F2* tops;              // [warp][head] largest score and sum
    F2* peer_tops;         // [block][head], of all blocks of the cluster
    F2* peer_parts;        // [block][pair of the share]
    U4* tiles;             // [warp][TILES_AHEAD] of keys and values, results of the warp in the end; then spare ones
};
template <int DIM> DEV ClusterShared<DIM> cluster_shared(unsigned char* at) {
    ClusterShared<DIM> s;
    s.queries = (U4*)at;
    s.new_k = (float*)(s.queries + 2 * CLUSTER_HEADS * Tiles<DIM>::CHUNKS);
    s.new_v = s.new_k + DIM;
    s.tops = (F2*)(s.new_v + DIM);
    s.peer_tops = s.tops + CLUSTER_WARPS * CLUSTER_HEADS;
    s.peer_parts = s.peer_tops + MOST_CLUSTER_BLOCKS * CLUSTER_HEADS;
    s.tiles = (U4*)(s.peer_parts + CLUSTER_HEADS * DIM / 2 + MOST_CLUSTER_BLOCKS);
    return s;
}

// Where a chunk of a row lies, so that lanes that load at once reach all banks: of keys and queries they
// have four chunks of two rows, of values two chunks of every other row.
template <int DIM> DEV int key_place(int row, int chunk) { return row * Tiles<DIM>::CHUNKS + (chunk ^ ((row & 1) << 2)); }
template <int DIM> DEV int value_place(int row, int chunk) { return row * Tiles<DIM>::CHUNKS + (chunk ^ (row & 7)); }

// Rows first .. of a tile below `end`, zeros for the others: a batch of keys, then one of values. Batches
// are counted, so that of no tile, when there is none, is empty.
template <int DIM> DEV void copy_tile(U4* tile, const HeadCache& c, int first, int end, bool there) {
    typedef Tiles<DIM> T;
    if (there)
#pragma unroll
        for (int i = 0; i < T::WORDS / WARP; i++) {
            int piece = i * WARP + lane_id(), row = piece / T::CHUNKS, chunk = piece % T::CHUNKS;
            copy_16(tile + key_place<DIM>(row, chunk), c.k + slot_of(c.ring, least(first + row, end - 1)) * c.row_stride + chunk * 8, first + row < end);
        }
    end_copies();
    if (there)
#pragma unroll
        for (int i = 0; i < T::WORDS / WARP; i++) {
            int piece = i * WARP + lane_id(), row = piece / T::CHUNKS, chunk = piece % T::CHUNKS;
            copy_16(tile + T::WORDS + value_place<DIM>(row, chunk), c.v + slot_of(c.ring, least(first + row, end - 1)) * c.row_stride + chunk * 8, first + row < end);
        }
    end_copies();
}

// All batches have come but the last BEHIND. With `spares` two more, those of the spare tile, were begun ahead
// of the loop; those of a warp without one are empty.
template <int BEHIND> DEV void wait_tile(bool spares) {
    if (spares) wait_copies<BEHIND + 2>();
    else wait_copies<BEHIND>();
    warp_sync();
}

// The new token's row, which the cache does not have yet.
template <int DIM> DEV void put_new(U4* tile, int row, const float* new_k, const float* new_v) {
    for (int chunk = lane_id(); chunk < Tiles<DIM>::CHUNKS; chunk += WARP) {
        const float *k = new_k + chunk * 8, *v = new_v + chunk * 8;
        tile[key_place<DIM>(row, chunk)] = U4{pack2(k[0], k[1]), pack2(k[2], k[3]), pack2(k[4], k[5]), pack2(k[6], k[7])};
        tile[Tiles<DIM>::WORDS + value_place<DIM>(row, chunk)] = U4{pack2(v[0], v[1]), pack2(v[2], v[3]), pack2(v[4], v[5]), pack2(v[6], v[7])};
    }
}

// c += a b for the eight columns of b.
#if defined(KPORT_CUDA)
DEV void mma_eight(float* c, const FragA& a, u32 b0, u32 b1) {
    u32 b[2] = {b0, b1};
    mma8(c, a.r, b);
}
// The lower or upper halves of two words.
DEV u32 two_of(u32 a, u32 b, int upper) { return __nvvm_prmt(a, b, upper ? 0x7632 : 0x5410); }
#else
DEV void mma_eight(float* c, const FragA& a, u32 b0, u32 b1) {
    Acc sums = {{c[0], c[1], c[2], c[3]}};
    mma_vector(sums, a, FragB{{b0, b1, 0, 0}});
    for (int i = 0; i < 4; i++) c[i] = sums.v[i];
}
DEV u32 two_of(u32 a, u32 b, int upper) { return upper ? (a >> 16) | (b & 0xffff0000u) : (a & 0xffffu) | (b << 16); }
#endif

// What a warp has found: of head lane / 4 the largest score and the lane's part of the sum; of heads
// 2 (lane % 4) + {0, 1} elements 64 c + 8 (lane / 4) + i + {0, 4} in out[c][i].
template <int DIM> struct Heads { float most, sum, out[DIM / 64][4][4]; };

// Scores of head lane / 4 and rows 8 h + 2 (lane % 4) + e of the tile, [h][e].
template <int DIM> DEV void score_tile(const U4* queries, const U4* keys, float* score) {
    typedef Tiles<DIM> T;
    int g = lane_id() >> 2, t = lane_id() & 3;
    float sums[T::HALVES][2][4] = {};
#pragma unroll
    for (int j = 0; j < DIM / 32; j++) {
        U4 high = queries[key_place<DIM>(g, 4 * j + t)], low = queries[key_place<DIM>(CLUSTER_HEADS + g, 4 * j + t)];
#pragma unroll
        for (int h = 0; h < T::HALVES; h++) {
            U4 k = keys[key_place<DIM>(8 * h + g, 4 * j + t)];
            mma_eight(sums[h][0], FragA{{high.x, low.x, high.y, low.y}}, k.x, k.y);
            mma_eight(sums[h][1], FragA{{high.z, low.z, high.w, low.w}}, k.z, k.w);
        }
    }
#pragma unroll
    for (int h = 0; h < T::HALVES; h++)
#pragma unroll
        for (int e = 0; e < 2; e++) score[2 * h + e] = (sums[h][0][e] + sums[h][1][e]) + (sums[h][0][2 + e] + sums[h][1][2 + e]);
}

// Scores of `rows` rows to weights, as the operand of add_values; what was found shrinks to the new maximum.
template <int DIM> DEV void weigh_tile(Heads<DIM>& w, const float* score, int rows, u32* weights) {
    const int HALVES = Tiles<DIM>::HALVES;
    int t = lane_id() & 3;
    float p[2 * HALVES], top = w.most;
#pragma unroll
    for (int i = 0; i < 2 * HALVES; i++) {
        p[i] = 8 * (i / 2) + 2 * t + i % 2 < rows ? score[i] : NO_SCORE;
        top = larger(top, p[i]);
    }
    top = larger(top, shfl_xor(top, 1));
    top = larger(top, shfl_xor(top, 2));
    float shrink = fast_exp2(w.most - top);
    w.most = top;
    w.sum *= shrink;
#pragma unroll
    for (int i = 0; i < 2 * HALVES; i++) p[i] = p[i] > NO_SCORE ? fast_exp2(p[i] - top) : 0.0f;
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
        weights[h] = pack2(p[2 * h], p[2 * h + 1]);
        // The sum of what values are multiplied by, not of what that was rounded from.
        w.sum += low(weights[h]) + high(weights[h]);
    }
    float shrinks[2] = {shfl(shrink, 8 * t), shfl(shrink, 8 * t + 4)};
#pragma unroll
    for (int c = 0; c < DIM / 64; c++)
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) w.out[c][i][e] *= shrinks[e % 2];
}

DEV u32 word_of(const U4& v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

template <int DIM> DEV void add_values(Heads<DIM>& w, const U4* values, const u32* weights) {
    const int HALVES = Tiles<DIM>::HALVES;
    int g = lane_id() >> 2, t = lane_id() & 3;
#pragma unroll
    for (int c = 0; c < DIM / 64; c++) {
        U4 rows[2 * HALVES];
#pragma unroll
        for (int i = 0; i < 2 * HALVES; i++) rows[i] = values[value_place<DIM>(8 * (i / 2) + 2 * t + i % 2, 8 * c + g)];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            FragA a = {{0, 0, 0, 0}};
#pragma unroll
            for (int r = 0; r < 2 * HALVES; r++)
                a.r[r] = two_of(word_of(rows[r & ~1], i / 2 + 2 * (r & 1)), word_of(rows[r | 1], i / 2 + 2 * (r & 1)), i & 1);
            mma_eight(w.out[c][i], a, weights[0], HALVES == 2 ? weights[HALVES - 1] : 0);
        }
    }
}

// The warp's result to shared memory, [head][element], with its largest scores and sums.
template <int DIM> DEV void leave_heads(Heads<DIM>& w, int heads, float* results, F2* tops) {
    int g = lane_id() >> 2, t = lane_id() & 3;
    w.sum += shfl_xor(w.sum, 1);
    w.sum += shfl_xor(w.sum, 2);
    if (t == 0 && g < heads) tops[g] = F2{w.most, w.sum};
#pragma unroll
    for (int e = 0; e < 2; e++) {
        if (2 * t + e >= heads) continue;
#pragma unroll
        for (int c = 0; c < DIM / 64; c++)
#pragma unroll
            for (int upper = 0; upper < 2; upper++) {
                const float(*o)[4] = w.out[c];
                int at = 2 * upper + e;
                *(F4*)(results + (2 * t + e) * DIM + 64 * c + 8 * g + 4 * upper) = F4{{o[0][at], o[1][at], o[2][at], o[3][at]}};
            }
    }
}

// Weights of COUNT partial results of one head, the largest score of all and the weighted sum; tops
// are `stride` apart, and from `count` on there are none.
template <int COUNT> DEV F2 weigh_parts(const F2* tops, int stride, int count, float* weights) {
    F2 all = {NO_SCORE, 0.0f}, each[COUNT];
#pragma unroll
    for (int j = 0; j < COUNT; j++) {
        each[j] = F2{NO_SCORE, 0.0f};
        if (j < count) each[j] = tops[j * stride];
        all.x = larger(all.x, each[j].x);
    }
#pragma unroll
    for (int j = 0; j < COUNT; j++) {
        weights[j] = fast_exp2(each[j].x - all.x);
        all.y += weights[j] * each[j].y;
    }
    return all;
}

// Adds up the warps' results and gives each block of the cluster its share, with all tops.
template <int DIM> DEV void share_out(const ClusterShared<DIM>& s, int heads, Divisor share) {
    int blocks = GDIM_X, pairs = heads * DIM / 2;
#pragma unroll 1
    for (int i = TID_X; i < pairs; i += BDIM_X) {
        int head = i / (DIM / 2);
        float weights[CLUSTER_WARPS];
        F2 top = weigh_parts<CLUSTER_WARPS>(s.tops + head, CLUSTER_HEADS, CLUSTER_WARPS, weights), sum = {0.0f, 0.0f};
        const F2* result = (const F2*)s.tiles + i;
#pragma unroll
        for (int warp = 0; warp < CLUSTER_WARPS; warp++) {
            F2 part = result[warp * (TILES_AHEAD * 4 * Tiles<DIM>::WORDS)];
            sum.x += weights[warp] * part.x;
            sum.y += weights[warp] * part.y;
        }
        Quotient place = divide(i, share);
        store_at_peer(s.peer_parts + BID_X * share.value + place.rest, place.whole, sum);
        if (i % (DIM / 2) < blocks) store_at_peer(s.peer_tops + BID_X * CLUSTER_HEADS + head, i % (DIM / 2), top);
    }
}

// Adds up what the blocks of the cluster have left of this block's share.
template <int DIM> DEV void add_shares(const ClusterShared<DIM>& s, int heads, int share, float* out) {
#pragma unroll 1
    for (int i = TID_X; i < 2 * share; i += BDIM_X) {
        int element = 2 * share * BID_X + i;
        if (element >= heads * DIM) continue;
        float weights[MOST_CLUSTER_BLOCKS], sum = 0.0f;
        F2 top = weigh_parts<MOST_CLUSTER_BLOCKS>(s.peer_tops + element / DIM, CLUSTER_HEADS, GDIM_X, weights);
#pragma unroll
        for (int j = 0; j < MOST_CLUSTER_BLOCKS; j++)
            if (j < GDIM_X) sum += weights[j] * ((const float*)(s.peer_parts + j * share))[i];
        out[element] = sum / top.y;
    }
}

template <int DIM> DEV void put_query(U4* queries, int head, int i, float value) {
    bf16_t high_part = f2bf(value);
    ((bf16_t*)(queries + key_place<DIM>(head, i / 8)))[i % 8] = high_part;
    ((bf16_t*)(queries + key_place<DIM>(CLUSTER_HEADS + head, i / 8)))[i % 8] = f2bf(value - bf2f(high_part));
}

template <int DIM> DEV void cluster_attention(const DecodeAttentionArgs& a) {
    typedef Tiles<DIM> T;
    DYNAMIC_SHARED(shared);
    const ClusterShared<DIM> s = cluster_shared<DIM>(shared);
    cluster_arrive();
    const KindState kind = read_fresh(&a.state->kinds[a.kind]);
    const Divisor pairs = {DIM / 2, 2.0f / DIM};
    const int warp = warp_of_block(), blocks = GDIM_X;
    int group = a.heads / a.kv_heads, pieces = (group + CLUSTER_HEADS - 1) / CLUSTER_HEADS;
    int kv_head = BID_Y / pieces, piece = BID_Y % pieces;
    int first_head = kv_head * group + piece * CLUSTER_HEADS, heads = least(CLUSTER_HEADS, group - piece * CLUSTER_HEADS);
    const LayerCache layer = read_fresh(read_fresh(&a.state->layers) + a.layer);
    HeadCache cache = {(bf16_t*)layer.k + kv_head * DIM, (bf16_t*)layer.v + kv_head * DIM, (long)a.kv_heads * DIM, Ring{kind.oldest_slot, kind.ring_slots}, DIM};
    int per_block = (kind.rows + blocks - 1) / blocks, lo = least(BID_X * per_block, kind.rows), hi = least(kind.rows, lo + per_block);
    int first = lo + warp * T::ROWS, new_row = kind.rows - 1;
    bool has_new = lo < hi && hi == kind.rows;
    U4* tiles = s.tiles + warp * (TILES_AHEAD * 2 * T::WORDS);
    U4* spare = s.tiles + (CLUSTER_WARPS * TILES_AHEAD + warp) * (2 * T::WORDS);
    const int HELD_ROWS = CLUSTER_WARPS * TILES_AHEAD * T::ROWS;
    bool spares = per_block > HELD_ROWS && per_block <= HELD_ROWS + SPARE_TILES * T::ROWS;
#pragma unroll
    for (int ahead = 0; ahead < TILES_AHEAD; ahead++) {
        int row = first + ahead * CLUSTER_WARPS * T::ROWS;
        copy_tile<DIM>(tiles + ahead * 2 * T::WORDS, cache, row, least(hi, new_row), row < hi);
    }
    if (spares) copy_tile<DIM>(spare, cache, first + HELD_ROWS, least(hi, new_row), first + HELD_ROWS < hi);
    // Rows of heads that are none.
    for (int i = TID_X; i < 2 * CLUSTER_HEADS * T::CHUNKS; i += BDIM_X)
        if (i / T::CHUNKS % CLUSTER_HEADS >= heads) s.queries[i] = U4{0, 0, 0, 0};
    const F2* angles = (const F2*)read_fresh(&a.state->ropes[a.rope]) + (long)load_fresh((const u32*)&a.state->position) * (DIM / 2);
    Turn<DIM> turn = load_turn<DIM>(warp < heads ? a.q_norm : a.k_norm, angles, pairs);
    int most_pairs = (heads * DIM / 2 + blocks - 1) / blocks;
    const Divisor share = {most_pairs, fast_reciprocal((float)most_pairs)};
    wait_previous_kernel();
    allow_next_kernel();

    for (int job = warp; job < heads + (has_new ? 2 : 0); job += CLUSTER_WARPS) {
        const float* norm = job < heads ? a.q_norm : a.k_norm;
        if (job >= CLUSTER_WARPS) turn = load_turn<DIM>(norm, angles, pairs);
        if (job < heads)
            finish_in_lanes<DIM>(a.qkv + (first_head + job) * DIM, turn, norm != nullptr, a.q_eps, pairs,
                                 [&](int i, float x) { put_query<DIM>(s.queries, job, i, x * a.scale); });
        else if (job == heads)
            finish_in_lanes<DIM>(a.qkv + (a.heads + kv_head) * DIM, turn, norm != nullptr, a.k_eps, pairs, [&](int i, float x) { s.new_k[i] = x; });
        else for (int i = lane_id(); i < DIM; i += WARP) s.new_v[i] = a.qkv[(a.heads + a.kv_heads + kv_head) * DIM + i];
    }
    block_sync();

    Heads<DIM> w = {};
    w.most = NO_SCORE;
    U4* tile = tiles;
#pragma unroll 1
    for (int row = first; row < hi; row += CLUSTER_WARPS * T::ROWS) {
        float score[2 * T::HALVES];
        u32 weights[T::HALVES];
        wait_tile<2 * TILES_AHEAD - 1>(spares);
        if (has_new && new_row < row + T::ROWS) {
            wait_tile<2 * TILES_AHEAD - 2>(spares);
            put_new<DIM>(tile, new_row - row, s.new_k, s.new_v);
            warp_sync();
        }
        score_tile<DIM>(s.queries, tile, score);
        weigh_tile<DIM>(w, score, hi - row, weights);
        wait_tile<2 * TILES_AHEAD - 2>(spares);
        add_values<DIM>(w, tile + T::WORDS, weights);
        warp_sync();
        int next = row + HELD_ROWS;
        copy_tile<DIM>(tile, cache, next, least(hi, new_row), next < hi && !spares);
        tile = tile == tiles ? tiles + 2 * T::WORDS : spares ? spare : tiles;
    }
    leave_heads<DIM>(w, heads, (float*)tiles, s.tops + warp * CLUSTER_HEADS);
    block_sync();
    cluster_wait(); // all blocks of the cluster have begun
    share_out<DIM>(s, heads, share);
    cluster_arrive();
    if (has_new && piece == 0 && warp < 2) {
        bf16_t* row = (warp ? cache.v : cache.k) + kind.slot * cache.row_stride;
        bf16_t* saved = (bf16_t*)(warp ? layer.saved_v : layer.saved_k) + kind.save_entry * cache.row_stride + kv_head * DIM;
        append_head<bf16_t>(warp ? s.new_v : s.new_k, row, kind.save_entry < 0 ? nullptr : saved, DIM);
    }
    cluster_wait();
    add_shares<DIM>(s, heads, share.value, a.out + first_head * DIM);
}

#define CLUSTER_ATTENTION(DIM) \
    KERNEL LAUNCH_BOUNDS(CLUSTER_BOUND) cluster_attention_##DIM(const DecodeAttentionArgs a) { cluster_attention<DIM>(a); }
CLUSTER_ATTENTION(64)
CLUSTER_ATTENTION(128)
CLUSTER_ATTENTION(256)
#endif
