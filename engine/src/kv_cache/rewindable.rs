//! A cache's cursor together with what it takes to go back: trim where that is exact, the journal
//! where it is not.

use super::interface::{AppendUndo, CacheCursor, CachePlan, CacheUndo, RowUndo, SaveMethod};
use super::undo_journal::{RewindRefusal, UndoJournal};

/// Cursor and journal of one kind of cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RewindableCache {
    cursor: CacheCursor,
    journal: UndoJournal,
}

impl RewindableCache {
    /// A cache at `cursor` that can take back up to `depth` appends of one token.
    pub fn new(cursor: CacheCursor, depth: usize) -> Self {
        Self {
            cursor,
            journal: UndoJournal::new(depth),
        }
    }

    /// The cursor; a clone of it is a snapshot.
    pub fn cursor(&self) -> &CacheCursor {
        &self.cursor
    }

    /// Most appends that can be taken back whatever the cursor stands at; `None` is any number.
    pub fn guaranteed_rewind(&self) -> Option<usize> {
        match self.cursor {
            CacheCursor::Full(_) => None,
            CacheCursor::Rotating(_) => Some(self.journal.depth()),
        }
    }

    /// Most appends that can be taken back though nothing was saved; `None` is any number.
    pub fn rewind_without_saving(&self) -> Option<usize> {
        match &self.cursor {
            CacheCursor::Full(_) => None,
            CacheCursor::Rotating(cursor) if cursor.slack_rows() >= self.journal.depth() => {
                Some(self.journal.depth())
            }
            CacheCursor::Rotating(_) => Some(0),
        }
    }

    /// Makes room for `tokens` tokens and moves the cursor past them. An open `scope` says that
    /// the token may be taken back, and how a row that it overwrites is saved.
    pub fn append(&mut self, tokens: usize, scope: Option<SaveMethod>) -> CachePlan {
        let before = match &self.cursor {
            CacheCursor::Rotating(cursor) if tokens == 1 => Some(cursor.trimmed_to_ring()),
            _ => None,
        };
        let mut plan = self.cursor.append(tokens);
        match before {
            Some((before, compact)) => {
                plan.save = self.journal.record(before, compact, plan.first_slot, scope);
            }
            None => self.journal.clear(),
        }
        plan
    }

    /// Whether the window is full, so that the next token pushes one out of it.
    pub fn is_window_full(&self) -> bool {
        match &self.cursor {
            CacheCursor::Full(_) => false,
            CacheCursor::Rotating(cursor) => cursor.offset_tokens() >= cursor.window_tokens(),
        }
    }

    /// Whether the newest `appends` appends can be taken back.
    ///
    /// # Errors
    /// Why not.
    pub fn check_rewind(&self, appends: usize) -> Result<(), RewindRefusal> {
        self.planned(appends).map(|_| ())
    }

    /// Takes back the newest `appends` appends of one token; 0 is no change. Returns what the device
    /// has to do.
    ///
    /// # Errors
    /// When that would not be exact; the cache is then as it was.
    pub fn rewind(&mut self, appends: usize) -> Result<CacheUndo, RewindRefusal> {
        let (cursor, undo) = self.planned(appends)?;
        self.cursor = cursor;
        self.journal.forget_newest(appends);
        Ok(undo)
    }

    /// Takes back the newest append of one token, also where the row that it overwrote is lost, and
    /// clears the journal: what the next token sees is exact, but nothing further can be taken back.
    /// For a step that failed where nothing was recorded.
    ///
    /// # Errors
    /// When the newest append was a chunk, or there is none.
    pub fn retract(&mut self) -> Result<CacheUndo, RewindRefusal> {
        let (cursor, undo) = match &self.cursor {
            CacheCursor::Rotating(cursor) => {
                let (cursor, undo) = self.journal.plan_retraction(cursor)?;
                (CacheCursor::Rotating(cursor), undo)
            }
            CacheCursor::Full(_) => self.planned(1)?,
        };
        self.cursor = cursor;
        self.journal.clear();
        Ok(undo)
    }

    /// Forgets the newest `tokens` tokens without the journal, and clears it; false, and nothing
    /// done, where that is not exact.
    pub fn trim(&mut self, tokens: usize) -> bool {
        let trimmed = match &mut self.cursor {
            CacheCursor::Full(cursor) => {
                let enough = tokens <= cursor.offset_tokens();
                if enough {
                    cursor.trim(tokens);
                }
                enough
            }
            CacheCursor::Rotating(cursor) => cursor.trim(tokens),
        };
        if trimmed {
            self.journal.clear();
        }
        trimmed
    }

    /// Puts a snapshot back; its rows are the device's business.
    pub fn restore(&mut self, snapshot: CacheCursor) {
        self.cursor = snapshot;
        self.journal.clear();
    }

    fn planned(&self, appends: usize) -> Result<(CacheCursor, CacheUndo), RewindRefusal> {
        match &self.cursor {
            CacheCursor::Rotating(cursor) => {
                let (cursor, undo) = self.journal.plan(cursor, appends)?;
                Ok((CacheCursor::Rotating(cursor), undo))
            }
            CacheCursor::Full(cursor) => {
                let offset_tokens = cursor.offset_tokens();
                if appends > offset_tokens {
                    return Err(RewindRefusal::BeyondOffset {
                        appends,
                        offset_tokens,
                    });
                }
                let mut cursor = cursor.clone();
                cursor.trim(appends);
                let undo = CacheUndo {
                    appends: (1..=appends)
                        .map(|back| AppendUndo {
                            offset_before: offset_tokens - back,
                            compact: None,
                            row: RowUndo::Keep,
                        })
                        .collect(),
                    physical_rows: cursor.offset_tokens(),
                };
                Ok((CacheCursor::Full(cursor), undo))
            }
        }
    }
}
