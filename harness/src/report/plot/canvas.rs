//! Drawing in pixels on an SVG of plotters.
//!
//! plotters rounds to whole units; a canvas is drawn four times as large and
//! shown at a quarter, so that lines are as fine as they look. Text is set in
//! the reader's own sans-serif font, so its width is estimated on the safe side.

use plotters::backend::SVGBackend;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Rectangle, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontStyle, IntoFont, RGBColor, ShapeStyle, TextStyle};

use super::palette::{Look, PAGE};
use crate::report::escape::one_line;

/// Units of the drawing per pixel.
const UNITS: f64 = 4.0;

/// plotters divides a font's size by this before it writes it down.
const FONT_FACTOR: f64 = 1.24;

/// A picture could not be drawn: a fault of this program.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw a plot: {0}")]
pub struct PlotError(String);

/// A place in pixels from the top left.
pub(super) type Place = (f64, f64);

/// Which point of a text stands at its place.
#[derive(Debug, Clone, Copy)]
pub(super) enum Anchor {
    Left,
    Centre,
    Right,
}

/// How a text is set.
#[derive(Debug, Clone, Copy)]
pub(super) struct Type {
    pub(super) size: f64,
    pub(super) colour: RGBColor,
    pub(super) bold: bool,
}

pub(super) struct Canvas<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
}

/// Draws a picture of `width` × `height` pixels; `title` is what a screen reader says.
pub(super) fn draw(
    (width, height): (f64, f64),
    title: &str,
    body: impl FnOnce(&Canvas<'_>) -> Result<(), PlotError>,
) -> Result<String, PlotError> {
    let mut svg = String::new();
    let size = (units(width).unsigned_abs(), units(height).unsigned_abs());
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        let canvas = Canvas { area };
        canvas.rect((0.0, 0.0), (width, height), PAGE)?;
        body(&canvas)?;
        canvas.area.present().map_err(fault)?;
    }
    let drawn = format!("width=\"{}\" height=\"{}\"", size.0, size.1);
    let shown = format!("width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\"");
    let svg = svg.replacen(&drawn, &shown, 1);
    let titled = format!(">\n<title>{}</title>\n", xml_text(title));
    Ok(svg.replacen(">\n", &titled, 1))
}

/// About how wide a text will be at most, in pixels: what wide sans-serif faces need.
pub(super) fn text_width(text: &str, set: Type) -> f64 {
    let share: f64 = text.chars().map(character_width).sum();
    let weight = if set.bold { 1.12 } else { 1.0 };
    share * set.size * weight
}

/// A character's width as a share of the font's size.
fn character_width(c: char) -> f64 {
    match c {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' => 0.34,
        'f' | 'r' | 't' | '-' | '(' | ')' | '[' | ']' | '/' => 0.42,
        'm' | 'w' | 'M' | 'W' | '%' | '+' | '−' | '×' | '…' | '←' | '→' => 0.98,
        _ if c.is_uppercase() || !c.is_ascii() => 0.78,
        _ => 0.63,
    }
}

/// The text, shortened at its end to fit into `width` pixels.
pub(super) fn fit(text: &str, set: Type, width: f64) -> String {
    let mut text = one_line(text);
    if text_width(&text, set) <= width {
        return text;
    }
    while !text.is_empty() && text_width(&text, set) + text_width("…", set) > width {
        text.pop();
    }
    text.push('…');
    text
}

