//! Typed access to the keys of a GGUF file, with errors that name file, key, expected and got.

use super::error::ConvertError;
use crate::weights::gguf::{GgufFile, ListRange, Value};

/// The largest count a key may hold: products of two stay far from overflow.
const MAX_COUNT: u64 = 1 << 30;

/// Keys of `file`; those of the architecture are named without its prefix.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keys<'a> {
    pub(super) file: &'a GgufFile,
    prefix: &'a str,
}

impl<'a> Keys<'a> {
    pub(super) fn new(file: &'a GgufFile, prefix: &'a str) -> Self {
        Self { file, prefix }
    }

    /// The key below the architecture's name.
    pub(super) fn own(&self, key: &str) -> String {
        format!("{}.{key}", self.prefix)
    }

    pub(super) fn wrong(&self, key: &str, expected: &str, got: Option<&Value>) -> ConvertError {
        ConvertError::Key {
            path: self.file.path().to_owned(),
            key: key.to_owned(),
            expected: expected.to_owned(),
            got: got.map_or_else(|| "nothing".to_owned(), describe),
        }
    }

    pub(super) fn optional_count(&self, key: &str) -> Result<Option<usize>, ConvertError> {
        let Some(value) = self.file.value(key) else {
            return Ok(None);
        };
        let number = match *value {
            Value::Unsigned(number) => Some(number),
            Value::Signed(number) => u64::try_from(number).ok(),
            _ => None,
        };
        number
            .filter(|number| *number <= MAX_COUNT)
            .map(|number| Some(number as usize))
            .ok_or_else(|| self.wrong(key, "a whole number up to 2^30", Some(value)))
    }

    /// A count of at least one.
    pub(super) fn count(&self, key: &str) -> Result<usize, ConvertError> {
        self.optional_count(key)?
            .filter(|count| *count > 0)
            .ok_or_else(|| self.wrong(key, "a whole number from 1 up", self.file.value(key)))
    }

    pub(super) fn optional_number(&self, key: &str) -> Result<Option<f64>, ConvertError> {
        match self.file.value(key) {
            None => Ok(None),
            Some(Value::Float(number)) if number.is_finite() => Ok(Some(shortest(*number))),
            Some(other) => Err(self.wrong(key, "a finite number", Some(other))),
        }
    }

    pub(super) fn number(&self, key: &str) -> Result<f64, ConvertError> {
        self.optional_number(key)?
            .filter(|number| *number > 0.0)
            .ok_or_else(|| self.wrong(key, "a number above zero", self.file.value(key)))
    }

    pub(super) fn optional_text(&self, key: &str) -> Result<Option<&'a str>, ConvertError> {
        match self.file.value(key) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(key, "a text", Some(other))),
        }
    }

    pub(super) fn text(&self, key: &str) -> Result<&'a str, ConvertError> {
        self.optional_text(key)?
            .ok_or_else(|| self.wrong(key, "a text", None))
    }

    pub(super) fn boolean_or(&self, key: &str, default: bool) -> Result<bool, ConvertError> {
        match self.file.value(key) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(self.wrong(key, "true or false", Some(other))),
        }
    }

    /// A list through `read`, one of [`ListRange`]'s readers.
    pub(super) fn list<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl FnOnce(ListRange, &'a [u8]) -> Option<T>,
    ) -> Result<T, ConvertError> {
        let value = self.file.value(key);
        let list = match value {
            Some(Value::List(range)) => read(*range, self.file.file_bytes()),
            _ => None,
        };
        list.ok_or_else(|| self.wrong(key, expected, value))
    }
}

/// The shortest decimal that is the same float32: 1e-5 instead of 9.999999747378752e-6.
fn shortest(number: f64) -> f64 {
    let narrow = number as f32;
    if f64::from(narrow) != number {
        return number;
    }
    narrow.to_string().parse().unwrap_or(number)
}

fn describe(value: &Value) -> String {
    let text = match value {
        Value::List(range) => format!("a list of {}", range.count),
        other => format!("{other:?}"),
    };
    text.chars().take(60).collect()
}
