//! The report's tables for a terminal: the same numbers, fitted to its width.

use std::fmt::Write as _;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Table};

use super::escape::one_line;
use super::model::ReportModel;
use super::outcomes::CountLine;
use super::table::{MetricSection, Row};
use super::words::Tone;
use crate::analysis::model::ArmCounts;

/// One table per metric, what became of the attempts, notes, and the gate last.
///
/// `width` is the terminal's, in columns; `colours` asks for ANSI escapes.
#[must_use]
pub fn table(model: &ReportModel, width: u16, colours: bool) -> String {
    let mut out = String::new();
    for section in &model.metrics {
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(out, "{}", heading(section));
        let _ = writeln!(out, "{}", metric_table(section, width, colours));
        for line in &section.suite {
            let _ = writeln!(out, "{}", one_line(line));
        }
        for line in &section.disagreements {
            let _ = writeln!(out, "note: {}", one_line(line));
        }
        out.push('\n');
    }
    for CountLine { counts, .. } in &model.outcomes.counts {
        let unused = unused(counts);
        if !unused.is_empty() {
            let _ = writeln!(out, "{}: {unused}", one_line(&counts.arm));
        }
    }
    for note in &model.notes {
        let _ = writeln!(out, "note: {}", one_line(note));
    }
    for line in &model.verdicts {
        let (cell, sentence) = (one_line(&line.cell), one_line(&line.sentence));
        let _ = writeln!(out, "{cell}: {sentence}");
    }
    for line in &model.controls {
        let (cell, sentence) = (one_line(&line.cell), one_line(&line.sentence));
        let _ = writeln!(out, "{cell}: {sentence}");
    }
    let _ = writeln!(
        out,
        "gate: {}. {}",
        model.gate,
        one_line(&model.gate_sentence)
    );
    out
}

fn heading(section: &MetricSection) -> String {
    let unit = match section.unit.as_str() {
        "" => String::new(),
        unit => format!(" in {unit}"),
    };
    let gate = if section.gated { ", gated" } else { "" };
    one_line(&format!("{}{unit}, {}{gate}", section.name, section.better))
}

/// What may be left out of a table, in the order in which it is left out.
const LAYOUTS: [&[Column]; 3] = [
    &[
        Column::Cell,
        Column::Arm,
        Column::Rounds,
        Column::Value,
        Column::Change,
        Column::Null,
        Column::Detectable,
        Column::Verdict,
    ],
    &[
        Column::Cell,
        Column::Arm,
        Column::Rounds,
        Column::Value,
        Column::Change,
        Column::Verdict,
    ],
    &[
        Column::Cell,
        Column::Arm,
        Column::Median,
        Column::Change,
        Column::Verdict,
    ],
];

#[derive(Clone, Copy)]
enum Column {
    Cell,
    Arm,
    Rounds,
    Value,
    Median,
    Change,
    Null,
    Detectable,
    Verdict,
}

impl Column {
    fn heading(self) -> &'static str {
        match self {
            Column::Cell => "cell",
            Column::Arm => "arm",
            Column::Rounds => "n",
            Column::Value => "median (min..max)",
            Column::Median => "median",
            Column::Change => "change [interval]",
            Column::Null => "null",
            Column::Detectable => "detectable",
            Column::Verdict => "verdict",
        }
    }

    fn is_number(self) -> bool {
        !matches!(self, Column::Cell | Column::Arm | Column::Verdict)
    }

    fn text(self, row: &Row) -> String {
        let text = match self {
            Column::Cell if !row.first => "",
            Column::Cell => &row.cell,
            Column::Arm => &row.arm,
            Column::Rounds => return row.rounds.to_string(),
            Column::Value => &row.value,
            Column::Median => row.value.split(" (").next().unwrap_or_default(),
            Column::Change => &row.change,
            Column::Null => &row.null,
            Column::Detectable => &row.detectable,
            Column::Verdict => row.verdict,
        };
        one_line(text)
    }
}

/// The fullest layout that fits; the last one is wrapped where even that is too wide.
fn metric_table(section: &MetricSection, width: u16, colours: bool) -> String {
    let fits = |columns: &[Column]| {
        let table = build(section, columns, false);
        let content: usize = table
            .column_max_content_widths()
            .iter()
            .map(|width| usize::from(*width))
            .sum();
        // Each column has a blank on both sides and a line; one more line closes the row.
        content + 3 * columns.len() < usize::from(width)
    };
    let last = LAYOUTS[LAYOUTS.len() - 1];
    let columns = LAYOUTS
        .into_iter()
        .find(|columns| fits(columns))
        .unwrap_or(last);
    let mut table = build(section, columns, colours);
    table
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(width);
    table.trim_fmt()
}

fn build(section: &MetricSection, columns: &[Column], colours: bool) -> Table {
    let mut table = Table::new();
    table
        .load_style(UTF8_FULL_CONDENSED)
        .force_no_tty()
        .set_header(columns.iter().map(|column| column.heading()));
    if colours {
        table.enforce_styling();
    }
    for row in &section.rows {
        table.add_row(columns.iter().map(|column| cell(*column, row)));
    }
    for (index, column) in columns.iter().enumerate() {
        if let Some(shown) = table.column_mut(index).filter(|_| column.is_number()) {
            shown.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn cell(column: Column, row: &Row) -> Cell {
    let cell = Cell::new(column.text(row));
    match (column, row.tone) {
        (Column::Verdict, Some(tone)) => cell.fg(colour(tone)).add_attribute(Attribute::Bold),
        _ => cell,
    }
}

/// Blue, yellow and red, told apart by every kind of colour vision.
fn colour(tone: Tone) -> Color {
    match tone {
        Tone::Bad => Color::Red,
        Tone::Good => Color::Blue,
        Tone::Open => Color::Yellow,
    }
}

fn unused(counts: &ArmCounts) -> String {
    let kinds = [
        (counts.rejected, "rejected"),
        (counts.failed, "failed"),
        (counts.timed_out, "timed out"),
        (counts.invalid, "invalid"),
    ];
    let parts: Vec<String> = kinds
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    parts.join(", ")
}
