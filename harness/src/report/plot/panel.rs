//! The parts that pictures share: heading, key, one frame per cell, axes.

use super::canvas::{Anchor, Canvas, Place, PlotError, Type, fit, text_width};
use super::palette::{FRAME, GATE, GRID, INK, Look, MUTED, NULL_BAND};
use super::scale::Tick;

/// Width of every picture in pixels.
pub(super) const WIDTH: f64 = 800.0;
/// Room at the edges.
pub(super) const MARGIN: f64 = 16.0;

pub(super) const TITLE: Type = Type {
    size: 16.0,
    colour: INK,
    bold: true,
};
pub(super) const STRONG: Type = Type {
    size: 13.0,
    colour: INK,
    bold: true,
};
pub(super) const PLAIN: Type = Type {
    size: 13.0,
    colour: INK,
    bold: false,
};
pub(super) const SMALL: Type = Type {
    size: 12.0,
    colour: MUTED,
    bold: false,
};

/// An entry of the key.
pub(super) enum Key<'a> {
    Arm(&'a str, Look),
    NullBand,
    Gate(f64),
}

impl Key<'_> {
    fn text(&self) -> String {
        match self {
            Key::Arm(name, _) => fit(name, SMALL, 220.0),
            Key::NullBand => "range of the null arms".into(),
            Key::Gate(pct) => format!("gate {}", gate_label(*pct)),
        }
    }

    fn width(&self) -> f64 {
        SWATCH + 6.0 + text_width(&self.text(), SMALL) + 12.0
    }

    fn draw(&self, canvas: &Canvas<'_>, (x, y): Place) -> Result<(), PlotError> {
        let middle = x + SWATCH / 2.0;
        match self {
            Key::Arm(_, look) => canvas.marker((middle, y), 4.5, *look)?,
            Key::NullBand => canvas.rect((x, y - 6.0), (x + SWATCH, y + 6.0), NULL_BAND)?,
            Key::Gate(_) => canvas.dashes((x, y), (x + SWATCH, y), GATE, 1.5)?,
        }
        canvas.text(&self.text(), (x + SWATCH + 6.0, y), Anchor::Left, SMALL)
    }
}

const SWATCH: f64 = 18.0;
const KEY_LINE: f64 = 20.0;

/// Such as `−1 %`.
pub(super) fn gate_label(pct: f64) -> String {
    let text = crate::unit::value(pct.abs());
    let sign = if pct < 0.0 { "−" } else { "+" };
    format!("{sign}{text} %")
}

/// Title, a line that explains, and the key.
pub(super) struct Heading<'a> {
    pub(super) title: String,
    pub(super) explanation: String,
    pub(super) keys: Vec<Key<'a>>,
}

impl Heading<'_> {
    /// Where the key's entries stand: line and left edge of each.
    fn places(&self) -> Vec<(u32, f64)> {
        let (mut line, mut x) = (0, MARGIN);
        self.keys
            .iter()
            .map(|key| {
                let width = key.width();
                if x > MARGIN && x + width > WIDTH - MARGIN {
                    line += 1;
                    x = MARGIN;
                }
                let place = (line, x);
                x += width;
                place
            })
            .collect()
    }

    /// Height in pixels.
    pub(super) fn height(&self) -> f64 {
        let lines = self.places().last().map_or(0, |(line, _)| line + 1);
        58.0 + f64::from(lines) * KEY_LINE
    }

    pub(super) fn draw(&self, canvas: &Canvas<'_>) -> Result<(), PlotError> {
        let room = WIDTH - 2.0 * MARGIN;
        let title = fit(&self.title, TITLE, room);
        canvas.text(&title, (MARGIN, 22.0), Anchor::Left, TITLE)?;
        let explanation = fit(&self.explanation, SMALL, room);
        canvas.text(&explanation, (MARGIN, 43.0), Anchor::Left, SMALL)?;
        for (key, (line, x)) in self.keys.iter().zip(self.places()) {
            key.draw(canvas, (x, 64.0 + f64::from(line) * KEY_LINE))?;
        }
        Ok(())
    }
}

/// The inside of a panel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
}

impl Frame {
    pub(super) fn width(&self) -> f64 {
        self.right - self.left
    }

    pub(super) fn height(&self) -> f64 {
        self.bottom - self.top
    }

    /// From a share of the width to pixels.
    pub(super) fn x(&self, share: f64) -> f64 {
        self.left + self.width() * share
    }

