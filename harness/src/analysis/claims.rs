//! The claims of a plan, each held against the judgements of the cells that it is about. Pure.

use crate::experiment::claim::Claim;
use crate::experiment::model::Better;
use crate::record::format::Plan;
use crate::unit;
use crate::verdict::change::own_pct;
use crate::verdict::claim::{ClaimVerdict, claimed_delta, judge as verdict_of};
use crate::verdict::rule::{Estimate, Judgement, Verdict};

use super::model::JudgedClaim;

/// One per claim and cell that it is about, in the order of the experiment.
#[must_use]
pub fn judge(plan: &Plan, judgements: &[Judgement]) -> Vec<JudgedClaim> {
    let claims = plan.experiment.claim.list().iter();
    claims
        .flat_map(|claim| of_claim(plan, claim, judgements))
        .collect()
}

fn of_claim(plan: &Plan, claim: &Claim, judgements: &[Judgement]) -> Vec<JudgedClaim> {
    let Some(arm) = claim.subject(&plan.experiment) else {
        return Vec::new();
    };
    let cells = plan
        .cells
        .iter()
        .filter(|cell| claim.is_about(&cell.values));
    cells
        .filter_map(|cell| {
            let mut all = judgements.iter();
            let judgement = all.find(|one| {
                one.cell == cell.id && one.candidate == arm && one.metric == claim.metric
            })?;
            judged(plan, claim, judgement)
        })
        .collect()
}

fn judged(plan: &Plan, claim: &Claim, judgement: &Judgement) -> Option<JudgedClaim> {
    let claimed = claimed_delta(judgement.better, claim.change_pct)?;
    // The very program of the base has no effect, without measuring.
    let identical = judgement.verdict == Verdict::Identical;
    let verdict = if identical {
        ClaimVerdict::Contradicted
    } else {
        verdict_of(claimed, judgement.estimate.as_ref())
    };
    let said = format!(
        "{} says {} for {} of `{}`",
        claim.source,
        unit::signed_pct(claim.change_pct),
        claim.metric,
        judgement.candidate
    );
    let measured = judgement.estimate.as_ref().map_or_else(
        || {
            let nothing = if identical {
                "it is the very program of the base"
            } else {
                "nothing could be measured"
            };
            nothing.to_owned()
        },
        |estimate| interval(judgement.better, estimate, plan.experiment.verdict.alpha),
    );
    Some(JudgedClaim {
        cell: judgement.cell.clone(),
        candidate: judgement.candidate.clone(),
        metric: judgement.metric.clone(),
        change_pct: claim.change_pct,
        source: claim.source.clone(),
        verdict,
        sentence: format!(
            "{said}; here {measured}: {}.",
            meaning(verdict, claimed, judgement)
        ),
    })
}

/// `−1.80 % (95 % interval −2.31 % to −1.29 %)`, as the metric's own change.
fn interval(better: Better, estimate: &Estimate, alpha: f64) -> String {
    let change = |delta| unit::signed_pct(own_pct(better, delta));
    let (from, to) = match better {
        Better::Higher => (estimate.high, estimate.low),
        Better::Lower => (estimate.low, estimate.high),
    };
    format!(
        "{} ({} % interval {} to {})",
        change(estimate.delta),
        unit::value(100.0 * (1.0 - alpha)),
        change(from),
        change(to)
    )
}

fn meaning(verdict: ClaimVerdict, claimed: f64, judgement: &Judgement) -> &'static str {
    // Along the claimed direction.
    let ends = judgement.estimate.map(|estimate| {
        let ends = [estimate.low, estimate.high].map(|delta| delta * claimed.signum());
        (ends[0].min(ends[1]), ends[0].max(ends[1]))
    });
    match (verdict, ends) {
        (ClaimVerdict::Confirmed, Some((low, _))) if low > claimed.abs() => {
            "the change is even larger than claimed"
        }
        (ClaimVerdict::Confirmed, _) => "the change is there, and its size fits the claim",
        (ClaimVerdict::Smaller, _) => "the change is there, and it is smaller than claimed",
        (ClaimVerdict::Contradicted, Some((_, high))) if high < 0.0 => {
            "the change goes the other way"
        }
        (ClaimVerdict::Contradicted, _) => {
            "a change of the claimed size is ruled out, and none in its direction is proven"
        }
        (ClaimVerdict::NotResolvable, _) => {
            "no change and the claimed one both fit; this noise and these rounds cannot tell"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::from_record::analyse;
    use crate::experiment::claim::Claims;
    use crate::experiment::model::Scalar;
    use crate::record::example;

    fn claim(arm: Option<&str>, when: &[i64], change_pct: f64) -> Claim {
        let when = when.iter();
        Claim {
            arm: arm.map(Into::into),
            metric: "decode_tok_s".into(),
            when: when
                .map(|tokens| ("prompt_tokens".to_owned(), Scalar::Int(*tokens)))
                .collect(),
            change_pct,
            source: "a release note".into(),
        }
    }

    /// The example's `main` has a decode rate lower by this share in every round.
    fn judged(claims: Claims, loss: f64) -> Vec<JudgedClaim> {
        let mut plan = example::plan();
        plan.experiment.claim = claims;
        let mut rows = example::attempts(&plan);
        let mut noise = [1.0, 1.001, 0.999, 1.0005].into_iter().cycle();
        for row in &mut rows {
            let share = if row.arm == "main" { 1.0 - loss } else { 1.0 };
            let value = 100.0 * share * noise.next().unwrap();
            row.metrics.insert("decode_tok_s".into(), value);
        }
        analyse(&plan, &rows).unwrap().claims
    }

    #[test]
    fn a_claim_is_judged_in_the_cells_that_it_is_about() {
        let all = judged(Claims::One(claim(Some("main"), &[], -5.0)), 0.05);
        let cells: Vec<&str> = all.iter().map(|one| one.cell.as_str()).collect();
        assert_eq!(cells, ["256", "2048"]);
        let one = judged(Claims::One(claim(Some("main"), &[2048], -5.0)), 0.05);
        assert_eq!(one.len(), 1);
        assert_eq!(one[0].verdict, ClaimVerdict::Confirmed);
        assert!(
            one[0]
                .sentence
                .starts_with("a release note says −5.00 % for decode_tok_s of `main`; here −"),
            "{}",
            one[0].sentence
        );
    }

    #[test]
    fn every_verdict_is_explained_by_what_was_measured() {
        let verdict = |claimed, loss| {
            let found = judged(
                Claims::Many(vec![claim(Some("main"), &[256], claimed)]),
                loss,
            );
            (found[0].verdict, found[0].sentence.clone())
        };
        for (claimed, loss, want, text) in [
            (-5.0, 0.08, ClaimVerdict::Confirmed, "even larger"),
            (
                -5.0,
                0.02,
                ClaimVerdict::Smaller,
                "it is smaller than claimed",
            ),
            (-5.0, -0.02, ClaimVerdict::Contradicted, "the other way"),
            (-5.0, 0.0, ClaimVerdict::Contradicted, "is ruled out"),
        ] {
            let (found, sentence) = verdict(claimed, loss);
            assert_eq!(found, want, "{sentence}");
            assert!(sentence.contains(text), "{sentence}");
        }
    }

    #[test]
    fn an_arm_that_is_not_obvious_is_not_guessed() {
        // The example has two candidates.
        assert!(judged(Claims::One(claim(None, &[], -5.0)), 0.05).is_empty());
    }
}
