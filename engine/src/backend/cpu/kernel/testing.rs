//! What the kernels' tests share: every instruction set, and data to feed them.

use super::dispatch::{CpuFeatures, KernelChoice};
use super::kernels::Kernels;

/// Kernels of every instruction set that this machine has.
pub(super) fn every_isa(threads: usize) -> Vec<Kernels> {
    let isas = CpuFeatures::detect().available();
    isas.into_iter()
        .map(|isa| Kernels::new(KernelChoice::Force(isa), threads).unwrap())
        .collect()
}

/// Pseudo-random numbers, the same on every run (a 64-bit linear congruence).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn bits(&mut self) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 32) as u32
    }

    /// Uniform in −1..1.
    pub(super) fn unit(&mut self) -> f32 {
        self.bits() as f32 / (1u64 << 31) as f32 - 1.0
    }
}

/// `count` numbers within ±4, of both signs and varied size.
pub(super) fn wave(count: usize, seed: f32) -> Vec<f32> {
    let mut random = Random(u64::from(seed.to_bits()));
    (0..count)
        .map(|_| random.unit() * 4.0 * random.unit())
        .collect()
}
