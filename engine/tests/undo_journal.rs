//! Taking appends back, against a device that only remembers which position each row holds, and a
//! plain list of positions.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::HashMap;

use mlxcel_engine::kv_cache::mask::visible_rows;
use mlxcel_engine::kv_cache::{
    CacheCursor, CachePlan, CacheUndo, FullCursor, RewindRefusal, RewindableCache, RotatingCursor,
    RowUndo, SaveMethod,
};
use proptest::prelude::*;

/// What a row holds that nobody has written.
const NEVER: i64 = -1;

/// Cache and device: rows hold the number of the write, not just the position, so that a row which
/// was written again by the same position does not pass for the old one.
#[derive(Clone)]
struct Twin {
    cache: RewindableCache,
    rows: Vec<i64>,
    saved: HashMap<usize, i64>,
    /// The rows that a plain list says are there: the write of each position.
    list: Vec<i64>,
    writes: i64,
    window: Option<usize>,
}

impl Twin {
    fn rotating(window: usize) -> Self {
        Self::ring(window, 0)
    }

    fn ring(window: usize, slack: usize) -> Self {
        let cursor = RotatingCursor::with_slack(window, slack);
        Self::new(CacheCursor::Rotating(cursor), Some(window))
    }

    fn new(cursor: CacheCursor, window: Option<usize>) -> Self {
        Self {
            cache: RewindableCache::new(cursor, 2),
            rows: Vec::new(),
            saved: HashMap::new(),
            list: Vec::new(),
            writes: 0,
            window,
        }
    }

    fn append(&mut self, tokens: usize, in_scope: bool) {
        let plan = self
            .cache
            .append(tokens, in_scope.then(SaveMethod::default));
        self.obey(&plan, tokens);
        self.check(&plan, tokens);
    }

    fn obey(&mut self, plan: &CachePlan, tokens: usize) {
        if let Some(compaction) = plan.compact {
            let mut kept = self.rows[compaction.head.0..compaction.head.1].to_vec();
            kept.extend_from_slice(&self.rows[compaction.tail.0..compaction.tail.1]);
            self.rows = kept;
        }
        if let Some(save) = plan.save {
            self.saved.insert(save.entry, self.rows[save.slot]);
        }
        self.rows.resize(plan.physical_rows, NEVER);
        for token in 0..tokens {
            self.rows[plan.first_slot + token] = self.writes;
            self.list.push(self.writes);
            self.writes += 1;
        }
        assert_eq!(plan.offset_tokens, self.list.len());
    }

    /// Every query of the step sees exactly the window's writes.
    fn check(&self, plan: &CachePlan, tokens: usize) {
        for position in self.list.len() - tokens..self.list.len() {
            let visible = visible_rows(plan.view, plan.physical_rows, position);
            let seen: Vec<i64> = visible.map(|row| self.rows[row]).collect();
            let oldest = self.window.map_or(0, |w| (position + 1).saturating_sub(w));
            assert_eq!(seen, self.list[oldest..=position]);
        }
    }

    fn rewind(&mut self, appends: usize) -> Result<(), RewindRefusal> {
        let undo = self.cache.rewind(appends)?;
        self.take_back(&undo);
        self.list.truncate(self.list.len() - appends);
        Ok(())
    }

    fn take_back(&mut self, undo: &CacheUndo) {
        for append in &undo.appends {
            match append.row {
                RowUndo::Keep => {}
                RowUndo::Zero { slot } => self.rows[slot] = NEVER,
                RowUndo::Restore { slot, entry } => self.rows[slot] = self.saved[&entry],
            }
        }
        self.rows.truncate(undo.physical_rows);
    }

    /// The rows, and the cursor, as a single token would find them. Rows of a ring's slack are out
    /// of sight, and may differ.
    fn state(&self) -> (Vec<i64>, CacheCursor) {
        match self.cache.cursor() {
            CacheCursor::Rotating(cursor) => {
                let (cursor, compact) = cursor.trimmed_to_ring();
                let rows = compact.map_or(&self.rows[..], |c| &self.rows[c.head.0..c.head.1]);
                let mut rows = rows.to_vec();
                for spare in cursor.window_tokens()..rows.len() {
                    let back = spare + 1;
                    let slot = (cursor.next_slot() + rows.len() - back) % rows.len();
                    rows[slot] = NEVER;
                }
                (rows, CacheCursor::Rotating(cursor))
            }
            full @ CacheCursor::Full(_) => (self.rows.clone(), full.clone()),
        }
    }
}

/// A prompt, some tokens, then `speculative` tokens that are taken back again.
fn rewound(window: usize, prompt: usize, decoded: usize, speculative: usize) {
    for slack in [0, 2] {
        rewound_in(Twin::ring(window, slack), prompt, decoded, speculative);
    }
}

