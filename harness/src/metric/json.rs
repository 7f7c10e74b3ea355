//! JSON on standard output: finding the document and the fields in it.

use serde_json::Value;

use crate::experiment::diagnostic::printable;

/// Output in which there is no JSON, or not the number that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// Nothing was printed.
    #[error("expected JSON on standard output, got no output")]
    Empty,
    /// Neither the whole output nor its last line is JSON.
    #[error("expected JSON on standard output (all of it or its last line), got `{shown}` ({why})")]
    NotJson {
        /// The last line, cut.
        shown: String,
        /// What the parser says about it.
        why: String,
    },
    /// The document has no such field.
    #[error("expected the field `{field}`, got {}", fields(.known))]
    Missing {
        /// The dotted path.
        field: String,
        /// The document's own fields.
        known: Vec<String>,
    },
    /// The field is no number.
    #[error("expected a number in `{field}`, got {got}")]
    NotANumber {
        /// The dotted path.
        field: String,
        /// What stands there.
        got: String,
    },
}

fn fields(known: &[String]) -> String {
    const SHOWN: usize = 12;
    if known.is_empty() {
        return "a document without fields".into();
    }
    let mut names: Vec<String> = known.iter().take(SHOWN).map(|k| printable(k)).collect();
    if known.len() > SHOWN {
        names.push("…".into());
    }
    format!("the fields {}", names.join(", "))
}

/// The document of an attempt: all of its standard output, or its last line that
/// is not blank. A program may thus print its progress before one line of JSON.
///
/// # Errors
/// No output, or no JSON in either place. `NaN` and `Infinity` are not JSON.
pub fn document(stdout: &str) -> Result<Value, JsonError> {
    let whole = stdout.trim();
    if whole.is_empty() {
        return Err(JsonError::Empty);
    }
    let whole_error = match serde_json::from_str(whole) {
        Ok(document) => return Ok(document),
        Err(error) => error,
    };
    let last = whole.lines().next_back().unwrap_or(whole).trim();
    serde_json::from_str(last).map_err(|error| {
        // A pretty-printed document broken in the middle is told better by the whole.
        let broken_document = whole.starts_with(['{', '[']) && last.len() < whole.len();
        if broken_document {
            not_json(whole, &whole_error)
        } else {
            not_json(last, &error)
        }
    })
}

fn not_json(text: &str, error: &serde_json::Error) -> JsonError {
    JsonError::NotJson {
        shown: printable(text),
        why: error.to_string(),
    }
}

/// The value at a dotted path: keys of objects, indices (from 0) of arrays. A key
/// that itself contains dots is found before it is split.
#[must_use]
pub fn field<'a>(document: &'a Value, path: &str) -> Option<&'a Value> {
    if let Some(found) = step(document, path) {
        return Some(found);
    }
    path.match_indices('.').find_map(|(dot, _)| {
        let inner = step(document, &path[..dot])?;
        field(inner, &path[dot + 1..])
    })
}

fn step<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    match value {
        Value::Object(map) => map.get(key),
        Value::Array(list) => list.get(key.parse::<usize>().ok()?),
        _ => None,
    }
}

/// The value at `path`, or an error that lists what there is.
///
/// # Errors
/// [`JsonError::Missing`].
pub fn required<'a>(document: &'a Value, path: &str) -> Result<&'a Value, JsonError> {
    field(document, path).ok_or_else(|| JsonError::Missing {
        field: path.to_owned(),
        known: document
            .as_object()
            .map(|map| map.keys().cloned().collect())
            .unwrap_or_default(),
    })
}

/// The number at `path`.
///
/// # Errors
/// No such field, or it is no number.
pub fn number(document: &Value, path: &str) -> Result<f64, JsonError> {
    let value = required(document, path)?;
    value.as_f64().ok_or_else(|| JsonError::NotANumber {
        field: path.to_owned(),
        got: shown(value),
    })
}

/// A value in a message: cut, on one line, text in its quotes.
#[must_use]
pub fn shown(value: &Value) -> String {
    printable(&value.to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_descends_objects_and_lists_and_tries_whole_keys_first() {
        let document = serde_json::json!({
            "a": {"b": [10, {"c": 11}]},
            "a.b": 12,
            "d.e": {"f.g": 13},
        });
        let at = |path| field(&document, path).and_then(Value::as_i64);
        assert_eq!(at("a.b.0"), Some(10));
        assert_eq!(at("a.b.1.c"), Some(11));
        assert_eq!(at("a.b"), Some(12));
        assert_eq!(at("d.e.f.g"), Some(13));
        assert_eq!(at("a.b.2"), None);
        assert_eq!(at("a.b.-1"), None);
    }

    #[test]
    fn a_missing_field_lists_what_there_is() {
        let document = serde_json::json!({"tok_s": 1, "n": 2});
        assert_eq!(
            number(&document, "toks").unwrap_err().to_string(),
            "expected the field `toks`, got the fields tok_s, n"
        );
    }

    proptest! {
        #[test]
        fn lines_before_the_document_do_not_matter(
            noise in prop::collection::vec("\\PC{0,20}", 0..4),
            number in any::<i64>(),
            blank in "[ \n\r\t]{0,3}",
        ) {
            let stdout = format!("{}\n{{\"x\": {number}}}{blank}", noise.join("\n"));
            let read = document(&stdout).unwrap();
            prop_assert_eq!(field(&read, "x"), Some(&Value::from(number)));
        }

        #[test]
        fn any_output_is_read_or_refused_in_one_line(stdout in "\\PC{0,80}|[\\[\\]{}:,\"0-9.\n-]{0,40}") {
            if let Err(error) = document(&stdout) {
                prop_assert_eq!(error.to_string().lines().count(), 1);
            }
        }
    }
}
