//! Fills a command line: `{artifact}`, `{artifact:<file name>}`, `{artifact_dir}`,
//! `{arm}`, `{args}`, the variables of a cell and the names of setup steps; and `{artifact_dir}` in
//! environment values.
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

use super::diagnostic::nearest;

/// The names that are known in every command line.
pub(crate) const FIXED_NAMES: [&str; 4] = ["artifact", "artifact_dir", "arm", ARGS_NAME];
/// The name that stands for an arm's own words: a word of its own, and as many as the arm has.
pub(crate) const ARGS_NAME: &str = "args";
/// The name of the folder that a setup step fills.
pub(crate) const OUT_NAME: &str = "out";
/// The name that is known in the value of an environment variable.
pub(crate) const VALUE_NAME: &str = "artifact_dir";

/// A command line that cannot be filled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected {}, got {}{}", self.expected(), self.got(), self.hint().map_or(String::new(), |hint| format!("; {hint}")))]
pub enum TemplateError {
    /// A quote is never closed, or a backslash ends the line.
    Unsplittable,
    /// There is no word at all.
    Empty,
    /// No such placeholder.
    Unknown {
        /// What stands between the braces.
        name: String,
        /// The nearest known one.
        nearest: Option<String>,
    },
}

impl TemplateError {
    /// What should stand there.
    pub(crate) fn expected(&self) -> &'static str {
        match self {
            TemplateError::Unsplittable => "words as a shell splits them",
            TemplateError::Empty => "at least one word",
            TemplateError::Unknown { .. } => "a known placeholder",
        }
    }

    /// What stands there.
    pub(crate) fn got(&self) -> String {
        match self {
            TemplateError::Unsplittable => "an unclosed quote or a final backslash".into(),
            TemplateError::Empty => "none".into(),
            TemplateError::Unknown { name, .. } => format!("`{{{name}}}`"),
        }
    }

    /// What to do.
    pub(crate) fn hint(&self) -> Option<String> {
        let TemplateError::Unknown { name, nearest } = self else {
            return None;
        };
        let literal = format!("write `{{{{{name}}}}}` for the plain text");
        Some(match nearest {
            Some(nearest) => format!("did you mean `{{{nearest}}}`? ({literal})"),
            None => literal,
        })
    }
}

/// The words of `command` with every placeholder replaced from `vars`; the word `{args}` is
/// split like the command itself.
///
/// # Errors
/// The first fault, see [`TemplateError`].
pub fn fill(command: &str, vars: &IndexMap<String, String>) -> Result<Vec<String>, TemplateError> {
    let words = shell_words::split(command).map_err(|_| TemplateError::Unsplittable)?;
    if words.is_empty() {
        return Err(TemplateError::Empty);
    }
    let mut filled = Vec::new();
    for word in words {
        match vars.get(ARGS_NAME) {
            Some(args) if is_args(&word) => {
                filled.extend(shell_words::split(args).map_err(|_| TemplateError::Unsplittable)?);
            }
            _ => filled.push(fill_value(&word, vars)?),
        }
    }
    Ok(filled)
}

/// `text` with every placeholder replaced from `vars`; nothing is split. For the
/// values of environment variables.
///
/// # Errors
/// [`TemplateError::Unknown`].
pub fn fill_value(text: &str, vars: &IndexMap<String, String>) -> Result<String, TemplateError> {
    let mut filled = String::with_capacity(text.len());
    for piece in pieces(text) {
        match piece {
            Piece::Literal(text) => filled.push_str(text),
            Piece::Placeholder(name) => match vars.get(name) {
                Some(value) => filled.push_str(value),
                None => return Err(unknown(name, vars.keys().map(String::as_str))),
            },
        }
    }
    Ok(filled)
}

/// Whether `word` stands for an arm's own words.
fn is_args(word: &str) -> bool {
    word.strip_prefix('{')
        .and_then(|word| word.strip_suffix('}'))
        .is_some_and(|name| name == ARGS_NAME)
}

/// The word of `command` in which `{args}` stands beside something else, if there is one.
pub(crate) fn joined_args(command: &str) -> Option<String> {
    let words = shell_words::split(command).ok()?;
    words
        .into_iter()
        .find(|word| !is_args(word) && value_placeholders(word).any(|name| name == ARGS_NAME))
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
    Ok(words
        .iter()
        .flat_map(|word| value_placeholders(word))
        .map(str::to_owned)
        .collect())
}

/// The placeholders of `text`, in reading order.
pub(crate) fn value_placeholders(text: &str) -> impl Iterator<Item = &str> {
    pieces(text).into_iter().filter_map(|piece| match piece {
        Piece::Placeholder(name) => Some(name),
        Piece::Literal(_) => None,
    })
}

