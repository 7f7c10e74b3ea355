//! From a number to its place along an axis, and the ticks that belong there.

use crate::unit;

/// How far apart the labels of an axis that runs up stand at least, in pixels.
pub(super) const TALL_ROOM: f64 = 23.0;

/// Beyond this many times the linear part, changes are shown on a bent axis.
const LINEAR_REACH: f64 = 15.0;

/// A labelled place on an axis.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tick {
    /// The number, in the axis's own terms.
    pub(super) value: f64,
    /// As readers see it.
    pub(super) label: String,
}

/// A plain axis for values, logarithmic where they span a large factor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ValueScale {
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl ValueScale {
    /// Spans `low` to `high` with a little room at both ends.
    pub(super) fn new(low: f64, high: f64) -> ValueScale {
        let logarithmic = low > 0.0 && high / low > 4.0;
        if logarithmic {
            let room = (high / low).powf(0.06);
            return ValueScale {
                low: low / room,
                high: high * room,
                logarithmic,
            };
        }
        let span = high - low;
        // Equal values still need an axis around them.
        let room = if span > 0.0 {
            span * 0.08
        } else {
            (low.abs() * 0.01).max(1e-9)
        };
        ValueScale {
            low: low - room,
            high: high + room,
            logarithmic,
        }
    }

    /// Spans `low` to `high` in equal steps, whatever the factor.
    pub(super) fn linear(low: f64, high: f64) -> ValueScale {
        let room = ((high - low) * 0.04).max(1e-3);
        ValueScale {
            low: low - room,
            high: high + room,
            logarithmic: false,
        }
    }

    /// From 0 at the lower end to 1 at the upper.
    pub(super) fn share(&self, value: f64) -> f64 {
        if self.logarithmic {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        }
    }

    /// Round numbers for an axis of `length` pixels.
    pub(super) fn ticks(&self, length: f64, room: f64) -> Vec<Tick> {
        if self.logarithmic {
            return self.log_ticks(length, room);
        }
        let most = (length / room.max(1.0)).floor().max(2.0);
        let step = nice_step((self.high - self.low) / most);
        let decimals = decimals_of(step);
        let mut ticks = Vec::new();
        let mut index = (self.low / step).ceil();
        while index * step <= self.high && ticks.len() < 50 {
            let value = index * step;
            // Adding zero turns −0 into 0.
            let label = format!("{:.decimals$}", value + 0.0);
            ticks.push(Tick { value, label });
            index += 1.0;
        }
        ticks
    }

    fn log_ticks(&self, length: f64, room: f64) -> Vec<Tick> {
        let candidates = one_two_five(self.low, self.high);
        let mut ticks: Vec<Tick> = Vec::new();
        for value in candidates {
            let place = self.share(value) * length;
            let free = ticks
                .last()
                .is_none_or(|last| place - self.share(last.value) * length >= room);
            if free {
                ticks.push(Tick {
                    value,
                    label: crate::unit::value(value),
                });
            }
        }
        ticks
    }
}

/// An axis for relative changes. Places are on ln(1 + change), so that a factor
/// and its inverse are equally far from zero; where the span is many times the
/// gate, the axis is bent (asinh) so that both ends of the scale stay legible.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ChangeScale {
    low: f64,
    high: f64,
    /// Half-width of the linear part of a bent axis.
    bend: Option<f64>,
}

impl ChangeScale {
    /// Spans all `changes` (in percent), zero and the gate on both sides.
    pub(super) fn new(changes: &[f64], gate_pct: f64) -> ChangeScale {
        let gate = log_of(gate_pct).abs();
        let logs = changes
            .iter()
            .map(|pct| log_of(*pct))
            .filter(|x| x.is_finite());
        let (mut low, mut high) = (-gate * 1.2, gate * 1.2);
        for log in logs {
            low = low.min(log);
            high = high.max(log);
        }
        let reach = high.max(-low);
        let bend = (gate > 0.0 && reach > LINEAR_REACH * gate).then_some(2.0 * gate);
        let mut scale = ChangeScale { low, high, bend };
        let room = (scale.bent(high) - scale.bent(low)) * 0.06;
        scale.low = scale.straight(scale.bent(low) - room);
        scale.high = scale.straight(scale.bent(high) + room);
        scale
    }

