//! What the environment may change about routes: parsed here, read elsewhere.

use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;

use super::profiles::Profile;

/// `MLX_ROCM_WMMA_QMM`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WmmaChoice {
    /// Not set: the device decides.
    #[default]
    Auto,
    /// `0`: never.
    Off,
    /// `1`: wherever it fits, at any number of rows.
    Force,
}

/// Overrides of routes and of the cache behind them. The default is an empty environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct QmmOptions {
    /// Whether the WMMA kernel is used.
    pub wmma: WmmaChoice,
    /// Rows from which it is left; `None` leaves that to the device.
    pub wmma_max_m: Option<usize>,
    /// Whether weights may be dequantised as a whole.
    pub dequant_gemm: bool,
    /// Rows from which that is preferred; `None` leaves it to the device.
    pub dequant_m_threshold: Option<usize>,
    /// Most entries of the cache of dequantised weights; 0 turns it off.
    pub dequant_cache_entries: usize,
    /// Most bytes of it; 0 turns it off.
    pub dequant_cache_max_bytes: u64,
    /// Whether a program prints its counters when it ends.
    pub dequant_cache_stats: bool,
}

impl Default for QmmOptions {
    fn default() -> Self {
        Self {
            wmma: WmmaChoice::Auto,
            wmma_max_m: None,
            dequant_gemm: true,
            dequant_m_threshold: None,
            dequant_cache_entries: 8,
            dequant_cache_max_bytes: 256 << 20,
            dequant_cache_stats: false,
        }
    }
}

/// How products with quantised weights choose their route.
#[derive(Debug, Clone, Copy, Default)]
pub struct QmmSetup {
    /// Another device's routes instead of the own ones; for tests and experiments.
    pub route_profile: Option<Profile>,
    /// What the environment said.
    pub options: QmmOptions,
}

/// A variable whose value was not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{variable}: expected {expected}, got {got:?}; {effect}")]
pub struct OptionWarning {
    /// Name of the variable.
    pub variable: &'static str,
    /// What it may be.
    pub expected: String,
    /// What it was.
    pub got: OsString,
    /// What is done.
    pub effect: String,
}

const WMMA: &str = "MLX_ROCM_WMMA_QMM";
const MAX_M: &str = "MLX_ROCM_WMMA_QMM_MAX_M";
const DEQUANT: &str = "MLX_ROCM_QMM_DEQUANT_GEMM";
const THRESHOLD: &str = "MLX_ROCM_QMM_DEQUANT_M_THRESHOLD";
const CACHE_SIZE: &str = "MLX_ROCM_QMM_DEQUANT_CACHE_SIZE";
const CACHE_BYTES: &str = "MLX_ROCM_QMM_DEQUANT_CACHE_MAX_BYTES";
const CACHE_STATS: &str = "MLX_ROCM_QMM_DEQUANT_CACHE_STATS";

/// Far above any prompt.
const MOST_ROWS: u64 = 1 << 24;
/// Far above the matrices of any model.
const MOST_ENTRIES: u64 = 1 << 16;
/// A tebibyte.
const MOST_BYTES: u64 = 1 << 40;

impl QmmOptions {
    /// Reads the variables through `lookup`. A value that is not a whole decimal in range gives a
    /// warning and the default; for `MLX_ROCM_QMM_DEQUANT_GEMM`, which anything but 1 turns off, a
    /// warning and that.
    pub fn from_variables(lookup: impl Fn(&str) -> Option<OsString>) -> (Self, Vec<OptionWarning>) {
        let mut reader = Reader {
            lookup,
            warnings: Vec::new(),
        };
        let default = Self::default();
        let rows = |count: u64| usize::try_from(count).ok().filter(|&rows| rows > 0);
        let options = Self {
            wmma: match reader.whole(WMMA, 0..=1, "the device's choice") {
                None => WmmaChoice::Auto,
                Some(0) => WmmaChoice::Off,
                Some(_) => WmmaChoice::Force,
            },
            wmma_max_m: reader
                .whole(MAX_M, 0..=MOST_ROWS, "the device's")
                .and_then(rows),
            dequant_gemm: reader.is_unset_or_one(DEQUANT),
            dequant_m_threshold: reader
                .whole(THRESHOLD, 0..=MOST_ROWS, "the device's")
                .and_then(rows),
            dequant_cache_entries: reader
                .whole(CACHE_SIZE, 0..=MOST_ENTRIES, "8")
                .and_then(|entries| usize::try_from(entries).ok())
                .unwrap_or(default.dequant_cache_entries),
            dequant_cache_max_bytes: reader
                .whole(CACHE_BYTES, 0..=MOST_BYTES, "268435456")
                .unwrap_or(default.dequant_cache_max_bytes),
            dequant_cache_stats: reader.whole(CACHE_STATS, 0..=1, "0") == Some(1),
        };
        (options, reader.warnings)
    }
}

struct Reader<F> {
    lookup: F,
    warnings: Vec<OptionWarning>,
}

impl<F: Fn(&str) -> Option<OsString>> Reader<F> {
    fn whole(
        &mut self,
        variable: &'static str,
        range: RangeInclusive<u64>,
        default: &'static str,
    ) -> Option<u64> {
        let got = (self.lookup)(variable)?;
        let number = decimal(&got).filter(|number| range.contains(number));
        if number.is_none() {
            let (least, most) = range.into_inner();
            self.warnings.push(OptionWarning {
                variable,
                expected: format!("a whole number from {least} to {most}"),
                got,
                effect: format!("using the default, {default}"),
            });
        }
        number
    }