    /// From a share of the height, counted from below, to pixels.
    pub(super) fn y(&self, share: f64) -> f64 {
        self.bottom - self.height() * share
    }
}

/// One panel per cell, side by side where there are several.
pub(super) struct Grid {
    top: f64,
    columns: u32,
    panel_width: f64,
    panel_height: f64,
    count: u32,
}

impl Grid {
    pub(super) fn new(count: usize, top: f64, panel_height: f64) -> Grid {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let columns = count.clamp(1, 2);
        Grid {
            top,
            columns,
            panel_width: (WIDTH - MARGIN) / f64::from(columns),
            panel_height,
            count,
        }
    }

    /// Height of the whole picture.
    pub(super) fn bottom(&self) -> f64 {
        self.top + f64::from(self.count.div_ceil(self.columns)) * self.panel_height + 8.0
    }

    /// The inside of the panel at `index`, with `left` pixels for its axis and
    /// `below` for the other; its title goes above it.
    pub(super) fn frame(&self, index: usize, left: f64, below: f64) -> Frame {
        let index = u32::try_from(index).unwrap_or(0);
        let column = f64::from(index % self.columns);
        let row = f64::from(index / self.columns);
        let x = MARGIN + column * self.panel_width;
        let y = self.top + row * self.panel_height;
        Frame {
            left: x + left,
            top: y + 28.0,
            right: x + self.panel_width - 14.0,
            bottom: y + self.panel_height - below,
        }
    }
}

/// The cell's name above a frame.
pub(super) fn panel_title(
    canvas: &Canvas<'_>,
    frame: Frame,
    left: f64,
    title: &str,
) -> Result<(), PlotError> {
    let text = fit(title, STRONG, frame.right - left);
    canvas.text(&text, (left, frame.top - 14.0), Anchor::Left, STRONG)
}

/// Ticks for an axis that runs to the right, as many as their labels leave room for.
pub(super) fn spaced(ticks: impl Fn(f64) -> Vec<Tick>) -> Vec<Tick> {
    let first = ticks(MINIMUM_ROOM);
    let widest = first
        .iter()
        .map(|tick| text_width(&tick.label, SMALL) + 14.0)
        .fold(MINIMUM_ROOM, f64::max);
    if widest > MINIMUM_ROOM {
        ticks(widest)
    } else {
        first
    }
}

const MINIMUM_ROOM: f64 = 46.0;

/// Grid lines and labels of an axis that runs to the right, below the frame.
pub(super) fn axis_below(
    canvas: &Canvas<'_>,
    frame: Frame,
    ticks: &[Tick],
    share: impl Fn(f64) -> f64,
) -> Result<(), PlotError> {
    for tick in ticks {
        let x = frame.x(share(tick.value));
        canvas.line(&[(x, frame.top), (x, frame.bottom)], GRID, 1.0)?;
        // At the picture's edge a label would be cut.
        if x + text_width(&tick.label, SMALL) / 2.0 < frame.right + 14.0 {
            canvas.text(&tick.label, (x, frame.bottom + 12.0), Anchor::Centre, SMALL)?;
        }
    }
    Ok(())
}

/// Grid lines and labels of an axis that runs up, left of the frame.
pub(super) fn axis_left(
    canvas: &Canvas<'_>,
    frame: Frame,
    ticks: &[Tick],
    share: impl Fn(f64) -> f64,
) -> Result<(), PlotError> {
    for tick in ticks {
        let y = frame.y(share(tick.value));
        canvas.line(&[(frame.left, y), (frame.right, y)], GRID, 1.0)?;
        canvas.text(&tick.label, (frame.left - 6.0, y), Anchor::Right, SMALL)?;
    }
    Ok(())
}

/// The frame itself, drawn last so that nothing hides it.
pub(super) fn outline(canvas: &Canvas<'_>, frame: Frame) -> Result<(), PlotError> {
    canvas.frame((frame.left, frame.top), (frame.right, frame.bottom), FRAME)
}

/// A marker's size for `count` points along `length` pixels.
pub(super) fn marker_radius(count: usize, length: f64) -> f64 {
    let count = f64::from(u32::try_from(count.max(1)).unwrap_or(u32::MAX));
    (length / count / 2.5).clamp(1.8, 4.0)
}

/// A small count as a number of pixels or a share.
pub(super) fn float(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
