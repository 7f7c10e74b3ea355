//! The values of every arm: all attempts, quartiles and median, one panel per cell.

use super::canvas::{self, Anchor, Canvas, PlotError, Type, fit, text_width};
use super::figure::{CellView, MetricView};
use super::palette::{INK, Look, NULL_BAND};
use super::panel::{self, Frame, Grid, Heading, MARGIN, SMALL, WIDTH, float};
use super::scale::ValueScale;
use crate::report::{rows, words};
use crate::stats::quantile::{median, quantile, range};

const STRIP: f64 = 34.0;
const ABOVE: f64 = 28.0;
const BELOW: f64 = 40.0;

/// More points than this in one strip are thinned out evenly.
const POINTS: usize = 300;

pub(super) fn draw(view: &MetricView<'_>) -> Result<String, PlotError> {
    let heading = Heading {
        title: format!("{}: values per arm", view.label()),
        explanation: format!(
            "One point per used attempt, box between the quartiles, line at the median; {}",
            words::better(view.better)
        ),
        keys: Vec::new(),
    };
    let most = view.cells.iter().map(|cell| cell.data.arms.len()).max();
    let height = ABOVE + BELOW + STRIP * float(most.unwrap_or(1)) + 8.0;
    let grid = Grid::new(view.cells.len(), heading.height() - 4.0, height);
    let left = labels_width(view);
    let title = heading.title.clone();
    canvas::draw((WIDTH, grid.bottom()), &title, |canvas| {
        heading.draw(canvas)?;
        for (index, cell) in view.cells.iter().enumerate() {
            let mut frame = grid.frame(index, left, BELOW);
            frame.bottom = frame.top + STRIP * float(cell.data.arms.len());
            draw_cell(canvas, frame, left, view, cell)?;
        }
        Ok(())
    })
}

fn labels_width(view: &MetricView<'_>) -> f64 {
    let arms = view.arms();
    let widest = arms.iter().map(|(name, _)| text_width(name, SMALL));
    (widest.fold(0.0, f64::max) + 16.0).clamp(50.0, 130.0)
}

fn draw_cell(
    canvas: &Canvas<'_>,
    frame: Frame,
    left: f64,
    view: &MetricView<'_>,
    cell: &CellView<'_>,
) -> Result<(), PlotError> {
    let shown = |value: f64| view.scale.apply(value);
    let strips: Vec<Vec<f64>> = (0..cell.data.arms.len())
        .map(|arm| {
            rows::values(cell.data, arm)
                .into_iter()
                .map(shown)
                .collect()
        })
        .collect();
    let all: Vec<f64> = strips.iter().flatten().copied().collect();
    let Some((low, high)) = range(&all) else {
        return Ok(());
    };
    let scale = ValueScale::new(low, high);
    panel::panel_title(
        canvas,
        frame,
        frame.left - left + MARGIN / 2.0,
        &cell.data.cell,
    )?;
    let ticks = panel::spaced(|room| scale.ticks(frame.width(), room));
    panel::axis_below(canvas, frame, &ticks, |value| scale.share(value))?;
    for (arm, copy) in cell.data.arms.iter().enumerate() {
        let y = frame.top + STRIP * (float(arm) + 0.5);
        let name = fit(&copy.name, SMALL, left - 14.0);
        let set = Type {
            colour: INK,
            ..SMALL
        };
        canvas.text(&name, (frame.left - 8.0, y), Anchor::Right, set)?;
        draw_strip(canvas, frame, y, (&scale, &strips[arm]), cell.looks[arm])?;
    }
    panel::outline(canvas, frame)?;
    canvas.text(
        &view.label(),
        (f64::midpoint(frame.left, frame.right), frame.bottom + 28.0),
        Anchor::Centre,
        SMALL,
    )
}

fn draw_strip(
    canvas: &Canvas<'_>,
    frame: Frame,
    y: f64,
    (scale, values): (&ValueScale, &[f64]),
    look: Look,
) -> Result<(), PlotError> {
    let x = |value: f64| frame.x(scale.share(value));
    if let (Some(first), Some(third)) = (quantile(values, 0.25), quantile(values, 0.75)) {
        let (from, to) = (x(first), x(third).max(x(first) + 1.0));
        canvas.rect((from, y - 10.0), (to, y + 10.0), NULL_BAND)?;
    }
    let step = values.len().div_ceil(POINTS).max(1);
    let radius = match values.len() {
        0..=20 => 3.5,
        21..=60 => 2.6,
        _ => 2.0,
    };
    for (index, value) in values.iter().enumerate().step_by(step) {
        // Five tracks in an order that keeps neighbours apart; no chance involved.
        let track = [0.0, 2.0, -2.0, 1.0, -1.0][index % 5];
        canvas.marker((x(*value), y + track * 3.0), radius, look)?;
    }
    if let Some(middle) = median(values) {
        canvas.line(
            &[(x(middle), y - 12.0), (x(middle), y + 12.0)],
            look.colour,
            2.5,
        )?;
    }
    Ok(())
}
