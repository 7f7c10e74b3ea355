//! The session over time: every used value at the moment its attempt started.

use std::collections::HashSet;

use super::canvas::{self, Anchor, Canvas, PlotError};
use super::figure::{CellView, MetricView};
use super::panel::{self, Frame, Grid, Heading, Key, MARGIN, SMALL, WIDTH, marker_radius};
use super::scale::{TALL_ROOM, ValueScale};
use crate::analysis::model::Analysis;
use crate::record::format::Attempt;
use crate::record::reader::Record;
use crate::stats::quantile::range;

const HEIGHT: f64 = 216.0;
const LEFT: f64 = 66.0;
const BELOW: f64 = 42.0;

/// More points than this in one panel are thinned out evenly.
const POINTS: usize = 1200;

pub(super) fn draw(
    view: &MetricView<'_>,
    record: &Record,
    analysis: &Analysis,
) -> Result<String, PlotError> {
    let heading = Heading {
        title: format!("{} over the session", view.label()),
        explanation: "Each used attempt at its start; a slope or a step is drift of the machine"
            .into(),
        keys: view
            .arms()
            .into_iter()
            .map(|(name, look)| Key::Arm(name, look))
            .collect(),
    };
    let grid = Grid::new(view.cells.len(), heading.height(), HEIGHT);
    let dropped: HashSet<(&str, u32, u32)> = analysis
        .dropped
        .iter()
        .map(|d| (d.cell.as_str(), d.round, d.round_try))
        .collect();
    let title = heading.title.clone();
    canvas::draw((WIDTH, grid.bottom()), &title, |canvas| {
        heading.draw(canvas)?;
        for (index, cell) in view.cells.iter().enumerate() {
            let rows: Vec<&Attempt> = record
                .attempts
                .iter()
                .filter(|row| row.cell == cell.data.cell && row.round > 0 && row.outcome.is_ok())
                .filter(|row| !dropped.contains(&(row.cell.as_str(), row.round, row.round_try)))
                .collect();
            draw_cell(canvas, grid.frame(index, LEFT, BELOW), view, cell, &rows)?;
        }
        Ok(())
    })
}

fn draw_cell(
    canvas: &Canvas<'_>,
    frame: Frame,
    view: &MetricView<'_>,
    cell: &CellView<'_>,
    rows: &[&Attempt],
) -> Result<(), PlotError> {
    let mut points: Vec<(usize, f64, f64)> = Vec::new();
    for row in rows {
        let arm = cell.data.arms.iter().position(|arm| arm.name == row.arm);
        if let (Some(arm), Some(value)) = (arm, row.metrics.get(view.name)) {
            points.push((arm, row.session_seconds / 60.0, view.scale.apply(*value)));
        }
    }
    let times: Vec<f64> = points.iter().map(|(_, minutes, _)| *minutes).collect();
    let values: Vec<f64> = points.iter().map(|(_, _, value)| *value).collect();
    let (Some((start, end)), Some((low, high))) = (range(&times), range(&values)) else {
        return Ok(());
    };
    let time = ValueScale::linear(start, end);
    let scale = ValueScale::new(low, high);
    panel::panel_title(
        canvas,
        frame,
        frame.left - LEFT + MARGIN / 2.0,
        &cell.data.cell,
    )?;
    let ticks = scale.ticks(frame.height(), TALL_ROOM);
    panel::axis_left(canvas, frame, &ticks, |value| scale.share(value))?;
    let ticks = panel::spaced(|room| time.ticks(frame.width(), room));
    panel::axis_below(canvas, frame, &ticks, |minutes| time.share(minutes))?;
    let radius = marker_radius(points.len(), frame.width());
    let step = points.len().div_ceil(POINTS).max(1);
    for (arm, minutes, value) in points.into_iter().step_by(step) {
        let at = (frame.x(time.share(minutes)), frame.y(scale.share(value)));
        canvas.marker(at, radius, cell.looks[arm])?;
    }
    panel::outline(canvas, frame)?;
    canvas.text(
        "minutes since the first attempt",
        (f64::midpoint(frame.left, frame.right), frame.bottom + 28.0),
        Anchor::Centre,
        SMALL,
    )
}
