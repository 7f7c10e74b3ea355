//! Executes the route that the table chooses for a product with quantised weights.
//!
//! Every route of every profile has a mechanism here: the packed ones are the int8 kernels, the
//! others dequantise and multiply densely. So a processor can take another device's routes
//! (`--route-profile`), to test what does not depend on that device: its choices and its cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::kernel::{
    Activations, DequantisedMatrix, FloatKind, Isa, Kernels, QuantisedMatrix, dense_product,
    product,
};
use crate::qmm::{
    CpuIsa, CpuProfile, DequantKey, DequantLimits, DequantLru, Float, Problem, Profile, QmmOptions,
    QmmReport, Route, choose,
};

/// A route table: [`choose`], or what a test puts in its place.
pub type Choose = fn(&Problem, &Profile, &QmmOptions) -> Route;

/// Products by route, and what the routes share.
#[derive(Debug)]
pub struct RoutedProducts {
    choose: Choose,
    profile: Profile,
    foreign: bool,
    options: QmmOptions,
    counts: [AtomicU64; Route::ALL.len()],
    cache: DequantLru<Dequantised>,
}

/// A cached matrix with its source, whose addresses are its key.
#[derive(Debug)]
struct Dequantised {
    matrix: DequantisedMatrix,
    _source: Arc<QuantisedMatrix>,
}

impl RoutedProducts {
    /// The routes of `profile`, or of the processor itself.
    #[must_use]
    pub fn new(isa: Isa, profile: Option<Profile>, options: QmmOptions) -> Self {
        Self::with_table(choose, isa, profile, options)
    }

    /// The same with another table.
    #[must_use]
    pub fn with_table(
        choose: Choose,
        isa: Isa,
        profile: Option<Profile>,
        options: QmmOptions,
    ) -> Self {
        let own = own_profile(isa);
        Self {
            choose,
            profile: profile.unwrap_or(own),
            foreign: profile.is_some_and(|profile| profile != own),
            options,
            counts: Default::default(),
            cache: DequantLru::new(DequantLimits::of(&options)),
        }
    }

    /// Whether the routes are those of another device.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        self.foreign
    }

    /// The route of `tokens` rows times `matrix`.
    #[must_use]
    pub fn route(&self, matrix: &QuantisedMatrix, tokens: usize) -> Route {
        (self.choose)(&problem(matrix, tokens), &self.profile, &self.options)
    }

    /// Counts a product that was computed by `route` as part of a fused stage.
    pub fn count(&self, route: Route) {
        self.counts[route as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// `y = x Wᵀ` by whatever route; `x` is `[tokens, in]`, `y` `[tokens, out]`.
    pub fn product(
        &self,
        kernels: &Kernels,
        matrix: &Arc<QuantisedMatrix>,
        activations: &mut Activations,
        x: &[f32],
        y: &mut [f32],
    ) {
        let route = self.route(matrix, x.len() / matrix.columns());
        self.count(route);
        match route {
            Route::Qmv | Route::BatchedQmv | Route::Tiled | Route::WmmaDense => {
                activations.quantise(kernels, x, matrix.columns(), matrix.group());
                product(kernels, matrix, activations, y);
            }
            Route::DequantGemm => {
                let kind = matrix.scale_kind();
                let shape = (matrix.rows(), matrix.columns());
                let bytes = DequantisedMatrix::bytes_of(shape.0, shape.1, kind);
                let weights = self.cache.get(key(matrix), shape, bytes, || Dequantised {
                    matrix: DequantisedMatrix::new(kernels, matrix),
                    _source: Arc::clone(matrix),
                });
                dense_product(kernels, &weights.matrix, x, y);
            }
            Route::DequantGemmAboveWmmaCeiling => {
                self.cache.bypass();
                dense_product(kernels, &DequantisedMatrix::new(kernels, matrix), x, y);
            }
            // No e4m3 on a processor: the same weights before they would be rounded to it.
            Route::DequantFp8Gemm => {
                dense_product(kernels, &DequantisedMatrix::new(kernels, matrix), x, y);
            }
        }
    }

    /// What happened so far.
    #[must_use]
    pub fn report(&self) -> QmmReport {
        let count = |route: Route| self.counts[route as usize].load(Ordering::Relaxed);
        let taken = Route::ALL.into_iter().filter(|route| count(*route) > 0);
        QmmReport {
            profile: self.profile.name().to_owned(),
            foreign: self.foreign,
            options: self.options,
            routes: taken
                .map(|route| (route.name().to_owned(), count(route)))
                .collect(),
            dequant_cache: self.cache.stats(),
        }
    }
}

/// The table of the processor itself.
fn own_profile(isa: Isa) -> Profile {
    let isa = match isa {
        Isa::Avx512Vnni => CpuIsa::X86Avx512,
        Isa::Avx2 => CpuIsa::X86Avx2,
        Isa::Neon => CpuIsa::Aarch64,
        Isa::Scalar => CpuIsa::Portable,
    };
    Profile::Cpu(CpuProfile { isa })
}

/// The type that a model computes in is that of its scales; here activations are float32 whatever
/// it is, and only the choice of a route and the type of dequantised weights follow it.
fn problem(matrix: &QuantisedMatrix, tokens: usize) -> Problem {
    let shape = (tokens, matrix.rows(), matrix.columns());
    let float = float(matrix.scale_kind());
    Problem::linear(shape, float, matrix.source_bits(), matrix.group())
}

/// Codes, scales and biases lie in one buffer here.
fn key(matrix: &QuantisedMatrix) -> DequantKey {
    let [weight, scales, biases] = matrix.addresses();
    DequantKey {
        weight,
        scales,
        biases,
        group: matrix.group(),
        bits: matrix.source_bits(),
        stream: 0,
        transpose: true,
        dtype: float(matrix.scale_kind()),
    }
}

fn float(kind: FloatKind) -> Float {
    match kind {
        FloatKind::Bf16 => Float::Bf16,
        FloatKind::F16 => Float::F16,
        FloatKind::F32 => Float::F32,
    }
}
