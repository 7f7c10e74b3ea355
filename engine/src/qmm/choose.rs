//! ★ The one place where a route is chosen.

use super::options::QmmOptions;
use super::problem::Problem;
use super::profiles::Profile;
use super::route::Route;
use super::table;

/// The route of `problem` on a device.
///
/// `options` come from variables named after ROCm and move the ROCm tables only.
#[must_use]
pub fn choose(problem: &Problem, profile: &Profile, options: &QmmOptions) -> Route {
    match profile {
        Profile::Rocm(rocm) => table::rocm::choose(problem, rocm, options),
        Profile::Cuda(cuda) => table::cuda::choose(problem, cuda),
        Profile::Cpu(cpu) => table::cpu::choose(problem, *cpu),
    }
}
