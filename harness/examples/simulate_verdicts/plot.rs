//! One picture: what is found of a loss of 2 %, and what is cried without one.

use std::path::Path;

use plotters::prelude::*;

use super::page::ours;
use super::rivals::Rival;
use super::{Results, Share};

/// Width and height in pixels.
const SIZE: (u32, u32) = (900, 420);

/// Told apart by every kind of colour vision (Okabe and Ito 2008).
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 0, 0),
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
];

/// A rule's points: executed runs, false alarms interleaved, losses of 2 % found.
struct Line {
    name: String,
    points: Vec<(f64, f64, f64)>,
}

fn lines(results: &Results) -> Vec<Line> {
    let percent = |share: Share| 100.0 * share.value();
    let own = ours(results).into_iter();
    let own = own.map(|(runs, [still, _, two, _])| (runs as f64, percent(still), percent(two)));
    let mut lines = vec![Line {
        name: "bench-run".into(),
        points: own.collect(),
    }];
    for rival in Rival::ALL {
        let of_rival = results.rivals.iter().filter(|(one, ..)| *one == rival);
        let points = of_rival
            .map(|(_, runs, [_, still, _, two, _])| (*runs as f64, percent(*still), percent(*two)));
        lines.push(Line {
            name: rival
                .name()
                .split(':')
                .next()
                .unwrap_or_default()
                .to_owned(),
            points: points.collect(),
        });
    }
    lines
}

/// Draws to `path`.
pub(crate) fn write(path: &Path, results: &Results) -> Result<(), String> {
    draw(path, &lines(results)).map_err(|error| error.to_string())
}

fn draw(path: &Path, lines: &[Line]) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let (left, right) = area.split_horizontally(SIZE.0 / 2);
    panel(&left, "A loss of 2 % is found (%)", 100.0, lines, |point| {
        point.2
    })?;
    panel(
        &right,
        "False alarms, interleaved (%)",
        20.0,
        lines,
        |point| point.1,
    )?;
    area.present()?;
    Ok(())
}

fn panel(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    title: &str,
    top: f64,
    lines: &[Line],
    value: impl Fn(&(f64, f64, f64)) -> f64,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(34)
        .y_label_area_size(38)
        .build_cartesian_2d(0.0..32.0, 0.0..top)?;
    chart
        .configure_mesh()
        .x_desc("executed runs")
        .label_style(("sans-serif", 12))
        .light_line_style(WHITE)
        .draw()?;
    for (line, colour) in lines.iter().zip(COLOURS) {
        let points: Vec<(f64, f64)> = line
            .points
            .iter()
            .map(|point| (point.0, value(point).min(top)))
            .collect();
        let circles = points.iter().map(|&at| Circle::new(at, 3, colour.filled()));
        chart.draw_series(circles)?;
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)))?
            .label(&line.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .label_font(("sans-serif", 11))
        .background_style(WHITE.mix(0.8))
        .draw()?;
    Ok(())
}
