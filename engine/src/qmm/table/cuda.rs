//! NVIDIA GPUs: a vector kernel and a fused tile.

use crate::qmm::problem::Problem;
use crate::qmm::profiles::CudaProfile;
use crate::qmm::route::Route;
use crate::qmm::threshold::QMV_MAX_M;

/// The route of `problem`.
///
/// No number of rows leaves the fused tile, because there is no other kernel for many rows: a library
/// would be a tenth to a quarter faster on an H200 and is not required (docs/adr/0029).
pub(in crate::qmm) fn choose(problem: &Problem, _device: &CudaProfile) -> Route {
    if !problem.transpose {
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
    use crate::qmm::problem::Float;

    #[test]
    fn one_row_streams_and_many_are_tiled() {
        let device = CudaProfile {
            architecture: "sm_90",
        };
        let route = |m| choose(&Problem::linear((m, 64, 64), Float::Bf16, 4, 64), &device);
        assert_eq!(route(1), Route::Qmv);
        assert_eq!(route(QMV_MAX_M), Route::BatchedQmv);
        assert_eq!(route(QMV_MAX_M + 1), Route::Tiled);
        assert_eq!(route(4096), Route::Tiled);
    }
}
