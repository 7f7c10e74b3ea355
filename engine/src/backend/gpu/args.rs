//! Arguments of the kernels, as `engine/kernels/args.h` declares them; addresses are the device's.

use crate::backend::gpu::buffer::Plain;

/// Kinds of caches that a step can have.
pub(crate) const MAX_CACHE_KINDS: usize = 4;
/// Rotation tables that a model can have.
pub(crate) const MAX_ROPES: usize = 4;

/// Blocks of a draw at most.
pub(crate) const DRAW_BLOCKS: usize = 128;
/// Size of `DrawState`, zero ahead of the first draw.
pub(crate) const DRAW_STATE_BYTES: usize = 16424 + 4 * DRAW_BLOCKS;

/// The result is stored as it is.
pub(crate) const OUT_STORE: i32 = 0;
/// The result is `act(gate) · up`.
pub(crate) const OUT_GATED: i32 = 1;
/// The result is stored, and each block tells its largest element.
pub(crate) const OUT_BEST: i32 = 2;

/// Declares structs whose layout is C's, all of whose bytes are fields.
macro_rules! arguments {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $kind:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy, Default)]
        pub(crate) struct $name { $(pub(crate) $field: $kind),* }

        #[expect(unsafe_code, reason = "the struct is copied as its bytes")]
        // SAFETY: fields are numbers or such structs, and the assertion below leaves no padding.
        unsafe impl Plain for $name {}
        const _: () = assert!(size_of::<$name>() == 0 $(+ size_of::<$kind>())*);
    )*};
}

impl Divisor {
    /// For division by `value`.
    pub(crate) fn by(value: usize) -> Self {
        Self {
            value: value as i32,
            reciprocal: 1.0 / value as f32,
        }
    }
}

