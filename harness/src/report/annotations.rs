//! The gate's findings as workflow commands of the hosted CI, which shows them beside a
//! change: `::error file=…,title=…::message`.
//!
//! The format has no quotes. What would end a command or a property is written as `%` and
//! two hexadecimal digits, in the message `%`, CR and LF, in a property also `:` and `,`.

use super::escape::one_line;
use super::words;
use crate::analysis::model::{Analysis, GateOutcome};
use crate::experiment::model::OnUndecided;
use crate::record::format::Plan;
use crate::verdict::rule::{Gate, Judgement, Verdict};

/// The hosted CI shows this many of one level per step and drops the others.
const SHOWN_PER_LEVEL: usize = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Error,
    Warning,
    Notice,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warning => "warning",
            Level::Notice => "notice",
        }
    }
}

/// One line per finding about `plan`'s experiment, the worst first; each ends with a line
/// break. A gated verdict that passes without a change is not worth a line.
#[must_use]
pub fn workflow_commands(plan: &Plan, analysis: &Analysis) -> String {
    let undecided = match plan.experiment.verdict.undecided {
        OnUndecided::Fail => Level::Error,
        OnUndecided::Pass => Level::Warning,
    };
    let mut found: Vec<(Level, String, String)> = analysis
        .judgements
        .iter()
        .filter(|judgement| judgement.gated)
        .filter_map(|judgement| {
            let level = level(judgement, undecided)?;
            let title = format!(
                "{} {}: {} of {} in {}",
                plan.experiment.name,
                words::verdict(judgement.verdict),
                judgement.metric,
                judgement.candidate,
                judgement.cell
            );
            Some((level, title, judgement.sentence.clone()))
        })
        .collect();
    if found.is_empty() && analysis.gate != GateOutcome::Pass {
        let title = format!("{}: {}", plan.experiment.name, words::gate(analysis.gate));
        found.push((Level::Error, title, analysis.gate_sentence.clone()));
    }
    found.sort_by_key(|(level, ..)| *level);
    let mut out = String::new();
    for level in [Level::Error, Level::Warning, Level::Notice] {
        let of_level: Vec<_> = found.iter().filter(|one| one.0 == level).collect();
        let shown = if of_level.len() > SHOWN_PER_LEVEL {
            SHOWN_PER_LEVEL - 1
        } else {
            of_level.len()
        };
        for (_, title, message) in &of_level[..shown] {
            out += &command(level, &plan.experiment_path, title, message);
        }
        if shown < of_level.len() {
            let more = format!("and {} more in the summary", of_level.len() - shown);
            out += &command(level, &plan.experiment_path, &plan.experiment.name, &more);
        }
    }
    out
}

fn level(judgement: &Judgement, undecided: Level) -> Option<Level> {
    match (judgement.verdict, judgement.gate) {
        (Verdict::Invalid, _) | (_, Gate::Fail) => Some(Level::Error),
        (_, Gate::Undecided) => Some(undecided),
        (Verdict::SlowerWithinThreshold, _) => Some(Level::Warning),
        (Verdict::Improved, _) => Some(Level::Notice),
        _ => None,
    }
}

fn command(level: Level, file: &str, title: &str, message: &str) -> String {
    format!(
        "::{} file={},title={}::{}\n",
        level.word(),
        property(file),
        property(title),
        data(message)
    )
}

fn data(raw: &str) -> String {
    let raw = one_line(raw);
    raw.replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

fn property(raw: &str) -> String {
    data(raw).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::example;
    use crate::report::example::{analysis, record};

    #[test]
    fn what_would_end_a_command_or_a_property_is_escaped() {
        assert_eq!(
            command(
                Level::Error,
                "a,b:c.yaml",
                "100 %: x",
                "50 % slower, ::stop::\nnow"
            ),
            "::error file=a%2Cb%3Ac.yaml,title=100 %25%3A x::50 %25 slower, ::stop:: now\n"
        );
    }

    fn commands(change: impl Fn(&mut Plan, &mut Analysis)) -> Vec<String> {
        let (mut plan, mut analysis) = (example::plan(), analysis(&record()));
        change(&mut plan, &mut analysis);
        let text = workflow_commands(&plan, &analysis);
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_failing_verdict_is_an_error_and_what_passes_unchanged_is_no_line() {
        let lines = commands(|_, analysis| {
            analysis.judgements.retain(|judgement| judgement.gated);
            analysis.judgements.truncate(3);
            for (judgement, (verdict, gate)) in analysis.judgements.iter_mut().zip([
                (Verdict::Equivalent, Gate::Pass),
                (Verdict::Improved, Gate::Pass),
                (Verdict::Regressed, Gate::Fail),
            ]) {
                (judgement.verdict, judgement.gate) = (verdict, gate);
            }
        });
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(
            lines[0].starts_with("::error file=experiments/window.yaml,title=window regressed%3A ")
        );
        assert!(lines[1].starts_with("::notice "), "{lines:?}");
    }

    #[test]
    fn what_is_undecided_is_as_loud_as_the_experiment_asks() {
        for (undecided, start) in [
            (OnUndecided::Fail, "::error"),
            (OnUndecided::Pass, "::warning"),
        ] {
            let lines = commands(|plan, analysis| {
                plan.experiment.verdict.undecided = undecided;
                analysis.judgements.truncate(1);
                analysis.judgements[0].verdict = Verdict::Unresolved;
                analysis.judgements[0].gate = Gate::Undecided;
            });
            assert!(lines[0].starts_with(start), "{lines:?}");
        }
    }

    #[test]
    fn more_findings_than_the_ci_shows_are_counted() {
        let lines = commands(|_, analysis| {
            analysis.judgements.truncate(1);
            analysis.judgements[0].gate = Gate::Fail;
            analysis.judgements = vec![analysis.judgements[0].clone(); 13];
        });
        assert_eq!(lines.len(), SHOWN_PER_LEVEL);
        assert!(
            lines[9].ends_with("::and 4 more in the summary"),
            "{lines:?}"
        );
    }

    #[test]
    fn a_gate_without_a_gated_verdict_is_an_error() {
        let lines = commands(|_, analysis| {
            analysis.judgements.clear();
            analysis.gate = GateOutcome::Invalid;
        });
        assert_eq!(lines.len(), 1, "{lines:?}");
    }
}
