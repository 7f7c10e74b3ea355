//! The log of single-token appends that a rotating cache can take back exactly.
//!
//! Moving cursors back is exact only before the wrap: after it, the slot that a speculative token
//! took held a visible one. So each append is logged with the cursor before it, and inside a
//! speculative scope the row it overwrites is saved. A ring whose slack is as large as the log
//! overwrites nothing that could become visible again, and nothing is saved. The log is first in,
//! first out, and short: a pipeline has at most two appends outstanding.
//!
//! Pure: the rows themselves lie on the device, in as many entries as the journal is deep. Entry
//! `offset_before % depth` belongs to an append, so consecutive appends never share one.

use std::collections::VecDeque;

use super::interface::{AppendUndo, CacheUndo, Compaction, RowUndo, SaveMethod, SaveRow};
use super::rotating::RotatingCursor;

/// What a single token's slot held before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotBefore {
    /// Nothing valid.
    Empty,
    /// A row that no rewind makes visible again: the ring's slack covers the whole log.
    Spare,
    /// A row that a rewind may make visible again.
    Visible,
}

/// One append of one token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalEntry {
    /// The cursor before the append, trimmed to the ring.
    pub before: RotatingCursor,
    /// The compaction that the append began with.
    pub compact: Option<Compaction>,
    /// The slot that it wrote.
    pub slot: usize,
    /// What the slot held.
    pub held: SlotBefore,
    /// Where the overwritten row was saved, if it was.
    pub saved: Option<SaveRow>,
}

impl JournalEntry {
    fn undo(&self) -> Result<AppendUndo, RewindRefusal> {
        let slot = self.slot;
        match (self.held, self.saved) {
            (SlotBefore::Empty, _) => Ok(self.undo_with(RowUndo::Zero { slot })),
            (SlotBefore::Spare, _) => Ok(self.undo_with(RowUndo::Keep)),
            (SlotBefore::Visible, Some(SaveRow { entry, .. })) => {
                Ok(self.undo_with(RowUndo::Restore { slot, entry }))
            }
            (SlotBefore::Visible, None) => Err(RewindRefusal::OverwriteWithoutRows { slot }),
        }
    }

    fn undo_with(&self, row: RowUndo) -> AppendUndo {
        AppendUndo {
            offset_before: self.before.offset_tokens(),
            compact: self.compact,
            row,
        }
    }
}

/// Why appends cannot be taken back. The cache is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RewindRefusal {
    /// More than there are tokens.
    #[error("cannot take back {appends} appends of {offset_tokens} tokens")]
    BeyondOffset {
        /// Asked for.
        appends: usize,
        /// Tokens seen.
        offset_tokens: usize,
    },
    /// More than the log holds.
    #[error("cannot take back {appends} appends, the log holds {logged}")]
    BeyondLog {
        /// Asked for.
        appends: usize,
        /// Entries there are.
        logged: usize,
    },
    /// Something else moved the cursors between two entries.
    #[error("the log expects a cache of {expected_tokens} tokens, got {got_tokens}")]
    NotConsecutive {
        /// Tokens that the entry left.
        expected_tokens: usize,
        /// Tokens there are.
        got_tokens: usize,
    },
    /// The append was made outside a speculative scope, so nothing was saved.
    #[error("slot {slot} was overwritten outside a speculative scope, its row is gone")]
    OverwriteWithoutRows {
        /// The slot.
        slot: usize,
    },
}

/// The log of one cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndoJournal {
    depth: usize,
    entries: VecDeque<JournalEntry>,
}

impl UndoJournal {
    /// An empty log of at most `depth` entries; 0 is taken as 1.
    pub fn new(depth: usize) -> Self {
        Self {
            depth: depth.max(1),
            entries: VecDeque::new(),
        }
    }

    /// Most appends that can be taken back.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Entries in the log.
    pub fn logged(&self) -> usize {
        self.entries.len()
    }

