//! Checks a YAML tree against the JSON Schema of the experiment's types.
//!
//! The schema is generated from [`super::model`], so unknown keys, missing keys,
//! types, words and ranges follow the structs without being written twice. The
//! part of JSON Schema understood here is the part that schemars emits for them:
//! `$ref`, `type`, `const`, `enum`, `anyOf`, `oneOf`, `properties`, `required`,
//! `additionalProperties`, `items`, `minimum`, `format`.
//!
//! Beside the errors the check returns a repaired JSON value in which whatever
//! was wrong is replaced by a placeholder, so that checks across keys still run.

use serde_json::{Map, Value as Json};

use super::diagnostic::{did_you_mean, names, printable};
use super::key_path;
use super::report::Report;
use super::tree::{Entry, Node, Value};

/// Checks `root` against `schema` and returns it as repaired JSON.
pub(crate) fn check(schema: &Json, root: &Node, report: &mut Report) -> Json {
    let mut grammar = Grammar { schema, report };
    grammar.check(schema, root, "")
}

struct Grammar<'a> {
    schema: &'a Json,
    report: &'a mut Report,
}

impl<'a> Grammar<'a> {
    fn check(&mut self, schema: &'a Json, node: &Node, path: &str) -> Json {
        let options = self.options(schema);
        if node.value == Value::Faulty {
            return self.repair(schema, path);
        }
        let fitting: Vec<&Json> = options
            .iter()
            .copied()
            .filter(|option| accepts(option, &node.value))
            .collect();
        let Some(option) = fitting.first().copied() else {
            return self.mismatch(schema, &options, node, path);
        };
        match &node.value {
            Value::Text(text, _) => {
                let fits = |option: &&Json| option.get("const").is_none_or(|word| word == text);
                if fitting.iter().any(fits) {
                    Json::String(text.clone())
                } else {
                    self.mismatch(schema, &options, node, path)
                }
            }
            Value::Int(number, _) => self.whole(option, *number, schema, path),
            Value::Float(number, _) => match serde_json::Number::from_f64(*number) {
                Some(number) => Json::Number(number),
                None => self.mismatch(schema, &options, node, path),
            },
            Value::Bool(value) => Json::Bool(*value),
            Value::Null | Value::Faulty => Json::Null,
            Value::List(items) => self.list(option, items, path),
            Value::Map(entries) => self.map(option, entries, path),
        }
    }

    fn list(&mut self, schema: &'a Json, items: &[Node], path: &str) -> Json {
        let Some(inner) = schema.get("items") else {
            return Json::Array(Vec::new());
        };
        let checked = items
            .iter()
            .enumerate()
            .map(|(index, item)| self.check(inner, item, &key_path::item(path, index)));
        Json::Array(checked.collect())
    }

    fn map(&mut self, schema: &'a Json, entries: &[Entry], path: &str) -> Json {
        let no_properties = Map::new();
        let properties = schema
            .get("properties")
            .and_then(Json::as_object)
            .unwrap_or(&no_properties);
        let free = schema.get("additionalProperties").filter(|s| s.is_object());
        let mut repaired = Map::new();
        let mut meant = Vec::new();
        for entry in entries {
            if self.report.is_full() {
                break;
            }
            let inner_path = key_path::child(path, &entry.key);
            let known = schema
                .pointer("/properties")
                .and_then(|p| p.get(&entry.key));
            if let Some(inner) = known.or(free) {
                let value = self.check(inner, &entry.node, &inner_path);
                repaired.insert(entry.key.clone(), value);
                continue;
            }
            let nearest =
                super::diagnostic::nearest(&entry.key, properties.keys().map(String::as_str));
            if let Some(nearest) = nearest
                && !entries.iter().any(|other| other.key == nearest)
            {
                // What is said about the absence of `nearest` would only follow from this.
                self.report.mark_faulty(&key_path::child(path, nearest));
                meant.push(nearest);
            }
            let hint = self.unknown_key_hint(&entry.key, properties);
            let got = format!("the unknown key `{}`", printable(&entry.key));
            let expected = "a known key";
            self.report.key(&inner_path, expected, &got, Some(hint));
        }
        self.missing(schema, &meant, path, &mut repaired);
        Json::Object(repaired)
    }

