//! A number in free text: a pattern with one group that matches exactly once.

use crate::experiment::diagnostic::printable;

/// Text in which the number cannot be found without guessing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegexError {
    /// The pattern does not compile; the loader refuses such a file.
    #[error("expected a regular expression with one group, got `{pattern}`")]
    BadPattern {
        /// The pattern.
        pattern: String,
    },
    /// No match.
    #[error("expected one match of `{pattern}` in standard output, got none")]
    NoMatch {
        /// The pattern.
        pattern: String,
    },
    /// Several matches: which one is meant is a guess.
    #[error(
        "expected one match of `{pattern}` in standard output, got at least two: `{first}` and `{second}`"
    )]
    Ambiguous {
        /// The pattern.
        pattern: String,
        /// First match.
        first: String,
        /// Second match.
        second: String,
    },
    /// The group is no number.
    #[error("expected a number in the group of `{pattern}`, got `{got}`")]
    NotANumber {
        /// The pattern.
        pattern: String,
        /// What the group holds.
        got: String,
    },
}

/// The number in the only group of the only match of `pattern` in `text`.
///
/// # Errors
/// None or several matches, or a group that is no number.
pub fn number(pattern: &str, text: &str) -> Result<f64, RegexError> {
    let shown = || printable(pattern);
    let Ok(regex) = regex::Regex::new(pattern) else {
        return Err(RegexError::BadPattern { pattern: shown() });
    };
    let mut matches = regex.captures_iter(text);
    let Some(first) = matches.next() else {
        return Err(RegexError::NoMatch { pattern: shown() });
    };
    if let Some(second) = matches.next() {
        return Err(RegexError::Ambiguous {
            pattern: shown(),
            first: printable(&first[0]),
            second: printable(&second[0]),
        });
    }
    let group = first.get(1).map_or("", |group| group.as_str());
    group.trim().parse().map_err(|_| RegexError::NotANumber {
        pattern: shown(),
        got: printable(group),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATTERN: &str = r"decode: +([0-9.eE+-]+) tok/s";

    #[test]
    fn the_only_match_is_the_number() {
        assert_eq!(number(PATTERN, "x\ndecode:  62.5 tok/s\n"), Ok(62.5));
    }

    #[test]
    fn no_match_and_two_matches_are_both_refused() {
        let message = |text| number(PATTERN, text).unwrap_err().to_string();
        assert!(message("prefill: 1 tok/s").ends_with("got none"));
        let two = message("decode: 1 tok/s decode: 2 tok/s");
        assert!(
            two.ends_with("`decode: 1 tok/s` and `decode: 2 tok/s`"),
            "{two}"
        );
        assert!(message("decode: 1.2.3 tok/s").ends_with("got `1.2.3`"));
    }
}
