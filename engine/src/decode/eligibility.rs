//! Whether a text may be decoded ahead of its reads, and if not, why.
//!
//! Pure: options, caches and sampler in, parameters or a reason out. [`lookahead_params`] is the one
//! place where that is decided.

use crate::kv_cache::RewindableCache;

/// Appends that the pipeline may have to take back at once: the step that is being read and the one
/// queued behind it.
pub const OUTSTANDING_APPENDS: usize = 2;

/// Why steps are synchronous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncReason {
    /// The user said so.
    ForcedSync,
    /// A cache could not take back what the pipeline may have outstanding.
    CacheCannotRewind,
    /// The host chooses the tokens (history penalties, masks, log probabilities), so a step cannot
    /// be queued before the token it follows is known.
    HostSampling,
    /// The device refused a step ahead, so the rest of the text goes without.
    SubmitFailed,
}

impl SyncReason {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::ForcedSync => "forced_sync",
            Self::CacheCannotRewind => "cache_cannot_rewind",
            Self::HostSampling => "host_sampling",
            Self::SubmitFailed => "submit_failed",
        }
    }
}

/// How a pipelined loop runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookaheadParams {
    /// Whether steps must save what they overwrite.
    pub record: bool,
}

/// What the user and the caller ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LookaheadOptions {
    /// Synchronous steps, whatever else would be possible.
    pub force_sync: bool,
}

/// Turns options, caches and sampler into the pipeline's parameters.
///
/// # Errors
/// Why there is no pipeline for them.
pub fn lookahead_params(
    options: LookaheadOptions,
    caches: &[RewindableCache],
    host_sampling: bool,
) -> Result<LookaheadParams, SyncReason> {
    if options.force_sync {
        Err(SyncReason::ForcedSync)
    } else if !can_unwind_lookahead(caches) {
        Err(SyncReason::CacheCannotRewind)
    } else if host_sampling {
        Err(SyncReason::HostSampling)
    } else {
        Ok(LookaheadParams { record: true })
    }
}

/// Whether every cache can take back exactly what the pipeline may have outstanding.
pub fn can_unwind_lookahead(caches: &[RewindableCache]) -> bool {
    caches.iter().all(|cache| {
        let most = cache.guaranteed_rewind();
        most.is_none_or(|most| most >= OUTSTANDING_APPENDS)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv_cache::{CacheCursor, FullCursor, RotatingCursor};

    fn full() -> RewindableCache {
        RewindableCache::new(CacheCursor::Full(FullCursor::default()), 1)
    }

    fn rotating(depth: usize) -> RewindableCache {
        RewindableCache::new(CacheCursor::Rotating(RotatingCursor::new(4)), depth)
    }

    #[test]
    fn a_rotating_cache_needs_a_journal_of_two() {
        assert!(can_unwind_lookahead(&[full(), rotating(2)]));
        assert!(!can_unwind_lookahead(&[full(), rotating(1)]));
        assert!(can_unwind_lookahead(&[full()]), "a full cache is trimmed");
    }

    #[test]
    fn each_obstacle_has_its_reason_and_the_users_word_comes_first() {
        let free = LookaheadOptions::default();
        let forced = LookaheadOptions { force_sync: true };
        let caches = [full(), rotating(2)];
        assert!(lookahead_params(free, &caches, false).is_ok());
        let reason = |options, caches: &[RewindableCache], host| {
            lookahead_params(options, caches, host).unwrap_err()
        };
        assert_eq!(reason(forced, &[rotating(1)], true), SyncReason::ForcedSync);
        assert_eq!(reason(free, &caches, true), SyncReason::HostSampling);
        let shallow = [rotating(1)];
        assert_eq!(reason(free, &shallow, false), SyncReason::CacheCannotRewind);
    }
}
