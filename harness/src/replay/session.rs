//! From the rows of a sheet to complete rounds: which attempt may be used, which belong
//! together, and what is left out and why. Pure.
//!
//! A row whose status is not one of the used ones is refused: its numbers are never read.
//! A round counts when every arm of its cell has exactly one used row in it.

use indexmap::IndexMap;
use serde::Serialize;

use super::mapping::{Columns, Mapping};
use super::sheet::{Row, Sheet};
use crate::analysis::model::ArmCounts;
use crate::experiment::diagnostic::{Diagnostic, Diagnostics, Position, names, printable};
use crate::verdict::rule::{ArmCopy, CellData};

/// The rows of a sheet, paired.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    /// One per (cell, metric), cells in order of appearance.
    pub data: Vec<CellData>,
    /// What became of each arm's rows.
    pub counts: Vec<ArmCounts>,
    /// Rows that were not used.
    pub refused: Vec<RefusedRow>,
    /// Things the reader must know.
    pub notes: Vec<String>,
}

/// A row that was not used. It has no value on purpose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RefusedRow {
    /// 1-based line of the file.
    pub line: usize,
    /// Cell id.
    pub cell: String,
    /// The round as the file calls it.
    pub round: String,
    /// Arm name.
    pub arm: String,
    /// Why.
    pub reason: String,
}

/// Pairs the rows of `sheet` as `mapping` says.
///
/// # Errors
/// Every fault of the file with its place: missing columns, fields that are no numbers,
/// two used rows where one belongs, arms that never appear.
pub fn pair(sheet: &Sheet, mapping: &Mapping) -> Result<Session, Diagnostics> {
    let places = Places::find(sheet, mapping).map_err(|faults| sheet.refuse(faults))?;
    let table = Table::read(sheet, mapping, &places).map_err(|faults| sheet.refuse(faults))?;
    let arms = arms(sheet, mapping, &table).map_err(|fault| sheet.refuse(vec![fault]))?;
    Ok(session(mapping, table, arms))
}

/// Where the mapped columns stand.
struct Places {
    cell: Vec<usize>,
    key: Key,
    status: Option<usize>,
    metrics: Vec<usize>,
}

/// What tells arm and round.
enum Key {
    Columns {
        arm: usize,
        round: usize,
    },
    Label {
        column: usize,
        pattern: regex::Regex,
    },
}

impl Places {
    fn find(sheet: &Sheet, mapping: &Mapping) -> Result<Places, Vec<Diagnostic>> {
        let mut faults = Vec::new();
        let mut find = |name: &str, what: &str| match sheet.column(name, what) {
            Ok(column) => column,
            Err(fault) => {
                faults.push(fault);
                0
            }
        };
        let columns = &mapping.columns;
        let places = Places {
            cell: columns
                .cell
                .iter()
                .map(|name| find(name, "columns.cell"))
                .collect(),
            key: key(columns, &mut find),
            status: columns
                .status
                .as_ref()
                .map(|status| find(&status.column, "columns.status")),
            metrics: mapping
                .metrics
                .iter()
                .map(|(name, metric)| {
                    find(
                        metric.column.as_deref().unwrap_or(name),
                        &format!("metrics.{name}"),
                    )
                })
                .collect(),
        };
        if faults.is_empty() {
            Ok(places)
        } else {
            Err(faults)
        }
    }

    fn cell(&self, row: &Row) -> String {
        if self.cell.is_empty() {
            return "all".into();
        }
        let values: Vec<&str> = self.cell.iter().map(|column| row.field(*column)).collect();
        values.join(".")
    }

    /// Arm and round of a row.
    fn arm_and_round(&self, sheet: &Sheet, row: &Row) -> Result<(String, String), Diagnostic> {
        match &self.key {
            Key::Columns { arm, round } => {
                for column in [*arm, *round] {
                    if row.field(column).is_empty() {
                        let got = "an empty field".to_owned();
                        return Err(sheet.field_fault(row, column, "a name", got, None));
                    }
                }
                Ok((row.field(*arm).to_owned(), row.field(*round).to_owned()))
            }
            Key::Label { column, pattern } => {
                let text = row.field(*column);
                let whole = |found: &regex::Captures<'_>| found[0].len() == text.len();
                let found = pattern.captures(text).filter(whole);
                let group = |name: &str| Some(found.as_ref()?.name(name)?.as_str().to_owned());
                group("arm").zip(group("round")).ok_or_else(|| {
                    let expected = format!("text that matches `{pattern}`");
                    let got = format!("`{}`", printable(text));
                    sheet.field_fault(row, *column, &expected, got, None)
                })
            }
        }
    }
}

