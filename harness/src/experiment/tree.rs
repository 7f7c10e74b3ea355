//! YAML text to a tree whose every value knows its place in the file.
//!
//! Only what a definition file needs: one document, text keys, no anchors,
//! aliases or tags. Scalars are resolved as serde_yaml resolves them (YAML 1.2
//! core schema), so that the check and the typed read see the same values; a
//! test compares the two. Depth and size are bounded before anything is built.

use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, Tag};

use super::diagnostic::{Diagnostic, Position, printable};
use super::key_path;

/// Deepest nesting; an experiment needs five.
const MAX_DEPTH: usize = 32;
/// Most values in a file; a matrix of thousands of values is a mistake.
const MAX_NODES: usize = 20_000;

/// What most syntax errors come from.
pub(crate) const QUOTES_HINT: &str =
    "a value that begins with one of { [ > | & * ! % @ ` needs quotes, such as '> 0'";

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) position: Position,
    pub(crate) value: Value,
}

/// A YAML value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// Nothing, `~` or `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number; the text is as written.
    Int(i128, String),
    /// Another number; the text is as written.
    Float(f64, String),
    /// Text; true when it stands in quotes or in a block.
    Text(String, bool),
    /// A sequence.
    List(Vec<Node>),
    /// A mapping, in the order of the file, without repeated keys.
    Map(Vec<Entry>),
    /// Something already reported.
    Faulty,
}

/// One key of a mapping with its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) position: Position,
    pub(crate) node: Node,
}

/// The tree of `text`, as far as it could be built, and every fault met on the way.
pub(crate) fn parse(text: &str) -> (Option<Node>, Vec<Diagnostic>) {
    let mut builder = Builder {
        parser: Parser::new_from_str(text),
        text,
        faults: Vec::new(),
        nodes: 0,
    };
    let root = builder.document().unwrap_or(None);
    (root, builder.faults)
}

/// Parsing cannot go on; the reason is among the faults.
struct Stop;

struct Builder<'a> {
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
    text: &'a str,
    faults: Vec<Diagnostic>,
    nodes: usize,
}

impl<'a> Builder<'a> {
    fn document(&mut self) -> Result<Option<Node>, Stop> {
        let mut root = None;
        while let Some((event, span)) = self.next()? {
            match event {
                Event::DocumentStart(_) if root.is_some() => {
                    self.fault(
                        position(span.start),
                        "",
                        "one document",
                        "a second one",
                        Some("remove the line `---` and what follows it"),
                    );
                    return Ok(root);
                }
                Event::Nothing
                | Event::StreamStart
                | Event::StreamEnd
                | Event::DocumentStart(_)
                | Event::DocumentEnd => {}
                other => root = Some(self.node(other, span, "", 0)?),
            }
        }
        Ok(root)
    }

    fn next(&mut self) -> Result<Option<(Event<'a>, Span)>, Stop> {
        match self.parser.next_event() {
            None => Ok(None),
            Some(Ok(pair)) => Ok(Some(pair)),
            Some(Err(error)) => {
                self.syntax_error(&error);
                Err(Stop)
            }
        }
    }

    /// As `next`, where the document cannot have ended.
    fn inner(&mut self) -> Result<(Event<'a>, Span), Stop> {
        match self.next()? {
            Some(pair) => Ok(pair),
            None => Err(Stop),
        }
    }

