//! The picture of a bisection: one row per commit, its probability as a bar and what was
//! measured of it as estimates with intervals.

use super::canvas::{self, Anchor, Canvas, PlotError, fit};
use super::figure::Figure;
use super::palette::{GATE, GOOD, Look, MUTED, looks};
use super::panel::{self, Frame, Heading, MARGIN, SMALL, STRONG, WIDTH, float};
use super::scale::ValueScale;
use crate::report::bisection::{Candidate, Finding, short};
use crate::report::words;
use crate::stats::quantile::range;
use crate::verdict::change::own_pct;

/// Height of a commit's row in pixels.
const ROW: f64 = 22.0;
/// Where the bars begin, and how long a certain commit's is.
const BARS: (f64, f64) = (330.0, 90.0);
/// Where the changes begin.
const CHANGES: f64 = 490.0;

/// Every commit that is shown, oldest first.
///
/// # Errors
/// [`PlotError`] only by a fault of this program.
pub(in crate::report) fn figure(finding: &Finding) -> Result<Figure, PlotError> {
    let shown: Vec<&Candidate> = finding
        .shown()
        .into_iter()
        .map(|place| &finding.commits[place])
        .collect();
    let heading = Heading {
        title: format!("Where {} changed", finding.metric),
        explanation: "Bars: probability of being the first commit with the effect. Dots: runs, \
                      with intervals. Dashes: the whole effect"
            .into(),
        keys: vec![],
    };
    let top = heading.height();
    let frame = Frame {
        left: CHANGES,
        top,
        right: WIDTH - MARGIN,
        bottom: top + ROW * float(shown.len()),
    };
    let scale = scale(finding);
    let title = heading.title.clone();
    let svg = canvas::draw((WIDTH, frame.bottom + 50.0), &title, |canvas| {
        heading.draw(canvas)?;
        let ticks = panel::spaced(|room| scale.ticks(frame.width(), room));
        panel::axis_below(canvas, frame, &ticks, |pct| scale.share(pct))?;
        draw_levels(canvas, frame, &scale, finding)?;
        for (index, candidate) in shown.iter().enumerate() {
            let y = frame.top + ROW * (float(index) + 0.5);
            draw_commit(canvas, y, candidate)?;
            draw_runs(canvas, frame, y, &scale, (finding, candidate))?;
        }
        panel::outline(canvas, frame)?;
        let below = (f64::midpoint(frame.left, frame.right), frame.bottom + 32.0);
        canvas.text("change in %", below, Anchor::Centre, SMALL)
    })?;
    Ok(Figure {
        file: "commits.svg".into(),
        svg,
    })
}

/// No change, and the bad commit's.
fn draw_levels(
    canvas: &Canvas<'_>,
    frame: Frame,
    scale: &ValueScale,
    finding: &Finding,
) -> Result<(), PlotError> {
    let zero = frame.x(scale.share(0.0));
    canvas.line(&[(zero, frame.top), (zero, frame.bottom)], MUTED, 1.25)?;
    let whole = finding.runs.first().and_then(|run| run.estimate);
    let Some(whole) = whole else { return Ok(()) };
    let x = frame.x(scale.share(own_pct(finding.better, whole.delta)));
    canvas.dashes((x, frame.top), (x, frame.bottom), GATE, 1.5)
}

/// Name and probability.
fn draw_commit(canvas: &Canvas<'_>, y: f64, candidate: &Candidate) -> Result<(), PlotError> {
    canvas.text(short(&candidate.id), (MARGIN, y), Anchor::Left, STRONG)?;
    let summary = MARGIN + 106.0;
    let text = fit(&candidate.summary, SMALL, BARS.0 - summary - 10.0);
    canvas.text(&text, (summary, y), Anchor::Left, SMALL)?;
    let end = BARS.0 + (BARS.1 * candidate.probability).max(1.0);
    canvas.rect((BARS.0, y - 7.0), (end, y + 7.0), GOOD)?;
    let label = format!("{:.1} %", 100.0 * candidate.probability);
    canvas.text(&label, (end + 5.0, y), Anchor::Left, SMALL)
}

/// What was measured of a commit.
fn draw_runs(
    canvas: &Canvas<'_>,
    frame: Frame,
    y: f64,
    scale: &ValueScale,
    (finding, candidate): (&Finding, &Candidate),
) -> Result<(), PlotError> {
    if !candidate.measurable {
        let place = (frame.left + 6.0, y);
        return canvas.text("not measurable", place, Anchor::Left, SMALL);
    }
    let x = |pct: f64| frame.x(scale.share(pct));
    let look = look();
    for (index, estimate) in finding.estimates_at(&candidate.id).enumerate() {
        // Three tracks, so that runs of one commit do not hide each other.
        let y = y + [0.0, 5.0, -5.0][index % 3];
        let (low, high) = words::change_range_pct(finding.better, estimate.low, estimate.high);
        canvas.line(&[(x(low), y), (x(high), y)], look.colour, 2.0)?;
        let middle = x(own_pct(finding.better, estimate.delta));
        canvas.marker((middle, y), 3.5, look)?;
    }
    Ok(())
}

fn look() -> Look {
    looks(&[("good", None), ("head", None)], "good")[1]
}

/// Spans every interval and no change.
fn scale(finding: &Finding) -> ValueScale {
    let mut ends = vec![0.0];
    for estimate in finding.runs.iter().filter_map(|run| run.estimate) {
        let (low, high) = words::change_range_pct(finding.better, estimate.low, estimate.high);
        ends.extend([low, high]);
    }
    let (low, high) = range(&ends).unwrap_or((-1.0, 1.0));
    ValueScale::linear(low, high)
}