    /// The published rule of this variable: everything but `1` disables. Who wrote something else
    /// than `0` may have meant the opposite.
    fn is_unset_or_one(&mut self, variable: &'static str) -> bool {
        let Some(got) = (self.lookup)(variable) else {
            return true;
        };
        let on = got == "1";
        if !on && got != "0" {
            self.warnings.push(OptionWarning {
                variable,
                expected: "0 or 1".to_owned(),
                got,
                effect: "anything but 1 is 0".to_owned(),
            });
        }
        on
    }
}

/// Digits and nothing else: no sign, no space.
fn decimal(text: &OsStr) -> Option<u64> {
    let text = text.to_str()?;
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> (QmmOptions, Vec<OptionWarning>) {
        QmmOptions::from_variables(|name| {
            let found = pairs.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn an_empty_environment_is_the_default() {
        assert_eq!(read(&[]), (QmmOptions::default(), Vec::new()));
    }

    #[test]
    fn every_variable_is_taken() {
        let (options, warnings) = read(&[
            (WMMA, "1"),
            (MAX_M, "32"),
            (DEQUANT, "0"),
            (THRESHOLD, "16"),
            (CACHE_SIZE, "0"),
            (CACHE_BYTES, "1024"),
            (CACHE_STATS, "1"),
        ]);
        assert_eq!(warnings, []);
        let expected = QmmOptions {
            wmma: WmmaChoice::Force,
            wmma_max_m: Some(32),
            dequant_gemm: false,
            dequant_m_threshold: Some(16),
            dequant_cache_entries: 0,
            dequant_cache_max_bytes: 1024,
            dequant_cache_stats: true,
        };
        assert_eq!(options, expected);
        assert_eq!(read(&[(WMMA, "0")]).0.wmma, WmmaChoice::Off);
    }

    #[test]
    fn zero_rows_leave_the_choice_to_the_device() {
        let (options, warnings) = read(&[(MAX_M, "0"), (THRESHOLD, "0")]);
        assert_eq!((options, warnings.len()), (QmmOptions::default(), 0));
    }

    #[test]
    fn a_value_that_is_no_whole_number_in_range_is_one_warning_and_the_default() {
        for value in [
            "",
            "-1",
            "+1",
            " 1",
            "1.0",
            "0x10",
            "many",
            "99999999999999999999",
        ] {
            for variable in [WMMA, MAX_M, THRESHOLD, CACHE_SIZE, CACHE_BYTES, CACHE_STATS] {
                let (options, warnings) = read(&[(variable, value)]);
                assert_eq!(options, QmmOptions::default(), "{variable}={value}");
                assert_eq!(warnings.len(), 1, "{variable}={value}");
                assert_eq!(warnings[0].variable, variable);
            }
        }
        let (_, warnings) = read(&[(CACHE_SIZE, "65537")]);
        assert_eq!(
            warnings[0].to_string(),
            "MLX_ROCM_QMM_DEQUANT_CACHE_SIZE: expected a whole number from 0 to 65536, \
             got \"65537\"; using the default, 8"
        );
    }

    #[test]
    fn anything_but_one_turns_dequantising_off_and_only_zero_is_what_was_expected() {
        let (options, warnings) = read(&[(DEQUANT, "0")]);
        assert!(!options.dequant_gemm && warnings.is_empty());
        let (options, warnings) = read(&[(DEQUANT, "1")]);
        assert!(options.dequant_gemm && warnings.is_empty());
        for value in ["", "yes", "01", "true"] {
            let (options, warnings) = read(&[(DEQUANT, value)]);
            assert!(!options.dequant_gemm, "{value}");
            assert_eq!(warnings.len(), 1, "{value}");
            let text = warnings[0].to_string();
            assert!(text.ends_with("; anything but 1 is 0"), "{text}");
        }
    }

    #[test]
    fn values_at_the_edges_of_their_ranges_are_taken_and_those_beyond_are_not() {
        for (variable, most) in [
            (WMMA, 1),
            (MAX_M, MOST_ROWS),
            (THRESHOLD, MOST_ROWS),
            (CACHE_SIZE, MOST_ENTRIES),
            (CACHE_BYTES, MOST_BYTES),
            (CACHE_STATS, 1),
        ] {
            let (options, warnings) = read(&[(variable, &most.to_string())]);
            assert!(warnings.is_empty(), "{variable}: {warnings:?}");
            assert_ne!(options, QmmOptions::default(), "{variable}");
            let (options, warnings) = read(&[(variable, &(most + 1).to_string())]);
            assert_eq!(warnings.len(), 1, "{variable}");
            assert_eq!(options, QmmOptions::default(), "{variable}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_text_is_one_warning_too() {
        use std::os::unix::ffi::OsStringExt;
        for variable in [WMMA, MAX_M, DEQUANT, THRESHOLD, CACHE_SIZE, CACHE_BYTES] {
            let bytes = vec![b'1', 0xff];
            let (_, warnings) = QmmOptions::from_variables(|name| {
                (name == variable).then(|| OsString::from_vec(bytes.clone()))
            });
            assert_eq!(warnings.len(), 1, "{variable}");
            let text = warnings[0].to_string();
            assert!(text.contains(r#"got "1\xFF""#), "{text}");
        }
    }
}
