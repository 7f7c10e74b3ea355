//! The summary: the change of every candidate in every cell, with its interval,
//! the null band behind it, zero, and the threshold on both sides.

use super::canvas::{self, Anchor, Canvas, PlotError, Type, fit, text_width};
use super::figure::{CellView, MetricView};
use super::palette::{FRAME, GATE, GOOD, MUTED, NULL_BAND, OPEN};
use super::panel::{
    self, Frame, Heading, Key, MARGIN, PLAIN, SMALL, STRONG, WIDTH, float, gate_label,
};
use super::scale::ChangeScale;
use crate::experiment::model::Better;
use crate::report::words::{self, Tone};
use crate::verdict::change::own_pct;
use crate::verdict::rule::{Judgement, Verdict};

const ROW: f64 = 36.0;
const BELOW: f64 = 50.0;
const NUMBERS: f64 = 228.0;

/// A row: a candidate in a cell.
struct Row<'a> {
    cell: &'a CellView<'a>,
    judgement: &'a Judgement,
    first: bool,
}

pub(super) fn draw(view: &MetricView<'_>) -> Result<String, PlotError> {
    let rows: Vec<Row<'_>> = view
        .cells
        .iter()
        .flat_map(|cell| {
            let judgements = cell.judgements.iter().enumerate();
            judgements.map(move |(index, judgement)| Row {
                cell,
                judgement,
                first: index == 0,
            })
        })
        .collect();
    let heading = Heading {
        title: format!("Change of {} against {}", view.name, view.base()),
        explanation: "Estimate and interval per cell and candidate".into(),
        keys: keys(view),
    };
    let labels = labels_width(&rows);
    let top = heading.height() + 26.0;
    let frame = Frame {
        left: MARGIN + labels,
        top,
        right: WIDTH - MARGIN - NUMBERS,
        bottom: top + ROW * float(rows.len().max(1)),
    };
    let scale = scale(view, &rows);
    let title = heading.title.clone();
    canvas::draw((WIDTH, frame.bottom + BELOW), &title, |canvas| {
        heading.draw(canvas)?;
        let ticks = panel::spaced(|room| scale.ticks(frame.width(), room));
        panel::axis_below(canvas, frame, &ticks, |pct| scale.share(pct))?;
        for (index, row) in rows.iter().enumerate() {
            draw_row(canvas, frame, &scale, index, row)?;
        }
        draw_lines(canvas, frame, &scale, view)?;
        for (index, row) in rows.iter().enumerate() {
            draw_estimate(canvas, frame, &scale, index, row)?;
        }
        panel::outline(canvas, frame)?;
        draw_directions(canvas, frame, view.better, scale.is_bent())
    })
}

fn keys<'a>(view: &'a MetricView<'_>) -> Vec<Key<'a>> {
    let mut keys: Vec<Key<'a>> = Vec::new();
    for cell in &view.cells {
        for judgement in &cell.judgements {
            let place = cell
                .data
                .arms
                .iter()
                .position(|arm| arm.name == judgement.candidate);
            let known = keys
                .iter()
                .any(|key| matches!(key, Key::Arm(name, _) if *name == judgement.candidate));
            if let (Some(place), false) = (place, known) {
                keys.push(Key::Arm(&judgement.candidate, cell.looks[place]));
            }
        }
    }
    keys.push(Key::NullBand);
    keys
}

fn scale(view: &MetricView<'_>, rows: &[Row<'_>]) -> ChangeScale {
    let mut ends = Vec::new();
    for row in rows {
        if let Some(estimate) = &row.judgement.estimate {
            let (low, high) = words::change_range_pct(view.better, estimate.low, estimate.high);
            ends.extend([low, high]);
        }
        if let Some((low, high)) = row.cell.null_band_pct() {
            ends.extend([low, high]);
        }
    }
    ChangeScale::new(&ends, view.least_span_pct())
}

