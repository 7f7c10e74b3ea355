//! A paired session to its answer: our own rule, the named ones, and where they contradict
//! each other. Pure.

use std::collections::BTreeMap;

use serde::Serialize;

use super::mapping::Mapping;
use super::session::{RefusedRow, Session};
use crate::analysis::from_record::unchecked_noise;
use crate::analysis::gate;
use crate::analysis::model::Analysis;
use crate::experiment::model::{MIN_ROUNDS, OnUndecided};
use crate::verdict::decide::decide;
use crate::verdict::named_rule::{self, NamedVerdict};
use crate::verdict::rule::{Moderation, NullCheck, Revision, Rule};
use crate::verdict::suite::suite;

/// The whole answer about a session that was measured elsewhere.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judged {
    /// How it was read, and by which rule it was judged.
    pub mapping: Mapping,
    /// Our own rule's answer.
    pub analysis: Analysis,
    /// The named rules' answers: by rule, then by cell; gated metrics only.
    pub named: Vec<NamedVerdict>,
    /// One sentence per comparison on which the rules contradict each other.
    pub disagreements: Vec<String>,
    /// Rows that were not used.
    pub refused: Vec<RefusedRow>,
}

/// Our rule as a plan sealed today would have it, without a history of the machine.
fn rule(mapping: &Mapping) -> Rule {
    Rule {
        threshold_pct: mapping.verdict.threshold_pct,
        alpha: mapping.verdict.alpha,
        min_rounds: MIN_ROUNDS,
        revision: Revision::CURRENT,
        moderation: Some(Moderation::DEFAULT),
        null_check: Some(NullCheck::DEFAULT),
        unequal_noise: true,
        null_history: BTreeMap::new(),
    }
}

/// Judges `session`. The same rows give the same answer.
#[must_use]
pub fn judge(mapping: &Mapping, mut session: Session) -> Judged {
    let rule = rule(mapping);
    let judgements = decide(&session.data, &rule);
    let suite = suite(&session.data, &judgements, &rule);
    let pass_undecided = mapping.verdict.undecided == OnUndecided::Pass;
    let (gate, gate_sentence) = gate::decide(&judgements, pass_undecided);
    let named = named(mapping, &session);
    let metrics = mapping.metrics.iter().filter(|(_, metric)| metric.gate);
    let needed = Some(NullCheck::DEFAULT.from_contrasts);
    let unchecked = metrics.filter_map(|(name, _)| unchecked_noise(name, needed, &judgements));
    session.notes.extend(unchecked);
    let disagreements = judgements
        .iter()
        .filter_map(|ours| {
            let same = |one: &&NamedVerdict| {
                (&one.cell, &one.candidate, &one.metric)
                    == (&ours.cell, &ours.candidate, &ours.metric)
            };
            let answers: Vec<&NamedVerdict> = named.iter().filter(same).collect();
            named_rule::disagreement(&answers, ours)
        })
        .collect();
    Judged {
        mapping: mapping.clone(),
        analysis: Analysis {
            judgements,
            suite,
            controls: Vec::new(),
            data: session.data,
            stages: Vec::new(),
            claims: Vec::new(),
            counts: session.counts,
            dropped: Vec::new(),
            gate,
            gate_sentence,
            notes: session.notes,
        },
        named,
        disagreements,
        refused: session.refused,
    }
}

/// The gated cells under every rule that the mapping names.
fn named(mapping: &Mapping, session: &Session) -> Vec<NamedVerdict> {
    let gated = || session.data.iter().filter(|data| data.gated);
    let threshold = mapping.verdict.threshold_pct;
    let rules = mapping.rules.iter();
    rules
        .flat_map(|rule| gated().flat_map(|data| named_rule::judge(*rule, data, threshold)))
        .collect()
}