fn key(columns: &Columns, find: &mut impl FnMut(&str, &str) -> usize) -> Key {
    let label = columns.label.as_ref();
    let compiled = label.and_then(|label| {
        let pattern = regex::Regex::new(&label.pattern).ok()?;
        Some((label, pattern))
    });
    match compiled {
        Some((label, pattern)) => Key::Label {
            column: find(&label.column, "columns.label"),
            pattern,
        },
        None => Key::Columns {
            arm: find(&columns.arm, "columns.arm"),
            round: find(&columns.round, "columns.round"),
        },
    }
}

/// A used row: its line, and one value per metric.
struct Used {
    line: usize,
    values: Vec<f64>,
}

/// One round of one cell.
#[derive(Default)]
struct Round {
    used: IndexMap<String, Used>,
    /// Arms that also have a refused row.
    refused: Vec<String>,
}

/// All rows by cell and round, in order of appearance.
struct Table {
    cells: IndexMap<String, IndexMap<String, Round>>,
    /// Arms in order of appearance.
    seen: Vec<String>,
    refused: Vec<RefusedRow>,
    /// Rows of arms that the mapping does not list, by arm.
    ignored: IndexMap<String, usize>,
}

impl Table {
    fn read(sheet: &Sheet, mapping: &Mapping, places: &Places) -> Result<Table, Vec<Diagnostic>> {
        let mut table = Table {
            cells: IndexMap::new(),
            seen: Vec::new(),
            refused: Vec::new(),
            ignored: IndexMap::new(),
        };
        let mut faults = Vec::new();
        for row in &sheet.rows {
            if let Err(mut found) = table.add(sheet, mapping, places, row) {
                faults.append(&mut found);
            }
        }
        if faults.is_empty() {
            Ok(table)
        } else {
            Err(faults)
        }
    }

    fn add(
        &mut self,
        sheet: &Sheet,
        mapping: &Mapping,
        places: &Places,
        row: &Row,
    ) -> Result<(), Vec<Diagnostic>> {
        let (arm, name) = places
            .arm_and_round(sheet, row)
            .map_err(|fault| vec![fault])?;
        if !mapping.arms.is_empty() && !mapping.arms.contains(&arm) {
            *self.ignored.entry(arm).or_default() += 1;
            return Ok(());
        }
        let cell = places.cell(row);
        if !self.seen.contains(&arm) {
            self.seen.push(arm.clone());
        }
        let round = self.cells.entry(cell.clone()).or_default();
        let round = round.entry(name.clone()).or_default();
        if let Some(reason) = refusal(sheet, mapping, places, row) {
            round.refused.push(arm.clone());
            self.refused.push(RefusedRow {
                line: row.line,
                cell,
                round: name,
                arm,
                reason,
            });
            return Ok(());
        }
        if let Some(first) = round.used.get(&arm) {
            let expected = format!("one used row per arm, round and cell (line {})", first.line);
            let got = format!(
                "a second one of `{}` in round {}",
                printable(&arm),
                printable(&name)
            );
            let hint = "name the columns that tell workloads apart under `columns.cell`, or the \
                        column that tells used rows from refused ones under `columns.status`";
            return Err(vec![sheet.field_fault(
                row,
                0,
                &expected,
                got,
                Some(hint.into()),
            )]);
        }
        let values = places
            .metrics
            .iter()
            .map(|column| sheet.number(row, *column));
        let (values, faults): (Vec<_>, Vec<_>) = values.partition(Result::is_ok);
        if !faults.is_empty() {
            return Err(faults.into_iter().filter_map(Result::err).collect());
        }
        let values = values.into_iter().filter_map(Result::ok).collect();
        round.used.insert(
            arm,
            Used {
                line: row.line,
                values,
            },
        );
        Ok(())
    }
}

/// Why a row must not be used.
fn refusal(sheet: &Sheet, mapping: &Mapping, places: &Places, row: &Row) -> Option<String> {
    let status = mapping.columns.status.as_ref()?;
    let got = row.field(places.status?);
    if status.used.iter().any(|used| used == got) {
        return None;
    }
    let column = sheet.header.get(places.status?)?;
    Some(format!(
        "{column} is `{}`, only {} is used",
        printable(got),
        names(status.used.iter().map(String::as_str))
    ))
}

/// The arms in reading order with what they repeat.
fn arms(sheet: &Sheet, mapping: &Mapping, table: &Table) -> Result<Vec<ArmCopy>, Diagnostic> {
    let order = if mapping.arms.is_empty() {
        &table.seen
    } else {
        &mapping.arms
    };
    let wanted = mapping.arms.iter().chain([&mapping.base]);
    let nulls = mapping.nulls.iter().flatten();
    for name in wanted.chain(nulls.flat_map(|(null, of)| [null, of])) {
        if !table.seen.contains(name) {
            let expected = format!("rows of the arm `{}`", printable(name));
            let got = format!("rows of {}", names(table.seen.iter().map(String::as_str)));
            let hint = "name the base, the arms and the null arms in the mapping";
            return Err(Diagnostic {
                position: Position::START,
                key: sheet.header.first().cloned().unwrap_or_default(),
                expected,
                got,
                hint: Some(hint.into()),
            });
        }
    }
    let mut arms: Vec<ArmCopy> = Vec::new();
    for name in order {
        let null_of = repeats(mapping, name, order);
        arms.push(ArmCopy {
            name: name.clone(),
            treatment: 0,
            declared: null_of.is_none(),
            injected: None,
            null_of,
        });
    }
    let own = |name: &str| order.iter().position(|arm| arm == name).unwrap_or_default();
    for arm in &mut arms {
        arm.treatment = own(arm.null_of.as_deref().unwrap_or(&arm.name));
    }
    Ok(arms)
}