    fn node(
        &mut self,
        event: Event<'a>,
        span: Span,
        path: &str,
        depth: usize,
    ) -> Result<Node, Stop> {
        let at = position(span.start);
        self.limits(at, path, depth)?;
        let value = match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_properties(at, path, anchor, tag.as_deref());
                scalar(text.into_owned(), style)
            }
            Event::SequenceStart(anchor, tag) => {
                self.refuse_properties(at, path, anchor, tag.as_deref());
                self.list(path, depth)?
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse_properties(at, path, anchor, tag.as_deref());
                self.map(path, depth)?
            }
            Event::Alias(_) => {
                self.fault(
                    at,
                    path,
                    "a value",
                    "an alias (`*name`)",
                    Some("aliases are not supported: write the value out"),
                );
                Value::Faulty
            }
            // Only the end of a collection is left, and it never begins a value.
            _ => return Err(Stop),
        };
        Ok(Node {
            position: at,
            value,
        })
    }

    fn list(&mut self, path: &str, depth: usize) -> Result<Value, Stop> {
        let mut items = Vec::new();
        loop {
            let (event, span) = self.inner()?;
            if matches!(event, Event::SequenceEnd) {
                return Ok(Value::List(items));
            }
            let path = key_path::item(path, items.len());
            items.push(self.node(event, span, &path, depth + 1)?);
        }
    }

    fn map(&mut self, path: &str, depth: usize) -> Result<Value, Stop> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut lines: HashMap<String, usize> = HashMap::new();
        loop {
            let (event, span) = self.inner()?;
            let at = position(span.start);
            let key = match event {
                Event::MappingEnd => return Ok(Value::Map(entries)),
                Event::Scalar(text, _, anchor, tag) => {
                    self.refuse_properties(at, path, anchor, tag.as_deref());
                    Some(text.into_owned())
                }
                other => {
                    self.fault(
                        at,
                        path,
                        "a plain key",
                        "a list, a mapping or an alias as a key",
                        Some("a value that begins with `{`, `[` or `*` needs quotes"),
                    );
                    self.node(other, span, path, depth + 1)?;
                    None
                }
            };
            let (event, span) = self.inner()?;
            let inner_path = key_path::child(path, key.as_deref().unwrap_or("?"));
            let mut node = self.node(event, span, &inner_path, depth + 1)?;
            if node.value == Value::Null {
                // An absent value has no place of its own: the parser reports the next token's.
                node.position = at;
            }
            let Some(key) = key else { continue };
            if let Some(line) = lines.insert(key.clone(), at.line) {
                self.fault(
                    at,
                    &inner_path,
                    "each key once",
                    &format!("a repeat of the key in line {line}"),
                    None,
                );
                continue;
            }
            entries.push(Entry {
                key,
                position: at,
                node,
            });
        }
    }

    fn limits(&mut self, at: Position, path: &str, depth: usize) -> Result<(), Stop> {
        self.nodes += 1;
        if depth > MAX_DEPTH {
            // The full path would repeat the nesting.
            let outer = path.split(['.', '[']).next().unwrap_or_default();
            let expected = format!("at most {MAX_DEPTH} levels of nesting");
            self.fault(at, outer, &expected, "more", None);
            return Err(Stop);
        }
        if self.nodes > MAX_NODES {
            let expected = format!("at most {MAX_NODES} values in the file");
            self.fault(at, "", &expected, "more", None);
            return Err(Stop);
        }
        Ok(())
    }

    fn refuse_properties(&mut self, at: Position, path: &str, anchor: usize, tag: Option<&Tag>) {
        if anchor != 0 {
            self.fault(
                at,
                path,
                "a value",
                "an anchor (`&name`)",
                Some("anchors are not supported: write the value out where it is used"),
            );
        }
        if let Some(tag) = tag {
            let got = format!("the tag `{}`", printable(&tag.to_string()));
            let hint = "tags are not supported: quote the value if it is text";
            self.fault(at, path, "a plain value", &got, Some(hint));
        }
    }

    fn syntax_error(&mut self, error: &ScanError) {
        let at = position(*error.marker());
        let line = self.text.lines().nth(at.line - 1).unwrap_or_default();
        let hint = if line.trim_start_matches(' ').starts_with('\t') {
            Some("indent with spaces, YAML refuses tabs")
        } else if error.info().contains("indent") || error.info().contains("mapping values") {
            Some("check the indentation; text with `: ` or ` #` inside needs quotes")
        } else {
            Some(QUOTES_HINT)
        };
        let got = format!("a syntax error ({})", printable(error.info()));
        self.fault(at, "", "YAML", &got, hint);
    }

    fn fault(&mut self, at: Position, key: &str, expected: &str, got: &str, hint: Option<&str>) {
        self.faults.push(Diagnostic {
            position: at,
            key: key.to_owned(),
            expected: expected.to_owned(),
            got: got.to_owned(),
            hint: hint.map(str::to_owned),
        });
    }
}

