//! AMD GPUs. The order of the questions is that of the published decision.

use crate::qmm::options::{QmmOptions, WmmaChoice};
use crate::qmm::problem::{Float, Problem};
use crate::qmm::profiles::{RocmGeneration, RocmProfile};
use crate::qmm::route::Route;
use crate::qmm::threshold::{
    FP8_MIN_M, LOW_COMPUTE_UNITS, QMV_MAX_M, RDNA35_WMMA_CEILING_M, ROCM_DEQUANT_MIN_M,
    ROCM_QMV_BITS, WMMA_BITS, WMMA_GROUP, WMMA_TILE_K, WMMA_TILE_N,
};

/// The route of `problem`.
pub(in crate::qmm) fn choose(
    problem: &Problem,
    device: &RocmProfile,
    options: &QmmOptions,
) -> Route {
    let dequant = problem.is_affine()
        && device.blas
        && options.dequant_gemm
        && (forces_dequant(problem) || prefers_dequant(problem, options));
    let fp8 = dequant
        && problem.x == Float::Bf16
        && problem.is_single()
        && problem.m >= FP8_MIN_M
        && device.e4m3_gemm;
    if wants_wmma(device, options) && wmma_fits(problem, device) {
        let above = options.wmma != WmmaChoice::Force
            && dequant
            && problem.m >= wmma_ceiling(device, options)
            && !fp8;
        return if above {
            Route::DequantGemmAboveWmmaCeiling
        } else {
            Route::WmmaDense
        };
    }
    match (fp8, dequant) {
        (true, _) => Route::DequantFp8Gemm,
        (false, true) => Route::DequantGemm,
        (false, false) => packed(problem),
    }
}

fn wants_wmma(device: &RocmProfile, options: &QmmOptions) -> bool {
    match options.wmma {
        WmmaChoice::Force => true,
        WmmaChoice::Off => false,
        WmmaChoice::Auto => !(device.integrated && device.compute_units < LOW_COMPUTE_UNITS),
    }
}

fn wmma_fits(problem: &Problem, device: &RocmProfile) -> bool {
    problem.transpose
        && problem.is_affine()
        && problem.is_all(Float::Bf16)
        && problem.is_single()
        && problem.m > 1
        && problem.n.is_multiple_of(WMMA_TILE_N)
        && problem.k.is_multiple_of(WMMA_TILE_K)
        && problem.group == WMMA_GROUP
        && WMMA_BITS.contains(&problem.bits)
        && device.has_wmma()
}

/// Rows from which the WMMA kernel is left.
fn wmma_ceiling(device: &RocmProfile, options: &QmmOptions) -> usize {
    let default = match device.generation {
        RocmGeneration::Rdna35 => RDNA35_WMMA_CEILING_M,
        RocmGeneration::Rdna3 | RocmGeneration::Rdna4 | RocmGeneration::Cdna => usize::MAX,
    };
    options.wmma_max_m.unwrap_or(default)
}

/// No other route can read these weights.
fn forces_dequant(problem: &Problem) -> bool {
    !problem.transpose || !ROCM_QMV_BITS.contains(&problem.bits)
}

fn prefers_dequant(problem: &Problem, options: &QmmOptions) -> bool {
    if matches!(problem.bits, 4 | 8) && problem.m <= QMV_MAX_M {
        return false;
    }
    match options.dequant_m_threshold {
        Some(rows) => problem.m >= rows,
        None => !problem.transpose || problem.m >= ROCM_DEQUANT_MIN_M,
    }
}

