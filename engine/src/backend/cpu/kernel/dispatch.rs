//! Which instruction set the kernels use: detected once, chosen by a pure
//! function, reported by name.
//!
//! The choice knows no environment variable and no clock; an override arrives
//! as a [`KernelChoice`]. Every [`Isa`] exists on every machine, so that the
//! choice can be tested anywhere; only an available one can reach a kernel,
//! because [`super::Kernels`] checks it when it is built.

use std::fmt;

/// An instruction set that the kernels are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Isa {
    /// AVX-512 F/BW/DQ/VL with VNNI: `vpdpbusd` on 64 bytes.
    Avx512Vnni,
    /// AVX2 with FMA and F16C: `vpmaddubsw` on 32 bytes.
    Avx2,
    /// AArch64 Advanced SIMD: widening multiplies on 16 bytes.
    Neon,
    /// Portable Rust, the oracle of the others.
    Scalar,
}

impl Isa {
    /// Every instruction set, the preferred ones first.
    pub const ALL: [Isa; 4] = [Isa::Avx512Vnni, Isa::Avx2, Isa::Neon, Isa::Scalar];

    /// The name used in options and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Isa::Avx512Vnni => "avx512-vnni",
            Isa::Avx2 => "avx2",
            Isa::Neon => "neon",
            Isa::Scalar => "scalar",
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the user asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KernelChoice {
    /// The fastest instruction set that this processor has.
    #[default]
    Best,
    /// Exactly this one; an error where the processor lacks it.
    Force(Isa),
}

/// The processor features that the choice depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuFeatures {
    /// AVX-512 F, BW, DQ and VL, all of them.
    pub avx512: bool,
    /// AVX-512 VNNI.
    pub avx512_vnni: bool,
    /// AVX2, FMA and F16C, all of them.
    pub avx2_fma_f16c: bool,
    /// AArch64 Advanced SIMD.
    pub neon: bool,
}

impl CpuFeatures {
    /// Asks this processor.
    #[must_use]
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            CpuFeatures {
                avx512: has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl"),
                avx512_vnni: has!("avx512vnni"),
                avx2_fma_f16c: has!("avx2") && has!("fma") && has!("f16c"),
                neon: false,
            }
        }
        #[cfg(target_arch = "aarch64")]
        {
            CpuFeatures {
                neon: std::arch::is_aarch64_feature_detected!("neon"),
                ..CpuFeatures::default()
            }
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        {
            CpuFeatures::default()
        }
    }

    /// Whether a processor with these features can run `isa`.
    #[must_use]
    pub fn supports(self, isa: Isa) -> bool {
        match isa {
            // The AVX-512 kernels also use the 256-bit conversions.
            Isa::Avx512Vnni => self.avx512 && self.avx512_vnni && self.avx2_fma_f16c,
            Isa::Avx2 => self.avx2_fma_f16c,
            Isa::Neon => self.neon,
            Isa::Scalar => true,
        }
    }

    /// The instruction sets that a processor with these features can run,
    /// the preferred ones first.
    #[must_use]
    pub fn available(self) -> Vec<Isa> {
        let mut available = Isa::ALL.to_vec();
        available.retain(|&isa| self.supports(isa));
        available
    }
}

/// Why no kernels could be chosen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DispatchError {
    /// A forced instruction set that this processor lacks.
    #[error("kernels {asked} are not available on this processor, expected one of: {available}")]
    Unavailable {
        /// The forced one.
        asked: Isa,
        /// Names of those that would do.
        available: String,
    },
}

/// Decides which instruction set to use.
///
/// # Errors
/// [`DispatchError::Unavailable`] when a forced one is not supported.
pub fn choose(features: CpuFeatures, choice: KernelChoice) -> Result<Isa, DispatchError> {
    let available = features.available();
    match choice {
        KernelChoice::Best => Ok(available.first().copied().unwrap_or(Isa::Scalar)),
        KernelChoice::Force(asked) if available.contains(&asked) => Ok(asked),
        KernelChoice::Force(asked) => Err(DispatchError::Unavailable {
            asked,
            available: available
                .iter()
                .map(|isa| isa.name())
                .collect::<Vec<_>>()
                .join(", "),
        }),
    }
}

