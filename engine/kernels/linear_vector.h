// A product with one row, y = W x: decode.
//
// Tiles are counted row tile by row tile, four at a time (a unit), in the order in which they lie in
// memory. A block has a share of the units, a warp a share of the block's, so each warp reads one
// piece of memory from end to end and waits for nobody meanwhile; what warps found of a row tile
// meets in shared memory at the end and is added up in a fixed order.
//
// Where whole row tiles would leave multiprocessors idle, shares of blocks end inside row tiles, too.
// Such a row tile has two blocks (there are at least as many row tiles as blocks), which leave a piece
// each, and whoever reads the result adds them.
//
// With S the sum of a group's inputs, y = sum over groups of scale (codes x) + bias S.
#pragma once
#include "gate.h"
#include "row_input.h"
#include "shares.h"
#include "weight_units.h"

// A multiprocessor has room for one block of a product, with the registers that this leaves: many
// warps, because each is a long chain of dependent instructions.
#define VECTOR_THREADS 640

// Adds a tile of bf16 weights to the lane's rows.
DEV void add_weights(const Unit<16>& u, int tile, const StagedRow& s, float* y) {
    Acc raw[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
#pragma unroll
        for (int i = 0; i < 8; i++) raw[h].v[i] = 0.0f;
        FragB even, odd;
        load_x_pair((const bf16_t*)s.x + tile * TILE_COLUMNS, h, even, odd);
        mma_vector(raw[h], operand<16>(u.words[0], 2 * h), even);
        mma_vector(raw[h], operand<16>(u.words[0], 2 * h + 1), odd);
    }
#pragma unroll
    for (int i = 0; i < VECTOR_ACCS; i++) y[i] += raw[0].v[VECTOR_ACC(i)] + raw[1].v[VECTOR_ACC(i)];
}

// Counts of a unit's tiles side by side, one for each half of the columns.
template <int BITS> DEV void count_unit(const Unit<BITS>& u, int first, const StagedRow& s, Counts* raw) {
    const unsigned char* mine = s.x + (first + given_tile()) * TILE_PART_BYTES + part_place();
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int i = 0; i < (int)(sizeof(raw->v) / sizeof(int)); i++) raw[half].v[i] = 0;
#pragma unroll
    for (int j = 0; j < UNIT_TILES; j++) {
        BytesB x[BYTE_STEPS];
        load_parts(given_tile() == j ? mine : s.zeros, x);
#pragma unroll
        for (int step = 0; step < BYTE_STEPS; step++)
            mma_bytes(raw[step / (BYTE_STEPS / 2)], bytes_operand<BITS>(u.words[j], step), x[step]);
    }
}

// Adds a unit of codes to the lane's rows: only the tile whose sums the lane holds.
template <int BITS, bool USUAL>
DEV void add_codes(const TileMatrix& w, const Unit<BITS>& u, Place at, const StagedRow& s, float* y) {
    int first = at.unit * UNIT_TILES, tile = first + held_tile();
    Counts raw[2];
    count_unit<BITS>(u, first, s, raw);
    if (held_tile() >= (USUAL ? UNIT_TILES : least(UNIT_TILES, w.column_tiles - first))) return;
    F4 input = *(const F4*)(s.tiles + 4 * tile);
    float unit = input.v[2], sums[2] = {input.v[0], input.v[1]};
    if (!counts_once()) sums[0] = sums[1] = 0.0f;
#pragma unroll
    for (int i = 0; i < VECTOR_ACCS; i++) {
        int low_half = joined(raw[0], i), high_half = joined(raw[1], i);
        if (USUAL) {
            y[i] += low(u.scales[i]) * unit * (float)(low_half + high_half) + high(u.scales[i]) * (sums[0] + sums[1]);
            continue;
        }
        int pair = scale_index(w, at.row_tile, tile * TILE_COLUMNS) + acc_row(VECTOR_ACC(i));
        Scale k = w.scale_kind == SCALE_F32 ? read_scale(w.scales, SCALE_F32, pair) : scale_of(u.scales[i], w.scale_kind);
        y[i] += k.scale * unit * (float)low_half + k.bias * sums[0];
        if (w.group < TILE_COLUMNS) k = read_scale(w.scales, w.scale_kind, pair + TILE_ROWS);
        y[i] += k.scale * unit * (float)high_half + k.bias * sums[1];
    }
}

// What the warp found of a row tile goes to shared memory.
template <int BITS> DEV void leave_rows(float* y, float* part) {
#pragma unroll
    for (int i = 0; i < VECTOR_ACCS; i++) {
        float total = y[i];
        if (BITS != 16)
#pragma unroll
            for (int m = 1; m < VECTOR_LANES; m *= 2) total += shfl_xor(total, m);
        if (holds_vector()) part[acc_row(VECTOR_ACC(i))] = total;
        y[i] = 0.0f;
    }
}