arguments! {
    /// A matrix in tiles.
    TileMatrix {
        codes: u64, scales: u64, bias: u64,
        rows: i32, columns: i32, row_tiles: i32, column_tiles: i32,
        bits: i32, group: i32, scale_kind: i32, padding: i32,
    }
    /// A matrix in the order of the file.
    PlainMatrix {
        codes: u64, scales: u64, biases: u64, bias: u64,
        rows: i32, columns: i32, bits: i32, group: i32,
    }
    /// Keys and values of one layer.
    LayerCache { k: u64, v: u64, saved_k: u64, saved_v: u64 }
    /// Where a step writes a kind of cache, and what it sees.
    KindState {
        slot: i32, rows: i32, ring_slots: i32, oldest_slot: i32, save_entry: i32, padding: i32,
    }
    /// What changes from step to step of a captured graph.
    StepState {
        layers: u64,
        ropes: [u64; MAX_ROPES],
        kinds: [KindState; MAX_CACHE_KINDS],
        position: i32, token_slot: i32,
    }
    /// Of `begin_step`.
    BeginArgs {
        state: StepState,
        device_state: u64, token: u64,
        table: TileMatrix,
        x: u64,
        scale: f32, padding: i32,
    }
    /// A row of the residual stream and what is added to it.
    RowInput {
        x: u64, c: u64, c_rest: u64, c_norm: u64, x_out: u64, norm: u64,
        c_eps: f32, eps: f32, one_over_columns: f32, padding: i32,
    }
    /// A number and one over it.
    Divisor { value: i32, reciprocal: f32 }
    /// Units of a product and who has them (`linear_vector.h`).
    UnitShares {
        row_tile_units: Divisor, warp_units: Divisor,
        step_units: i32, block_steps: i32, larger_blocks: i32, first_units: i32,
    }
    /// Of `vector_product_*`.
    VectorArgs {
        w: TileMatrix, input: RowInput, y: u64, y_rest: u64, best: u64,
        shares: UnitShares,
        output: i32, gate: i32,
    }
    /// Of `pick`.
    PickArgs { best: u64, tokens: u64, host_tokens: u64, state: u64, count: i32, slot: i32 }
    /// Of `draw_*`.
    DrawArgs {
        logits: u64, tokens: u64, host_tokens: u64, state: u64,
        scale: f32, keep: u32, uniform: u32, count: i32, slot: i32, finds_kept: i32,
    }
    /// Of `block_best`.
    BlockBestArgs { logits: u64, best: u64, count: i32, padding: i32 }
    /// Rows of a matrix in the order of the file.
    FileMatrix {
        weights: u64, scales: u64, biases: u64,
        first_row: i32, weight_kind: i32, scale_kind: i32, bias_kind: i32,
    }
    /// Which row of which of them a row of tiles is; `matrix` below 0 is a row of zeros.
    FileRow { matrix: i32, row: i32 }
    /// Of `arrange_codes` and `arrange_scales`.
    ArrangeArgs {
        matrices: u64, rows: u64, codes: u64, scales: u64,
        columns: i32, row_tiles: i32, column_tiles: i32, bits: i32, group: i32, scale_kind: i32,
    }
    /// Of `read_probe`.
    ReadProbeArgs { from: u64, sum: u64, count: i64 }
    /// Of `decode_attention_*`.
    DecodeAttentionArgs {
        state: u64, qkv: u64, out: u64, partials: u64, arrived: u64, q_norm: u64, k_norm: u64,
        q_eps: f32, k_eps: f32, scale: f32,
        layer: i32, kind: i32, rope: i32, heads: i32, kv_heads: i32, head_dim: i32,
        least_rows: i32,
    }
    /// Of `embed_rows`.
    EmbedRowsArgs {
        tiles: TileMatrix, plain: PlainMatrix, tokens: u64, x: u64, scale: f32, hidden: i32,
    }
    /// Of `fold_norm_*`.
    FoldNormArgs {
        x: u64, c: u64, c_norm: u64, norm: u64, out: u64,
        c_eps: f32, eps: f32, width: i32, stride: i32,
    }
    /// Of `matrix_product_*`.
    MatrixArgs {
        w: TileMatrix, x: u64, y: u64,
        tokens: i32, y_stride: i32, gated: i32, gate: i32,
    }
    /// Of `plain_product`.
    PlainMatrixArgs {
        w: PlainMatrix, x: u64, y: u64, tokens: i32, stride: i32, y_stride: i32, padding: i32,
    }
    /// Of `gate_rows`.
    GateRowsArgs { y: u64, out: u64, width: i32, gate: i32 }
    /// Of `finish_rows_*`.
    FinishRowsArgs {
        qkv: u64, rope: u64, q_norm: u64, k_norm: u64,
        cache: LayerCache,
        q_eps: f32, k_eps: f32,
        tokens: i32, first_position: i32, first_slot: i32, save_entry: i32,
        heads: i32, kv_heads: i32, head_dim: i32, padding: i32,
    }
    /// Of `prefill_attention_*`.
    PrefillAttentionArgs {
        qkv: u64, cache: LayerCache, out: u64, scale: f32,
        tokens: i32, first_token: i32, out_stride: i32, rows: i32, ring_slots: i32, oldest_slot: i32, oldest: i32, newest: i32,
        heads: i32, kv_heads: i32, head_dim: i32,
    }
}

/// A kernel of each argument struct and the struct's size, and a struct that no kernel has as an argument.
#[cfg(test)]
pub(crate) fn args_sizes() -> Vec<(&'static str, usize)> {
    vec![
        ("begin_step", size_of::<BeginArgs>()),
        ("vector_product_4", size_of::<VectorArgs>()),
        ("pick", size_of::<PickArgs>()),
        ("block_best", size_of::<BlockBestArgs>()),
        ("draw_coarse", size_of::<DrawArgs>()),
        ("DrawState", DRAW_STATE_BYTES),
        ("arrange_codes", size_of::<ArrangeArgs>()),
        ("read_probe", size_of::<ReadProbeArgs>()),
        ("decode_attention_32_2", size_of::<DecodeAttentionArgs>()),
        ("embed_rows", size_of::<EmbedRowsArgs>()),
        ("fold_norm_bf16", size_of::<FoldNormArgs>()),
        ("matrix_product_4", size_of::<MatrixArgs>()),
        ("plain_product", size_of::<PlainMatrixArgs>()),
        ("gate_rows", size_of::<GateRowsArgs>()),
        ("finish_rows_bf16", size_of::<FinishRowsArgs>()),
        (
            "prefill_attention_bf16_8_2",
            size_of::<PrefillAttentionArgs>(),
        ),
    ]
}
