// Arguments of the kernels, one struct a kernel. `src/backend/gpu/args.rs` has the same layouts; a
// test compares sizes and offsets.
#pragma once
#include "compat/kport.h"

#define MAX_CACHE_KINDS 4
#define MAX_ROPES 4

// How scales and biases of groups are stored, as pairs.
enum ScaleKind { SCALE_BF16 = 0, SCALE_F16 = 1, SCALE_F32 = 2 };
enum GateKind { GATE_SILU = 0, GATE_GELU_TANH = 1 };

// A matrix in tiles (fragments.h); rows and columns beyond its own are zero.
struct TileMatrix {
    const u32* codes;  // [row tile][column tile][TILE_WORDS]
    const void* scales; // [row tile][group][16] pairs of scale and bias; null for bf16 weights
    const float* bias;  // [row tiles * 16], or null
    int rows, columns, row_tiles, column_tiles;
    int bits, group, scale_kind, padding;
};

// A matrix in the order of the file, for the slow twin.
struct PlainMatrix {
    const u32* codes;    // a little-endian stream of bits a row; null for float32 weights
    const float* scales; // [rows][groups], or the weights themselves, [rows][columns]
    const float* biases; // [rows][groups]
    const float* bias;   // [rows], or null
    int rows, columns, bits, group;
};

// Keys and values of one layer, [slot][kv_head][head_dim]; saved rows are [entry][kv_head][head_dim].
struct LayerCache { void *k, *v, *saved_k, *saved_v; };

// Rows are visited in the order of their positions: row r lies in slot (oldest_slot + r) modulo
// ring_slots. save_entry < 0: keep nothing.
struct KindState { int slot, rows, ring_slots, oldest_slot, save_entry, padding; };

// What changes from step to step of a captured graph.
struct StepState {
    const LayerCache* layers;
    const float* ropes[MAX_ROPES]; // [position][head_dim / 2] pairs of cosine and sine
    KindState kinds[MAX_CACHE_KINDS];
    int position, token_slot; // where the chosen token goes
};

struct BeginArgs {
    StepState state;
    StepState* device_state;
    const u32* token; // on the device
    TileMatrix table;
    float* x;
    float scale;
    int padding;
};

// A row of the residual stream and what the last block adds to it:
// x' = x + norm(c), written to x_out by one block; input = norm(x').
struct RowInput {
    const float* x;
    const float* c;      // null: x' = x
    const float* c_rest; // what is to be added to c, or null
    const float* c_norm; // null: c as it is
    float* x_out;        // null: not written
    const float* norm;   // null: x' as it is
    float c_eps, eps, one_over_columns;
    int padding;
};

struct Divisor { int value; float reciprocal; };

// Units of a product (linear_vector.h) and who has them. Blocks have block_steps steps each, the first
// larger_blocks one more; a step is a unit or a row tile. A warp asks for first_units of its own before it asks
// for its inputs, and behind them for the others that it can have on their way.
struct UnitShares {
    Divisor row_tile_units, warp_units;
    int step_units, block_steps, larger_blocks, first_units;
};

enum VectorOutput { OUT_STORE = 0, OUT_GATED = 1, OUT_BEST = 2 };
struct Best { float value; u32 id; };

struct VectorArgs {
    TileMatrix w;
    RowInput in;
    float* y;      // OUT_GATED: [rows / 2], gate rows and up rows alternate by eights
    float* y_rest; // not null: row tiles may have two blocks, and y + y_rest is the result; OUT_STORE only
    Best* best;    // OUT_BEST: [blocks]
    UnitShares shares;
    int output, gate;
};

struct PickArgs {
    const Best* best;
    u32* tokens;      // on the device, by slot
    u32* host_tokens; // the same for the host
    const StepState* state; // null: `slot` says where
    int count, slot;
};

struct BlockBestArgs { const float* logits; Best* best; int count, padding; };

#define DRAW_BINS 1024      // of the coarse histogram
#define DRAW_BIN_STEPS 2048 // of the fine one
#define DRAW_BLOCKS 128     // at most; `args.rs` has the same

