//! The report's tables for a terminal: the same numbers, fitted to its width.

use std::fmt::Write as _;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Table};

use super::escape::one_line;
use super::model::{ReportModel, VerdictLine};
use super::outcomes::CountLine;
use super::replay::ReplayModel;
use super::rows::Row;
use super::table::MetricSection;
use super::words::Tone;
use crate::analysis::model::ArmCounts;

/// One table per metric, what became of the attempts, notes, and the gate last.
///
/// `width` is the terminal's, in columns; `colours` asks for ANSI escapes.
#[must_use]
pub fn table(model: &ReportModel, width: u16, colours: bool) -> String {
    let mut out = String::new();
    for section in &model.metrics {
        push_section(&mut out, section, width, colours);
    }
    for CountLine { counts, .. } in &model.outcomes.counts {
        let unused = unused(counts);
        if !unused.is_empty() {
            let _ = writeln!(out, "{}: {unused}", one_line(&counts.arm));
        }
    }
    push_notes(&mut out, &model.notes);
    for line in &model.controls {
        let (cell, sentence) = (one_line(&line.cell), one_line(&line.sentence));
        let _ = writeln!(out, "{cell}: {sentence}");
    }
    for claim in &model.claims {
        let (cell, sentence) = (one_line(&claim.cell), one_line(&claim.sentence));
        let _ = writeln!(out, "claim {}: {cell}: {sentence}", claim.verdict);
    }
    push_answer(
        &mut out,
        &model.verdicts,
        (model.gate, &model.gate_sentence),
    );
    out
}

/// The same for measurements made elsewhere, with the named rules beside ours.
#[must_use]
pub fn replay_table(model: &ReplayModel, width: u16, colours: bool) -> String {
    let mut out = String::new();
    for section in &model.metrics {
        push_section(&mut out, section, width, colours);
    }
    for rule in &model.named {
        let mut table = Table::new();
        table
            .load_style(UTF8_FULL_CONDENSED)
            .force_no_tty()
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(width)
            .set_header([
                "cell",
                "candidate",
                "n",
                "change",
                "null",
                rule.name,
                "our rule",
            ]);
        for row in &rule.rows {
            let n = row.rounds.to_string();
            let columns: [&str; 7] = [
                &row.cell,
                &row.candidate,
                &n,
                &row.change,
                &row.null,
                row.outcome,
                row.ours,
            ];
            table.add_row(columns.map(one_line));
        }
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(out, "{}\n", table.trim_fmt());
    }
    for row in &model.refused {
        let _ = writeln!(
            out,
            "refused: line {}, round {} of {}, {}: {}",
            row.line,
            one_line(&row.round),
            one_line(&row.cell),
            one_line(&row.arm),
            one_line(&row.reason)
        );
    }
    push_notes(&mut out, &model.notes);
    push_notes(&mut out, &model.disagreements);
    push_answer(
        &mut out,
        &model.verdicts,
        (model.gate, &model.gate_sentence),
    );
    out
}

fn push_section(out: &mut String, section: &MetricSection, width: u16, colours: bool) {
    // Writing to a String cannot fail, here and below.
    let _ = writeln!(out, "{}", heading(section));
    let _ = writeln!(out, "{}", metric_table(section, width, colours));
    for line in &section.suite {
        let _ = writeln!(out, "{}", one_line(line));
    }
    push_notes(out, &section.disagreements);
    out.push('\n');
}

fn push_notes(out: &mut String, notes: &[String]) {
    for note in notes {
        let _ = writeln!(out, "note: {}", one_line(note));
    }
}

/// Every verdict, and the gate last.
fn push_answer(out: &mut String, verdicts: &[VerdictLine], (gate, sentence): (&str, &str)) {
    for line in verdicts {
        let (cell, sentence) = (one_line(&line.cell), one_line(&line.sentence));
        let _ = writeln!(out, "{cell}: {sentence}");
    }
    let _ = writeln!(out, "gate: {gate}. {}", one_line(sentence));
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
        Column::Claim,
    ],
    &[
        Column::Cell,
        Column::Arm,
        Column::Rounds,
        Column::Value,
        Column::Change,
        Column::Verdict,
        Column::Claim,
    ],
    &[
        Column::Cell,
        Column::Arm,
        Column::Median,
        Column::Change,
        Column::Verdict,
        Column::Claim,
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
    Claim,
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
            Column::Claim => "claim",
        }
    }

    fn is_number(self) -> bool {
        !matches!(
            self,
            Column::Cell | Column::Arm | Column::Verdict | Column::Claim
        )
    }

    fn text(self, row: &Row) -> String {
        let text = match self {
            Column::Cell if !row.first => "",
            Column::Cell => &row.cell,
            Column::Arm => &row.arm,
            Column::Rounds => return format!("{}{}", row.rounds, row.stage),
            Column::Value => &row.value,
            Column::Median => row.value.split(" (").next().unwrap_or_default(),
            Column::Change => &row.change,
            Column::Null => &row.null,
            Column::Detectable => &row.detectable,
            Column::Verdict => row.verdict,
            Column::Claim => &row.claim,
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
    let shown = |column: &Column| section.claimed || !matches!(column, Column::Claim);
    let layouts = LAYOUTS.map(|columns| columns.iter().copied().filter(shown).collect::<Vec<_>>());
    let columns = layouts
        .iter()
        .find(|columns| fits(columns))
        .or(layouts.last());
    let mut table = build(section, columns.map_or(&[], Vec::as_slice), colours);
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
