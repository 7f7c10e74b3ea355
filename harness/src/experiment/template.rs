//! Fills a command line: `{artifact}`, `{artifact:<file name>}`, `{arm}` and the
//! variables of a cell.
//!
//! The line is split into words first, as a POSIX shell would split it, and the
//! placeholders are replaced inside the words: a value with spaces stays one
//! word, and no value is ever read as syntax. No shell runs.
//!
//! Only an identifier in braces is a placeholder (`{model}`), and for `artifact`
//! one with a file name after a colon. All other braces are plain text, so that
//! `jq '{a: 1}'` and `awk '{print $1}'` need no care. An identifier that is not
//! known is an error, since it is most likely a slip; doubled braces
//! (`{{model}}`) stand for the literal text `{model}`.

use indexmap::IndexMap;

use super::diagnostic::did_you_mean;

/// A command line that cannot be filled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A quote is never closed, or a backslash ends the line.
    #[error("words as a shell splits them, got an unclosed quote or a final backslash")]
    Unsplittable,
    /// There is no word at all.
    #[error("at least one word, got none")]
    Empty,
    /// No such placeholder.
    #[error("a known placeholder, got `{{{name}}}`; {hint}")]
    Unknown {
        /// What stands between the braces.
        name: String,
        /// The nearest known one, or how to write it literally.
        hint: String,
    },
}

/// The words of `command` with every placeholder replaced from `vars`.
///
/// # Errors
/// The first fault, see [`TemplateError`].
pub fn fill(command: &str, vars: &IndexMap<String, String>) -> Result<Vec<String>, TemplateError> {
    let words = shell_words::split(command).map_err(|_| TemplateError::Unsplittable)?;
    if words.is_empty() {
        return Err(TemplateError::Empty);
    }
    words
        .iter()
        .map(|word| {
            let mut filled = String::with_capacity(word.len());
            for piece in pieces(word) {
                match piece {
                    Piece::Literal(text) => filled.push_str(text),
                    Piece::Placeholder(name) => match vars.get(name) {
                        Some(value) => filled.push_str(value),
                        None => return Err(unknown(name, vars.keys().map(String::as_str))),
                    },
                }
            }
            Ok(filled)
        })
        .collect()
}

/// The placeholders of `command`, in reading order, each as often as it stands there.
///
/// # Errors
/// As [`fill`], without unknown names.
pub(crate) fn placeholders(command: &str) -> Result<Vec<String>, TemplateError> {
    let words = shell_words::split(command).map_err(|_| TemplateError::Unsplittable)?;
    if words.is_empty() {
        return Err(TemplateError::Empty);
    }
    let names = words.iter().flat_map(|word| pieces(word));
    Ok(names
        .filter_map(|piece| match piece {
            Piece::Placeholder(name) => Some(name.to_owned()),
            Piece::Literal(_) => None,
        })
        .collect())
}

/// The error for `name`, which is none of `known`.
pub(crate) fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> TemplateError {
    let literal = format!("write `{{{{{name}}}}}` for the plain text");
    let hint = match did_you_mean(name, known) {
        Some(nearest) => format!("{nearest} ({literal})"),
        None => literal,
    };
    TemplateError::Unknown {
        name: name.to_owned(),
        hint,
    }
}

enum Piece<'a> {
    Literal(&'a str),
    Placeholder(&'a str),
}

fn pieces(word: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut literal_from = 0;
    let mut at = 0;
    while let Some(offset) = word[at..].find('{') {
        let open = at + offset;
        let doubled = word[open + 1..].starts_with('{');
        let inside = open + 1 + usize::from(doubled);
        let name = placeholder_name(&word[inside..]);
        let end = inside + name.map_or(0, str::len);
        let close = if doubled { "}}" } else { "}" };
        let closed = word[end..].starts_with(close);
        match name {
            Some(name) if closed => {
                // A doubled brace loses its outer pair; a single one is replaced.
                pieces.push(Piece::Literal(&word[literal_from..open]));
                if doubled {
                    pieces.push(Piece::Literal(&word[open + 1..=end]));
                } else {
                    pieces.push(Piece::Placeholder(name));
                }
                at = end + close.len();
                literal_from = at;
            }
            _ => at = open + 1,
        }
    }
    pieces.push(Piece::Literal(&word[literal_from..]));
    pieces
}

/// The identifier at the beginning of `text`, with its file name if it is `artifact:…`.
fn placeholder_name(text: &str) -> Option<&str> {
    let end = text
        .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .unwrap_or(text.len());
    let name = &text[..end];
    if !is_identifier(name) {
        return None;
    }
    if name == "artifact" && text[end..].starts_with(':') {
        let file = text[end..].find(['{', '}'])?;
        return Some(&text[..end + file]);
    }
    Some(name)
}

/// A name that may stand in braces: ASCII letters, digits and `_`, no digit first.
pub(crate) fn is_identifier(name: &str) -> bool {
    let mut characters = name.chars();
    characters
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && characters.all(|c| c.is_ascii_alphanumeric() || c == '_')
}
