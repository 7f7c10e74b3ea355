//! The gate's verdicts as JUnit XML, which most CI systems show as tests: one case per
//! gated verdict and positive control, a failure where it fails, an error where it is invalid.
//!
//! The elements and attributes are those on which the two schemas in wide use agree (the
//! one of the Ant task and the one of Jenkins' xUnit plug-in).

use serde::Serialize;

use super::escape::one_line;
use super::markdown::{self, TemplateError};
use super::words;
use crate::analysis::model::Analysis;
use crate::experiment::model::OnUndecided;
use crate::record::reader::Record;
use crate::verdict::control::ControlCheck;
use crate::verdict::rule::{Gate, Judgement, Verdict};

/// A test suite, ready for the template.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Suite {
    name: String,
    /// Without a time zone: one of the schemas wants it so. It is UTC.
    timestamp: String,
    host: String,
    failures: usize,
    errors: usize,
    skipped: usize,
    seconds: String,
    properties: Vec<Property>,
    cases: Vec<Case>,
    out: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Property {
    name: &'static str,
    value: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Case {
    class: String,
    name: String,
    seconds: String,
    /// `failure`, `error`, `skipped`, or empty for a case that passes.
    outcome: &'static str,
    verdict: &'static str,
    sentence: String,
}

/// The verdicts of `record` as an XML document.
///
/// # Errors
/// [`TemplateError`] only when the embedded template is faulty.
pub fn render(record: &Record, analysis: &Analysis) -> Result<String, TemplateError> {
    markdown::fill_junit(&suite(record, analysis))
}

fn suite(record: &Record, analysis: &Analysis) -> Suite {
    let experiment = &record.plan.experiment;
    let gated = analysis
        .judgements
        .iter()
        .filter(|judgement| judgement.gated);
    let verdicts = gated.map(|judgement| case(record, judgement, experiment.verdict.undecided));
    let controls = analysis.controls.iter().map(|check| control(record, check));
    let cases: Vec<Case> = verdicts.chain(controls).collect();
    let count = |outcome: &str| cases.iter().filter(|case| case.outcome == outcome).count();
    Suite {
        name: plain(&experiment.name),
        timestamp: plain(record.plan.sealed_at.trim_end_matches('Z')),
        host: plain(&record.host.label),
        failures: count("failure"),
        errors: count("error"),
        skipped: count("skipped"),
        seconds: seconds(record, &|_, _| true),
        properties: vec![
            Property {
                name: "plan_sha256",
                value: record.plan_sha256.clone(),
            },
            Property {
                name: "tool",
                value: plain(&record.plan.tool),
            },
            Property {
                name: "gate",
                value: words::gate(analysis.gate).to_owned(),
            },
        ],
        out: plain(&analysis.gate_sentence),
        cases,
    }
}

fn case(record: &Record, judgement: &Judgement, undecided: OnUndecided) -> Case {
    let outcome = match (judgement.verdict, judgement.gate, undecided) {
        (Verdict::Invalid, ..) => "error",
        (_, Gate::Fail, _) | (_, Gate::Undecided, OnUndecided::Fail) => "failure",
        (_, Gate::Undecided, OnUndecided::Pass) => "skipped",
        (_, Gate::Pass, _) => "",
    };
    Case {
        class: plain(&format!(
            "{}.{}",
            record.plan.experiment.name, judgement.cell
        )),
        name: plain(&format!("{} of {}", judgement.metric, judgement.candidate)),
        seconds: seconds(record, &|cell, arm| {
            cell == judgement.cell && arm == judgement.candidate
        }),
        outcome,
        verdict: words::verdict(judgement.verdict),
        sentence: plain(&judgement.sentence),
    }
}

/// A slow-down that was injected and must be found: without it nothing else counts.
fn control(record: &Record, check: &ControlCheck) -> Case {
    Case {
        class: plain(&format!("{}.{}", record.plan.experiment.name, check.cell)),
        name: plain(&format!(
            "positive control {} on {}",
            check.arm, check.metric
        )),
        seconds: seconds(record, &|cell, arm| cell == check.cell && arm == check.arm),
        outcome: if check.found { "" } else { "error" },
        verdict: "missed",
        sentence: plain(&check.sentence),
    }
}

/// Process time of the attempts of some (cell, arm).
fn seconds(record: &Record, keep: &dyn Fn(&str, &str) -> bool) -> String {
    let rows = record.attempts.iter();
    let kept = rows.filter(|row| keep(&row.cell, &row.arm));
    let nanoseconds: u64 = kept
        .filter_map(|row| row.usage)
        .map(|usage| usage.wall_ns)
        .sum();
    format!(
        "{}.{:03}",
        nanoseconds / 1_000_000_000,
        nanoseconds / 1_000_000 % 1000
    )
}

/// One line of characters that XML 1.0 can hold: it has no escape for the others.
fn plain(raw: &str) -> String {
    let storable = |c: &char| !matches!(c, '\u{fffe}' | '\u{ffff}');
    one_line(raw).chars().filter(storable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example;

    fn rendered(change: impl Fn(&mut Analysis)) -> String {
        let mut record = example::record();
        record.plan_sha256 = "5ea1".repeat(16);
        let mut analysis = example::analysis(&record);
        analysis.judgements.retain(|judgement| judgement.gated);
        change(&mut analysis);
        render(&record, &analysis).unwrap()
    }

    #[test]
    fn each_gated_verdict_is_a_case_and_each_outcome_an_element() {
        let text = rendered(|analysis| {
            let outcomes = [
                (Verdict::Regressed, Gate::Fail),
                (Verdict::Invalid, Gate::Undecided),
                (Verdict::Unresolved, Gate::Undecided),
                (Verdict::Equivalent, Gate::Pass),
            ];
            for (judgement, (verdict, gate)) in analysis.judgements.iter_mut().zip(outcomes) {
                (judgement.verdict, judgement.gate) = (verdict, gate);
            }
        });
        insta::assert_snapshot!(text);
    }

    #[test]
    fn a_positive_control_that_was_missed_is_an_error() {
        let check = |found| ControlCheck {
            cell: "256".into(),
            arm: "control".into(),
            metric: "decode_tok_s".into(),
            better: crate::experiment::model::Better::Higher,
            injected: 0.05,
            estimate: None,
            fails_gate: None,
            found,
            looked_at: None,
            sentence: "What became of it.".into(),
        };
        for (found, errors) in [(true, 0), (false, 1)] {
            let text = rendered(|analysis| {
                analysis.judgements.clear();
                analysis.controls = vec![check(found)];
            });
            let counts = format!("tests=\"1\" failures=\"0\" errors=\"{errors}\"");
            assert!(text.contains(&counts), "{text}");
        }
    }

    #[test]
    fn no_text_ends_an_element_or_an_attribute() {
        let text = rendered(|analysis| {
            analysis.judgements.truncate(1);
            analysis.judgements[0].gate = Gate::Fail;
            analysis.judgements[0].cell = "a\"b<c>&\u{1b}[1m'\u{ffff}".into();
            analysis.judgements[0].sentence = "]]> & \"more\"\n</failure>".into();
        });
        assert!(!text.contains("<c>") && !text.contains('\u{1b}') && !text.contains('\u{ffff}'));
        assert!(text.contains("a&quot;b&lt;c&gt;&amp;"), "{text}");
        assert_eq!(text.matches("</failure>").count(), 1, "{text}");
    }
}
