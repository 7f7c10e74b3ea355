//! From a record and its analysis to the pictures of a report.

use indexmap::IndexMap;

use super::canvas::PlotError;
use super::palette::{Look, looks};
use super::{changes, drift, rounds, values};
use crate::analysis::model::Analysis;
use crate::experiment::model::{Better, Metric};
use crate::record::format::Plan;
use crate::record::reader::Record;
use crate::report::words::Scale;
use crate::report::{rows, table};
use crate::verdict::change::own_pct;
use crate::verdict::rule::{CellData, Judgement};

/// One picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figure {
    /// File name, such as `decode_tok_s-rounds.svg`.
    pub file: String,
    /// The picture.
    pub svg: String,
}

/// What is compared, as pictures need it: of a plan, or of measurements made elsewhere.
#[derive(Debug, Clone)]
pub struct Subject<'a> {
    /// The metrics in reading order.
    pub metrics: &'a IndexMap<String, Metric>,
    /// Every arm in reading order, with the arm that it repeats.
    pub arms: Vec<(&'a str, Option<&'a str>)>,
    /// The arm that the others are compared with.
    pub base: &'a str,
}

impl<'a> Subject<'a> {
    /// What a plan compares.
    #[must_use]
    pub fn of_plan(plan: &'a Plan) -> Self {
        let arms = plan.arms.iter();
        Subject {
            metrics: &plan.experiment.metrics,
            arms: arms
                .map(|arm| (arm.name.as_str(), arm.null_of.as_deref()))
                .collect(),
            base: &plan.experiment.base,
        }
    }

    /// The metrics that are shown at length and have something to show.
    fn views<'b>(&'b self, analysis: &'b Analysis) -> Vec<MetricView<'b>> {
        let metrics = self.metrics.iter();
        let views = metrics
            .filter(|(name, _)| table::at_length(self.metrics, name))
            .map(|(name, metric)| MetricView::new(self, analysis, name, metric.better));
        views.filter(|view| !view.cells.is_empty()).collect()
    }
}

/// All pictures of a report, in the order in which it shows them: four for each
/// metric that is shown at length.
///
/// # Errors
/// [`PlotError`] only by a fault of this program.
pub fn figures(record: &Record, analysis: &Analysis) -> Result<Vec<Figure>, PlotError> {
    let subject = Subject::of_plan(&record.plan);
    let mut figures = Vec::new();
    for view in subject.views(analysis) {
        figures.extend(of_view(&view)?);
        figures.push(figure(
            &view,
            "drift",
            drift::draw(&view, record, analysis)?,
        ));
    }
    Ok(figures)
}

/// The pictures that need no time of day: three for each metric that is shown at length.
///
/// # Errors
/// As [`figures`].
pub fn comparisons(subject: &Subject<'_>, analysis: &Analysis) -> Result<Vec<Figure>, PlotError> {
    let mut figures = Vec::new();
    for view in subject.views(analysis) {
        figures.extend(of_view(&view)?);
    }
    Ok(figures)
}

fn of_view(view: &MetricView<'_>) -> Result<[Figure; 3], PlotError> {
    Ok([
        figure(view, "changes", changes::draw(view)?),
        figure(view, "rounds", rounds::draw(view)?),
        figure(view, "values", values::draw(view)?),
    ])
}

fn figure(view: &MetricView<'_>, what: &str, svg: String) -> Figure {
    let file = format!("{}-{what}.svg", table::slug(view.name));
    Figure { file, svg }
}

/// One metric as the pictures need it.
pub(super) struct MetricView<'a> {
    pub(super) name: &'a str,
    pub(super) better: Better,
    pub(super) scale: Scale,
    /// The gate as a change of the metric in percent.
    pub(super) gate_pct: Option<f64>,
    /// Cells in which some arm has a value.
    pub(super) cells: Vec<CellView<'a>>,
}

/// One cell of a metric.
pub(super) struct CellView<'a> {
    pub(super) data: &'a CellData,
    pub(super) judgements: Vec<&'a Judgement>,
    /// One look per arm of `data`.
    pub(super) looks: Vec<Look>,
}

impl<'a> MetricView<'a> {
    fn new(
        subject: &'a Subject<'a>,
        analysis: &'a Analysis,
        name: &'a str,
        better: Better,
    ) -> Self {
        let data: Vec<&CellData> = analysis.data.iter().filter(|d| d.metric == name).collect();
        let judgements = || analysis.judgements.iter().filter(|j| j.metric == name);
        let cells = data
            .iter()
            .filter(|data| rows::has_values(data))
            .map(|data| CellView {
                data,
                judgements: judgements().filter(|j| j.cell == data.cell).collect(),
                looks: cell_looks(subject, data),
            })
            .collect();
        MetricView {
            name,
            better,
            scale: table::scale(subject.metrics, name, &data),
            gate_pct: judgements().next().map(|j| own_pct(better, j.tau)),
            cells,
        }
    }

    /// What every axis of changes spans on both sides of zero, in percent: the gate, and
    /// one percent where nothing was judged.
    pub(super) fn least_span_pct(&self) -> f64 {
        self.gate_pct.unwrap_or(1.0)
    }

    /// `name in unit`.
    pub(super) fn label(&self) -> String {
        match self.scale.unit.as_str() {
            "" => self.name.to_owned(),
            unit => format!("{} in {unit}", self.name),
        }
    }

    /// The name of the base.
    pub(super) fn base(&self) -> &str {
        self.cells.first().map_or("base", |cell| {
            cell.data
                .arms
                .get(cell.data.base)
                .map_or("base", |arm| &arm.name)
        })
    }

