//! What a run tells while it goes on. The command line draws it; tests collect it.

use crate::record::format::{Attempt, Plan};

/// Told about a run's progress. Never called while an attempt is running, but for
/// [`Observer::waiting`], which the guard calls once a second at most.
pub trait Observer {
    /// A step before the plan is sealed: resolving, checking out, building.
    fn preparing(&mut self, arm: &str, step: &str);
    /// Something a reader must know.
    fn warning(&mut self, text: &str);
    /// The plan is sealed; `done` attempts were already on record, and `left` more will
    /// follow if all are clean.
    fn sealed(&mut self, plan: &Plan, done: usize, left: usize);
    /// The guard waits.
    fn waiting(&mut self, why: &str);
    /// An attempt starts now.
    fn starting(&mut self, cell: &str, arm: &str, round: u32);
    /// An attempt is on record; `attempts` holds all of them, the newest last, and `left`
    /// more will follow if all are clean.
    fn recorded(&mut self, plan: &Plan, attempts: &[Attempt], left: usize);
}

/// Says nothing.
#[derive(Debug, Default)]
pub struct Silent;

impl Observer for Silent {
    fn preparing(&mut self, _arm: &str, _step: &str) {}
    fn warning(&mut self, _text: &str) {}
    fn sealed(&mut self, _plan: &Plan, _done: usize, _left: usize) {}
    fn waiting(&mut self, _why: &str) {}
    fn starting(&mut self, _cell: &str, _arm: &str, _round: u32) {}
    fn recorded(&mut self, _plan: &Plan, _attempts: &[Attempt], _left: usize) {}
}
