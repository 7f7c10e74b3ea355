//! The cursors against a plain list of tokens, over any mixture of single and multiple appends.

use mlxcel_engine::kv_cache::mask::visible_rows;
use mlxcel_engine::kv_cache::{CacheCursor, CachePlan, FullCursor, KeyView, RotatingCursor};
use proptest::prelude::*;

/// A device without arithmetic: each row holds the position that was written there.
#[derive(Default)]
struct Rows(Vec<usize>);

impl Rows {
    /// Obeys a plan as a back end does, and checks that it can be obeyed.
    fn obey(&mut self, plan: &CachePlan, first_position: usize, tokens: usize) {
        if let Some(compaction) = plan.compact {
            let (head, tail) = (compaction.head, compaction.tail);
            let mut kept = self.0[head.0..head.1].to_vec();
            kept.extend_from_slice(&self.0[tail.0..tail.1]);
            self.0 = kept;
        }
        assert!(
            plan.first_slot <= self.0.len(),
            "a write beyond the rows leaves a hole"
        );
        assert!(
            plan.physical_rows <= plan.capacity_rows,
            "no room: {plan:?}"
        );
        self.0.resize(plan.physical_rows, usize::MAX);
        for token in 0..tokens {
            self.0[plan.first_slot + token] = first_position + token;
        }
        assert!(
            !self.0.contains(&usize::MAX),
            "a row that nobody wrote: {plan:?}"
        );
    }

    /// Positions that the query at `position` sees, in the order in which it visits them.
    fn seen(&self, plan: &CachePlan, position: usize) -> Vec<usize> {
        let visible = visible_rows(plan.view, plan.physical_rows, position);
        visible.map(|row| self.0[row]).collect()
    }
}

/// Appends as told and checks every query of every step against the definition: key j is visible to
/// query i iff j ≤ i and i − j < window.
fn follow(mut cursor: CacheCursor, window: Option<usize>, appends: &[usize]) {
    let mut rows = Rows::default();
    let mut offset = 0;
    for &tokens in appends {
        let plan = cursor.append(tokens);
        rows.obey(&plan, offset, tokens);
        for position in offset..offset + tokens {
            let oldest = window.map_or(0, |window| (position + 1).saturating_sub(window));
            let wanted: Vec<usize> = (oldest..=position).collect();
            assert_eq!(
                rows.seen(&plan, position),
                wanted,
                "window {window:?}, {appends:?}"
            );
        }
        if let KeyView::Ordered { first_position, .. } = plan.view {
            let in_order: Vec<usize> = (first_position..offset + tokens).collect();
            assert_eq!(rows.0, in_order, "rows out of the order of time");
        }
        offset += tokens;
        assert_eq!(cursor.offset_tokens(), offset);
    }
}

/// Many single tokens with some chunks between them: the mixture that wraps and unrolls a ring.
fn appends() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(prop_oneof![4 => Just(1usize), 1 => 1usize..12], 1..60)
}

proptest! {
    #[test]
    fn a_rotating_cache_shows_exactly_the_window_oldest_first(
        window in 1usize..9,
        slack in 0usize..4,
        appends in appends(),
    ) {
        let cursor = CacheCursor::Rotating(RotatingCursor::with_slack(window, slack));
        follow(cursor, Some(window), &appends);
    }

    #[test]
    fn a_full_cache_shows_everything(appends in appends()) {
        follow(CacheCursor::Full(FullCursor::default()), None, &appends);
    }

    #[test]
    fn a_ring_never_holds_more_than_its_window_and_slack_after_a_single_token(
        window in 1usize..9,
        slack in 0usize..4,
        appends in appends(),
    ) {
        let mut cursor = RotatingCursor::with_slack(window, slack);
        for &tokens in &appends {
            let plan = cursor.append(tokens);
            if tokens == 1 {
                prop_assert!(plan.physical_rows <= window + slack);
            } else {
                prop_assert!(plan.physical_rows < window + tokens);
            }
        }
    }
}

fn slots(window: usize, appends: &[usize]) -> Vec<usize> {
    let mut cursor = RotatingCursor::new(window);
    appends
        .iter()
        .map(|&tokens| cursor.append(tokens).first_slot)
        .collect()
}

#[test]
fn single_tokens_fill_the_ring_and_wrap_to_slot_zero() {
    assert_eq!(slots(4, &[1; 10]), [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]);
}

#[test]
fn the_single_token_after_a_long_prompt_trims_to_the_window_and_takes_slot_zero() {
    let mut cursor = RotatingCursor::new(4);
    assert_eq!(
        cursor.append(9).physical_rows,
        9,
        "the first chunk is kept whole"
    );
    let plan = cursor.append(1);
    assert_eq!(plan.compact.map(|c| c.head), Some((5, 9)));
    assert_eq!((plan.first_slot, plan.physical_rows), (0, 4));
}

#[test]
fn a_later_chunk_keeps_one_row_less_than_the_window() {
    let mut cursor = RotatingCursor::new(4);
    cursor.append(9);
    let plan = cursor.append(3);
    assert_eq!((plan.first_slot, plan.physical_rows), (3, 6));
}

#[test]
fn a_ring_has_wrapped_once_a_slot_is_written_again() {
    let mut cursor = RotatingCursor::new(4);
    for _ in 0..4 {
        cursor.append(1);
        assert!(!cursor.has_wrapped());
    }
    cursor.append(1);
    assert!(cursor.has_wrapped());
}

#[test]
fn a_ring_with_slack_has_wrapped_when_one_without_has() {
    let (mut plain, mut slack) = (RotatingCursor::new(4), RotatingCursor::with_slack(4, 2));
    for tokens in [1, 1, 1, 1, 1, 1, 1, 3, 1] {
        plain.append(tokens);
        slack.append(tokens);
        assert_eq!(plain.has_wrapped(), slack.has_wrapped());
    }
}

#[test]
fn a_full_window_is_not_moved_again_for_its_slack() {
    let mut cursor = RotatingCursor::with_slack(512, 2);
    cursor.append(512);
    assert_eq!(cursor.append(1).capacity_rows, 514);
    let mut growing = RotatingCursor::with_slack(512, 2);
    let capacities: Vec<usize> = (0..520).map(|_| growing.append(1).capacity_rows).collect();
    assert_eq!(
        (capacities[0], capacities[256], capacities[519]),
        (256, 514, 514)
    );
}

#[test]
fn growth_is_in_steps_and_ends_at_the_window() {
    let mut cursor = RotatingCursor::new(300);
    assert_eq!(cursor.append(1).capacity_rows, 256);
    for _ in 1..256 {
        cursor.append(1);
    }
    assert_eq!(cursor.append(1).capacity_rows, 300);
}
