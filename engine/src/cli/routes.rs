//! Routes of quantised products: what the environment says about them, read once, and the line
//! that it may ask for at the end.

use std::io::Write;

use crate::qmm::{DequantStats, QmmOptions, QmmReport};

/// The environment's overrides; what was not understood is said on standard error.
pub fn options() -> QmmOptions {
    let (options, warnings) = QmmOptions::from_variables(|name| std::env::var_os(name));
    for warning in warnings {
        // Nobody to tell it to if standard error is closed.
        let _ = writeln!(std::io::stderr(), "warning: {warning}");
    }
    options
}

/// The counters of the cache of dequantised weights on standard error, where
/// `MLX_ROCM_QMM_DEQUANT_CACHE_STATS` asks for them.
pub fn print_cache_stats(report: &QmmReport) {
    if report.options.dequant_cache_stats {
        let _ = writeln!(std::io::stderr(), "{}", cache_line(&report.dequant_cache));
    }
}

fn cache_line(stats: &DequantStats) -> String {
    format!(
        "[qmm dequant cache] hits={} misses={} inserts={} evictions={} bypasses={} entries={} bytes={}",
        stats.hits,
        stats.misses,
        stats.inserts,
        stats.evictions,
        stats.bypasses,
        stats.entries,
        stats.bytes
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_are_one_line() {
        let stats = DequantStats {
            misses: 340,
            inserts: 340,
            evictions: 334,
            entries: 6,
            bytes: 241_172_480,
            ..DequantStats::default()
        };
        assert_eq!(
            cache_line(&stats),
            "[qmm dequant cache] hits=0 misses=340 inserts=340 evictions=334 bypasses=0 entries=6 \
             bytes=241172480"
        );
    }
}
