//! Small cells for the tests of this folder.

use std::collections::BTreeMap;

use super::rule::{ArmCopy, CellData, Moderation, NullCheck, Revision, Rule};
use crate::experiment::model::Better;

/// The rule in its plainest form.
pub(super) const RULE: Rule = Rule {
    revision: Revision::CURRENT,
    threshold_pct: 1.0,
    alpha: 0.05,
    min_rounds: 3,
    moderation: None,
    null_check: None,
    unequal_noise: false,
    null_history: BTreeMap::new(),
};

/// What a new plan on a host without a history is sealed with.
pub(super) fn sealed_rule() -> Rule {
    Rule {
        moderation: Some(Moderation::DEFAULT),
        null_check: Some(NullCheck::DEFAULT),
        unequal_noise: true,
        ..RULE
    }
}

/// A gated cell of base, its null arm and one candidate called `main`.
pub(super) fn cell(metric: &str, better: Better, rounds: &[[f64; 3]]) -> CellData {
    let arm = |name: &str, treatment, of: Option<&str>| ArmCopy {
        name: name.into(),
        treatment,
        null_of: of.map(Into::into),
        declared: of.is_none(),
        injected: None,
    };
    CellData {
        cell: "2048".into(),
        metric: metric.into(),
        unit: crate::unit::metric_unit(metric).into(),
        better,
        gated: true,
        arms: vec![
            arm("base", 0, None),
            arm("base-null", 0, Some("base")),
            arm("main", 1, None),
        ],
        base: 0,
        rounds: rounds.iter().map(|row| row.to_vec()).collect(),
        slots: vec![vec![0, 1, 2]; rounds.len()],
        balanced: false,
        invalid: vec![],
    }
}

/// Five rounds around `base` and `candidate`, with a drift that the rounds take
/// out and a noise of about 0.1 %.
pub(super) fn noisy(metric: &str, better: Better, base: f64, candidate: f64) -> CellData {
    let wobble = [
        [0.9990, 1.0010, 1.0004],
        [1.0005, 0.9995, 0.9992],
        [1.0008, 1.0002, 1.0009],
        [0.9997, 1.0003, 0.9996],
        [1.0000, 0.9990, 1.0001],
    ];
    let mut rounds = wobble;
    for (index, row) in rounds.iter_mut().enumerate() {
        #[expect(clippy::cast_precision_loss, reason = "below five")]
        let drift = 1.0 + 0.03 * index as f64;
        for (value, level) in row.iter_mut().zip([base, base, candidate]) {
            *value *= level * drift;
        }
    }
    cell(metric, better, &rounds)
}