    /// Logs an append of one token before it is made: `before` is the cursor trimmed to the ring,
    /// `compact` what trimmed it, `slot` the one that it will write. Returns the row to save, if one
    /// is overwritten that a rewind may need and a speculative scope, which says how, is open.
    pub fn record(
        &mut self,
        before: RotatingCursor,
        compact: Option<Compaction>,
        slot: usize,
        scope: Option<SaveMethod>,
    ) -> Option<SaveRow> {
        let held = match before.overwrites() {
            false => SlotBefore::Empty,
            true if before.slack_rows() >= self.depth => SlotBefore::Spare,
            true => SlotBefore::Visible,
        };
        let entry = before.offset_tokens() % self.depth;
        let save = |method| SaveRow {
            slot,
            entry,
            method,
        };
        let saved = scope.filter(|_| held == SlotBefore::Visible).map(save);
        if self.entries.len() == self.depth {
            self.entries.pop_front();
        }
        self.entries.push_back(JournalEntry {
            before,
            compact,
            slot,
            held,
            saved,
        });
        saved
    }

    /// Forgets everything: a chunk, a trim or a restored snapshot moved the cursors.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// What taking back `appends` appends of a cache at `current` would do; changes nothing. The
    /// cursor comes back as it was before the oldest of them.
    ///
    /// # Errors
    /// When that would not be exact.
    pub fn plan(
        &self,
        current: &RotatingCursor,
        appends: usize,
    ) -> Result<(RotatingCursor, CacheUndo), RewindRefusal> {
        let offset_tokens = current.offset_tokens();
        if appends > offset_tokens {
            return Err(RewindRefusal::BeyondOffset {
                appends,
                offset_tokens,
            });
        }
        let logged = self.entries.len();
        if appends > logged {
            return Err(RewindRefusal::BeyondLog { appends, logged });
        }
        let mut cursor = *current;
        let mut undone = Vec::with_capacity(appends);
        for entry in self.entries.iter().rev().take(appends) {
            let expected_tokens = entry.before.offset_tokens() + 1;
            if cursor.offset_tokens() != expected_tokens {
                return Err(RewindRefusal::NotConsecutive {
                    expected_tokens,
                    got_tokens: cursor.offset_tokens(),
                });
            }
            undone.push(entry.undo()?);
            cursor = entry.before;
        }
        let undo = CacheUndo {
            appends: undone,
            physical_rows: cursor.rows(),
        };
        Ok((cursor, undo))
    }

    /// What taking back the newest append would do where nobody may have saved the row that it
    /// overwrote; changes nothing. The row is not needed: the next token writes the same slot, and a
    /// chunk drops it. But whoever went back further would see that it is gone, so the log must be
    /// cleared with it.
    ///
    /// # Errors
    /// When there is no such append.
    pub fn plan_retraction(
        &self,
        current: &RotatingCursor,
    ) -> Result<(RotatingCursor, CacheUndo), RewindRefusal> {
        match (self.plan(current, 1), self.entries.back()) {
            (Err(RewindRefusal::OverwriteWithoutRows { .. }), Some(newest)) => Ok((
                newest.before,
                CacheUndo {
                    appends: vec![newest.undo_with(RowUndo::Keep)],
                    physical_rows: newest.before.rows(),
                },
            )),
            (planned, _) => planned,
        }
    }

    /// Drops the newest `appends` entries, which a plan has taken back.
    pub fn forget_newest(&mut self, appends: usize) {
        self.entries
            .truncate(self.entries.len().saturating_sub(appends));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_that_do_not_meet_the_cursor_are_refused() {
        let mut journal = UndoJournal::new(2);
        let mut cursor = RotatingCursor::new(4);
        cursor.append(1);
        journal.record(cursor, None, 1, Some(SaveMethod::InAppend));
        // The append that was logged never moved this cursor.
        assert_eq!(
            journal.plan(&cursor, 1),
            Err(RewindRefusal::NotConsecutive {
                expected_tokens: 2,
                got_tokens: 1
            })
        );
    }

    #[test]
    fn consecutive_appends_save_to_different_entries() {
        let mut journal = UndoJournal::new(2);
        let mut cursor = RotatingCursor::new(3);
        cursor.append(5);
        let mut entries = Vec::new();
        for _ in 0..6 {
            let (before, compact) = cursor.trimmed_to_ring();
            let slot = cursor.append(1).first_slot;
            entries.push(
                journal
                    .record(before, compact, slot, Some(SaveMethod::InAppend))
                    .unwrap()
                    .entry,
            );
        }
        assert!(entries.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(entries.iter().all(|entry| *entry < 2));
    }
}
