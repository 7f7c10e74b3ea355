//! Whether a round may begin before the time is over. Pure.
//!
//! A round that cannot end would be dropped as a whole, so none is begun that is not expected
//! to end: every attempt of it as slow as the slowest one like it so far. Priming tells nothing of
//! what comes: it may have made what all others only read.

use crate::record::format::Attempt;

/// What is about to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Upcoming<'a> {
    /// Id of the cell.
    pub cell: &'a str,
    /// 1-based session in which it would run.
    pub session: u32,
    /// Attempts until its next round is complete, priming included.
    pub attempts: usize,
}

/// Whether that is expected to end within `left_seconds`. Before anything is known of attempts
/// there is nothing to expect, and only time that is over says no.
#[must_use]
pub fn may_begin(upcoming: Upcoming<'_>, rows: &[Attempt], left_seconds: f64) -> bool {
    let each = seconds_of_an_attempt(upcoming, rows).unwrap_or(0.0);
    let count = u32::try_from(upcoming.attempts).unwrap_or(u32::MAX);
    left_seconds > 0.0 && f64::from(count) * each <= left_seconds
}

/// The slowest of the measured attempts that are most like those to come: of this cell and
/// session, else of this cell, else of the run.
fn seconds_of_an_attempt(upcoming: Upcoming<'_>, rows: &[Attempt]) -> Option<f64> {
    let here = |row: &&Attempt| row.cell == upcoming.cell && row.session == upcoming.session;
    let slowest = |choose: &dyn Fn(&&Attempt) -> bool| {
        let measured = rows.iter().filter(|row| row.round > 0);
        let seconds = measured.filter(choose).filter_map(seconds);
        seconds.max_by(f64::total_cmp)
    };
    slowest(&here)
        .or_else(|| slowest(&|row| row.cell == upcoming.cell))
        .or_else(|| slowest(&|_| true))
}

/// What an attempt took with the wait before it; `None` for one that never started.
fn seconds(row: &Attempt) -> Option<f64> {
    let wall = std::time::Duration::from_nanos(row.usage?.wall_ns);
    Some(wall.as_secs_f64() + row.guard.waited_seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::example;

    /// The example's rows; each took `seconds` of its number.
    fn rows(seconds: impl Fn(usize) -> u64) -> Vec<Attempt> {
        let mut rows = example::attempts(&example::plan());
        for (number, row) in rows.iter_mut().enumerate() {
            if let Some(usage) = &mut row.usage {
                usage.wall_ns = seconds(number) * 1_000_000_000;
            }
        }
        rows
    }

    fn upcoming(cell: &str) -> Upcoming<'_> {
        Upcoming {
            cell,
            session: 1,
            attempts: 4,
        }
    }

    #[test]
    fn a_round_begins_only_where_its_slowest_attempts_fit() {
        let rows = rows(|_| 10);
        let begins = |left| may_begin(upcoming("256"), &rows, left);
        assert!(begins(40.0));
        assert!(!begins(39.9));
        assert!(!may_begin(upcoming("256"), &[], 0.0), "the time is over");
        assert!(may_begin(upcoming("256"), &[], 0.1), "nothing is known");
    }

    #[test]
    fn slow_priming_tells_nothing_of_the_rounds() {
        // Three priming attempts of 60 s, then 10 s each.
        let rows = rows(|number| if number < 3 { 60 } else { 10 });
        assert!(may_begin(upcoming("256"), &rows[..1], 1.0));
        assert!(may_begin(upcoming("256"), &rows[..4], 40.0));
        assert!(!may_begin(upcoming("256"), &rows[..4], 39.0));
    }

    #[test]
    fn of_another_cell_or_session_only_as_much_is_taken_as_nothing_nearer_tells() {
        let rows = rows(|number| if number < 23 { 10 } else { 50 });
        assert!(!may_begin(upcoming("2048"), &rows, 199.0));
        assert!(
            may_begin(upcoming("2048"), &rows[..23], 40.0),
            "as the other cell"
        );
        let later = Upcoming {
            session: 2,
            ..upcoming("256")
        };
        assert!(may_begin(later, &rows, 40.0), "as before in this cell");
    }

    #[test]
    fn waiting_is_part_of_an_attempt() {
        let mut rows = rows(|_| 10);
        rows.iter_mut()
            .for_each(|row| row.guard.waited_seconds = 3.0);
        assert!(!may_begin(upcoming("256"), &rows, 51.0));
        assert!(may_begin(upcoming("256"), &rows, 52.0));
    }
}
