//! The devices that the tables know, as plain data: what decides a route and nothing else.

/// What the route of a product depends on, of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// An AMD GPU.
    Rocm(RocmProfile),
    /// An NVIDIA GPU.
    Cuda(CudaProfile),
    /// A processor.
    Cpu(CpuProfile),
}

/// Families of AMD GPUs that differ in their matrix units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RocmGeneration {
    /// gfx11 before the integrated gfx115x.
    Rdna3,
    /// gfx115x.
    Rdna35,
    /// gfx12.
    Rdna4,
    /// Data-centre GPUs, whose matrix instructions are others.
    Cdna,
}

/// An AMD GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RocmProfile {
    /// `gfx…`.
    pub architecture: &'static str,
    /// Its family.
    pub generation: RocmGeneration,
    /// Whether it shares the processor's memory.
    pub integrated: bool,
    /// Compute units of the largest product with this architecture.
    pub compute_units: usize,
    /// A library for dense products is there (hipBLASLt).
    pub blas: bool,
    /// It multiplies e4m3 matrices.
    pub e4m3_gemm: bool,
}

impl RocmProfile {
    /// Whether it has the WMMA instructions on bf16.
    #[must_use]
    pub fn has_wmma(&self) -> bool {
        self.generation != RocmGeneration::Cdna
    }
}

/// An NVIDIA GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CudaProfile {
    /// `sm_…`.
    pub architecture: &'static str,
}

/// Instruction sets of processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuIsa {
    /// AVX-512 with VNNI.
    X86Avx512,
    /// AVX2 with FMA.
    X86Avx2,
    /// Advanced SIMD.
    Aarch64,
    /// None that a kernel is written for.
    Portable,
}

/// A processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuProfile {
    /// What its kernels use.
    pub isa: CpuIsa,
}

const GFX1151: RocmProfile = RocmProfile {
    architecture: "gfx1151",
    generation: RocmGeneration::Rdna35,
    integrated: true,
    compute_units: 40,
    blas: true,
    e4m3_gemm: false,
};

const fn cpu(isa: CpuIsa) -> Profile {
    Profile::Cpu(CpuProfile { isa })
}

/// Every profile that can be named.
pub const PROFILES: [Profile; 12] = [
    Profile::Rocm(RocmProfile {
        architecture: "gfx1150",
        compute_units: 16,
        ..GFX1151
    }),
    Profile::Rocm(GFX1151),
    Profile::Rocm(RocmProfile {
        architecture: "gfx1152",
        compute_units: 8,
        ..GFX1151
    }),
    Profile::Rocm(RocmProfile {
        architecture: "gfx1100",
        generation: RocmGeneration::Rdna3,
        integrated: false,
        compute_units: 96,
        ..GFX1151
    }),
    Profile::Rocm(RocmProfile {
        architecture: "gfx1201",
        generation: RocmGeneration::Rdna4,
        integrated: false,
        compute_units: 64,
        e4m3_gemm: true,
        ..GFX1151
    }),
    Profile::Rocm(RocmProfile {
        architecture: "gfx942",
        generation: RocmGeneration::Cdna,
        integrated: false,
        compute_units: 304,
        e4m3_gemm: true,
        ..GFX1151
    }),
    Profile::Cuda(CudaProfile {
        architecture: "sm_90",
    }),
    Profile::Cuda(CudaProfile {
        architecture: "sm_121",
    }),
    cpu(CpuIsa::X86Avx512),
    cpu(CpuIsa::X86Avx2),
    cpu(CpuIsa::Aarch64),
    cpu(CpuIsa::Portable),
];

/// A name that no profile has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no route profile {got:?}, expected one of {known}")]
pub struct UnknownProfile {
    /// The name.
    pub got: String,
    /// Those that exist.
    pub known: String,
}

impl Profile {
    /// The name in options and reports.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Rocm(rocm) => rocm.architecture,
            Self::Cuda(cuda) => cuda.architecture,
            Self::Cpu(cpu) => match cpu.isa {
                CpuIsa::X86Avx512 => "x86-avx512",
                CpuIsa::X86Avx2 => "x86-avx2",
                CpuIsa::Aarch64 => "aarch64",
                CpuIsa::Portable => "portable",
            },
        }
    }

    /// The profile called `name`.
    ///
    /// # Errors
    /// When there is none; the error lists those that exist.
    pub fn find(name: &str) -> Result<Self, UnknownProfile> {
        let mut found = PROFILES
            .into_iter()
            .filter(|profile| profile.name() == name);
        found.next().ok_or_else(|| UnknownProfile {
            got: name.to_owned(),
            known: PROFILES.map(|profile| profile.name()).join(", "),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_is_found_by_its_name_and_no_other_is() {
        for profile in PROFILES {
            assert_eq!(Profile::find(profile.name()), Ok(profile));
        }
        let error = Profile::find("gfx9").unwrap_err().to_string();
        assert!(
            error.contains("\"gfx9\"") && error.contains("gfx1151, gfx1152"),
            "{error}"
        );
    }
}