// What the warps of a block found of one of its rows: `warps` floats, TILE_ROWS apart, from the first on.
struct RowParts { const float* first; int warps; };

// Of row `row` of the block, which has the units `block`, from row tile `first_row_tile` on; part
// [row tile of the block + warp] has what that warp found of that row tile.
DEV RowParts parts_of_row(const VectorArgs& a, Share block, const float* parts, int first_row_tile, int row) {
    int units = a.shares.row_tile_units.value, in_block = row / TILE_ROWS, begin = (first_row_tile + in_block) * units - block.first;
    int first = divide(most(begin, 0), a.shares.warp_units).whole, last = divide(least(begin + units, block.end - block.first) - 1, a.shares.warp_units).whole;
    return RowParts{parts + (in_block + first) * TILE_ROWS + row % TILE_ROWS, last - first + 1};
}

// In the order of the warps.
DEV float row_total(RowParts p) {
    const int AT_ONCE = 4;
    float total = 0.0f;
#pragma unroll 1
    for (int warp = 0; warp < p.warps; warp += AT_ONCE) {
        float part[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) part[i] = warp + i < p.warps ? p.first[(warp + i) * TILE_ROWS] : 0.0f;
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) total += part[i];
    }
    return total;
}

DEV bool better(float value, u32 id, Best than) {
    return value > than.value || (value == than.value && id < than.id);
}

// Row `in_tile` of a row tile; `factor`: of the norm.
DEV void write_row(const VectorArgs& a, Share block, RowParts parts, float factor, int row_tile, int in_tile, Best& best) {
    int row = row_tile * TILE_ROWS + in_tile;
    // The block with the beginning of a row tile writes to y; bias comes once.
    int units = a.shares.row_tile_units.value;
    bool begins = row_tile * units >= block.first, ends = (row_tile + 1) * units <= block.end;
    float y = row_total(parts) * factor + (a.w.bias && begins ? a.w.bias[row] : 0.0f);
    if (a.output == OUT_GATED) {
        if (in_tile >= 8) return;
        float up = row_total(RowParts{parts.first + 8, parts.warps}) * factor + (a.w.bias ? a.w.bias[row + 8] : 0.0f);
        int out = row_tile * 8 + in_tile;
        if (out < a.w.rows / 2) a.y[out] = gated(a.gate, y, up);
        return;
    }
    if (row >= a.w.rows) return;
    if (begins) a.y[row] = y;
    else a.y_rest[row] = y;
    if (a.y_rest && begins && ends) a.y_rest[row] = 0.0f;
    if (a.output == OUT_BEST && better(y, (u32)row, best)) best = Best{y, (u32)row};
}

DEV Best best_of_warp(Best best) {
#pragma unroll
    for (int m = 1; m < WARP; m *= 2) {
        Best other = {shfl_xor(best.value, m), f2u(shfl_xor(u2f(best.id), m))};
        if (better(other.value, other.id, best)) best = other;
    }
    return best;
}
// The best of the block's threads; `scratch` holds a pair a warp.
DEV Best best_of_block(Best best, Best* scratch) {
    best = best_of_warp(best);
    if (lane_id() == 0) scratch[TID_X / WARP] = best;
    block_sync();
    return best_of_warp(scratch[least(lane_id(), BDIM_X / WARP - 1)]);
}