    /// Whether equal steps are not equally long.
    pub(super) fn is_bent(&self) -> bool {
        self.bend.is_some()
    }

    /// From 0 at the lower end to 1 at the upper, for a change in percent.
    pub(super) fn share(&self, pct: f64) -> f64 {
        let (low, high) = (self.bent(self.low), self.bent(self.high));
        ((self.bent(log_of(pct)) - low) / (high - low)).clamp(0.0, 1.0)
    }

    fn bent(&self, log: f64) -> f64 {
        self.bend.map_or(log, |bend| (log / bend).asinh())
    }

    fn straight(&self, bent: f64) -> f64 {
        self.bend.map_or(bent, |bend| bent.sinh() * bend)
    }

    /// Round percentages for an axis of `length` pixels: zero first, then outwards.
    pub(super) fn ticks(&self, length: f64, room: f64) -> Vec<Tick> {
        let (low, high) = (unit::percent_of(self.low), unit::percent_of(self.high));
        let values = if self.bend.is_some() {
            let mut up = one_two_five(0.01, high);
            let mut down: Vec<f64> = one_two_five(0.01, -low).iter().map(|v| -v).collect();
            // Towards a total loss the round numbers are 80, 90, 95, 99 %.
            down.extend(
                [-80.0, -90.0, -95.0, -99.0, -99.9]
                    .iter()
                    .filter(|v| **v >= low),
            );
            down.sort_by(f64::total_cmp);
            down.reverse();
            up.splice(0..0, [0.0]);
            up.extend(down);
            up
        } else {
            let most = (length / room.max(1.0)).floor().max(2.0);
            let step = nice_step((high - low) / most);
            outwards(low, high, step)
        };
        let decimals = values
            .windows(2)
            .map(|pair| decimals_of(pair[1] - pair[0]))
            .max()
            .unwrap_or(0);
        let mut ticks: Vec<Tick> = Vec::new();
        for value in values {
            let place = self.share(value) * length;
            let free = |tick: &Tick| (self.share(tick.value) * length - place).abs() >= room;
            if ticks.iter().all(free) {
                let decimals = if self.bend.is_some() {
                    decimals_of(value)
                } else {
                    decimals
                };
                ticks.push(Tick {
                    value,
                    label: signed(value, decimals),
                });
            }
        }
        ticks
    }
}

fn log_of(pct: f64) -> f64 {
    (pct / 100.0).ln_1p()
}

/// Multiples of `step` from zero outwards within `low` and `high`.
fn outwards(low: f64, high: f64, step: f64) -> Vec<f64> {
    let mut values = vec![0.0];
    for sign in [1.0, -1.0] {
        let mut index = 1.0;
        loop {
            let value = sign * index * step;
            if value < low || value > high || index > 50.0 {
                break;
            }
            values.push(value);
            index += 1.0;
        }
    }
    values
}

/// 1, 2 and 5 times powers of ten within `low` and `high`.
fn one_two_five(low: f64, high: f64) -> Vec<f64> {
    let mut values = Vec::new();
    if !(low > 0.0 && high.is_finite()) {
        return values;
    }
    let mut power = 10.0_f64.powf(low.log10().floor());
    while power <= high {
        let round = [1.0, 2.0, 5.0].map(|digit| digit * power);
        values.extend(round.into_iter().filter(|v| (low..=high).contains(v)));
        power *= 10.0;
    }
    values
}