fn position(marker: Marker) -> Position {
    Position {
        line: marker.line().max(1),
        column: marker.col() + 1,
    }
}

/// Resolves one scalar the way serde_yaml does.
fn scalar(text: String, style: ScalarStyle) -> Value {
    if style != ScalarStyle::Plain {
        return Value::Text(text, true);
    }
    match text.as_str() {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    if leading_zero(&text) {
        return Value::Text(text, false);
    }
    if let Some(number) = whole(&text) {
        return Value::Int(number, text);
    }
    match float(&text) {
        Some(number) => Value::Float(number, text),
        None => Value::Text(text, false),
    }
}

/// `007` is text in YAML 1.2.
fn leading_zero(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    digits.len() > 1 && digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn whole(text: &str) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (digits, radix) = match digits.get(..2) {
        Some("0x") => (&digits[2..], 16),
        Some("0o") => (&digits[2..], 8),
        Some("0b") => (&digits[2..], 2),
        _ => (digits, 10),
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let size = i128::from_str_radix(digits, radix).ok()?;
    Some(if negative { -size } else { size })
}

fn float(text: &str) -> Option<f64> {
    match text {
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Some(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Some(f64::NEG_INFINITY),
        ".nan" | ".NaN" | ".NAN" => return Some(f64::NAN),
        _ => {}
    }
    let number: f64 = text.parse().ok()?;
    number.is_finite().then_some(number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The tree as serde_yaml would have read it.
    fn plain(node: &Node) -> serde_yaml::Value {
        use serde_yaml::Value as Yaml;
        match &node.value {
            Value::Null | Value::Faulty => Yaml::Null,
            Value::Bool(value) => Yaml::Bool(*value),
            Value::Int(number, text) => match (u64::try_from(*number), i64::try_from(*number)) {
                (Ok(number), _) => Yaml::from(number),
                (_, Ok(number)) => Yaml::from(number),
                // serde_yaml's untyped value has no wider integer: it keeps a float.
                _ => Yaml::from(text.parse::<f64>().unwrap()),
            },
            Value::Float(number, _) => Yaml::from(*number),
            Value::Text(text, _) => Yaml::from(text.as_str()),
            Value::List(items) => Yaml::Sequence(items.iter().map(plain).collect()),
            Value::Map(entries) => entries
                .iter()
                .map(|entry| (Yaml::from(entry.key.as_str()), plain(&entry.node)))
                .collect::<serde_yaml::Mapping>()
                .into(),
        }
    }

    fn root(text: &str) -> Node {
        let (root, faults) = parse(text);
        assert_eq!(faults, vec![]);
        root.unwrap()
    }

    #[test]
    fn every_value_knows_its_place() {
        let root = root("a:\n  b: [1, x]\nc:\nd: 2\n");
        let Value::Map(entries) = &root.value else {
            panic!("{root:?}");
        };
        let at = |line, column| Position { line, column };
        let Value::Map(inner) = &entries[0].node.value else {
            panic!("{entries:?}");
        };
        assert_eq!(inner[0].position, at(2, 3));
        let Value::List(items) = &inner[0].node.value else {
            panic!("{inner:?}");
        };
        assert_eq!(items[1].position, at(2, 10));
        assert_eq!(entries[1].node.position, at(3, 1), "the key's place");
    }

    proptest! {
        #[test]
        fn scalars_are_resolved_as_serde_yaml_resolves_them(
            scalar in "(\\+|-)?(0x|0o|0b|0)?[0-9a-fA-F]{1,10}|[0-9.eE+-]{1,8}|(\\+|-)?\\.(inf|nan|NaN|INF)|(tru|fals|nul)[eEl]|[yYnN]|~|null|[0-9]{18,21}"
        ) {
            let text = format!("key: {scalar}\n");
            let expected: Result<serde_yaml::Value, _> = serde_yaml::from_str(&text);
            // A lone `-` begins a list there; both may refuse it.
            let (Some(node), Ok(expected)) = (parse(&text).0, expected) else {
                return Ok(());
            };
            let got = format!("{:?}", plain(&node));
            prop_assert_eq!(got, format!("{expected:?}"), "{}", scalar);
        }
    }
}