    /// Reports required keys that are absent, and puts placeholders there.
    fn missing(
        &mut self,
        schema: &'a Json,
        meant: &[&str],
        path: &str,
        into: &mut Map<String, Json>,
    ) {
        let required = schema.get("required").and_then(Json::as_array);
        for key in required.into_iter().flatten().filter_map(Json::as_str) {
            if into.contains_key(key) {
                continue;
            }
            let Some(inner) = schema.pointer("/properties").and_then(|p| p.get(key)) else {
                continue;
            };
            // A misspelt key was reported under its own name.
            if !meant.contains(&key) {
                let about = inner.get("description").and_then(Json::as_str);
                let hint = about.map(|about| format!("`{key}`: {}", one_line(about)));
                let expected = format!("the key `{key}`");
                self.report.key(path, &expected, "no such key", hint);
            }
            let value = self.repair(inner, &key_path::child(path, key));
            into.insert(key.to_owned(), value);
        }
    }

    fn unknown_key_hint(&self, key: &str, properties: &Map<String, Json>) -> String {
        let below = properties.iter().find(|(_, inner)| {
            let options = self.options(inner);
            options.iter().any(|option| {
                option
                    .pointer("/properties")
                    .is_some_and(|p| p.get(key).is_some())
            })
        });
        if let Some((outer, _)) = below {
            return format!("`{key}` belongs under `{outer}`");
        }
        did_you_mean(key, properties.keys().map(String::as_str)).unwrap_or_else(|| {
            format!(
                "known keys: {}",
                names(properties.keys().map(String::as_str))
            )
        })
    }

    fn whole(&mut self, option: &'a Json, number: i128, schema: &'a Json, path: &str) -> Json {
        let (lowest, highest) = match option.get("format").and_then(Json::as_str) {
            Some("uint32") => (0, i128::from(u32::MAX)),
            Some("uint64") => (0, i128::from(u64::MAX)),
            Some("int32") => (i128::from(i32::MIN), i128::from(i32::MAX)),
            _ => (i128::from(i64::MIN), i128::from(i64::MAX)),
        };
        if (lowest..=highest).contains(&number) {
            let number = u64::try_from(number)
                .map(Json::from)
                .or_else(|_| i64::try_from(number).map(Json::from));
            return number.unwrap_or(Json::Null);
        }
        let expected = format!("a whole number from {lowest} to {highest}");
        let takes_text = self.options(schema).iter().any(|o| has_type(o, "string"));
        let hint = takes_text.then(|| format!("quote it if it is text: '{number}'"));
        self.report
            .value(path, &expected, &format!("the number {number}"), hint);
        self.repair(schema, path)
    }

    fn mismatch(&mut self, schema: &'a Json, options: &[&Json], node: &Node, path: &str) -> Json {
        let hint = hint(options, &node.value);
        self.report
            .value(path, &describe(options), &got(&node.value), hint);
        self.repair(schema, path)
    }

    /// A value that reads as `schema`; whatever depends on it stays unreported.
    fn repair(&mut self, schema: &'a Json, path: &str) -> Json {
        self.report.mark_faulty(path);
        self.placeholder(schema)
    }

    fn placeholder(&self, schema: &'a Json) -> Json {
        let options = self.options(schema);
        if options.is_empty() || options.iter().any(|option| has_type(option, "null")) {
            return Json::Null;
        }
        let first = options[0];
        if let Some(word) = first.get("const") {
            return word.clone();
        }
        match first.get("type").and_then(Json::as_str) {
            Some("string") => Json::String(String::new()),
            Some("integer" | "number") => Json::from(0),
            Some("boolean") => Json::Bool(false),
            Some("array") => Json::Array(Vec::new()),
            _ => {
                let required = first.get("required").and_then(Json::as_array);
                let keys = required.into_iter().flatten().filter_map(Json::as_str);
                let inner = |key: &str| {
                    let schema = first.pointer("/properties")?.get(key)?;
                    Some((key.to_owned(), self.placeholder(schema)))
                };
                Json::Object(keys.filter_map(inner).collect())
            }
        }
    }