/// The smallest of 1, 2, 2.5, 5 times a power of ten that is at least `least`.
fn nice_step(least: f64) -> f64 {
    if !(least > 0.0 && least.is_finite()) {
        return 1.0;
    }
    let power = 10.0_f64.powf(least.log10().floor());
    for digit in [1.0, 2.0, 2.5, 5.0] {
        // A hair of slack: 0.2 must not become 0.25 for a rounding error.
        if digit * power >= least * (1.0 - 1e-9) {
            return digit * power;
        }
    }
    10.0 * power
}

/// Decimals that write `step` down exactly, as far as two digits go.
fn decimals_of(step: f64) -> usize {
    let step = step.abs();
    (0..9)
        .find(|decimals| {
            let shift = 10.0_f64.powi(i32::try_from(*decimals).unwrap_or(0));
            let scaled = step * shift;
            (scaled - scaled.round()).abs() < 1e-6 * scaled.max(1e-300)
        })
        .unwrap_or(9)
}

fn signed(value: f64, decimals: usize) -> String {
    let digits = format!("{:.decimals$}", value.abs());
    if value == 0.0 {
        "0".into()
    } else if value < 0.0 {
        format!("−{digits}")
    } else {
        format!("+{digits}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: &[Tick]) -> Vec<&str> {
        ticks.iter().map(|tick| tick.label.as_str()).collect()
    }

    #[test]
    fn ticks_of_values_are_round() {
        let scale = ValueScale::new(98.1, 100.4);
        assert_eq!(
            labels(&scale.ticks(400.0, 46.0)),
            ["98.0", "98.5", "99.0", "99.5", "100.0", "100.5"]
        );
        let same = ValueScale::new(5.0, 5.0);
        assert!(same.share(5.0) > 0.4 && same.share(5.0) < 0.6);
        assert!(!same.ticks(300.0, 60.0).is_empty());
    }

    #[test]
    fn a_large_factor_gets_a_logarithmic_axis() {
        let scale = ValueScale::new(1.0, 19.0);
        assert_eq!(
            labels(&scale.ticks(400.0, 46.0)),
            ["1", "2", "5", "10", "20"]
        );
    }

    #[test]
    fn small_changes_have_a_straight_axis_around_zero() {
        let scale = ChangeScale::new(&[-1.65, -0.79, 0.3], -1.0);
        assert!(!scale.is_bent());
        let ticks = scale.ticks(400.0, 46.0);
        let mut values: Vec<f64> = ticks.iter().map(|tick| tick.value).collect();
        values.sort_by(f64::total_cmp);
        assert_eq!(values, [-1.5, -1.0, -0.5, 0.0, 0.5, 1.0]);
        assert!(labels(&ticks).contains(&"−1.5") && labels(&ticks).contains(&"0"));
    }

    #[test]
    fn a_large_change_bends_the_axis_and_leaves_the_gate_legible() {
        let scale = ChangeScale::new(&[1800.0, 0.2, -0.3], 1.0);
        assert!(scale.is_bent());
        let gate = scale.share(1.0) - scale.share(0.0);
        assert!(gate > 0.04, "{gate}");
        assert!(scale.share(1800.0) > scale.share(1000.0) + 0.02);
        let ticks = scale.ticks(400.0, 46.0);
        assert_eq!(ticks[0].label, "0");
        assert!(ticks.len() >= 4, "{ticks:?}");
    }

    #[test]
    fn ticks_never_stand_closer_than_asked() {
        for top in [0.01_f64, 0.3, 1.0, 7.7, 40.0, 900.0] {
            let scale = ChangeScale::new(&[-top.min(90.0), top], 1.0);
            let mut places: Vec<f64> = scale
                .ticks(320.0, 46.0)
                .iter()
                .map(|tick| scale.share(tick.value) * 320.0)
                .collect();
            places.sort_by(f64::total_cmp);
            assert!(
                places.windows(2).all(|p| p[1] - p[0] >= 46.0),
                "{top}: {places:?}"
            );
        }
    }
}
