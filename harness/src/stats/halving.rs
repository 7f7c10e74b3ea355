//! A point in which an answer changes, between two whose answers are known.

/// The interval `(low, high)` halved so many times: its lower end stays where `holds` is true,
/// its upper end where it is not. `holds` is not asked about the ends.
pub(crate) fn halved(
    (mut low, mut high): (f64, f64),
    times: u32,
    holds: impl Fn(f64) -> bool,
) -> (f64, f64) {
    for _ in 0..times {
        let middle = f64::midpoint(low, high);
        if holds(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_change_stays_inside_and_the_interval_shrinks() {
        let (low, high) = halved((0.0, 8.0), 3, |x| x * x < 2.0);
        assert_eq!((low, high), (1.0, 2.0));
        let (low, high) = halved((0.0, 8.0), 60, |x| x * x < 2.0);
        assert!(low <= 2.0_f64.sqrt() && 2.0_f64.sqrt() <= high && high - low < 1e-15);
    }
}
