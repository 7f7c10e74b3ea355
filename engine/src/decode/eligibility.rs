//! Whether a text may be decoded ahead of its reads, and if not, why.
//!
//! Pure: options, caches and sampler in, parameters or a reason out. [`lookahead_params`] is the one
//! place where that is decided.

use crate::kv_cache::{RewindableCache, SaveMethod};

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
    /// The policy saves nothing, and a ring has no slack to go without.
    CacheWithoutSlack,
    /// The window is full, and the user chose to run ahead only until then.
    WindowFull,
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
            Self::CacheWithoutSlack => "cache_without_slack",
            Self::WindowFull => "window_full",
            Self::SubmitFailed => "submit_failed",
        }
    }
}

/// How a pipelined loop runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookaheadParams {
    /// How steps save what they overwrite; `None`: nothing is saved, and nothing taken back.
    pub record: Option<SaveMethod>,
    /// Whether the rest of the text is synchronous once the window is full.
    pub only_until_full: bool,
}

/// What running ahead costs, and what it leaves: each way gives the same tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UndoPolicy {
    /// Rings with as much slack as is ever outstanding: exact, and what is overwritten has been out
    /// of sight for so long that nothing needs to be saved or put back.
    #[default]
    Slack,
    /// Each append saves what it overwrites: exact, and no work of its own for the device.
    InAppend,
    /// Two copies of a row for each windowed layer and token, before the append: exact, and the
    /// plainest form, which the others are compared with.
    OwnCopies,
    /// Synchronous steps once the window is full: nothing is ever overwritten ahead.
    SyncOnceFull,
    /// Nothing is saved: the step behind the last token stays in the caches, and the sequence can
    /// only be closed.
    Discard,
}

impl UndoPolicy {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Slack,
        Self::InAppend,
        Self::OwnCopies,
        Self::SyncOnceFull,
        Self::Discard,
    ];

    /// Its name in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::InAppend => "in_append",
            Self::OwnCopies => "own_copies",
            Self::Slack => "slack",
            Self::SyncOnceFull => "sync_once_full",
            Self::Discard => "discard",
        }
    }

    /// Rows beyond the window that a sequence's rings need for it.
    pub fn slack_rows(self) -> usize {
        match self {
            Self::Slack => OUTSTANDING_APPENDS,
            Self::InAppend | Self::OwnCopies | Self::SyncOnceFull | Self::Discard => 0,
        }
    }

    fn params(self) -> LookaheadParams {
        LookaheadParams {
            record: match self {
                // In a ring with slack the scope finds nothing to save.
                Self::InAppend | Self::SyncOnceFull | Self::Slack => Some(SaveMethod::InAppend),
                Self::OwnCopies => Some(SaveMethod::OwnCopies),
                Self::Discard => None,
            },
            only_until_full: self == Self::SyncOnceFull,
        }
    }
}

/// What the user and the caller ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LookaheadOptions {
    /// Synchronous steps, whatever else would be possible.
    pub force_sync: bool,
    /// What happens to rows that are overwritten ahead.
    pub undo: UndoPolicy,
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
    } else if options.undo != UndoPolicy::Discard && !can_unwind_lookahead(caches) {
        Err(SyncReason::CacheCannotRewind)
    } else if options.undo == UndoPolicy::Slack && !can_unwind_without_saving(caches) {
        Err(SyncReason::CacheWithoutSlack)
    } else if host_sampling {
        Err(SyncReason::HostSampling)
    } else {
        Ok(options.undo.params())
    }
}

/// Whether every cache can take back exactly what the pipeline may have outstanding.
pub fn can_unwind_lookahead(caches: &[RewindableCache]) -> bool {
    all_take_back(caches, RewindableCache::guaranteed_rewind)
}

/// The same, where nothing is saved.
fn can_unwind_without_saving(caches: &[RewindableCache]) -> bool {
    all_take_back(caches, RewindableCache::rewind_without_saving)
}

fn all_take_back(
    caches: &[RewindableCache],
    most: impl Fn(&RewindableCache) -> Option<usize>,
) -> bool {
    let enough = |cache| most(cache).is_none_or(|most| most >= OUTSTANDING_APPENDS);
    caches.iter().all(enough)
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
    fn going_without_saved_rows_needs_slack() {
        let slack = LookaheadOptions {
            undo: UndoPolicy::Slack,
            ..LookaheadOptions::default()
        };
        let ring = |rows| {
            let cursor = RotatingCursor::with_slack(4, rows);
            RewindableCache::new(CacheCursor::Rotating(cursor), 2)
        };
        let params = |caches: &[RewindableCache]| lookahead_params(slack, caches, false);
        assert!(params(&[full(), ring(UndoPolicy::Slack.slack_rows())]).is_ok());
        assert_eq!(
            params(&[full(), ring(1)]),
            Err(SyncReason::CacheWithoutSlack)
        );
    }

    #[test]
    fn each_obstacle_has_its_reason_and_the_users_word_comes_first() {
        let free = LookaheadOptions {
            undo: UndoPolicy::InAppend,
            ..LookaheadOptions::default()
        };
        let forced = LookaheadOptions {
            force_sync: true,
            ..free
        };
        let caches = [full(), rotating(2)];
        assert!(lookahead_params(free, &caches, false).is_ok());
        let reason = |options, caches: &[RewindableCache], host| {
            lookahead_params(options, caches, host).unwrap_err()
        };
        assert_eq!(reason(forced, &[rotating(1)], true), SyncReason::ForcedSync);
        assert_eq!(reason(free, &caches, true), SyncReason::HostSampling);
        let shallow = [rotating(1)];
        assert_eq!(reason(free, &shallow, false), SyncReason::CacheCannotRewind);
        let discard = LookaheadOptions {
            undo: UndoPolicy::Discard,
            ..free
        };
        let params = lookahead_params(discard, &shallow, false).unwrap();
        assert_eq!(params.record, None, "who takes nothing back needs no log");
    }
}
