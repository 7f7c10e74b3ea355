//! The environment of an attempt: fixed, small, recorded, and of varying size.
//!
//! The size of the environment moves the stack, and with it the time of some
//! programs by several percent (Mytkowicz et al., "Producing wrong data without doing
//! anything obviously wrong", ASPLOS 2009). Padding of a seeded random length turns
//! that bias into noise which rounds average out.

use std::ffi::OsString;

use indexmap::IndexMap;

use crate::stats::random::SplitMix64;

/// What every attempt sees, whatever the caller's environment is.
pub const FIXED: [(&str, &str); 3] = [
    ("PATH", "/usr/local/bin:/usr/bin:/bin"),
    ("LANG", "C.UTF-8"),
    ("TZ", "UTC"),
];

/// Name of the padding variable.
pub const PADDING: &str = "BENCH_RUN_PADDING";

/// Longest padding in bytes.
pub const MAX_PADDING_BYTES: u32 = 4095;

/// The padding of one attempt in bytes: a fixed function of the plan's seed and the
/// attempt's place, so that a resumed run gives every attempt the same padding.
#[must_use]
pub fn padding_bytes(seed: u64, cell: usize, round: u32, round_try: u32, slot: u32) -> u32 {
    let place =
        (cell as u64) << 48 | u64::from(round) << 24 | u64::from(round_try) << 16 | u64::from(slot);
    let drawn = SplitMix64::new(seed ^ place.rotate_left(17)).next_u64();
    u32::try_from(drawn % u64::from(MAX_PADDING_BYTES + 1)).unwrap_or(0)
}

/// The whole environment of one attempt. Later entries win: the fixed variables, those
/// passed through from the caller, the experiment's and the arm's, then the padding.
#[must_use]
pub fn environment(
    passed: &[(String, OsString)],
    env: &IndexMap<String, String>,
    padding: u32,
) -> Vec<(OsString, OsString)> {
    let mut whole: IndexMap<OsString, OsString> = IndexMap::new();
    for (name, value) in FIXED {
        whole.insert(name.into(), value.into());
    }
    for (name, value) in passed {
        whole.insert(name.into(), value.clone());
    }
    for (name, value) in env {
        whole.insert(name.into(), value.into());
    }
    whole.insert(PADDING.into(), "x".repeat(padding as usize).into());
    whole.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arm_wins_over_what_is_passed_and_fixed() {
        let env = IndexMap::from([("LANG".to_owned(), "C".to_owned())]);
        let whole = environment(&[("TZ".into(), "Asia/Seoul".into())], &env, 3);
        let get = |name: &str| {
            whole
                .iter()
                .find(|(n, _)| n == name)
                .map(|(_, v)| v.to_str().unwrap().to_owned())
        };
        assert_eq!(get("LANG").unwrap(), "C");
        assert_eq!(get("TZ").unwrap(), "Asia/Seoul");
        assert_eq!(get(PADDING).unwrap(), "xxx");
        assert_eq!(whole.len(), 4);
    }

    #[test]
    fn padding_is_reproducible_and_spread_over_its_range() {
        assert_eq!(padding_bytes(7, 1, 2, 1, 3), padding_bytes(7, 1, 2, 1, 3));
        let lengths: Vec<u32> = (0..400)
            .map(|slot| padding_bytes(1, 0, 1, 1, slot))
            .collect();
        assert!(lengths.iter().all(|length| *length <= MAX_PADDING_BYTES));
        assert!(
            lengths.iter().any(|length| *length < 400)
                && lengths.iter().any(|length| *length > 3600)
        );
    }
}
