//! tokenizer_config.json: special tokens by role, whether a text starts with one, the template.
//!
//! Only keys that tokenizer.json does not have are read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::error::TokenizerError;

/// Name of the file in the model's folder.
pub const FILE_NAME: &str = "tokenizer_config.json";

/// Roles that chat templates may ask for.
const ROLES: [&str; 4] = ["bos_token", "eos_token", "unk_token", "pad_token"];

/// The longest file of settings or templates read, in bytes; real ones are below 1 MB.
pub(super) const MOST_BYTES: u64 = 16 << 20;

/// What the file says; everything is optional.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// `bos_token` and the like → the token's text.
    pub special_tokens: BTreeMap<String, String>,
    /// Whether a text starts with `bos_token`, where the file says so.
    pub add_bos_token: Option<bool>,
    /// The template called `default`.
    pub chat_template: Option<String>,
}

impl Settings {
    /// Reads the file of `dir`; a folder without one has no settings.
    ///
    /// # Errors
    /// When the file cannot be read or is not a JSON object.
    pub fn load(dir: &Path) -> Result<Self, TokenizerError> {
        let path = dir.join(FILE_NAME);
        match read_limited(&path, MOST_BYTES)? {
            Some(text) => Self::parse(&path, &text),
            None => Ok(Self::default()),
        }
    }

    /// Parses the text of the file; `path` is for error messages.
    ///
    /// # Errors
    /// When it is not a JSON object, or a key that is read is of the wrong kind.
    pub fn parse(path: &Path, text: &[u8]) -> Result<Self, TokenizerError> {
        let wrong = |problem: String| TokenizerError::File {
            path: path.to_owned(),
            problem,
        };
        let root: Value = serde_json::from_slice(text).map_err(|error| wrong(error.to_string()))?;
        let map = root
            .as_object()
            .ok_or_else(|| wrong("expected an object, got something else".to_owned()))?;
        let mut settings = Self::default();
        for role in ROLES {
            let Some(value) = map.get(role).filter(|value| !value.is_null()) else {
                continue;
            };
            // Either the text itself or an object that describes the token.
            let text = value.as_str().or_else(|| value.get("content")?.as_str());
            let text = text.ok_or_else(|| wrong(format!("`{role}`: expected a token's text")))?;
            settings
                .special_tokens
                .insert(role.to_owned(), text.to_owned());
        }
        settings.add_bos_token = map.get("add_bos_token").and_then(Value::as_bool);
        settings.chat_template = match map.get("chat_template") {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(Value::Array(list)) => default_template(list),
            Some(_) => {
                let problem = "`chat_template`: expected a text or a list of named ones";
                return Err(wrong(problem.to_owned()));
            }
        };
        Ok(settings)
    }
}

/// Of several named templates, the one that is meant for plain chats.
fn default_template(list: &[Value]) -> Option<String> {
    let is_default = |entry: &&Value| entry["name"] == "default";
    let entry = list.iter().find(is_default).or(list.first())?;
    entry["template"].as_str().map(str::to_owned)
}

/// The bytes of a file, or `None` where there is none.
pub(super) fn read_limited(path: &Path, most: u64) -> Result<Option<Vec<u8>>, TokenizerError> {
    let io = |source| TokenizerError::Io {
        path: path.to_owned(),
        source,
    };
    let bytes = match std::fs::metadata(path) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    };
    if bytes > most {
        return Err(too_long(path.to_owned(), bytes, most));
    }
    std::fs::read(path).map(Some).map_err(io)
}

fn too_long(path: PathBuf, bytes: u64, most: u64) -> TokenizerError {
    TokenizerError::File {
        path,
        problem: format!("{bytes} bytes, expected at most {most}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Settings, TokenizerError> {
        Settings::parse(Path::new(FILE_NAME), text.as_bytes())
    }

    #[test]
    fn a_token_is_a_text_or_an_object_with_one() {
        let settings = parse(
            r#"{"bos_token": "<s>", "eos_token": {"content": "</s>", "special": true},
                "pad_token": null, "model_max_length": 1e30}"#,
        )
        .unwrap();
        assert_eq!(settings.special_tokens["bos_token"], "<s>");
        assert_eq!(settings.special_tokens["eos_token"], "</s>");
        assert_eq!(settings.special_tokens.len(), 2);
        assert_eq!(settings.add_bos_token, None);
    }

    #[test]
    fn of_several_templates_the_default_is_taken() {
        let settings = parse(
            r#"{"chat_template": [{"name": "tool_use", "template": "t"},
                {"name": "default", "template": "d"}]}"#,
        )
        .unwrap();
        assert_eq!(settings.chat_template.as_deref(), Some("d"));
        assert_eq!(
            parse(r#"{"chat_template": []}"#).unwrap().chat_template,
            None
        );
    }

    #[test]
    fn what_is_of_the_wrong_kind_is_named() {
        for (text, part) in [
            ("[]", "expected an object"),
            (r#"{"bos_token": 3}"#, "bos_token"),
            (r#"{"chat_template": 3}"#, "chat_template"),
            ("{", "EOF"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains(FILE_NAME), "{error}");
        }
    }
}
