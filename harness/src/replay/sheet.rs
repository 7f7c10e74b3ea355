//! CSV as rows of named fields that know where they stand in the file.
//!
//! The csv crate reads (RFC 4180: quotes, separators and line breaks inside them); this
//! file finds the place of a field again, so that an error names line and column.

use std::path::{Path, PathBuf};

use crate::experiment::diagnostic::{
    Diagnostic, Diagnostics, Position, did_you_mean, names, printable,
};

/// Most bytes of one file: a million attempts are no table that anybody compares.
pub const MAX_BYTES: usize = 64 << 20;

/// More errors than this help nobody.
const MAX_ERRORS: usize = 20;

/// A file with a header.
#[derive(Debug, Clone, PartialEq)]
pub struct Sheet {
    /// As messages call the file.
    pub path: PathBuf,
    /// Column names in order, without blanks around them.
    pub header: Vec<String>,
    /// One per attempt.
    pub rows: Vec<Row>,
    text: String,
}

/// One line of the file, as many fields as the header has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// 1-based line where it begins.
    pub line: usize,
    fields: Vec<String>,
    byte: usize,
}

impl Row {
    /// The field of a column, without blanks around it.
    #[must_use]
    pub fn field(&self, column: usize) -> &str {
        self.fields.get(column).map_or("", |field| field.trim())
    }
}

impl Sheet {
    /// Reads `bytes`, the content of a file that is called `path` in messages.
    ///
    /// # Errors
    /// Every fault of the file: not UTF-8, no header, a column without or with a repeated
    /// name, a row with another number of fields, no rows.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Sheet, Diagnostics> {
        let whole = |expected: &str, got: String| {
            Diagnostics::new(path, vec![fault(Position::START, "", expected, got, None)])
        };
        if bytes.len() > MAX_BYTES {
            let expected = format!("at most {MAX_BYTES} bytes");
            return Err(whole(&expected, format!("{} bytes", bytes.len())));
        }
        let text = std::str::from_utf8(bytes)
            .map_err(|error| whole("UTF-8 text", format!("other bytes after {error}")))?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text).to_owned();
        let mut reader = csv::ReaderBuilder::new()
            .flexible(true)
            .has_headers(false)
            .from_reader(text.as_bytes());
        let mut rows = Vec::new();
        let mut place = Place::default();
        for record in reader.records() {
            let record = record.map_err(|error| whole("CSV", printable(&error.to_string())))?;
            let byte = record.position().map_or(0, csv::Position::byte);
            place.advance(&text, usize::try_from(byte).unwrap_or(text.len()));
            rows.push(Row {
                line: place.line,
                byte: place.byte,
                fields: record.iter().map(str::to_owned).collect(),
            });
        }
        if rows.is_empty() {
            return Err(whole(
                "a header and one row per attempt",
                "an empty file".into(),
            ));
        }
        let header = rows.remove(0);
        let sheet = Sheet {
            path: path.to_owned(),
            header: (0..header.fields.len())
                .map(|column| header.field(column).to_owned())
                .collect(),
            rows,
            text,
        };
        let faults = sheet.shape_faults(&header);
        if faults.is_empty() {
            Ok(sheet)
        } else {
            Err(Diagnostics::new(path, faults))
        }
    }

    fn shape_faults(&self, header: &Row) -> Vec<Diagnostic> {
        let mut faults = Vec::new();
        for (column, name) in self.header.iter().enumerate() {
            let first = self.header.iter().position(|other| other == name);
            let got = match name.as_str() {
                "" => "an empty name".to_owned(),
                name if first != Some(column) => format!("`{}` again", printable(name)),
                _ => continue,
            };
            let at = self.position(header, column);
            faults.push(fault(at, "", "a column name of its own", got, None));
        }
        if self.rows.is_empty() {
            let got = "a header alone".to_owned();
            faults.push(fault(Position::START, "", "one row per attempt", got, None));
        }
        for row in &self.rows {
            if row.fields.len() != self.header.len() && faults.len() < MAX_ERRORS {
                let expected = format!("{} fields as in the header", self.header.len());
                let at = self.position(row, row.fields.len().min(self.header.len()));
                faults.push(fault(at, "", &expected, row.fields.len().to_string(), None));
            }
        }
        faults
    }

    /// The column of that name.
    ///
    /// # Errors
    /// One entry with the columns that there are.
    pub fn column(&self, name: &str, what: &str) -> Result<usize, Diagnostic> {
        let found = self.header.iter().position(|other| other == name);
        found.ok_or_else(|| {
            let columns = || self.header.iter().map(String::as_str);
            let hint = did_you_mean(name, columns());
            let got = format!("the columns {}", names(columns()));
            let expected = format!("a column `{}` ({what})", printable(name));
            fault(Position::START, "", &expected, got, hint)
        })
    }

    /// The number in a field.
    ///
    /// # Errors
    /// One entry with its place and column name.
    pub fn number(&self, row: &Row, column: usize) -> Result<f64, Diagnostic> {
        let field = row.field(column);
        match field.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(number),
            _ => {
                let got = match field {
                    "" => "an empty field".to_owned(),
                    other => format!("`{}`", printable(other)),
                };
                Err(self.field_fault(row, column, "a number", got, None))
            }
        }
    }

    /// A fault of one field.
    #[must_use]
    pub fn field_fault(
        &self,
        row: &Row,
        column: usize,
        expected: &str,
        got: String,
        hint: Option<String>,
    ) -> Diagnostic {
        let name = self.header.get(column).map_or("", String::as_str);
        fault(self.position(row, column), name, expected, got, hint)
    }

    /// All faults under this file's name, the first [`MAX_ERRORS`] of them.
    #[must_use]
    pub fn refuse(&self, mut faults: Vec<Diagnostic>) -> Diagnostics {
        faults.truncate(MAX_ERRORS);
        Diagnostics::new(&self.path, faults)
    }

    /// Where a field begins. Separators inside quotes separate nothing.
    fn position(&self, row: &Row, column: usize) -> Position {
        let text = self.text.get(row.byte..).unwrap_or_default();
        let mut at = Position {
            line: row.line,
            column: 1,
        };
        let (mut quoted, mut left) = (false, column);
        for character in text.chars() {
            if left == 0 || (character == '\n' && !quoted) {
                break;
            }
            match character {
                '"' => quoted = !quoted,
                ',' if !quoted => left -= 1,
                _ => {}
            }
            if character == '\n' {
                at.line += 1;
                at.column = 1;
            } else {
                at.column += 1;
            }
        }
        at
    }
}

