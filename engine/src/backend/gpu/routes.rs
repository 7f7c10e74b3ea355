//! Which routes products with quantised weights take, counted for reports.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::backend::gpu::args::TileMatrix;
use crate::backend::interface::Arithmetic;
use crate::device_profile::DeviceProfile;
use crate::qmm::{Float, Problem, Profile, QmmOptions, QmmReport, Route, choose};

/// Products by route.
#[derive(Debug)]
pub(crate) struct Routes {
    /// Whose table is asked; none for a device without one, and for the slow twin.
    profile: Option<Profile>,
    counts: [AtomicU64; Route::ALL.len()],
}

impl Routes {
    /// Nothing counted yet.
    pub(crate) fn new(device: &DeviceProfile, arithmetic: Arithmetic) -> Self {
        let known = Profile::find(&device.architecture).ok();
        Self {
            profile: known.filter(|_| arithmetic == Arithmetic::Fast),
            counts: Default::default(),
        }
    }

    /// Counts `products` of `tokens` rows with the parts of `w`. The kernels themselves are chosen by `matrix.rs`: no table of a
    /// GPU with these kernels has a route that they are not.
    pub(crate) fn count(&self, w: &TileMatrix, tokens: usize, products: u64) {
        let (Some(profile), Some(problem)) = (&self.profile, problem(w, tokens)) else {
            return;
        };
        let route = choose(&problem, profile, &QmmOptions::default());
        self.add(route, products);
    }

    /// Products of one row so far.
    pub(crate) fn of_one_row(&self) -> u64 {
        self.counts[Route::Qmv as usize].load(Ordering::Relaxed)
    }

    /// Counts `products` of one row, which a graph holds.
    pub(crate) fn count_of_one_row(&self, products: u64) {
        self.add(Route::Qmv, products);
    }

    fn add(&self, route: Route, products: u64) {
        self.counts[route as usize].fetch_add(products, Ordering::Relaxed);
    }

    /// What was counted.
    pub(crate) fn report(&self) -> QmmReport {
        let Some(profile) = &self.profile else {
            return QmmReport::default();
        };
        let count = |route: Route| self.counts[route as usize].load(Ordering::Relaxed);
        let taken = Route::ALL.into_iter().filter(|route| count(*route) > 0);
        QmmReport {
            profile: profile.name().to_owned(),
            routes: taken
                .map(|route| (route.name().to_owned(), count(route)))
                .collect(),
            ..QmmReport::default()
        }
    }
}

/// `None` for weights that are no codes.
fn problem(w: &TileMatrix, tokens: usize) -> Option<Problem> {
    let float = match w.scale_kind {
        0 => Float::Bf16,
        1 => Float::F16,
        _ => Float::F32,
    };
    let shape = (tokens, w.rows as usize, w.columns as usize);
    (w.bits < 16).then(|| {
        let problem = Problem::linear(shape, float, w.bits as usize, w.group as usize);
        // Activations are bf16, whatever the scales are.
        Problem {
            x: Float::Bf16,
            ..problem
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(architecture: &str) -> DeviceProfile {
        DeviceProfile {
            backend: "cuda".to_owned(),
            name: String::new(),
            architecture: architecture.to_owned(),
            units: 1,
            memory_bytes: None,
            bandwidth_bytes_per_second: None,
        }
    }

    #[test]
    fn products_are_counted_by_the_route_of_the_devices_table() {
        let routes = Routes::new(&device("sm_90"), Arithmetic::Fast);
        let w = TileMatrix {
            rows: 64,
            columns: 64,
            bits: 4,
            group: 64,
            ..TileMatrix::default()
        };
        routes.count(&w, 1, 1);
        routes.count(&w, 2048, 2);
        routes.count(&TileMatrix { bits: 16, ..w }, 2048, 1);
        routes.count_of_one_row(3);
        let report = routes.report();
        assert_eq!(report.profile, "sm_90");
        let counted: Vec<_> = report.routes.into_iter().collect();
        assert_eq!(counted, [("qmv".to_owned(), 4), ("tiled".to_owned(), 2)]);
    }

    #[test]
    fn a_device_without_a_table_and_the_slow_twin_count_nothing() {
        for (architecture, arithmetic) in
            [("sim", Arithmetic::Fast), ("sm_90", Arithmetic::Float32)]
        {
            let routes = Routes::new(&device(architecture), arithmetic);
            routes.count_of_one_row(1);
            assert_eq!(routes.report(), QmmReport::default());
        }
    }
}
