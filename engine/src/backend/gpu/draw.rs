//! A token drawn on the device, behind the step that left the logits: nothing waits for the host.

use crate::backend::gpu::args::{DRAW_BLOCKS, DRAW_STATE_BYTES, DrawArgs};
use crate::backend::gpu::buffer::Buffer;
use crate::backend::gpu::context::Model;
use crate::backend::gpu::machine::{HostWords, Launch};
use crate::backend::sample::Draw;
use crate::error::BackendError;

/// Logits that each thread looks at in one go (`each_distance`).
const THREAD_LOGITS: usize = 8;

/// What draws leave for each other on the device.
#[derive(Debug)]
pub(crate) struct DrawBuffer {
    state: Buffer,
}

/// What a draw chooses from, and where the token goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DrawPlace {
    /// Where the logits of one row are, and how many.
    pub(crate) logits: (u64, usize),
    /// On the device; the slot has the likeliest token already.
    pub(crate) tokens: u64,
    /// The same for the host.
    pub(crate) host_tokens: HostWords,
    pub(crate) slot: usize,
}

impl DrawBuffer {
    /// Before the first draw.
    pub(crate) fn new(model: &Model) -> Result<Self, BackendError> {
        Ok(Self {
            state: Buffer::zeroed(&model.machine, DRAW_STATE_BYTES)?,
        })
    }

    /// Queues the kernels of `engine/kernels/draw.h`.
    pub(crate) fn queue(
        &self,
        model: &Model,
        draw: Draw,
        place: DrawPlace,
    ) -> Result<(), BackendError> {
        let (logits, count) = place.logits;
        let args = DrawArgs {
            logits,
            tokens: place.tokens,
            host_tokens: place.host_tokens.device,
            state: self.state.address(),
            scale: draw.scale,
            keep: draw.keep,
            uniform: draw.uniform,
            count: count as i32,
            slot: place.slot as i32,
            finds_kept: 0,
        };
        let block_logits = THREAD_LOGITS * model.machine.tuning().threads as usize;
        let blocks = count.div_ceil(block_logits).clamp(1, DRAW_BLOCKS);
        let launch = Launch {
            overlaps: true,
            ..model.blocks((blocks, 1))
        };
        model.launch("draw_coarse", launch, &args)?;
        if !draw.keeps_all() {
            let kept = DrawArgs {
                finds_kept: 1,
                ..args
            };
            model.launch("draw_fine", launch, &kept)?;
        }
        model.launch("draw_fine", launch, &args)?;
        model.launch("draw_token", launch, &args)
    }
}