/// A file that could not be read at all.
#[must_use]
pub fn unreadable(path: &Path, why: &str) -> Diagnostics {
    let entry = fault(Position::START, "", "a readable file", why.to_owned(), None);
    Diagnostics::new(path, vec![entry])
}

/// A byte of the text with its line, moved forward record by record.
#[derive(Debug)]
struct Place {
    byte: usize,
    line: usize,
}

impl Default for Place {
    fn default() -> Self {
        Place { byte: 0, line: 1 }
    }
}

impl Place {
    /// Moves to `byte`, then over the line breaks that the reader leaves before a record.
    fn advance(&mut self, text: &str, byte: usize) {
        let breaks = text.get(byte..).unwrap_or_default();
        let skipped = breaks.len() - breaks.trim_start_matches(['\r', '\n']).len();
        let byte = byte + skipped;
        let passed = text.get(self.byte..byte).unwrap_or_default();
        self.line += passed.matches('\n').count();
        self.byte = byte;
    }
}

fn fault(
    position: Position,
    key: &str,
    expected: &str,
    got: String,
    hint: Option<String>,
) -> Diagnostic {
    Diagnostic {
        position,
        key: key.to_owned(),
        expected: expected.to_owned(),
        got,
        hint,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sheet(text: &str) -> Result<Sheet, Diagnostics> {
        Sheet::parse(Path::new("a.csv"), text.as_bytes())
    }

    #[test]
    fn a_number_that_is_none_is_found_by_line_and_column() {
        for breaks in ["\n", "\r\n"] {
            let text = ["arm,note,v", "base,\"a, \"\"b\"\"\",1.5", "", "new,c,fast"].join(breaks);
            let sheet = sheet(&text).unwrap();
            assert_eq!(sheet.number(&sheet.rows[0], 2), Ok(1.5));
            let error = sheet.number(&sheet.rows[1], 2).unwrap_err();
            assert_eq!(error.to_string(), "4:7: v: expected a number, got `fast`");
            let quoted = sheet.field_fault(&sheet.rows[0], 2, "x", "y".into(), None);
            assert_eq!(
                quoted.position,
                Position {
                    line: 2,
                    column: 17
                }
            );
        }
    }

    #[test]
    fn rows_of_another_length_and_bad_headers_are_all_named() {
        let text = sheet("arm,v,arm\nbase,1\nnew,1,2,3\n")
            .unwrap_err()
            .to_string();
        assert_eq!(
            text,
            "a.csv:1:7: expected a column name of its own, got `arm` again\n\
             a.csv:2:7: expected 3 fields as in the header, got 2\n\
             a.csv:3:9: expected 3 fields as in the header, got 4"
        );
    }

    #[test]
    fn nothing_to_read_is_said() {
        for (text, got) in [("", "an empty file"), ("arm,v\n", "a header alone")] {
            let error = sheet(text).unwrap_err().to_string();
            assert!(error.contains(got), "{error}");
        }
        let error = Sheet::parse(Path::new("a.csv"), b"arm\n\xff\n").unwrap_err();
        assert!(error.to_string().contains("UTF-8"), "{error}");
    }

    #[test]
    fn a_column_that_is_not_there_shows_those_that_are() {
        let sheet = sheet("arm,decode_toks\nbase,1\n").unwrap();
        let error = sheet.column("decode_tok_s", "a metric").unwrap_err();
        assert_eq!(
            error.to_string(),
            "1:1: expected a column `decode_tok_s` (a metric), got the columns `arm`, \
             `decode_toks`; did you mean `decode_toks`?"
        );
    }

    #[test]
    fn infinite_and_empty_fields_are_no_numbers() {
        let sheet = sheet("v,w\ninf,\nNaN, 2 \n").unwrap();
        for (row, column) in [(0, 0), (0, 1), (1, 0)] {
            assert!(sheet.number(&sheet.rows[row], column).is_err());
        }
        assert_eq!(sheet.number(&sheet.rows[1], 1), Ok(2.0));
    }
}
