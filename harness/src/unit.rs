//! Numbers with units as text: one spelling for reports, tables and messages.

/// The relative change in percent that a natural log-ratio stands for: exp(δ) − 1.
#[must_use]
pub fn percent_of(delta: f64) -> f64 {
    delta.exp_m1() * 100.0
}

/// A signed percentage with two decimals and a real minus sign.
#[must_use]
pub fn signed_pct(pct: f64) -> String {
    if !pct.is_finite() {
        return "n/a".into();
    }
    let text = format!("{:.2}", pct.abs());
    let sign = match (text == "0.00", pct < 0.0) {
        (true, _) => "±",
        (false, true) => "−",
        (false, false) => "+",
    };
    format!("{sign}{text} %")
}

/// A duration for readers: `850 ms`, `12.3 s`, `4 min 05 s`, `2 h 03 min`.
#[must_use]
pub fn duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return "n/a".into();
    }
    if seconds < 1.0 {
        return format!("{:.0} ms", seconds * 1e3);
    }
    if seconds < 60.0 {
        return format!("{seconds:.1} s");
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be finite and not negative; `as` saturates"
    )]
    let whole = seconds.round() as u64;
    if whole < 3600 {
        format!("{} min {:02} s", whole / 60, whole % 60)
    } else {
        format!("{} h {:02} min", whole / 3600, whole % 3600 / 60)
    }
}

/// A byte count for readers, powers of 1024: `512 B`, `1.5 KiB`, `230.0 MiB`.
#[must_use]
pub fn bytes(count: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count;
    let mut unit = 0;
    while value.abs() >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{value:.0} B")
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// A measured value with five significant digits at most: `62.66`, `2928.2`, `0.00123`.
#[must_use]
pub fn value(number: f64) -> String {
    if !number.is_finite() {
        return "n/a".into();
    }
    if number == 0.0 {
        return "0".into();
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the exponent of a finite double is within ±324"
    )]
    let exponent = number.abs().log10().floor() as i32;
    if exponent >= 9 {
        return format!("{number:.4e}");
    }
    let decimals = usize::try_from((4 - exponent).clamp(0, 9)).unwrap_or(0);
    let text = format!("{number:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// A value in the unit that its metric's name ends with: `_bytes`, `_ms`, `_s`, `_tok_s`, ….
#[must_use]
pub fn metric_unit(name: &str) -> &'static str {
    for (ending, unit) in [
        ("tok_s", "tok/s"),
        ("_bytes", "B"),
        ("_ns", "ns"),
        ("_us", "µs"),
        ("_ms", "ms"),
        ("_seconds", "s"),
        ("_s", "s"),
        ("_pct", "%"),
    ] {
        if name.ends_with(ending) {
            return unit;
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_has_its_sign_and_two_decimals() {
        assert_eq!(signed_pct(percent_of(0.0)), "±0.00 %");
        assert_eq!(signed_pct(percent_of((1.0119_f64).ln())), "+1.19 %");
        assert_eq!(signed_pct(-1.187), "−1.19 %");
        assert_eq!(signed_pct(-0.001), "±0.00 %");
        assert_eq!(signed_pct(f64::NAN), "n/a");
    }

    #[test]
    fn a_duration_is_read_at_a_glance() {
        assert_eq!(duration(0.85), "850 ms");
        assert_eq!(duration(12.34), "12.3 s");
        assert_eq!(duration(245.0), "4 min 05 s");
        assert_eq!(duration(7385.0), "2 h 03 min");
    }

    #[test]
    fn a_value_keeps_five_digits() {
        assert_eq!(value(62.66), "62.66");
        assert_eq!(value(2928.21), "2928.2");
        assert_eq!(value(4_520_000_000.0), "4.5200e9");
        assert_eq!(value(128.0), "128");
        assert_eq!(value(0.001_234_567), "0.0012346");
    }

    #[test]
    fn a_unit_is_told_by_the_ending() {
        assert_eq!(metric_unit("decode_tok_s"), "tok/s");
        assert_eq!(metric_unit("peak_bytes"), "B");
        assert_eq!(metric_unit("wall_seconds"), "s");
        assert_eq!(metric_unit("score"), "");
    }

    #[test]
    fn bytes_count_in_powers_of_1024() {
        assert_eq!(bytes(512.0), "512 B");
        assert_eq!(bytes(241_172_480.0), "230.0 MiB");
    }
}