/// The arm that `name` repeats: what the mapping says, else `<arm>-null` and `<arm>-null-2`.
fn repeats(mapping: &Mapping, name: &str, order: &[String]) -> Option<String> {
    if let Some(nulls) = &mapping.nulls {
        return nulls.get(name).cloned();
    }
    let (of, number) = name.split_once("-null")?;
    let numbered = number.is_empty()
        || number
            .strip_prefix('-')
            .is_some_and(|digits| digits.parse::<u32>().is_ok());
    (numbered && order.iter().any(|arm| arm == of)).then(|| of.to_owned())
}

fn session(mapping: &Mapping, table: Table, arms: Vec<ArmCopy>) -> Session {
    let base = arms
        .iter()
        .position(|arm| arm.name == mapping.base)
        .unwrap_or_default();
    let mut notes = Vec::new();
    if arms.iter().all(|arm| arm.null_of.is_none()) {
        notes.push(
            "this session has no null arm: what two runs of one program differ by was not \
             measured in it, and a band from another session is no substitute"
                .to_owned(),
        );
    }
    for (arm, rows) in &table.ignored {
        notes.push(format!(
            "{rows} rows of arm {arm} are not part of this comparison"
        ));
    }
    let mut data = Vec::new();
    for (cell, rounds) in &table.cells {
        let absent: Vec<usize> = (0..arms.len())
            .filter(|arm| {
                rounds
                    .values()
                    .all(|round| !round.used.contains_key(&arms[*arm].name))
            })
            .collect();
        let complete = complete(cell, rounds, &arms, &absent, &mut notes);
        for (index, (name, metric)) in mapping.metrics.iter().enumerate() {
            let value = |round: &Round, arm: &ArmCopy| {
                round
                    .used
                    .get(&arm.name)
                    .map_or(f64::NAN, |used| used.values[index])
            };
            data.push(CellData {
                cell: cell.clone(),
                metric: name.clone(),
                unit: metric.unit_of(name).to_owned(),
                better: metric.better,
                gated: metric.gate,
                arms: arms.clone(),
                base,
                rounds: complete
                    .iter()
                    .map(|round| arms.iter().map(|arm| value(round, arm)).collect())
                    .collect(),
                slots: vec![(0..arms.len()).collect(); complete.len()],
                // In which order the attempts of a round ran is not known.
                balanced: false,
                invalid: absent
                    .iter()
                    .map(|arm| (*arm, "it has no used row in this cell".to_owned()))
                    .collect(),
            });
        }
    }
    Session {
        data,
        counts: counts(&table, &arms),
        refused: table.refused,
        notes,
    }
}

/// The rounds in which every arm that is in the cell has a used row.
fn complete<'a>(
    cell: &str,
    rounds: &'a IndexMap<String, Round>,
    arms: &[ArmCopy],
    absent: &[usize],
    notes: &mut Vec<String>,
) -> Vec<&'a Round> {
    let mut complete = Vec::new();
    for (name, round) in rounds {
        let missing: Vec<&str> = arms
            .iter()
            .enumerate()
            .filter(|(index, arm)| !absent.contains(index) && !round.used.contains_key(&arm.name))
            .map(|(_, arm)| arm.name.as_str())
            .collect();
        if !missing.is_empty() {
            let missing = names(missing.into_iter());
            notes.push(format!(
                "round {name} of {cell} is incomplete and not used: no used row of {missing}"
            ));
            continue;
        }
        for arm in &round.refused {
            notes.push(format!(
                "round {name} of {cell}: `{arm}` was run again alone after a refused attempt, \
                 later than the arms it is compared with"
            ));
        }
        complete.push(round);
    }
    complete
}

fn counts(table: &Table, arms: &[ArmCopy]) -> Vec<ArmCounts> {
    let rounds = || table.cells.values().flat_map(IndexMap::values);
    let count = |name: &String| ArmCounts {
        arm: name.clone(),
        ok: whole(
            rounds()
                .filter(|round| round.used.contains_key(name))
                .count(),
        ),
        rejected: whole(table.refused.iter().filter(|row| row.arm == *name).count()),
        ..ArmCounts::default()
    };
    arms.iter().map(|arm| count(&arm.name)).collect()
}

fn whole(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
