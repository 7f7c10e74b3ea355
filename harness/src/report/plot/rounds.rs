//! The paired change of every candidate in every round, one panel per cell.

use super::canvas::{self, Canvas, PlotError};
use super::figure::{CellView, MetricView};
use super::palette::{GATE, MUTED, NULL_BAND};
use super::panel::{self, Frame, Grid, Heading, Key, MARGIN, SMALL, WIDTH, float, marker_radius};
use super::scale::{ChangeScale, TALL_ROOM, Tick};

const HEIGHT: f64 = 226.0;
const LEFT: f64 = 58.0;
const BELOW: f64 = 42.0;

/// More rounds than this in one panel are thinned out evenly, and the heading says so.
const SHOWN: usize = 150;

pub(super) fn draw(view: &MetricView<'_>) -> Result<String, PlotError> {
    let mut keys: Vec<Key<'_>> = view
        .arms()
        .into_iter()
        .filter(|(name, look)| look.ring || *name != view.base())
        .map(|(name, look)| Key::Arm(name, look))
        .collect();
    keys.push(Key::NullBand);
    keys.extend(view.gate_pct.map(Key::Gate));
    let heading = Heading {
        title: format!("{}: paired change in every round", view.name),
        explanation: explanation(view),
        keys,
    };
    let grid = Grid::new(view.cells.len(), heading.height(), HEIGHT);
    let title = heading.title.clone();
    canvas::draw((WIDTH, grid.bottom()), &title, |canvas| {
        heading.draw(canvas)?;
        for (index, cell) in view.cells.iter().enumerate() {
            draw_cell(canvas, grid.frame(index, LEFT, BELOW), view, cell)?;
        }
        Ok(())
    })
}

fn explanation(view: &MetricView<'_>) -> String {
    let most = view.cells.iter().map(|cell| cell.data.rounds.len()).max();
    let thinned = match stride(most.unwrap_or(0)) {
        1 => String::new(),
        every => format!("; 1 of {every} rounds shown"),
    };
    format!(
        "Change in % against {} of the same round; null arms against the arm they repeat{thinned}",
        view.base()
    )
}

/// Every how many rounds one is shown.
fn stride(rounds: usize) -> usize {
    rounds.div_ceil(SHOWN).max(1)
}

fn draw_cell(
    canvas: &Canvas<'_>,
    frame: Frame,
    view: &MetricView<'_>,
    cell: &CellView<'_>,
) -> Result<(), PlotError> {
    let shown: Vec<(usize, Vec<f64>)> = (0..cell.data.arms.len())
        .filter(|arm| cell.reference(*arm) != *arm)
        .map(|arm| (arm, cell.paired_pct(arm)))
        .collect();
    let all: Vec<f64> = shown
        .iter()
        .flat_map(|(_, changes)| changes.iter().copied())
        .collect();
    let scale = ChangeScale::new(&all, view.least_span_pct());
    let rounds = cell.data.rounds.len();

    panel::panel_title(
        canvas,
        frame,
        frame.left - LEFT + MARGIN / 2.0,
        &cell.data.cell,
    )?;
    if let Some((low, high)) = cell.null_band_pct() {
        let (bottom, top) = (frame.y(scale.share(low)), frame.y(scale.share(high)));
        canvas.rect(
            (frame.left, top),
            (frame.right, bottom.max(top + 1.0)),
            NULL_BAND,
        )?;
    }
    let ticks = scale.ticks(frame.height(), TALL_ROOM);
    panel::axis_left(canvas, frame, &ticks, |pct| scale.share(pct))?;
    draw_round_labels(canvas, frame, rounds)?;
    let zero = frame.y(scale.share(0.0));
    canvas.line(&[(frame.left, zero), (frame.right, zero)], MUTED, 1.25)?;
    if let Some(gate) = view.gate_pct {
        let y = frame.y(scale.share(gate));
        canvas.dashes((frame.left, y), (frame.right, y), GATE, 1.5)?;
    }
    let step = frame.width() / float(rounds.max(1));
    let radius = marker_radius(rounds.min(SHOWN) * shown.len(), frame.width());
    for (place, (arm, changes)) in shown.iter().enumerate() {
        let look = cell.looks[*arm];
        let aside = dodge(place, shown.len(), step);
        let points: Vec<(f64, f64)> = changes
            .iter()
            .enumerate()
            .step_by(stride(rounds))
            .filter(|(_, pct)| pct.is_finite())
            .map(|(round, pct)| {
                let x = frame.left + step * (float(round) + 0.5) + aside;
                (x, frame.y(scale.share(*pct)))
            })
            .collect();
        if !look.ring && rounds <= 40 {
            canvas.line(&points, look.colour, 0.75)?;
        }
        for point in points {
            canvas.marker(point, radius, look)?;
        }
    }
    panel::outline(canvas, frame)
}

/// Arms of one round stand side by side, within two thirds of its width.
fn dodge(place: usize, count: usize, step: f64) -> f64 {
    let slot = (step * 0.66 / float(count.max(1))).min(9.0);
    (float(place) - (float(count) - 1.0) / 2.0) * slot
}

/// The numbers of the rounds under a frame, as many as there is room for.
fn draw_round_labels(canvas: &Canvas<'_>, frame: Frame, rounds: usize) -> Result<(), PlotError> {
    let step = frame.width() / float(rounds.max(1));
    let every = (1..=rounds)
        .find(|every| {
            [1, 2, 5, 10, 20, 50, 100, 1000].contains(every) && step * float(*every) >= 26.0
        })
        .unwrap_or(1000);
    let ticks: Vec<Tick> = (1..=rounds)
        .filter(|round| every == 1 || round % every == 0)
        .map(|round| Tick {
            value: float(round),
            label: round.to_string(),
        })
        .collect();
    let share = |round: f64| (round - 0.5) / float(rounds.max(1));
    for tick in &ticks {
        let x = frame.x(share(tick.value));
        canvas.text(
            &tick.label,
            (x, frame.bottom + 12.0),
            canvas::Anchor::Centre,
            SMALL,
        )?;
    }
    canvas.text(
        "round",
        (f64::midpoint(frame.left, frame.right), frame.bottom + 28.0),
        canvas::Anchor::Centre,
        SMALL,
    )
}