/// Room for the longest label, within reason.
fn labels_width(rows: &[Row<'_>]) -> f64 {
    let widest = rows
        .iter()
        .flat_map(|row| {
            [
                text_width(&row.judgement.cell, STRONG) + 4.0,
                text_width(&row.judgement.candidate, SMALL) + 14.0,
            ]
        })
        .fold(0.0, f64::max);
    (widest + 12.0).clamp(80.0, 220.0)
}

fn middle(frame: Frame, index: usize) -> f64 {
    frame.top + ROW * (float(index) + 0.5)
}

/// Label, null band and numbers of a row.
fn draw_row(
    canvas: &Canvas<'_>,
    frame: Frame,
    scale: &ChangeScale,
    index: usize,
    row: &Row<'_>,
) -> Result<(), PlotError> {
    let y = middle(frame, index);
    let room = frame.left - MARGIN - 10.0;
    let candidate = fit(&row.judgement.candidate, SMALL, room);
    if row.first {
        let cell = fit(&row.judgement.cell, STRONG, room);
        canvas.text(&cell, (MARGIN, y - 8.0), Anchor::Left, STRONG)?;
        canvas.text(&candidate, (MARGIN, y + 9.0), Anchor::Left, SMALL)?;
        if index > 0 {
            let edge = y - ROW / 2.0;
            canvas.line(&[(MARGIN, edge), (WIDTH - MARGIN, edge)], FRAME, 0.5)?;
        }
    } else {
        canvas.text(&candidate, (MARGIN, y), Anchor::Left, SMALL)?;
    }
    if let Some((low, high)) = row.cell.null_band_pct() {
        let (from, to) = (frame.x(scale.share(low)), frame.x(scale.share(high)));
        canvas.rect((from, y - 11.0), (to.max(from + 1.0), y + 11.0), NULL_BAND)?;
    }
    let left = frame.right + 12.0;
    let change = row.judgement.estimate.as_ref().map_or_else(
        || "no estimate".to_owned(),
        |estimate| words::estimate(row.judgement.better, estimate),
    );
    let numbers = Type {
        size: PLAIN.size - 1.0,
        ..PLAIN
    };
    let change = fit(&change, numbers, WIDTH - left - 2.0);
    canvas.text(&change, (left, y - 8.0), Anchor::Left, numbers)?;
    let set = Type {
        colour: verdict_colour(row.judgement.verdict),
        ..STRONG
    };
    let verdict = words::verdict(row.judgement.verdict);
    canvas.text(verdict, (left, y + 9.0), Anchor::Left, set)
}

fn draw_estimate(
    canvas: &Canvas<'_>,
    frame: Frame,
    scale: &ChangeScale,
    index: usize,
    row: &Row<'_>,
) -> Result<(), PlotError> {
    let Some(estimate) = &row.judgement.estimate else {
        return Ok(());
    };
    let arms = &row.cell.data.arms;
    let Some(place) = arms
        .iter()
        .position(|arm| arm.name == row.judgement.candidate)
    else {
        return Ok(());
    };
    let look = row.cell.looks[place];
    let y = middle(frame, index);
    let better = row.judgement.better;
    let (low, high) = words::change_range_pct(better, estimate.low, estimate.high);
    let (from, to) = (frame.x(scale.share(low)), frame.x(scale.share(high)));
    canvas.line(&[(from, y), (to, y)], look.colour, 2.5)?;
    for end in [from, to] {
        canvas.line(&[(end, y - 5.0), (end, y + 5.0)], look.colour, 2.0)?;
    }
    let at = frame.x(scale.share(own_pct(better, estimate.delta)));
    canvas.marker((at, y), 5.5, look)
}

/// Zero and the thresholds, the gate's with its name.
fn draw_lines(
    canvas: &Canvas<'_>,
    frame: Frame,
    scale: &ChangeScale,
    view: &MetricView<'_>,
) -> Result<(), PlotError> {
    let zero = frame.x(scale.share(0.0));
    canvas.line(&[(zero, frame.top), (zero, frame.bottom)], MUTED, 1.25)?;
    let Some(gate) = view.gate_pct else {
        return Ok(());
    };
    // The other side is the same distance on the logarithmic axis.
    let other = (1.0 / (1.0 + gate / 100.0) - 1.0) * 100.0;
    let x = frame.x(scale.share(other));
    canvas.dashes((x, frame.top), (x, frame.bottom), FRAME, 1.0)?;
    let x = frame.x(scale.share(gate));
    canvas.dashes((x, frame.top), (x, frame.bottom), GATE, 1.5)?;
    let set = Type {
        colour: GATE,
        ..SMALL
    };
    let label = format!("gate {}", gate_label(gate));
    canvas.text(&label, (x, frame.top - 10.0), Anchor::Centre, set)
}

/// Which way is slower, under the axis.
fn draw_directions(
    canvas: &Canvas<'_>,
    frame: Frame,
    better: Better,
    bent: bool,
) -> Result<(), PlotError> {
    let (left, right) = match better {
        Better::Higher => ("← worse", "better →"),
        Better::Lower => ("← better", "worse →"),
    };
    let y = frame.bottom + 32.0;
    canvas.text(left, (frame.left, y), Anchor::Left, SMALL)?;
    canvas.text(right, (frame.right, y), Anchor::Right, SMALL)?;
    let axis = if bent {
        "change in %, logarithmic away from 0"
    } else {
        "change in %"
    };
    canvas.text(
        axis,
        (f64::midpoint(frame.left, frame.right), y),
        Anchor::Centre,
        SMALL,
    )
}

fn verdict_colour(verdict: Verdict) -> plotters::style::RGBColor {
    match words::tone(verdict) {
        Tone::Bad => GATE,
        Tone::Good => GOOD,
        Tone::Open => OPEN,
    }
}