impl Canvas<'_> {
    pub(super) fn rect(&self, from: Place, to: Place, fill: RGBColor) -> Result<(), PlotError> {
        let shape = Rectangle::new([place(from), place(to)], fill.filled());
        self.area.draw(&shape).map_err(fault)
    }

    pub(super) fn frame(&self, from: Place, to: Place, colour: RGBColor) -> Result<(), PlotError> {
        let shape = Rectangle::new([place(from), place(to)], stroke(colour, 1.0));
        self.area.draw(&shape).map_err(fault)
    }

    pub(super) fn line(
        &self,
        points: &[Place],
        colour: RGBColor,
        width: f64,
    ) -> Result<(), PlotError> {
        let points: Vec<(i32, i32)> = points.iter().copied().map(place).collect();
        let shape = PathElement::new(points, stroke(colour, width));
        self.area.draw(&shape).map_err(fault)
    }

    /// A straight dashed line.
    pub(super) fn dashes(
        &self,
        from: Place,
        to: Place,
        colour: RGBColor,
        width: f64,
    ) -> Result<(), PlotError> {
        const DASH: f64 = 6.0;
        const GAP: f64 = 4.0;
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let length = dx.hypot(dy);
        let at = |along: f64| {
            let share = (along / length).min(1.0);
            (from.0 + dx * share, from.1 + dy * share)
        };
        let mut along = 0.0;
        while along < length {
            self.line(&[at(along), at(along + DASH)], colour, width)?;
            along += DASH + GAP;
        }
        Ok(())
    }

    /// An arm's marker: a disc, or a ring for a null arm.
    pub(super) fn marker(&self, at: Place, radius: f64, look: Look) -> Result<(), PlotError> {
        let circle = |radius: f64, style: ShapeStyle| {
            let shape = Circle::new(place(at), units(radius), style);
            self.area.draw(&shape).map_err(fault)
        };
        if look.ring {
            circle(radius, PAGE.filled())?;
            circle(radius, stroke(look.colour, 1.5))
        } else {
            // A thin edge of paper keeps markers apart where they overlap.
            circle(radius + 0.75, PAGE.filled())?;
            circle(radius, look.colour.filled())
        }
    }

    /// A text whose vertical middle is at the place.
    pub(super) fn text(
        &self,
        text: &str,
        at: Place,
        anchor: Anchor,
        set: Type,
    ) -> Result<(), PlotError> {
        let style = if set.bold {
            FontStyle::Bold
        } else {
            FontStyle::Normal
        };
        let font = ("sans-serif", set.size * UNITS * FONT_FACTOR, style).into_font();
        let h_pos = match anchor {
            Anchor::Left => HPos::Left,
            Anchor::Centre => HPos::Center,
            Anchor::Right => HPos::Right,
        };
        let style = TextStyle::from(font)
            .color(&set.colour)
            .pos(Pos::new(h_pos, VPos::Center));
        let shape = Text::new(one_line(text), place(at), style);
        self.area.draw(&shape).map_err(fault)
    }
}

fn stroke(colour: RGBColor, width: f64) -> ShapeStyle {
    ShapeStyle {
        color: colour.to_rgba(),
        filled: false,
        stroke_width: units(width).unsigned_abs(),
    }
}

fn place((x, y): Place) -> (i32, i32) {
    (units(x), units(y))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "pictures are a few thousand pixels; `as` saturates and maps NaN to 0"
)]
fn units(pixels: f64) -> i32 {
    (pixels * UNITS).round() as i32
}

fn fault(error: impl std::fmt::Display) -> PlotError {
    PlotError(error.to_string())
}

fn xml_text(raw: &str) -> String {
    one_line(raw)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::palette::INK;
    use super::*;

    const SET: Type = Type {
        size: 10.0,
        colour: INK,
        bold: false,
    };

    #[test]
    fn odd_characters_stay_text() {
        let svg = draw((100.0, 50.0), "a<b & \"c\"", |canvas| {
            canvas.text("<script>&|`\u{0}", (5.0, 5.0), Anchor::Left, SET)
        })
        .unwrap();
        assert!(svg.contains("<title>a&lt;b &amp; \"c\"</title>"), "{svg}");
        assert!(svg.contains("&lt;script&gt;&amp;|`"), "{svg}");
        assert!(!svg.contains('\0'));
        let start = "<svg width=\"100\" height=\"50\" role=\"img\" viewBox=\"0 0 400 200\"";
        assert!(svg.starts_with(start), "{svg}");
    }

    #[test]
    fn a_text_that_is_too_long_ends_in_dots() {
        assert_eq!(fit("short", SET, 100.0), "short");
        let long = fit("a very long name of an arm", SET, 60.0);
        assert!(
            long.ends_with('…') && text_width(&long, SET) <= 60.0,
            "{long}"
        );
    }
}