// What the kernels of a draw leave for each other. Zero ahead of the first draw; what is called zero here is
// left so by each.
struct DrawState {
    u64 coarse[DRAW_BINS]; // sums of weights; zero
    u64 target, nearer;    // a sum of weights that is looked for, and the sum of what is nearer than `bin`
    u64 wanted;            // that the kept tokens have at least
    u32 fine[DRAW_BIN_STEPS]; // tokens by distance; zero
    u32 ties[DRAW_BLOCKS];    // tokens at the drawn distance, by blocks
    u32 bin, distance, rank, arrived; // arrived: zero
};

struct DrawArgs {
    const float* logits;
    u32* tokens;      // on the device, by slot; holds the likeliest one's id
    u32* host_tokens; // the same for the host
    DrawState* state;
    float scale;       // steps of distance to a difference of one
    u32 keep, uniform; // in 2^-24
    int count, slot, finds_kept;
};

struct DecodeAttentionArgs {
    const StepState* state;
    const float* qkv;
    float* out;      // [heads * head_dim]
    float* partials; // [head][split][head_dim + 2]
    u32* arrived;    // [gridDim.y], zero between launches
    const float *q_norm, *k_norm; // null: none
    float q_eps, k_eps, scale;
    int layer, kind, rope, heads, kv_heads, head_dim, least_rows; // of a split
};

// ---- while a model is loaded --------------------------------------------------------------------

enum FloatKind { FLOAT_BF16 = 0, FLOAT_F16 = 1, FLOAT_F32 = 2 };

// Rows of a matrix in the order of the file, from `first_row` on.
struct FileMatrix {
    const void* weights;         // codes, a little-endian stream of bits a row; or floats of weight_kind
    const void *scales, *biases; // [row][group]; null for floats
    int first_row, weight_kind, scale_kind, bias_kind;
};

struct FileRow { int matrix, row; }; // matrix < 0: a row of zeros

// Of arrange_codes and arrange_scales: some row tiles of a TileMatrix.
struct ArrangeArgs {
    const FileMatrix* matrices;
    const FileRow* rows; // [row tiles * 16]
    u32* codes;          // of these row tiles, as in TileMatrix
    void* scales;        // likewise
    int columns, row_tiles, column_tiles, bits, group, scale_kind;
};

// -------------------------------------------------------------------------------------------------

struct ReadProbeArgs { const void* from; u32* sum; long count; }; // pieces of 16 bytes

// ---- many rows ----------------------------------------------------------------------------------

struct EmbedRowsArgs { TileMatrix tiles; PlainMatrix plain; const u32* tokens; float* x; float scale; int hidden; };

struct FoldNormArgs {
    float* x;
    const float* c;
    const float* c_norm;
    const float* norm; // null: only x is updated
    void* out;         // a product's inputs, zero from the width to `stride`
    float c_eps, eps;
    int width, stride;
};

struct MatrixArgs {
    TileMatrix w;
    const bf16_t* x; // in the order of activations.h, finite beyond the columns
    void* y;         // float32 [row][y_stride]; gated: the next product's inputs
    int tokens, y_stride, gated, gate;
};

struct PlainMatrixArgs { PlainMatrix w; const float* x; float* y; int tokens, stride, y_stride, padding; };

struct GateRowsArgs { const float* y; float* out; int width, gate; };

struct FinishRowsArgs {
    float* qkv; // [token][(heads + 2 kv_heads) head_dim]; q comes back normed and rotated
    const float* rope;
    const float *q_norm, *k_norm;
    LayerCache cache;
    float q_eps, k_eps;
    int tokens, first_position, first_slot, save_entry, heads, kv_heads, head_dim, padding;
};

// Query i sees rows max(0, i + oldest) .. min(rows, i + newest + 1) of a ring as in KindState.
struct PrefillAttentionArgs {
    const float* qkv;
    LayerCache cache;
    void* out; // a product's inputs
    float scale;
    int tokens, first_token, out_stride, rows, ring_slots, oldest_slot, oldest, newest, heads, kv_heads, head_dim;
};
