//! Which rows a query sees.

use std::iter::Chain;
use std::ops::Range;

use super::interface::KeyView;

/// Rows in the order of their positions: one run, or two where a ring goes round.
pub type VisibleRows = Chain<Range<usize>, Range<usize>>;

/// Rows of a buffer of `physical_rows` that the query at `query_position` sees, oldest first.
///
/// At most two contiguous runs for every view there is, so attention needs no mask, only bounds.
pub fn visible_rows(view: KeyView, physical_rows: usize, query_position: usize) -> VisibleRows {
    match view {
        KeyView::Ring { oldest_slot, rows } => {
            let end = oldest_slot + rows;
            let round = end.saturating_sub(physical_rows);
            (oldest_slot..end - round).chain(0..round)
        }
        KeyView::Ordered {
            first_position,
            window_tokens,
        } => {
            let end = (query_position + 1).saturating_sub(first_position);
            let oldest = match window_tokens {
                Some(window) => (query_position + 1).saturating_sub(window),
                None => 0,
            };
            let start = oldest.saturating_sub(first_position);
            (start..end.min(physical_rows).max(start)).chain(0..0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_seen_from_its_own_token_to_window_minus_one_later() {
        let view = KeyView::Ordered {
            first_position: 10,
            window_tokens: Some(4),
        };
        for query in 10..30 {
            let rows: Vec<usize> = visible_rows(view, 20, query).collect();
            for key in 10..30 {
                let seen = key <= query && query - key < 4;
                assert_eq!(rows.contains(&(key - 10)), seen, "query {query} key {key}");
            }
        }
    }

    #[test]
    fn a_ring_is_seen_from_its_oldest_row_round_to_its_newest() {
        let seen = |oldest_slot, rows| {
            let view = KeyView::Ring { oldest_slot, rows };
            visible_rows(view, 6, 99).collect::<Vec<_>>()
        };
        assert_eq!(seen(0, 6), [0, 1, 2, 3, 4, 5]);
        assert_eq!(seen(4, 4), [4, 5, 0, 1]);
        assert_eq!(seen(2, 4), [2, 3, 4, 5]);
    }

    #[test]
    fn without_a_window_everything_up_to_the_token_is_seen() {
        let view = KeyView::Ordered {
            first_position: 0,
            window_tokens: None,
        };
        assert!(visible_rows(view, 8, 5).eq(0..6));
    }
}