fn rewound_in(mut twin: Twin, prompt: usize, decoded: usize, speculative: usize) {
    let window = twin.window.unwrap();
    twin.append(prompt, false);
    for _ in 0..decoded {
        twin.append(1, false);
    }
    let before = twin.state();
    for _ in 0..speculative {
        twin.append(1, true);
    }
    twin.rewind(speculative).unwrap();
    let cursor = twin.cache.cursor();
    let case = format!("{cursor:?}, ({prompt}, {decoded}), {speculative}");
    assert_eq!(twin.state(), before, "{case}");
    for _ in 0..3 * window {
        twin.append(1, false);
    }
    twin.append(3, false);
}

#[test]
fn a_wrapped_ring_comes_back() {
    rewound(4, 3, 6, 1);
    rewound(4, 3, 6, 2);
}

#[test]
fn a_ring_comes_back_from_slot_zero_to_its_end() {
    // Eight tokens seen: the next ones take slot 0 and 1.
    rewound(4, 3, 5, 1);
    rewound(4, 3, 5, 2);
    rewound(4, 3, 4, 1);
    rewound(4, 3, 4, 2);
}

#[test]
fn a_prompt_longer_than_the_window_comes_back_trimmed() {
    rewound(4, 9, 1, 1);
    rewound(4, 9, 1, 2);
    rewound(4, 9, 0, 1);
    rewound(4, 9, 0, 2);
}

#[test]
fn the_boundary_between_filling_and_overwriting_comes_back() {
    // Slot 3 was never valid, slot 0 was.
    rewound(4, 2, 1, 2);
}

#[test]
fn a_ring_that_is_still_filling_comes_back() {
    rewound(8, 3, 1, 1);
    rewound(8, 3, 2, 2);
}

#[test]
fn windows_of_one_and_two_come_back() {
    for (prompt, decoded) in [(2, 0), (2, 1), (2, 5), (5, 3)] {
        rewound(1, prompt, decoded, 1);
        rewound(1, prompt, decoded, 2);
        rewound(2, prompt, decoded, 2);
    }
}

fn refused(twin: &mut Twin, appends: usize) -> RewindRefusal {
    let (rows, cache) = (twin.rows.clone(), twin.cache.clone());
    let refusal = twin.rewind(appends).unwrap_err();
    assert_eq!(twin.rows, rows, "a refusal changed rows");
    assert_eq!(twin.cache, cache, "a refusal changed the cache");
    assert_eq!(twin.cache.check_rewind(appends), Err(refusal));
    refusal
}

#[test]
fn more_than_the_log_holds_is_refused() {
    let mut twin = Twin::rotating(4);
    twin.append(3, false);
    for _ in 0..5 {
        twin.append(1, true);
    }
    let (appends, logged) = (3, 2);
    let refusal = refused(&mut twin, appends);
    assert_eq!(refusal, RewindRefusal::BeyondLog { appends, logged });
    twin.rewind(2).unwrap();
    let refusal = refused(&mut twin, 1);
    assert_eq!(
        refusal,
        RewindRefusal::BeyondLog {
            appends: 1,
            logged: 0
        }
    );
}

#[test]
fn more_tokens_than_there_are_is_refused() {
    let mut twin = Twin::rotating(4);
    twin.append(1, true);
    let refusal = refused(&mut twin, 2);
    let beyond = RewindRefusal::BeyondOffset {
        appends: 2,
        offset_tokens: 1,
    };
    assert_eq!(refusal, beyond);
    let mut full = Twin::new(CacheCursor::Full(FullCursor::default()), None);
    full.append(1, true);
    assert_eq!(refused(&mut full, 2), beyond);
}

#[test]
fn a_chunk_a_trim_and_a_snapshot_clear_the_log() {
    let nothing_logged = RewindRefusal::BeyondLog {
        appends: 1,
        logged: 0,
    };
    let mut twin = Twin::rotating(8);
    twin.append(2, false);
    twin.append(1, true);
    let snapshot = twin.cache.cursor().clone();
    let mut chunk = twin.clone();
    chunk.append(2, true);
    assert_eq!(refused(&mut chunk, 1), nothing_logged);
    let mut trimmed = twin.clone();
    assert!(trimmed.cache.trim(1));
    assert_eq!(refused(&mut trimmed, 1), nothing_logged);
    twin.cache.restore(snapshot);
    assert_eq!(refused(&mut twin, 1), nothing_logged);
}

#[test]
fn an_overwrite_outside_the_scope_is_logged_and_refused() {
    let mut twin = Twin::rotating(4);
    twin.append(5, false);
    twin.append(1, false);
    let refusal = refused(&mut twin, 1);
    assert_eq!(refusal, RewindRefusal::OverwriteWithoutRows { slot: 0 });
    // A token inside the scope can be taken back, but not the one before it.
    twin.append(1, true);
    let refusal = refused(&mut twin, 2);
    assert_eq!(refusal, RewindRefusal::OverwriteWithoutRows { slot: 0 });
    twin.rewind(1).unwrap();
}

