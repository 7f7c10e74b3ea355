//! NVIDIA GPUs: a vector kernel, a fused tile, and above a number of rows the library.

use crate::qmm::problem::Problem;
use crate::qmm::profiles::CudaProfile;
use crate::qmm::route::Route;
use crate::qmm::threshold::{CUDA_DEQUANT_MIN_M, QMV_MAX_M};

/// The route of `problem`.
pub(in crate::qmm) fn choose(problem: &Problem, device: &CudaProfile) -> Route {
    let dequant = problem.is_affine() && device.blas;
    if dequant && (!problem.transpose || problem.m >= CUDA_DEQUANT_MIN_M) {
        return Route::DequantGemm;
    }
    match (problem.m, problem.is_single()) {
        (1, true) => Route::Qmv,
        (rows, _) if rows <= QMV_MAX_M => Route::BatchedQmv,
        _ => Route::Tiled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qmm::problem::{Float, Mode};

    #[test]
    fn the_library_takes_over_where_bytes_stop_to_matter() {
        let device = CudaProfile {
            architecture: "sm_90",
            blas: true,
        };
        let route = |m| choose(&Problem::linear((m, 64, 64), Float::Bf16, 4, 64), &device);
        assert_eq!(route(1), Route::Qmv);
        assert_eq!(route(QMV_MAX_M), Route::BatchedQmv);
        assert_eq!(route(CUDA_DEQUANT_MIN_M - 1), Route::Tiled);
        assert_eq!(route(CUDA_DEQUANT_MIN_M), Route::DequantGemm);
        let mut mxfp4 = Problem::linear((512, 64, 64), Float::Bf16, 4, 32);
        mxfp4.mode = Mode::Mxfp4;
        assert_eq!(choose(&mxfp4, &device), Route::Tiled);
    }
}
