//! Fills the templates. Values are escaped unless a filter made them code.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value};
use minijinja::{AutoEscape, Environment, Error, Output, State, UndefinedBehavior};
use serde::Serialize;

use super::bisection;
use super::calibration::Page;
use super::escape;
use super::junit::Suite;
use super::model::ReportModel;
use super::replay::ReplayModel;

/// The part that every report has once per metric.
const METRIC: (&str, &str) = (
    "metric.md.j2",
    include_str!("../../../templates/metric.md.j2"),
);
const REPORT: &str = include_str!("../../../templates/report.md.j2");
const REPLAY: &str = include_str!("../../../templates/replay.md.j2");
const JUNIT: &str = include_str!("../../../templates/junit.xml.j2");
const CI_SUMMARY: &str = include_str!("../../../templates/ci_summary.md.j2");

const BISECTION: &str = include_str!("../../../templates/bisection.md.j2");
const CALIBRATION: &str = include_str!("../../../templates/calibration.md.j2");

/// A template and the model do not fit together: a fault of this program.
#[derive(Debug, thiserror::Error)]
#[error("cannot fill template {name}: {message}")]
pub struct TemplateError {
    name: &'static str,
    message: String,
}

impl From<serde_json::Error> for TemplateError {
    fn from(error: serde_json::Error) -> Self {
        TemplateError {
            name: "search.json",
            message: error.to_string(),
        }
    }
}

/// The whole report as Markdown.
///
/// # Errors
/// [`TemplateError`] only when the embedded template is faulty.
pub fn render(model: &ReportModel) -> Result<String, TemplateError> {
    fill("report.md.j2", REPORT, model)
}

/// The report of measurements made elsewhere as Markdown.
///
/// # Errors
/// As [`render`].
pub fn render_replay(model: &ReplayModel) -> Result<String, TemplateError> {
    fill("replay.md.j2", REPLAY, model)
}

/// A short table and one sentence, for the step summary of a CI run.
///
/// # Errors
/// As [`render`].
pub fn ci_summary(model: &ReportModel) -> Result<String, TemplateError> {
    fill("ci_summary.md.j2", CI_SUMMARY, model)
}

/// The page of a calibration.
///
/// # Errors
/// As [`render`].
pub fn calibration(page: &Page) -> Result<String, TemplateError> {
    fill("calibration.md.j2", CALIBRATION, page)
}

/// The page of a bisection.
///
/// # Errors
/// As [`render`].
pub fn bisection(page: &bisection::Page) -> Result<String, TemplateError> {
    fill("bisection.md.j2", BISECTION, page)
}

/// Verdicts as JUnit XML, escaped as XML is.
pub(super) fn fill_junit(suite: &Suite) -> Result<String, TemplateError> {
    fill("junit.xml.j2", JUNIT, suite)
}

fn fill(
    name: &'static str,
    source: &'static str,
    model: &impl Serialize,
) -> Result<String, TemplateError> {
    let faulty = |error: Error| TemplateError {
        name,
        message: format!("{error:#}"),
    };
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .keep_trailing_newline(true)
        .build()
        .map_err(faulty)?;
    let mut environment = Environment::new();
    environment.set_syntax(syntax);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|name| {
        if name.ends_with(".xml.j2") {
            // The five characters of XML; numeric references for the others it escapes.
            AutoEscape::Html
        } else {
            AutoEscape::Custom("markdown".into())
        }
    });
    environment.set_formatter(escaped);
    environment.add_filter("code", |raw: String| {
        Value::from_safe_string(escape::code(&raw))
    });
    environment.add_filter("prose", |raw: String| {
        Value::from_safe_string(escape::prose(&raw))
    });
    environment.add_filter("fence", |raw: String, language: String| {
        Value::from_safe_string(escape::fence(&raw, &language))
    });
    environment
        .add_template(METRIC.0, METRIC.1)
        .and_then(|()| environment.add_template(name, source))
        .and_then(|()| environment.get_template(name)?.render(Serde(model)))
        .map_err(faulty)
}

/// Prints a value as text that Markdown, or XML, shows as it is.
fn escaped(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    if *state.auto_escape() == AutoEscape::Html {
        minijinja::escape_formatter(out, state, value)
    } else if value.is_safe() {
        write!(out, "{value}").map_err(Error::from)
    } else {
        out.write_str(&escape::text(&value.to_string()))
            .map_err(Error::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example;

    #[test]
    fn a_cell_that_is_not_run_is_listed_with_its_reason() {
        let mut record = example::record();
        let listed = |record: &_| {
            let model = ReportModel::new(record, &example::analysis(record), example::STEM);
            render(&model).unwrap().contains("| x.9 | too large |")
        };
        assert!(!listed(&record));
        let cells = &mut record.plan.experiment.cells;
        cells.list = vec![serde_yaml::from_str("{ model: x, n: 9 }").unwrap()];
        let skip = "{ when: { n: 9 }, reason: too large }";
        cells.skip = vec![serde_yaml::from_str(skip).unwrap()];
        assert!(listed(&record));
    }

    #[test]
    fn the_answer_comes_before_every_table() {
        let record = example::record();
        let model = ReportModel::new(&record, &example::analysis(&record), example::STEM);
        let text = render(&model).unwrap();
        let answer = text.find("**Gate: regressed.** main and sync").unwrap();
        assert!(answer < text.find('|').unwrap());
        assert!(
            ci_summary(&model)
                .unwrap()
                .starts_with("## window: regressed\n")
        );
    }
}