    /// Every arm that stands in a cell, once, with its look.
    pub(super) fn arms(&self) -> Vec<(&str, Look)> {
        let mut arms: Vec<(&str, Look)> = Vec::new();
        for cell in &self.cells {
            for (arm, look) in cell.data.arms.iter().zip(&cell.looks) {
                if arms.iter().all(|(name, _)| *name != arm.name) {
                    arms.push((&arm.name, *look));
                }
            }
        }
        arms
    }
}

/// Colours follow the reading order, so an arm looks the same in every cell.
fn cell_looks(subject: &Subject<'_>, data: &CellData) -> Vec<Look> {
    let arms = &subject.arms;
    let looks = looks(arms, subject.base);
    let fallback = looks.first().copied().unwrap_or(Look {
        colour: super::palette::INK,
        ring: false,
    });
    data.arms
        .iter()
        .map(|copy| {
            let place = arms.iter().position(|(name, _)| *name == copy.name);
            place.map_or(fallback, |place| looks[place])
        })
        .collect()
}

impl CellView<'_> {
    /// What an arm's change is taken against: a null arm's own arm, else the base.
    pub(super) fn reference(&self, arm: usize) -> usize {
        let copy = self.data.arms.get(arm);
        copy.and_then(|copy| copy.null_of.as_ref())
            .and_then(|of| self.data.arms.iter().position(|arm| arm.name == *of))
            .unwrap_or(self.data.base)
    }

    /// The paired change of an arm in every round, in percent of its reference.
    pub(super) fn paired_pct(&self, arm: usize) -> Vec<f64> {
        let reference = self.reference(arm);
        let rounds = self.data.rounds.iter();
        rounds
            .map(|round| match (round.get(arm), round.get(reference)) {
                (Some(value), Some(base)) => (value / base - 1.0) * 100.0,
                _ => f64::NAN,
            })
            .collect()
    }

    /// The range of all null arms' paired changes, in percent.
    pub(super) fn null_band_pct(&self) -> Option<(f64, f64)> {
        let ends: Vec<f64> = self
            .data
            .arms
            .iter()
            .enumerate()
            .filter(|(_, copy)| copy.null_of.is_some())
            .flat_map(|(arm, _)| self.paired_pct(arm))
            .filter(|pct| pct.is_finite())
            .collect();
        crate::stats::quantile::range(&ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::format::{Attempt, Outcome};
    use crate::record::store;
    use crate::report::example;

    fn drawn(record: &Record) -> Vec<Figure> {
        figures(record, &example::analysis(record)).unwrap()
    }

    #[test]
    fn the_same_record_gives_the_same_pictures() {
        let record = example::record();
        assert_eq!(drawn(&record), drawn(&record));
    }

    #[test]
    fn gated_metrics_get_four_pictures() {
        let files: Vec<String> = drawn(&example::record())
            .into_iter()
            .map(|figure| figure.file)
            .collect();
        assert_eq!(
            files,
            ["changes", "rounds", "values", "drift"].map(|what| format!("decode_tok_s-{what}.svg"))
        );
    }

    #[test]
    fn a_rejected_attempt_changes_no_picture() {
        let clean = example::record();
        let mut rows: Vec<Attempt> = clean.attempts.clone();
        // The first try of round 2 was disturbed; its absurd values are kept in the rows.
        let mut first_try: Vec<Attempt> = rows
            .iter()
            .filter(|row| row.cell == "256" && row.round == 2)
            .cloned()
            .collect();
        for row in &mut first_try {
            row.metrics.insert("decode_tok_s".into(), 1e6);
        }
        first_try[1].outcome = Outcome::Rejected {
            reason: "rustc took 80 % of a core".into(),
        };
        for row in rows
            .iter_mut()
            .filter(|row| row.cell == "256" && row.round == 2)
        {
            row.round_try = 2;
        }
        rows.extend(first_try);
        let disturbed = example::record_of(clean.plan.clone(), rows);
        assert_eq!(drawn(&clean), drawn(&disturbed));
    }

    #[test]
    fn one_round_one_cell_and_odd_names_can_be_drawn() {
        let mut record = example::record();
        record.plan.cells.truncate(1);
        record.plan.cells[0].id = "a|<b>&`c`".into();
        record.plan.experiment.rounds = 1;
        record
            .attempts
            .retain(|row| row.cell == "256" && row.round == 1);
        for row in &mut record.attempts {
            row.cell = "a|<b>&`c`".into();
        }
        let plan_sha256 = store::seal(record.plan.clone()).unwrap().sha256;
        record.plan_sha256 = plan_sha256;
        for figure in drawn(&record) {
            assert!(
                figure.svg.contains("a|&lt;b&gt;&amp;`c`"),
                "{}",
                figure.file
            );
            assert!(!figure.svg.contains("NaN"), "{}", figure.file);
            assert_eq!(
                figure.svg.matches("<text").count(),
                figure.svg.matches("</text>").count()
            );
        }
    }

    #[test]
    fn no_text_lies_outside_the_picture() {
        for figure in drawn(&example::record()) {
            let bottom = attribute(&figure.svg, "viewBox=\"0 0 3200 ");
            for text in figure.svg.split("<text ").skip(1) {
                let (x, y) = (attribute(text, "x=\""), attribute(text, " y=\""));
                assert!(
                    (0.0..=3200.0).contains(&x) && (0.0..=bottom).contains(&y),
                    "{text}"
                );
            }
        }
    }

    /// The number that follows `name`.
    fn attribute(text: &str, name: &str) -> f64 {
        let start = text.find(name).unwrap() + name.len();
        let end = text[start..].find('"').unwrap();
        text[start..start + end].parse().unwrap()
    }
}