template <int BITS, bool USUAL, class Queue> DEV void vector_product(const VectorArgs& a) {
    DYNAMIC_SHARED(shared);
    const int AHEAD = Queue::UNITS;
    Queue queue;
    StagedRow s = staged_row(open_queue(queue, shared), a.w.column_tiles);
    float* parts = behind(s);
    int columns = USUAL ? a.w.column_tiles * TILE_COLUMNS : a.w.columns;
    int warp = warp_of_block(), units = a.shares.row_tile_units.value;
    Share block = share_of(a.shares.block_steps, a.shares.larger_blocks, a.shares.step_units, BID_X);
    int first = block.first + warp * a.shares.warp_units.value, count = least(block.end - first, a.shares.warp_units.value);
    // Weights depend on no other kernel, so they are asked for before it is waited for.
    Quotient begin = divide(first, a.shares.row_tile_units);
    Place at = {begin.whole, begin.rest}, next = at;
#pragma unroll
    for (int d = 0; d < AHEAD; d++)
        if (d < a.shares.first_units) { ask(queue, a.w, next, d, d < count); go_on(next, units); }
    // Divisions are long, and there is nothing to wait for yet.
    int first_row_tile = divide(block.first, a.shares.row_tile_units).whole;
    int rows = (divide(block.end - 1, a.shares.row_tile_units).whole - first_row_tile + 1) * TILE_ROWS;
    RowParts parts_of_mine = parts_of_row(a, block, parts, first_row_tile, TID_X);
    NormWeights norms = load_norms(a.in, eight_of(0), columns);
    wait_previous_kernel();
    allow_next_kernel();
    // Were first_units a constant, the assembler would ask for inputs behind these.
    stage_row<BITS != 16>(a.in, norms, columns, a.w.column_tiles, s, [&] {
#pragma unroll
        for (int d = 0; d < AHEAD; d++)
            if (d >= a.shares.first_units) { ask(queue, a.w, next, d, d < count); go_on(next, units); }
    });
    float y[VECTOR_ACCS];
#pragma unroll
    for (int i = 0; i < VECTOR_ACCS; i++) y[i] = 0.0f;
    for (int done = 0; done < count; done += AHEAD) {
#pragma unroll
        for (int d = 0; d < AHEAD; d++) {
            int left = count - done - d;
            if (left <= 0) break;
            const Unit<BITS>& unit = take(queue, d);
            if (Queue::QUEUED) ask(queue, a.w, next, d, left > AHEAD);
            if constexpr (BITS == 16) add_weights(unit, at.unit, s, y);
            else add_codes<BITS, USUAL>(a.w, unit, at, s, y);
            if (!Queue::QUEUED) ask(queue, a.w, next, d, left > AHEAD);
            go_on(next, units);
            float* part = parts + (at.row_tile - first_row_tile + warp) * TILE_ROWS;
            go_on(at, units);
            if (at.unit == 0 || left == 1) leave_rows<BITS>(y, part);
        }
    }
    float factor = row_factor(a.in, s);
    block_sync();
    Best best = {-3.4e38f, 0xffffffffu};
#pragma unroll 1
    for (int i = TID_X; i < rows; i += BDIM_X) {
        RowParts row_parts = i == TID_X ? parts_of_mine : parts_of_row(a, block, parts, first_row_tile, i);
        write_row(a, block, row_parts, factor, first_row_tile + i / TILE_ROWS, i % TILE_ROWS, best);
    }
    if (a.output != OUT_BEST) return;
    // Inputs have been read by all.
    best = best_of_block(best, (Best*)s.x);
    if (TID_X == 0) a.best[BID_X] = best;
}

#define VECTOR_PRODUCT(BITS) \
    KERNEL LAUNCH_BOUNDS(VECTOR_THREADS) vector_product_##BITS(const VectorArgs a) { vector_product<BITS, false, HeldUnits<BITS, false>>(a); }
VECTOR_PRODUCT(2)
VECTOR_PRODUCT(3)
VECTOR_PRODUCT(5)
VECTOR_PRODUCT(6)
VECTOR_PRODUCT(8)
VECTOR_PRODUCT(16)
KERNEL LAUNCH_BOUNDS(VECTOR_THREADS) vector_product_4(const VectorArgs a) {
    if (is_usual(a.w) && a.w.column_tiles % UNIT_TILES == 0) vector_product<4, true, HeldUnits<4, true>>(a);
    else vector_product<4, false, HeldUnits<4, false>>(a);
}
// Of weights in the usual form, in whole units. The bound is above VECTOR_THREADS because it also sets the
// registers of a thread, here to 64: more are not needed where no unit waits in them.
#if defined(KPORT_COPIES) && defined(KPORT_NV)
KERNEL LAUNCH_BOUNDS(1024) queued_product_4(const VectorArgs a) { vector_product<4, true, QueuedUnits<3>>(a); }

// The same behind a decode attention, whose blocks leave room in shared memory for two units a warp. With
// its 96 registers a thread, of which it needs some 60, a block of 384 threads has room beside one of the
// attention but not beside another of its own, which would take twice as long while a multiprocessor stands idle.
#if defined(KPORT_CUDA)
// Never run: makes the assembler give each thread more than COUNT registers.
template <int COUNT> DEV void claim_registers(const VectorArgs& a) {
    if (a.output >= 0) return;
    u32 r[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("mov.u32 %0,%%clock;" : "=r"(r[i]));
#pragma unroll
    for (int i = 0; i < COUNT; i++) a.y[i] = u2f(r[i]);
}
#else
template <int COUNT> DEV void claim_registers(const VectorArgs&) {}
#endif
KERNEL LAUNCH_BOUNDS(VECTOR_THREADS) queued_beside_4(const VectorArgs a) {
    claim_registers<80>(a);
    vector_product<4, true, QueuedUnits<2>>(a);
}
#endif
