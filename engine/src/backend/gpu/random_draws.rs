//! Random draws on the device, each the token that the host draws from the same logits.

use std::sync::Arc;

use crate::backend::gpu::buffer::{Buffer, as_bytes};
use crate::backend::gpu::context::Model;
use crate::backend::gpu::draw::{DrawBuffer, DrawPlace};
use crate::backend::gpu::machine::Machine;
use crate::backend::gpu::random_module::Random;
use crate::backend::gpu::routes::Routes;
use crate::backend::interface::{Arithmetic, Sampling};
use crate::backend::sample::{self, Draw};

const SLOTS: usize = 3;

/// Runs `cases` cases with up to `most` logits on `machine`; the same ones at every call.
pub(crate) fn check(machine: &Arc<dyn Machine>, cases: u64, most: usize) {
    let model = Model {
        units: 1,
        routes: Routes::new(&machine.profile(), Arithmetic::Fast),
        machine: Arc::clone(machine),
        arithmetic: Arithmetic::Fast,
        linears: Vec::new(),
        gated: Vec::new(),
        vectors: Vec::new(),
    };
    // One for all: each draw has to find it as it was before the first.
    let draws = DrawBuffer::new(&model).unwrap();
    let check = |logits: &[f32], sampling: Sampling, told: &str| {
        let got = drawn(&model, &draws, logits, sampling);
        let wanted = sample::choose(logits, sampling);
        assert_eq!(
            got,
            (wanted, wanted),
            "{told}, {} logits, {sampling:?}",
            logits.len()
        );
    };
    for seed in 0..cases {
        let mut random = Random::new(seed);
        let logits = random_logits(random.up_to(most), &mut random);
        let last = 1.0 - 0.5f32.powi(24);
        let sampling = Sampling::TopP {
            temperature: [1.01 + random.uniform(), 1.0, 1e-6, 1e6][random.up_to(4) - 1],
            top_p: [1.0, 0.95, 0.5, 0.3, 0.0][random.up_to(5) - 1],
            uniform: [((random.uniform() + 1.0) / 2.0).min(last), last][random.up_to(6) / 6],
        };
        check(&logits, sampling, &format!("seed {seed}"));
    }
    // The largest sum, and shares of it that end with a token.
    for top_p in [1.0, 0.5] {
        let sampling = Sampling::TopP {
            temperature: 1.0,
            top_p,
            uniform: 0.75,
        };
        check(&vec![-2.5; most], sampling, "all equal");
        check(&[0.5], sampling, "one");
    }
}

/// Steps between logits make ties; a few logits are infinite or no numbers.
fn random_logits(count: usize, random: &mut Random) -> Vec<f32> {
    let steps = [2.0, 100.0, 1e6][random.up_to(3) - 1];
    let spread = [0.1, 5.0, 40.0][random.up_to(3) - 1];
    let odd = [f32::NAN, f32::NEG_INFINITY, f32::INFINITY];
    let odd = &odd[..random.up_to(4) - 1];
    let mut logit = || match random.up_to(200) {
        place if place <= odd.len() => odd[place - 1],
        _ => (random.uniform() * steps).floor() / steps * spread,
    };
    (0..count).map(|_| logit()).collect()
}

/// The token as the device and as the host has it.
fn drawn(model: &Model, draws: &DrawBuffer, logits: &[f32], sampling: Sampling) -> (u32, u32) {
    let machine = model.machine.as_ref();
    let buffer = Buffer::of(&model.machine, logits).unwrap();
    let slot = 1;
    let mut ids = [u32::MAX; SLOTS];
    ids[slot] = sample::argmax(logits);
    let tokens = Buffer::of(&model.machine, &ids).unwrap();
    let host_tokens = machine.host_words(SLOTS).unwrap();
    let place = DrawPlace {
        logits: (buffer.address(), logits.len()),
        tokens: tokens.address(),
        host_tokens,
        slot,
    };
    let draw = Draw::of(sampling).unwrap();
    draws.queue(model, draw, place).unwrap();
    let mut bytes = [0u8; 4 * SLOTS];
    machine.read(tokens.address(), &mut bytes).unwrap();
    let words = bytes.as_chunks::<4>().0;
    ids[slot] = u32::from_le_bytes(words[slot]);
    assert_eq!(bytes, as_bytes(&ids), "other slots");
    (ids[slot], machine.word(host_tokens, slot))
}
