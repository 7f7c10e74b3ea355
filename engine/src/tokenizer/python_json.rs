//! `tojson` as chat templates expect it: what Python's `json.dumps` writes.
//!
//! minijinja's own filter escapes for HTML and leaves out the blanks; a model was trained on
//! neither.

use std::io;

use minijinja::value::{Kwargs, Value};
use minijinja::{Error, ErrorKind};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

/// Most blanks that `indent` may ask for.
const MOST_INDENT: usize = 16;

/// The filter `tojson(indent=…)`.
pub(super) fn tojson(value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let mut out = Vec::new();
    let written = match indent {
        Some(width) => {
            let blanks = vec![b' '; width.min(MOST_INDENT)];
            let formatter = PrettyFormatter::with_indent(&blanks);
            value.serialize(&mut Serializer::with_formatter(&mut out, formatter))
        }
        None => value.serialize(&mut Serializer::with_formatter(&mut out, Blanks)),
    };
    let failed = |problem: String| Error::new(ErrorKind::BadSerialization, problem);
    written.map_err(|error| failed(error.to_string()))?;
    String::from_utf8(out).map_err(|error| failed(error.to_string()))
}

/// `, ` between elements, `: ` after keys.
struct Blanks;

impl Blanks {
    fn separate<W: ?Sized + io::Write>(writer: &mut W, first: bool) -> io::Result<()> {
        if first {
            Ok(())
        } else {
            writer.write_all(b", ")
        }
    }
}

impl Formatter for Blanks {
    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        Self::separate(writer, first)
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        Self::separate(writer, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}