/// The routes that read packed weights.
fn packed(problem: &Problem) -> Route {
    match (problem.m, problem.is_single()) {
        (1, true) => Route::Qmv,
        (rows, _) if rows <= QMV_MAX_M => Route::BatchedQmv,
        _ => Route::Tiled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qmm::profiles::Profile;

    fn gfx(name: &str) -> RocmProfile {
        match Profile::find(name) {
            Ok(Profile::Rocm(device)) => device,
            other => panic!("{other:?}"),
        }
    }

    fn problem(m: usize, float: Float) -> Problem {
        Problem::linear((m, 2560, 2560), float, 4, 64)
    }

    fn route(m: usize, float: Float, options: QmmOptions) -> Route {
        choose(&problem(m, float), &gfx("gfx1151"), &options)
    }

    #[test]
    fn bf16_leaves_the_fused_kernel_at_the_ceiling() {
        let options = QmmOptions::default();
        assert_eq!(route(1, Float::Bf16, options), Route::Qmv);
        assert_eq!(route(2, Float::Bf16, options), Route::WmmaDense);
        assert_eq!(route(127, Float::Bf16, options), Route::WmmaDense);
        let above = Route::DequantGemmAboveWmmaCeiling;
        assert_eq!(route(128, Float::Bf16, options), above);
    }

    #[test]
    fn a_forced_fused_kernel_has_no_ceiling() {
        let options = QmmOptions {
            wmma: WmmaChoice::Force,
            ..QmmOptions::default()
        };
        assert_eq!(route(4096, Float::Bf16, options), Route::WmmaDense);
        let low = choose(&problem(64, Float::Bf16), &gfx("gfx1152"), &options);
        assert_eq!(low, Route::WmmaDense);
    }

    #[test]
    fn the_ceiling_moves_with_its_variable_and_needs_the_dequant_route() {
        let lower = QmmOptions {
            wmma_max_m: Some(32),
            ..QmmOptions::default()
        };
        let above = Route::DequantGemmAboveWmmaCeiling;
        assert_eq!(route(64, Float::Bf16, lower), above);
        // Dequantising is not preferred yet at 33 rows.
        assert_eq!(route(33, Float::Bf16, lower), Route::WmmaDense);
        let off = QmmOptions {
            dequant_gemm: false,
            ..QmmOptions::default()
        };
        assert_eq!(route(4096, Float::Bf16, off), Route::WmmaDense);
    }

    #[test]
    fn f16_takes_the_cached_route_and_few_rows_stay_on_the_vector_kernel() {
        let options = QmmOptions::default();
        assert_eq!(route(128, Float::F16, options), Route::DequantGemm);
        assert_eq!(route(8, Float::F16, options), Route::BatchedQmv);
        assert_eq!(route(9, Float::F16, options), Route::Tiled);
        let eager = QmmOptions {
            dequant_m_threshold: Some(2),
            ..options
        };
        assert_eq!(route(8, Float::F16, eager), Route::BatchedQmv);
        assert_eq!(route(9, Float::F16, eager), Route::DequantGemm);
    }

    #[test]
    fn bits_without_a_vector_kernel_are_dequantised_even_for_one_row() {
        let mut one = problem(1, Float::F16);
        one.bits = 3;
        let options = QmmOptions::default();
        assert_eq!(choose(&one, &gfx("gfx1151"), &options), Route::DequantGemm);
        let off = QmmOptions {
            dequant_gemm: false,
            ..options
        };
        assert_eq!(choose(&one, &gfx("gfx1151"), &off), Route::Qmv);
    }

    #[test]
    fn a_device_with_e4m3_products_uses_them_where_the_fused_kernel_does_not_fit() {
        let options = QmmOptions::default();
        let rdna4 = gfx("gfx1201");
        // The fused kernel comes first, and fp8 keeps it from its ceiling.
        assert_eq!(
            choose(&problem(512, Float::Bf16), &rdna4, &options),
            Route::WmmaDense
        );
        let mut wide = problem(512, Float::Bf16);
        wide.group = 128;
        assert_eq!(choose(&wide, &rdna4, &options), Route::DequantFp8Gemm);
        wide.m = FP8_MIN_M - 1;
        assert_eq!(choose(&wide, &rdna4, &options), Route::Tiled);
    }

    #[test]
    fn what_does_not_fit_the_fused_kernel_goes_elsewhere() {
        let options = QmmOptions::default();
        let device = gfx("gfx1151");
        let fits = problem(64, Float::Bf16);
        assert_eq!(choose(&fits, &device, &options), Route::WmmaDense);
        for change in [
            |p: &mut Problem| p.n += 8,
            |p: &mut Problem| p.k += 32,
            |p: &mut Problem| p.group = 32,
            |p: &mut Problem| p.bits = 2,
            |p: &mut Problem| p.scales = Float::F32,
            |p: &mut Problem| p.x_batches = 2,
            |p: &mut Problem| p.transpose = false,
        ] {
            let mut other = fits;
            change(&mut other);
            assert_eq!(
                choose(&other, &device, &options),
                Route::DequantGemm,
                "{other:?}"
            );
        }
    }
}
