//! Times between tokens, as order statistics of one pass.

/// Median and 99th percentile of the gaps, nearest rank, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Latency {
    /// Half of the gaps are at most this.
    pub p50_ns: u64,
    /// 99 of 100 gaps are at most this.
    pub p99_ns: u64,
}

impl Latency {
    /// Of the gaps in any order; zeros when there are none.
    pub fn of(gaps_ns: &[u64]) -> Self {
        let mut sorted = gaps_ns.to_vec();
        sorted.sort_unstable();
        let rank = |percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100);
            sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
        };
        Self {
            p50_ns: rank(50),
            p99_ns: rank(99),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_nearest_and_do_not_depend_on_order() {
        let mut gaps: Vec<u64> = (1..=200).collect();
        gaps.reverse();
        let latency = Latency::of(&gaps);
        assert_eq!((latency.p50_ns, latency.p99_ns), (100, 198));
        assert_eq!(
            Latency::of(&[7]),
            Latency {
                p50_ns: 7,
                p99_ns: 7
            }
        );
        assert_eq!(Latency::of(&[]), Latency::default());
    }
}
