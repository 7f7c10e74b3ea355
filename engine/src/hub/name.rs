//! `hf:<org>/<name>[@<revision>]`, checked: its parts become paths and addresses.

use super::error::HubError;

/// What such a name starts with.
pub const PREFIX: &str = "hf:";

/// Longest part of a name; the hub allows 96 characters.
const MAX_PART: usize = 96;

/// A repository and a revision of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelName {
    /// User or organisation.
    pub organisation: String,
    /// Repository.
    pub name: String,
    /// Branch, tag or full commit.
    pub revision: String,
}

impl ModelName {
    /// Reads what follows [`PREFIX`].
    ///
    /// # Errors
    /// When it is not two parts (and a revision) of letters, digits, `-`, `_` and `.`.
    pub fn parse(text: &str) -> Result<Self, HubError> {
        let parts = || {
            let (path, revision) = text.split_once('@').unwrap_or((text, "main"));
            let (organisation, name) = path.split_once('/')?;
            let valid = [organisation, name, revision].into_iter().all(is_part);
            valid.then(|| Self {
                organisation: organisation.to_owned(),
                name: name.to_owned(),
                revision: revision.to_owned(),
            })
        };
        parts().ok_or_else(|| HubError::Name {
            got: format!("{PREFIX}{text}"),
        })
    }

    /// `org/name`.
    pub fn repository(&self) -> String {
        format!("{}/{}", self.organisation, self.name)
    }

    /// Whether the revision is a full commit, which cannot come to mean something else.
    pub fn is_pinned(&self) -> bool {
        is_commit(&self.revision)
    }
}

impl std::fmt::Display for ModelName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{PREFIX}{}", self.repository())?;
        if self.revision == "main" {
            return Ok(());
        }
        write!(f, "@{}", self.revision)
    }
}

/// No part may be a path of its own.
fn is_part(part: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=MAX_PART).contains(&part.len()) && part.chars().all(plain) && !part.starts_with('.')
}

/// Forty hexadecimal digits.
pub(super) fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written_alike() {
        for text in ["hf:a/b-4bit", "hf:mlx-community/Llama-3.2_1B@v1.0"] {
            let name = ModelName::parse(&text[3..]).unwrap();
            assert_eq!(name.to_string(), text);
            assert!(!name.is_pinned());
        }
        let pinned = format!("a/b@{}", "0123456789".repeat(4));
        assert!(ModelName::parse(&pinned).unwrap().is_pinned());
    }

    #[test]
    fn what_could_be_a_path_or_an_address_is_refused() {
        for text in [
            "",
            "a",
            "a/",
            "/b",
            "a/b/c",
            "../b",
            "a/..",
            "a/.b",
            "a/b@",
            "a/b@x/y",
            "a/b?x",
            "a/b#",
            "a b/c",
            "a/b@..",
            "http://a/b",
            "a/\u{e9}",
        ] {
            assert!(ModelName::parse(text).is_err(), "{text}");
        }
        assert!(ModelName::parse(&format!("a/{}", "b".repeat(97))).is_err());
    }
}
