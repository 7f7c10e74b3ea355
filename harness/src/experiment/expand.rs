//! `${VAR}` in paths and URLs of the experiment file.

/// Text whose `${VAR}` cannot be replaced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpandError {
    /// The caller's environment has no such variable.
    #[error(
        "the environment variable `{name}`, which `{text}` needs, is not set; \
         set it, as in `{name}=/some/path bench-run …`"
    )]
    NotSet {
        /// The variable.
        name: String,
        /// The whole text.
        text: String,
    },
    /// `${` is never closed, or its content is no name.
    #[error("expected `${{NAME}}` (letters, digits and `_`), got `{got}` in `{text}`")]
    Malformed {
        /// What stands there.
        got: String,
        /// The whole text.
        text: String,
    },
}

/// `text` with every `${VAR}` replaced by what `lookup` answers; `$${` stands for `${`.
///
/// A variable that is set and empty counts as not set: an empty path would mean
/// the current directory.
///
/// # Errors
/// The first variable that is missing or malformed.
pub fn expand_env(
    text: &str,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<String, ExpandError> {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        if rest[..start].ends_with('$') {
            expanded.push_str(&rest[..start - 1]);
            expanded.push_str("${");
            rest = &rest[start + 2..];
            continue;
        }
        expanded.push_str(&rest[..start]);
        let name = variable(&rest[start..], text)?;
        match lookup(name).filter(|value| !value.is_empty()) {
            Some(value) => expanded.push_str(&value),
            None => {
                return Err(ExpandError::NotSet {
                    name: name.to_owned(),
                    text: text.to_owned(),
                });
            }
        }
        rest = &rest[start + "${}".len() + name.len()..];
    }
    expanded.push_str(rest);
    Ok(expanded)
}

/// Whether every `${…}` of `text` is well formed; nothing is looked up.
///
/// # Errors
/// [`ExpandError::Malformed`].
pub(crate) fn check(text: &str) -> Result<(), ExpandError> {
    expand_env(text, &|_| Some("x".into())).map(drop)
}

/// The name in `from`, which begins with `${`.
fn variable<'a>(from: &'a str, text: &str) -> Result<&'a str, ExpandError> {
    let malformed = |got: &str| ExpandError::Malformed {
        got: got.to_owned(),
        text: text.to_owned(),
    };
    let end = from.find('}').ok_or_else(|| malformed(from))?;
    let name = &from[2..end];
    if super::template::is_identifier(name) {
        Ok(name)
    } else {
        Err(malformed(&from[..=end]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(text: &str) -> Result<String, String> {
        let lookup = |name: &str| match name {
            "HOME" => Some("/home/x".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        expand_env(text, &lookup).map_err(|error| error.to_string())
    }

    #[test]
    fn variables_are_replaced_and_other_dollars_stay() {
        assert_eq!(expand("${HOME}/a/${HOME}"), Ok("/home/x/a//home/x".into()));
        assert_eq!(expand("$HOME $$ 1$"), Ok("$HOME $$ 1$".into()));
        assert_eq!(expand("$${HOME}"), Ok("${HOME}".into()));
    }

    #[test]
    fn what_is_missing_or_malformed_is_named() {
        assert!(expand("${JQ_REPO}/x").unwrap_err().contains("`JQ_REPO`"));
        assert!(expand("${EMPTY}").unwrap_err().contains("`EMPTY`"));
        assert!(expand("a${HOME").unwrap_err().contains("got `${HOME`"));
        assert!(expand("${A:-b}").unwrap_err().contains("got `${A:-b}`"));
    }
}