/// The error for `name`, which is none of `known`.
pub(crate) fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> TemplateError {
    TemplateError::Unknown {
        name: name.to_owned(),
        nearest: nearest(name, known).map(str::to_owned),
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filled(command: &str) -> Result<Vec<String>, String> {
        let vars = [
            ("artifact", "/cache/a b/jq"),
            ("artifact:libjq.so", "/cache/a b/libjq.so"),
            ("artifact_dir", "/cache/a b"),
            ("arm", "base"),
            ("size", "'; rm -rf /"),
        ];
        let vars = vars.map(|(name, value)| (name.to_owned(), value.to_owned()));
        fill(command, &IndexMap::from(vars)).map_err(|error| error.to_string())
    }

    fn words(command: &str) -> Vec<String> {
        filled(command).unwrap()
    }

    #[test]
    fn a_value_stays_one_word_and_is_never_syntax() {
        assert_eq!(
            words("{artifact} --size={size} {artifact:libjq.so}"),
            ["/cache/a b/jq", "--size='; rm -rf /", "/cache/a b/libjq.so"]
        );
        assert_eq!(words("'{arm} x' \"{arm}\""), ["base x", "base"]);
    }

    #[test]
    fn the_words_of_an_arm_take_the_place_of_one_word_and_are_not_filled() {
        let with = |args: &str| {
            let vars = IndexMap::from([("args".to_owned(), args.to_owned())]);
            fill("prog {args} -n 1", &vars).unwrap()
        };
        assert_eq!(with(""), ["prog", "-n", "1"]);
        assert_eq!(
            with("--loop 'a b' {arm}"),
            ["prog", "--loop", "a b", "{arm}", "-n", "1"]
        );
        assert_eq!(joined_args("prog x{args}"), Some("x{args}".to_owned()));
        assert_eq!(joined_args("prog {args} {{args}}"), None);
    }

    #[test]
    fn a_value_is_not_filled_again() {
        let vars = IndexMap::from([("a".to_owned(), "{b}".to_owned())]);
        assert_eq!(fill("{a}", &vars).unwrap(), ["{b}"]);
    }

    #[test]
    fn braces_of_other_languages_stay() {
        for text in [
            "{a: 1}",
            "{print $1}",
            "{}",
            "{1}",
            "{\"size\":1}",
            "{a:{b:1}}",
            "}{",
            "{",
            "{arm",
            "{ärm}",
            "{artifact:",
        ] {
            let quoted = shell_words::quote(text).into_owned();
            assert_eq!(words(&quoted), [text]);
        }
        let jq =
            "12000 as $size | [range($size)] | getpath(range(100;$size-100) | [.]) |= 0 | empty";
        assert_eq!(words(&format!("jq -n '{jq}'"))[2], jq);
    }

    #[test]
    fn doubled_braces_lose_their_outer_pair() {
        assert_eq!(words("{{arm}} {{nobody}}"), ["{arm}", "{nobody}"]);
        assert_eq!(words("{{{arm}}}"), ["{{arm}}"]);
        assert_eq!(words("{{arm}"), ["{base"]);
    }

    #[test]
    fn an_unknown_name_and_an_open_quote_are_errors() {
        assert_eq!(
            filled("{sise}").unwrap_err(),
            "expected a known placeholder, got `{sise}`; did you mean `{size}`? \
             (write `{{sise}}` for the plain text)"
        );
        assert!(
            filled("{artifact:libjk.so}")
                .unwrap_err()
                .contains("{artifact:libjq.so}")
        );
        assert!(filled("x 'y").unwrap_err().contains("unclosed quote"));
        assert!(filled("  ").unwrap_err().contains("at least one word"));
    }

    #[test]
    fn an_environment_value_is_filled_without_splitting() {
        let vars = IndexMap::from([("artifact_dir".to_owned(), "/c".to_owned())]);
        assert_eq!(
            fill_value("{artifact_dir}/lib: 'x", &vars).unwrap(),
            "/c/lib: 'x"
        );
    }

    proptest! {
        #[test]
        fn doubling_the_braces_of_every_placeholder_gives_the_text_back(
            text in "(\\{|\\}|[a-c: é]|\\{[ab]\\}|artifact){0,12}"
        ) {
            let mut doubled = String::new();
            for piece in pieces(&text) {
                match piece {
                    // A brace beside a doubled pair would join it.
                    Piece::Literal(text) if text.contains(['{', '}']) => return Ok(()),
                    Piece::Literal(text) => doubled.push_str(text),
                    Piece::Placeholder(name) => doubled.push_str(&format!("{{{{{name}}}}}")),
                }
            }
            prop_assert_eq!(fill_value(&doubled, &IndexMap::new()), Ok(text));
        }

        #[test]
        fn any_command_is_filled_or_refused(command in "\\PC{0,60}|[{}'\"a \\\\]{0,20}") {
            let _ = filled(&command);
        }
    }
}
