//! From judgements to the gate's one word. Pure.

use crate::verdict::rule::{Gate, Judgement, Verdict};

use super::model::GateOutcome;

/// What is said of a run that has not ended: a look that nobody planned would be one more chance
/// to pass (docs/METHODOLOGY.md, "Looks and confirmation").
#[must_use]
pub fn unfinished(complete_rounds: usize) -> (GateOutcome, String) {
    let sentence = format!(
        "Invalid: the run is not finished, {complete_rounds} rounds are complete; the same command \
         resumes it."
    );
    (GateOutcome::Invalid, sentence)
}

/// What the gate says, and one sentence. A regression outweighs an invalid cell, and an
/// invalid cell an undecided one: the worst thing that is known is said.
#[must_use]
pub fn decide(judgements: &[Judgement], pass_undecided: bool) -> (GateOutcome, String) {
    let gated: Vec<&Judgement> = judgements
        .iter()
        .filter(|judgement| judgement.gated)
        .collect();
    let named = |keep: &dyn Fn(&Judgement) -> bool| -> Vec<String> {
        gated
            .iter()
            .filter(|judgement| keep(judgement))
            .map(|judgement| place(judgement))
            .collect()
    };
    if gated.is_empty() {
        let what = match judgements.is_empty() {
            true => "no candidate is left to judge",
            false => "no gated metric was judged",
        };
        return (GateOutcome::Invalid, format!("Invalid: {what}."));
    }
    let failing =
        named(&|judgement| judgement.gate == Gate::Fail && judgement.verdict != Verdict::Invalid);
    if !failing.is_empty() {
        return (
            GateOutcome::Regressed,
            format!("Regressed: {}.", failing.join("; ")),
        );
    }
    let invalid = named(&|judgement| judgement.verdict == Verdict::Invalid);
    if !invalid.is_empty() {
        return (
            GateOutcome::Invalid,
            format!("Invalid: no verdict on {}.", invalid.join("; ")),
        );
    }
    let undecided = named(&|judgement| judgement.gate == Gate::Undecided);
    if undecided.is_empty() {
        let count = gated.len();
        let noun = if count == 1 {
            "verdict passes"
        } else {
            "verdicts pass"
        };
        return (GateOutcome::Pass, format!("Pass: {count} gated {noun}."));
    }
    let list = undecided.join("; ");
    if pass_undecided {
        (
            GateOutcome::Pass,
            format!("Pass, as the experiment asks, although undecided: {list}."),
        )
    } else {
        (GateOutcome::Undecided, format!("Undecided: {list}."))
    }
}

fn place(judgement: &Judgement) -> String {
    format!(
        "{} of {} in {}",
        judgement.metric, judgement.candidate, judgement.cell
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::model::Better;
    use crate::verdict::rule::Direction;

    fn judgement(gated: bool, gate: Gate, verdict: Verdict) -> Judgement {
        Judgement {
            cell: "c".into(),
            candidate: "main".into(),
            metric: "m".into(),
            better: Better::Lower,
            gated,
            rounds: 5,
            tau: 0.01,
            estimate: None,
            p: None,
            p_adjusted: None,
            direction: Direction::Undetermined,
            gate,
            verdict,
            sentence: String::new(),
            decided_at: None,
            power: None,
            noise: None,
            others: None,
            permutation: None,
            nulls: Vec::new(),
        }
    }

    fn outcome(list: &[Judgement]) -> GateOutcome {
        decide(list, false).0
    }

    #[test]
    fn the_worst_that_is_known_is_said() {
        let pass = judgement(true, Gate::Pass, Verdict::Equivalent);
        let fail = judgement(true, Gate::Fail, Verdict::Regressed);
        let open = judgement(true, Gate::Undecided, Verdict::Unresolved);
        let invalid = judgement(true, Gate::Undecided, Verdict::Invalid);
        assert_eq!(outcome(std::slice::from_ref(&pass)), GateOutcome::Pass);
        assert_eq!(
            outcome(&[pass.clone(), open.clone()]),
            GateOutcome::Undecided
        );
        assert_eq!(
            outcome(&[open.clone(), invalid.clone()]),
            GateOutcome::Invalid
        );
        assert_eq!(outcome(&[invalid, fail, pass]), GateOutcome::Regressed);
        assert_eq!(decide(&[open], true).0, GateOutcome::Pass);
    }

    #[test]
    fn an_ungated_failure_does_not_count_and_nothing_gated_is_no_pass() {
        let ungated = judgement(false, Gate::Fail, Verdict::Regressed);
        assert_eq!(outcome(&[ungated]), GateOutcome::Invalid);
        assert_eq!(outcome(&[]), GateOutcome::Invalid);
    }
}