#[test]
fn a_ring_with_slack_saves_nothing_and_needs_no_scope() {
    let mut twin = Twin::ring(4, 2);
    twin.append(5, false);
    for decoded in 0..20 {
        let before = twin.state();
        for _ in 0..2 {
            let plan = twin
                .cache
                .append(1, (decoded % 2 == 0).then(SaveMethod::default));
            assert_eq!(plan.save, None);
            twin.obey(&plan, 1);
        }
        twin.rewind(2).unwrap();
        assert_eq!(twin.state(), before, "{decoded}");
        twin.append(1, false);
    }
    let (appends, logged) = (3, 2);
    twin.append(1, true);
    let beyond = RewindRefusal::BeyondLog { appends, logged };
    assert_eq!(
        refused(&mut twin, appends),
        beyond,
        "no deeper than a journal"
    );
}

#[test]
fn a_ring_with_too_little_slack_saves_as_one_without() {
    let mut twin = Twin::ring(4, 1);
    twin.append(9, false);
    let saves = |twin: &mut Twin, scope: Option<SaveMethod>| twin.cache.append(1, scope).save;
    assert!(saves(&mut twin, Some(SaveMethod::InAppend)).is_some());
}

#[test]
fn the_newest_append_can_be_retracted_though_its_row_is_lost() {
    for mut twin in [Twin::rotating(4), Twin::ring(4, 2)] {
        twin.append(5, false);
        twin.append(1, false);
        twin.append(1, false);
        let undo = twin.cache.retract().unwrap();
        twin.take_back(&undo);
        twin.list.pop();
        let nothing_logged = RewindRefusal::BeyondLog {
            appends: 1,
            logged: 0,
        };
        assert_eq!(
            refused(&mut twin, 1),
            nothing_logged,
            "the row before it is lost"
        );
        let mut chunk = twin.clone();
        chunk.append(3, false);
        for _ in 0..9 {
            twin.append(1, false);
        }
    }
    let mut chunk = Twin::rotating(4);
    chunk.append(3, false);
    assert!(chunk.cache.retract().is_err(), "a chunk was not logged");
}

#[test]
fn a_token_outside_the_scope_that_overwrites_nothing_can_be_taken_back() {
    let mut twin = Twin::rotating(4);
    twin.append(2, false);
    let before = twin.state();
    twin.append(1, false);
    twin.rewind(1).unwrap();
    assert_eq!(twin.state(), before);
}

#[test]
fn trimming_is_exact_before_the_wrap_and_refused_after_it() {
    let mut cursor = RotatingCursor::new(4);
    cursor.append(3);
    let before = cursor;
    cursor.append(1);
    assert!(cursor.trim(1));
    assert_eq!(cursor, before);
    cursor.append(1);
    cursor.append(1);
    assert!(cursor.has_wrapped());
    let wrapped = cursor;
    assert!(!cursor.trim(1));
    assert_eq!(cursor, wrapped);
    assert!(cursor.trim(0));
}

/// What happens to a cache: appends outside the scope, or a scope that is taken back.
#[derive(Debug, Clone, Copy)]
enum Action {
    Append(usize),
    /// So many tokens in a scope, of which so many are taken back.
    Scope(usize, usize),
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let scope = (1usize..6, 0usize..3).prop_map(|(n, back)| Action::Scope(n, back.min(n)));
    let action = prop_oneof![
        3 => Just(Action::Append(1)),
        1 => (1usize..12).prop_map(Action::Append),
        4 => scope,
    ];
    prop::collection::vec(action, 1..40)
}

proptest! {
    #[test]
    fn what_was_taken_back_never_happened(window in 1usize..9, actions in actions()) {
        for mut twin in [
            Twin::rotating(window),
            Twin::ring(window, 2),
            Twin::ring(window, 3),
            Twin::new(CacheCursor::Full(FullCursor::default()), None),
        ] {
            for action in &actions {
                match *action {
                    Action::Append(tokens) => twin.append(tokens, false),
                    Action::Scope(tokens, back) => {
                        for _ in 0..tokens - back {
                            twin.append(1, true);
                        }
                        let before = twin.state();
                        for _ in 0..back {
                            twin.append(1, true);
                        }
                        twin.rewind(back).unwrap();
                        // A full cache keeps what is beyond its end, which nobody sees.
                        if twin.window.is_some() {
                            prop_assert_eq!(twin.state(), before);
                        } else {
                            prop_assert_eq!(twin.cache.cursor(), &before.1);
                        }
                    }
                }
            }
        }
    }
}
