//! Processors: int8 kernels for one row and for many.

use crate::qmm::problem::Problem;
use crate::qmm::profiles::CpuProfile;
use crate::qmm::route::Route;

/// The route of `problem`.
///
/// No number of rows leaves the fused tile: up to 2048 rows dequantising took 1.2 to 190 times as
/// long on every instruction set that a kernel is written for (docs/performance.md, "Where the
/// routes cross").
pub(in crate::qmm) fn choose(problem: &Problem, _device: CpuProfile) -> Route {
    match (problem.transpose, problem.m) {
        (false, _) => Route::DequantGemm,
        (true, 1) => Route::Qmv,
        (true, _) => Route::Tiled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qmm::problem::Float;
    use crate::qmm::profiles::CpuIsa;

    #[test]
    fn one_row_streams_and_more_are_tiled() {
        let device = CpuProfile {
            isa: CpuIsa::X86Avx512,
        };
        let route = |m| choose(&Problem::linear((m, 64, 64), Float::Bf16, 4, 64), device);
        assert_eq!(
            [route(1), route(2), route(4096)],
            [Route::Qmv, Route::Tiled, Route::Tiled]
        );
    }
}
