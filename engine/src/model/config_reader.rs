//! Typed access to the keys of a JSON object, with errors that name file, key, expected and got.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::error::LoadError;

/// The largest count that any key may hold; it keeps products of two of them far from overflow.
const MAX_COUNT: u64 = 1 << 30;

/// An object of the file, with its dotted path for messages.
pub(super) struct Reader<'a> {
    pub(super) path: PathBuf,
    at: String,
    pub(super) map: &'a Map<String, Value>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(path: &Path, value: &'a Value) -> Result<Self, LoadError> {
        let map = value.as_object().ok_or_else(|| LoadError::ConfigKey {
            path: path.to_owned(),
            key: "(whole file)".to_owned(),
            expected: "an object".to_owned(),
            got: describe(value),
        })?;
        Ok(Self {
            path: path.to_owned(),
            at: String::new(),
            map,
        })
    }

    pub(super) fn dotted(&self, key: &str) -> String {
        format!("{}{key}", self.at)
    }

    /// The value, where it is there and not null.
    pub(super) fn raw(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    pub(super) fn wrong(&self, key: &str, expected: &str, got: &Value) -> LoadError {
        LoadError::ConfigKey {
            path: self.path.clone(),
            key: self.dotted(key),
            expected: expected.to_owned(),
            got: describe(got),
        }
    }

    pub(super) fn need(&self, key: &str, expected: &str) -> Result<&'a Value, LoadError> {
        self.raw(key).ok_or_else(|| LoadError::ConfigKey {
            path: self.path.clone(),
            key: self.dotted(key),
            expected: expected.to_owned(),
            got: "nothing".to_owned(),
        })
    }

    pub(super) fn object(&self, key: &str) -> Result<Reader<'a>, LoadError> {
        let value = self.need(key, "an object")?;
        let map = value
            .as_object()
            .ok_or_else(|| self.wrong(key, "an object", value))?;
        Ok(Reader {
            path: self.path.clone(),
            at: format!("{}.", self.dotted(key)),
            map,
        })
    }

    pub(super) fn string(&self, key: &str) -> Result<String, LoadError> {
        let value = self.need(key, "a string")?;
        let text = value.as_str();
        text.map(str::to_owned)
            .ok_or_else(|| self.wrong(key, "a string", value))
    }

    pub(super) fn count(&self, key: &str) -> Result<usize, LoadError> {
        self.count_up_to(key, MAX_COUNT)
    }

    pub(super) fn count_up_to(&self, key: &str, most: u64) -> Result<usize, LoadError> {
        let expected = format!("a whole number from 1 to {most}");
        let value = self.need(key, &expected)?;
        value
            .as_u64()
            .filter(|number| (1..=most).contains(number))
            .map(|number| number as usize)
            .ok_or_else(|| self.wrong(key, &expected, value))
    }

    pub(super) fn optional_count(&self, key: &str) -> Result<Option<usize>, LoadError> {
        self.raw(key).map(|_| self.count(key)).transpose()
    }

    pub(super) fn count_or(&self, key: &str, default: usize) -> Result<usize, LoadError> {
        Ok(self.optional_count(key)?.unwrap_or(default))
    }

    pub(super) fn number(&self, key: &str) -> Result<f32, LoadError> {
        let value = self.need(key, "a number above zero")?;
        value
            .as_f64()
            .map(|number| number as f32)
            .filter(|number| *number > 0.0 && number.is_finite())
            .ok_or_else(|| self.wrong(key, "a number above zero", value))
    }

    pub(super) fn number_or(&self, key: &str, default: f32) -> Result<f32, LoadError> {
        match self.raw(key) {
            Some(_) => self.number(key),
            None => Ok(default),
        }
    }

    pub(super) fn boolean(&self, key: &str) -> Result<Option<bool>, LoadError> {
        self.raw(key)
            .map(|value| {
                value
                    .as_bool()
                    .ok_or_else(|| self.wrong(key, "true or false", value))
            })
            .transpose()
    }

    /// `eos_token_id`: one id or a list.
    pub(super) fn end_tokens(&self) -> Result<Option<Vec<u32>>, LoadError> {
        let Some(value) = self.raw("eos_token_id") else {
            return Ok(None);
        };
        let list = match value {
            Value::Array(list) => list.as_slice(),
            single => std::slice::from_ref(single),
        };
        list.iter()
            .map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok()))
            .collect::<Option<Vec<u32>>>()
            .map(Some)
            .ok_or_else(|| self.wrong("eos_token_id", "a token id or a list of them", value))
    }
}

/// A value as an error shows it: short, whatever the file holds.
fn describe(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 60 {
        return text;
    }
    let start: String = text.chars().take(57).collect();
    format!("{start}...")
}
