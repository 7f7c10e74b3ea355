//! How the report spells verdicts, changes and values. Formatting only: what is
//! near or far, good or bad was decided before.

use super::method::counted;
use crate::analysis::model::GateOutcome;
use crate::experiment::model::Better;
use crate::plan::looks::Kind;
use crate::record::format::PlannedFixture;
use crate::unit;
use crate::verdict::change::own_pct;
use crate::verdict::claim::ClaimVerdict;
use crate::verdict::rule::{Estimate, NullBand, Verdict};

/// The verdict as readers see it.
#[must_use]
pub fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Regressed => "regressed",
        Verdict::SlowerWithinThreshold => "slower, within threshold",
        Verdict::SlowerSizeUndecided => "slower, size undecided",
        Verdict::Equivalent => "equivalent",
        Verdict::Improved => "improved",
        Verdict::NotSlower => "not slower",
        Verdict::Identical => "identical",
        Verdict::Unresolved => "unresolved",
        Verdict::Invalid => "invalid",
    }
}

/// What became of a claim, as readers see it.
#[must_use]
pub fn claim(verdict: ClaimVerdict) -> &'static str {
    match verdict {
        ClaimVerdict::Confirmed => "confirmed",
        ClaimVerdict::Smaller => "smaller",
        ClaimVerdict::Contradicted => "contradicted",
        ClaimVerdict::NotResolvable => "not resolvable",
    }
}

/// How a verdict is coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Something is wrong.
    Bad,
    /// Nothing is left to do.
    Good,
    /// The question is open, or the answer is a matter of taste.
    Open,
}

/// How `verdict` is coloured, on paper and on a terminal.
#[must_use]
pub fn tone(verdict: Verdict) -> Tone {
    match verdict {
        Verdict::Regressed | Verdict::Invalid => Tone::Bad,
        Verdict::Equivalent | Verdict::Improved | Verdict::NotSlower | Verdict::Identical => {
            Tone::Good
        }
        Verdict::SlowerWithinThreshold | Verdict::SlowerSizeUndecided | Verdict::Unresolved => {
            Tone::Open
        }
    }
}

/// What became of a positive control.
#[must_use]
pub fn control(found: bool) -> &'static str {
    if found {
        "control found"
    } else {
        "control missed"
    }
}

/// How that is coloured.
#[must_use]
pub fn control_tone(found: bool) -> Tone {
    if found { Tone::Good } else { Tone::Bad }
}

/// Which rounds stand behind a number of them: `, look 2`.
#[must_use]
pub fn of_stage(kind: Kind) -> String {
    match kind {
        Kind::Look(number) => format!(", look {number}"),
        Kind::Confirmation => ", fresh".to_owned(),
    }
}

/// The gate's outcome as readers see it.
#[must_use]
pub fn gate(outcome: GateOutcome) -> &'static str {
    match outcome {
        GateOutcome::Pass => "pass",
        GateOutcome::Regressed => "regressed",
        GateOutcome::Undecided => "undecided",
        GateOutcome::Invalid => "invalid",
    }
}

/// What a setup step made: `3 files, 1.5 GiB, tree 0123456789abcdef`.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "for readers, four digits")]
pub fn fixture(fixture: &PlannedFixture) -> String {
    format!(
        "{}, {}, tree {:.16}",
        counted(usize::try_from(fixture.files).unwrap_or(usize::MAX), "file"),
        unit::bytes(fixture.bytes as f64),
        fixture.tree_sha256
    )
}

/// Which way is better, in words.
#[must_use]
pub fn better(better: Better) -> &'static str {
    match better {
        Better::Higher => "higher is better",
        Better::Lower => "lower is better",
    }
}

/// The ends of an interval of δ as changes in percent, the smaller first.
#[must_use]
pub fn change_range_pct(better: Better, low: f64, high: f64) -> (f64, f64) {
    let (a, b) = (own_pct(better, low), own_pct(better, high));
    (a.min(b), a.max(b))
}

/// Such as `−1.19 %`; a doubling and more, or a halving, also as a factor.
#[must_use]
pub fn change(better: Better, delta: f64) -> String {
    let pct = own_pct(better, delta);
    let text = format!("{} %", bare_pct(pct));
    let factor = 1.0 + pct / 100.0;
    if factor.is_finite() && (factor >= 2.0 || factor <= 0.5) {
        format!("{text} (×{})", short(factor))
    } else {
        text
    }
}

/// Such as `−1.19 % [−1.52, −0.86]`.
#[must_use]
pub fn estimate(better: Better, estimate: &Estimate) -> String {
    let (low, high) = change_range_pct(better, estimate.low, estimate.high);
    format!(
        "{} [{}, {}]",
        change(better, estimate.delta),
        bare_pct(low),
        bare_pct(high)
    )
}

/// Such as `+0.03 % (−0.21..+0.30)`.
#[must_use]
pub fn null_band(better: Better, band: &NullBand) -> String {
    format!(
        "{} ({})",
        change(better, band.median),
        range(better, band.low, band.high)
    )
}

/// Such as `−0.21..+0.30`, in percent.
#[must_use]
pub fn range(better: Better, low: f64, high: f64) -> String {
    let (low, high) = change_range_pct(better, low, high);
    format!("{}..{}", bare_pct(low), bare_pct(high))
}

/// A size of effect without a sign, such as `0.61 %`.
#[must_use]
pub fn size_pct(delta: f64) -> String {
    let text = unit::signed_pct(unit::percent_of(delta.abs()));
    text.trim_start_matches(['+', '±']).to_owned()
}

