//! Metrics from the operating system's account of a process.

use crate::experiment::model::Rusage;
use crate::record::format::Usage;

/// The figure of `usage` in its unit: seconds or bytes.
#[must_use]
#[expect(
    clippy::cast_precision_loss,
    reason = "2^53 ns are 104 days and 2^53 bytes 8 PiB"
)]
pub fn figure(source: Rusage, usage: &Usage) -> f64 {
    let seconds = |ns: u64| ns as f64 / 1e9;
    match source {
        Rusage::WallSeconds => seconds(usage.wall_ns),
        Rusage::UserSeconds => seconds(usage.user_ns),
        Rusage::SystemSeconds => seconds(usage.system_ns),
        Rusage::CpuSeconds => seconds(usage.user_ns.saturating_add(usage.system_ns)),
        Rusage::PeakRssBytes => usage.peak_rss_bytes as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_its_unit() {
        let usage = Usage {
            wall_ns: 1_500_000_000,
            user_ns: 1_000_000_000,
            system_ns: 250_000_000,
            peak_rss_bytes: 4096,
            ..Usage::default()
        };
        let close = |source, expected: f64| (figure(source, &usage) - expected).abs() < 1e-12;
        assert!(close(Rusage::WallSeconds, 1.5));
        assert!(close(Rusage::UserSeconds, 1.0));
        assert!(close(Rusage::SystemSeconds, 0.25));
        assert!(close(Rusage::CpuSeconds, 1.25));
        assert!(close(Rusage::PeakRssBytes, 4096.0));
    }
}
