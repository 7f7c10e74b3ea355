//! What the environment overrides: read here, once, and passed in.

use crate::decode::LookaheadOptions;

/// Set to any value, it makes every decode step synchronous.
pub const FORCE_SYNC: &str = "MLXCEL_FORCE_SYNC";

/// The decode loop's options, as the environment has them.
pub fn lookahead_options() -> LookaheadOptions {
    LookaheadOptions {
        force_sync: std::env::var_os(FORCE_SYNC).is_some(),
    }
}