/// Declares `unsafe fn name(isa, …)`, which calls a kernel generic over
/// [`super::lanes::Lanes`] compiled for that instruction set.
///
/// The kernel and every lane operation are `inline(always)`, so that they are
/// compiled inside the function that enables the features. The declared
/// function's contract: the processor supports `isa`, and the kernel's own.
macro_rules! isa_entry {
    (
        $(#[$meta:meta])*
        fn $name:ident $([$($generic:ident: $bound:path),+])? ($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?
        { avx512: $avx512:expr, avx2: $avx2:expr, neon: $neon:expr, scalar: $scalar:expr $(,)? }
    ) => {
        $(#[$meta])*
        unsafe fn $name $(<$($generic: $bound),+>)? (isa: $crate::backend::cpu::kernel::dispatch::Isa, $($arg: $ty),*) $(-> $ret)? {
            use $crate::backend::cpu::kernel::dispatch::Isa;

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
            unsafe fn avx512 $(<$($generic: $bound),+>)? ($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: the features are enabled here; the rest is the caller's contract.
                unsafe { $avx512($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            unsafe fn avx2 $(<$($generic: $bound),+>)? ($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: as above.
                unsafe { $avx2($($arg),*) }
            }
            #[cfg(target_arch = "aarch64")]
            #[target_feature(enable = "neon")]
            unsafe fn neon $(<$($generic: $bound),+>)? ($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: as above.
                unsafe { $neon($($arg),*) }
            }
            match isa {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the caller's contract: the processor supports `isa`.
                Isa::Avx512Vnni => unsafe { avx512($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: as above.
                Isa::Avx2 => unsafe { avx2($($arg),*) },
                #[cfg(target_arch = "aarch64")]
                // SAFETY: as above.
                Isa::Neon => unsafe { neon($($arg),*) },
                // SAFETY: portable code; the rest is the caller's contract.
                _ => unsafe { $scalar($($arg),*) },
            }
        }
    };
    (
        $(#[$meta:meta])*
        fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? = $kernel:ident
    ) => {
        isa_entry! {
            $(#[$meta])*
            fn $name($($arg: $ty),*) $(-> $ret)? {
                avx512: $kernel::<$crate::backend::cpu::kernel::lanes::Avx512>,
                avx2: $kernel::<$crate::backend::cpu::kernel::lanes::Avx2>,
                neon: $kernel::<$crate::backend::cpu::kernel::lanes::Neon>,
                scalar: $kernel::<$crate::backend::cpu::kernel::lanes::Scalar>,
            }
        }
    };
}
pub(super) use isa_entry;

#[cfg(test)]
mod tests {
    use super::*;

    const ZEN4: CpuFeatures = CpuFeatures {
        avx512: true,
        avx512_vnni: true,
        avx2_fma_f16c: true,
        neon: false,
    };

    #[test]
    fn the_best_choice_follows_the_features() {
        let best = |features| choose(features, KernelChoice::Best);
        assert_eq!(best(ZEN4), Ok(Isa::Avx512Vnni));
        assert_eq!(
            best(CpuFeatures {
                avx512_vnni: false,
                ..ZEN4
            }),
            Ok(Isa::Avx2)
        );
        assert_eq!(
            best(CpuFeatures {
                avx512: false,
                ..ZEN4
            }),
            Ok(Isa::Avx2)
        );
        assert_eq!(
            best(CpuFeatures {
                neon: true,
                ..CpuFeatures::default()
            }),
            Ok(Isa::Neon)
        );
        assert_eq!(best(CpuFeatures::default()), Ok(Isa::Scalar));
    }

    #[test]
    fn a_forced_choice_is_taken_where_available() {
        for isa in [Isa::Avx512Vnni, Isa::Avx2, Isa::Scalar] {
            assert_eq!(choose(ZEN4, KernelChoice::Force(isa)), Ok(isa));
        }
    }

    #[test]
    fn a_forced_choice_that_is_absent_names_the_available_ones() {
        let error = choose(ZEN4, KernelChoice::Force(Isa::Neon)).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("neon") && text.contains("avx512-vnni, avx2, scalar"),
            "{text}"
        );
    }

    #[test]
    fn detection_always_offers_the_scalar_kernels() {
        assert_eq!(CpuFeatures::detect().available().last(), Some(&Isa::Scalar));
    }
}