    /// The alternatives of `schema`, with references followed and groups opened.
    fn options(&self, schema: &'a Json) -> Vec<&'a Json> {
        options(self.schema, schema)
    }
}

fn options<'a>(root: &'a Json, schema: &'a Json) -> Vec<&'a Json> {
    if let Some(reference) = schema.get("$ref").and_then(Json::as_str) {
        let target = root.pointer(reference.trim_start_matches('#'));
        return target
            .map(|target| options(root, target))
            .unwrap_or_default();
    }
    let group = schema.get("anyOf").or_else(|| schema.get("oneOf"));
    match group.and_then(Json::as_array) {
        Some(group) => group.iter().flat_map(|one| options(root, one)).collect(),
        None => vec![schema],
    }
}

fn has_type(option: &Json, name: &str) -> bool {
    match option.get("type") {
        Some(Json::String(one)) => one == name,
        Some(Json::Array(several)) => several.iter().any(|one| one == name),
        _ => false,
    }
}

fn accepts(option: &Json, value: &Value) -> bool {
    match value {
        Value::Null => has_type(option, "null"),
        Value::Bool(_) => has_type(option, "boolean"),
        Value::Int(..) => has_type(option, "integer") || has_type(option, "number"),
        Value::Float(..) => has_type(option, "number"),
        Value::Text(..) => has_type(option, "string"),
        Value::List(_) => has_type(option, "array"),
        Value::Map(_) => has_type(option, "object"),
        Value::Faulty => true,
    }
}

/// What may stand here: `a list`, `` `all` or a list ``, ….
fn describe(options: &[&Json]) -> String {
    let any = |name: &str| options.iter().any(|option| has_type(option, name));
    let words: Vec<&str> = options
        .iter()
        .filter_map(|option| option.get("const").and_then(Json::as_str))
        .collect();
    let mut parts = Vec::new();
    match words.as_slice() {
        [] if any("string") => parts.push("text".to_owned()),
        [] => {}
        [word] => parts.push(format!("`{word}`")),
        several => parts.push(format!("one of {}", names(several.iter().copied()))),
    }
    if any("number") {
        parts.push("a finite number".into());
    } else if any("integer") {
        parts.push("a whole number".into());
    }
    for (name, shown) in [
        ("boolean", "true or false"),
        ("array", "a list"),
        ("object", "a mapping"),
    ] {
        if any(name) {
            parts.push(shown.into());
        }
    }
    parts.join(" or ")
}

/// What stands here.
fn got(value: &Value) -> String {
    match value {
        Value::Null => "nothing".into(),
        Value::Bool(value) => format!("{value}"),
        Value::Int(_, text) | Value::Float(_, text) => format!("the number {}", printable(text)),
        Value::Text(text, _) => format!("the text `{}`", printable(text)),
        Value::List(_) => "a list".into(),
        Value::Map(_) => "a mapping".into(),
        Value::Faulty => "something unreadable".into(),
    }
}

/// What to do about a value of the wrong type.
fn hint(options: &[&Json], value: &Value) -> Option<String> {
    let any = |name: &str| options.iter().any(|option| has_type(option, name));
    let words: Vec<&str> = options
        .iter()
        .filter_map(|option| option.get("const").and_then(Json::as_str))
        .collect();
    match value {
        Value::Null => Some("give it a value or remove the key".into()),
        Value::Int(_, text) | Value::Float(_, text)
            if any("string") && !any("number") && words.is_empty() =>
        {
            Some(format!("quote it: '{}'", printable(text)))
        }
        Value::Bool(value) if any("string") && words.is_empty() => {
            Some(format!("quote it: '{value}'"))
        }
        Value::Text(text, _) if !words.is_empty() => did_you_mean(text, words.into_iter()),
        Value::Text(text, _) if any("boolean") => {
            let folded = text.to_lowercase();
            match folded.as_str() {
                "yes" | "on" | "y" => Some("write true".into()),
                "no" | "off" | "n" => Some("write false".into()),
                _ => None,
            }
        }
        Value::Text(text, true) if any("number") || any("integer") => {
            text.parse::<f64>().ok().map(|_| "remove the quotes".into())
        }
        Value::Text(text, _) if any("array") => {
            Some(format!("write a list: [{}]", printable(text)))
        }
        Value::List(_) | Value::Map(_) if any("string") => {
            Some("a value that begins with `{` or `[` needs quotes to be text".into())
        }
        _ => None,
    }
}

/// The first sentence of a description on one line.
fn one_line(text: &str) -> String {
    let sentence = text.split(". ").next().unwrap_or_default();
    sentence
        .trim_end_matches('.')
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}
