//! What the environment overrides: read here, once, and passed in.

use std::ffi::OsString;

use anyhow::Context;

use crate::decode::{LookaheadOptions, UndoPolicy};

/// Set to any value, it makes every decode step synchronous.
pub const FORCE_SYNC: &str = "MLXCEL_FORCE_SYNC";

/// Names what happens to rows that are overwritten ahead, for experiments.
pub const UNDO: &str = "MLXCEL_UNDO";

/// The decode loop's options, as the environment has them.
///
/// # Errors
/// When `MLXCEL_UNDO` names no policy.
pub fn lookahead_options() -> anyhow::Result<LookaheadOptions> {
    from_variables(|name| std::env::var_os(name))
}

fn from_variables(lookup: impl Fn(&str) -> Option<OsString>) -> anyhow::Result<LookaheadOptions> {
    let undo = match lookup(UNDO) {
        None => UndoPolicy::default(),
        Some(value) => {
            let known = UndoPolicy::ALL.into_iter().find(|p| *p.name() == *value);
            known.with_context(|| {
                let names = UndoPolicy::ALL.map(UndoPolicy::name).join(", ");
                format!("{UNDO}: expected one of {names}, got {}", value.display())
            })?
        }
    };
    Ok(LookaheadOptions {
        force_sync: lookup(FORCE_SYNC).is_some(),
        undo,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_value_forces_and_only_known_policies_are_taken() {
        let options = |name: &'static str, value: &'static str| {
            from_variables(move |asked| (asked == name).then(|| value.into()))
        };
        assert!(options(FORCE_SYNC, "").unwrap().force_sync);
        assert!(options(FORCE_SYNC, "0").unwrap().force_sync);
        assert!(!options("OTHER", "1").unwrap().force_sync);
        for policy in UndoPolicy::ALL {
            assert_eq!(options(UNDO, policy.name()).unwrap().undo, policy);
        }
        let error = options(UNDO, "magic").unwrap_err().to_string();
        assert!(
            error.contains("own_copies") && error.contains("magic"),
            "{error}"
        );
    }
}
