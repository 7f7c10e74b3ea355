//! Which rows a query sees.

use std::ops::Range;

use super::interface::KeyView;

/// Rows of a buffer of `physical_rows` that the query at `query_position` sees.
///
/// A contiguous range for every view there is, so attention needs no mask, only two bounds.
pub fn visible_rows(view: KeyView, physical_rows: usize, query_position: usize) -> Range<usize> {
    match view {
        KeyView::All => 0..physical_rows,
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
            start..end.min(physical_rows).max(start)
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
            let rows = visible_rows(view, 20, query);
            for key in 10..30 {
                let seen = key <= query && query - key < 4;
                assert_eq!(rows.contains(&(key - 10)), seen, "query {query} key {key}");
            }
        }
    }

    #[test]
    fn without_a_window_everything_up_to_the_token_is_seen() {
        let view = KeyView::Ordered {
            first_position: 0,
            window_tokens: None,
        };
        assert_eq!(visible_rows(view, 8, 5), 0..6);
    }
}