/// A share in percent without decimals, such as `93 %`.
#[must_use]
pub fn share(part: f64) -> String {
    if part.is_finite() {
        format!("{:.0} %", part * 100.0)
    } else {
        "n/a".into()
    }
}

/// A p with the smallest that the data could show, such as `0.012 (least 0.0005)`.
#[must_use]
pub fn p_value(p: Option<f64>, floor: f64) -> String {
    match p {
        Some(p) => format!("{} (least {})", short(p), short(floor)),
        None => format!("too few rounds to say (least {})", short(floor)),
    }
}

/// A signed percentage without its unit; two decimals, fewer from 100 % on.
fn bare_pct(pct: f64) -> String {
    let decimals = match pct.abs() {
        size if size >= 1000.0 => 0,
        size if size >= 100.0 => 1,
        _ => return unit::signed_pct(pct).trim_end_matches(" %").to_owned(),
    };
    if !pct.is_finite() {
        return "n/a".into();
    }
    let sign = if pct < 0.0 { "−" } else { "+" };
    format!("{sign}{:.decimals$}", pct.abs())
}

/// Three significant digits.
fn short(number: f64) -> String {
    match number.abs() {
        size if size >= 100.0 => format!("{number:.0}"),
        size if size >= 10.0 => format!("{number:.1}"),
        size if size >= 0.1 => format!("{number:.2}"),
        _ => format!("{number:.4}"),
    }
}

/// The unit in which a column of values is shown: bytes are scaled, all else
/// stays in the metric's own unit.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    divisor: f64,
    /// What stands behind a value; may be empty.
    pub unit: String,
}

impl Scale {
    /// The scale for values up to `largest` of a metric in `unit`.
    #[must_use]
    pub fn new(unit: &str, largest: f64) -> Scale {
        let mut scale = Scale {
            divisor: 1.0,
            unit: unit.to_owned(),
        };
        if unit == "B" {
            for bigger in ["KiB", "MiB", "GiB", "TiB"] {
                if largest.abs() / scale.divisor < 1024.0 {
                    break;
                }
                scale.divisor *= 1024.0;
                bigger.clone_into(&mut scale.unit);
            }
        }
        scale
    }

    /// The number that is shown for `value`.
    #[must_use]
    pub fn apply(&self, value: f64) -> f64 {
        value / self.divisor
    }

    /// `value` as text, without the unit.
    #[must_use]
    pub fn show(&self, value: f64) -> String {
        unit::value(self.apply(value))
    }

    /// Values as text with the same number of decimals, five digits for the first.
    #[must_use]
    pub fn show_alike(&self, values: &[f64]) -> Vec<String> {
        let shown: Vec<f64> = values.iter().map(|value| self.apply(*value)).collect();
        let first = shown.first().copied().unwrap_or_default();
        if first.abs() >= 1e9 {
            return values.iter().map(|value| self.show(*value)).collect();
        }
        let whole = shown.iter().all(|value| value.fract() == 0.0);
        let decimals = if whole { 0 } else { decimals(first) };
        shown
            .iter()
            .map(|value| format!("{value:.decimals$}"))
            .collect()
    }
}

/// Decimals that give `number` five significant digits.
fn decimals(number: f64) -> usize {
    if number == 0.0 || !number.is_finite() {
        return 4;
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the exponent of a finite double is within ±324"
    )]
    let exponent = number.abs().log10().floor() as i32;
    usize::try_from((4 - exponent).clamp(0, 9)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slower_rate_went_down_and_a_slower_time_went_up() {
        let delta = -(0.99_f64).ln();
        assert_eq!(change(Better::Higher, delta), "−1.00 %");
        assert_eq!(change(Better::Lower, (1.01_f64).ln()), "+1.00 %");
    }

    #[test]
    fn an_interval_keeps_its_order_when_the_sign_turns() {
        let (low, high) = change_range_pct(Better::Higher, 0.005, 0.015);
        assert!(low < high && high < 0.0);
        assert_eq!(range(Better::Higher, 0.005, 0.015), "−1.49..−0.50");
    }

    #[test]
    fn a_large_change_is_also_a_factor() {
        assert_eq!(change(Better::Lower, 19.0_f64.ln()), "+1800 % (×19.0)");
        assert_eq!(change(Better::Higher, 19.0_f64.ln()), "−94.74 % (×0.0526)");
    }

    #[test]
    fn bytes_are_scaled_and_other_units_are_not() {
        let scale = Scale::new("B", 3.1e8);
        assert_eq!(
            (scale.show(3e8).as_str(), scale.unit.as_str()),
            ("286.1", "MiB")
        );
        let scale = Scale::new("tok/s", 3.1e8);
        assert_eq!(scale.unit, "tok/s");
        assert_eq!(Scale::new("B", 12.0).show(12.0), "12");
    }

    #[test]
    fn values_beside_each_other_have_the_same_decimals() {
        let scale = Scale::new("tok/s", 0.0);
        assert_eq!(
            scale.show_alike(&[99.929, 99.6, 100.35]),
            ["99.929", "99.600", "100.350"]
        );
        assert_eq!(
            scale.show_alike(&[128.0, 127.0, 130.0]),
            ["128", "127", "130"]
        );
        assert_eq!(
            scale.show_alike(&[0.012_345_6, 0.0]),
            ["0.012346", "0.000000"]
        );
    }
}
