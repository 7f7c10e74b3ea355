//! The pictures of a calibration: every estimate beside what was injected, and how often a
//! slow-down was found beside what the rule promises.

use super::canvas::{self, Anchor, Canvas, PlotError, Type, text_width};
use super::figure::Figure;
use super::palette::{GATE, INK, Look, looks};
use super::panel::{self, Frame, Heading, MARGIN, SMALL, WIDTH};
use super::scale::ValueScale;
use crate::analysis::calibration::Calibration;
use crate::stats::quantile::{median, range};
use crate::unit;

/// Height of one strip in pixels.
const STRIP: f64 = 44.0;
/// Height of the panel of shares.
const TALL: f64 = 260.0;

/// Both pictures.
///
/// # Errors
/// [`PlotError`] only by a fault of this program.
pub(in crate::report) fn figures(summary: &Calibration) -> Result<Vec<Figure>, PlotError> {
    let figure = |file: &str, svg: String| Figure {
        file: file.into(),
        svg,
    };
    Ok(vec![
        figure("estimates.svg", estimates(summary)?),
        figure("found.svg", found(summary)?),
    ])
}

/// A row of estimates.
struct Strip<'a> {
    label: String,
    injected_pct: f64,
    changes_pct: &'a [f64],
}

fn strips(summary: &Calibration) -> Vec<Strip<'_>> {
    let same = Strip {
        label: "same program".into(),
        injected_pct: 0.0,
        changes_pct: &summary.same.changes_pct,
    };
    let injected = summary.injected.iter().map(|one| Strip {
        label: format!("× {} ({})", one.multiple, percent(one.pct)),
        injected_pct: one.pct,
        changes_pct: &one.answers.changes_pct,
    });
    std::iter::once(same).chain(injected).collect()
}

fn percent(pct: f64) -> String {
    format!("{} %", unit::value((100.0 * pct).round() / 100.0))
}

fn look() -> Look {
    let looks = looks(&[("base", None), ("same", None)], "base");
    looks[1]
}

fn estimates(summary: &Calibration) -> Result<String, PlotError> {
    let strips = strips(summary);
    let heading = Heading {
        title: "Estimated slow-down, run by run".into(),
        explanation: "Dots: one run each. Dashes: what was injected. Line: the median".into(),
        keys: vec![],
    };
    let all: Vec<f64> = strips
        .iter()
        .flat_map(|strip| {
            strip
                .changes_pct
                .iter()
                .copied()
                .chain([strip.injected_pct])
        })
        .collect();
    let (low, high) = range(&all).unwrap_or((0.0, 1.0));
    let scale = ValueScale::linear(low, high);
    let left = strips
        .iter()
        .map(|strip| text_width(&strip.label, SMALL))
        .fold(0.0, f64::max)
        + 2.0 * MARGIN;
    let top = heading.height();
    let frame = Frame {
        left,
        top,
        right: WIDTH - MARGIN,
        bottom: top + STRIP * float(strips.len()),
    };
    let title = heading.title.clone();
    canvas::draw((WIDTH, frame.bottom + 50.0), &title, |canvas| {
        heading.draw(canvas)?;
        let ticks = panel::spaced(|room| scale.ticks(frame.width(), room));
        panel::axis_below(canvas, frame, &ticks, |value| scale.share(value))?;
        for (index, strip) in strips.iter().enumerate() {
            let y = frame.top + STRIP * (float(index) + 0.5);
            draw_strip(canvas, frame, y, &scale, strip)?;
        }
        panel::outline(canvas, frame)?;
        let middle = f64::midpoint(frame.left, frame.right);
        let below = (middle, frame.bottom + 32.0);
        canvas.text("slow-down in %", below, Anchor::Centre, SMALL)
    })
}

fn draw_strip(
    canvas: &Canvas<'_>,
    frame: Frame,
    y: f64,
    scale: &ValueScale,
    strip: &Strip<'_>,
) -> Result<(), PlotError> {
    let set = Type {
        colour: INK,
        ..SMALL
    };
    canvas.text(&strip.label, (frame.left - 8.0, y), Anchor::Right, set)?;
    let x = |pct: f64| frame.x(scale.share(pct));
    let half = STRIP / 2.0;
    let injected = x(strip.injected_pct);
    canvas.dashes((injected, y - half), (injected, y + half), GATE, 1.5)?;
    for (index, pct) in strip.changes_pct.iter().enumerate() {
        // Five tracks in an order that keeps neighbours apart; no chance involved.
        let track = [0.0, 2.0, -2.0, 1.0, -1.0][index % 5];
        canvas.marker((x(*pct), y + track * 5.0), 2.6, look())?;
    }
    if let Some(middle) = median(strip.changes_pct) {
        let ends = [(x(middle), y - 16.0), (x(middle), y + 16.0)];
        canvas.line(&ends, INK, 2.0)?;
    }
    Ok(())
}

fn found(summary: &Calibration) -> Result<String, PlotError> {
    let heading = Heading {
        title: "Slow-downs that were found".into(),
        explanation: "Dots: share of the runs. Line: what the rule promises at the median noise"
            .into(),
        keys: vec![],
    };
    let points: Vec<(f64, f64, Option<f64>)> = points(summary);
    let furthest = points.last().map_or(1.0, |(pct, ..)| *pct);
    let scale = ValueScale::linear(0.0, furthest);
    let top = heading.height();
    let frame = Frame {
        left: 64.0,
        top,
        right: WIDTH - MARGIN,
        bottom: top + TALL,
    };
    let title = heading.title.clone();
    canvas::draw((WIDTH, frame.bottom + 50.0), &title, |canvas| {
        heading.draw(canvas)?;
        let ticks = panel::spaced(|room| scale.ticks(frame.width(), room));
        panel::axis_below(canvas, frame, &ticks, |value| scale.share(value))?;
        let y = |share: f64| frame.bottom - (0.04 + 0.92 * share) * frame.height();
        for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
            let label = format!("{:.0} %", 100.0 * share);
            let place = (frame.left - 8.0, y(share));
            canvas.text(&label, place, Anchor::Right, SMALL)?;
        }
        let x = |pct: f64| frame.x(scale.share(pct));
        let promised: Vec<(f64, f64)> = points
            .iter()
            .filter_map(|(pct, _, promised)| Some((x(*pct), y((*promised)?))))
            .collect();
        canvas.line(&promised, INK, 1.5)?;
        for (pct, share, _) in &points {
            canvas.marker((x(*pct), y(*share)), 4.5, look())?;
        }
        panel::outline(canvas, frame)?;
        let middle = f64::midpoint(frame.left, frame.right);
        let below = (middle, frame.bottom + 32.0);
        canvas.text("injected slow-down in %", below, Anchor::Centre, SMALL)
    })
}

/// (injected percent, share called slower, share promised), the smallest first.
fn points(summary: &Calibration) -> Vec<(f64, f64, Option<f64>)> {
    let share = |hits: usize, of: usize| float(hits) / float(of.max(1));
    let same = &summary.same;
    let none = (
        0.0,
        share(same.slower, same.judged),
        Some(summary.alpha / 2.0),
    );
    let injected = summary.injected.iter().map(|one| {
        let answers = &one.answers;
        (one.pct, share(answers.slower, answers.judged), one.promised)
    });
    std::iter::once(none).chain(injected).collect()
}

fn float(n: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts of runs and rows")]
    let float = n as f64;
    float
}
