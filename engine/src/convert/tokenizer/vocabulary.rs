//! The pieces of a GGUF vocabulary, checked: ids are positions, texts are unique.

use std::collections::HashMap;

use crate::convert::error::ConvertError;
use crate::convert::keys::Keys;
use crate::weights::gguf::ListRange;

/// What a piece is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

/// Pieces by id.
#[derive(Debug)]
pub(super) struct Vocabulary<'a> {
    pub(super) texts: Vec<&'a str>,
    pub(super) kinds: Vec<Kind>,
    pub(super) ids: HashMap<&'a str, usize>,
}

/// A token that has a part to play.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::convert) struct Special<'a> {
    pub(in crate::convert) id: usize,
    pub(in crate::convert) text: &'a str,
}

pub(super) fn wrong(keys: &Keys<'_>, problem: String) -> ConvertError {
    ConvertError::Vocabulary {
        path: keys.file.path().to_owned(),
        problem,
    }
}

pub(super) fn read<'a>(keys: &Keys<'a>) -> Result<Vocabulary<'a>, ConvertError> {
    let texts = keys.list("tokenizer.ggml.tokens", "a list of texts", ListRange::texts)?;
    let kinds = keys.list(
        "tokenizer.ggml.token_type",
        "a list of whole numbers",
        ListRange::integers,
    )?;
    if kinds.len() != texts.len() {
        let (got, expected) = (kinds.len(), texts.len());
        return Err(wrong(
            keys,
            format!("{got} token types, expected {expected}"),
        ));
    }
    let kinds = kinds
        .into_iter()
        .enumerate()
        .map(|(id, number)| {
            kind(number)
                .ok_or_else(|| wrong(keys, format!("token {id}: type {number}, expected 1 to 6")))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let mut ids = HashMap::with_capacity(texts.len());
    for (id, &text) in texts.iter().enumerate() {
        if let Some(first) = ids.insert(text, id) {
            let problem = format!("tokens {first} and {id} are both {text:?}");
            return Err(wrong(keys, problem));
        }
    }
    Ok(Vocabulary { texts, kinds, ids })
}

fn kind(number: i64) -> Option<Kind> {
    Some(match number {
        1 => Kind::Normal,
        2 => Kind::Unknown,
        3 => Kind::Control,
        4 => Kind::UserDefined,
        5 => Kind::Unused,
        6 => Kind::Byte,
        _ => return None,
    })
}

impl<'a> Vocabulary<'a> {
    /// Pieces with their kinds, by id.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (usize, &'a str, Kind)> {
        let pieces = self.texts.iter().zip(&self.kinds).enumerate();
        pieces.map(|(id, (&text, &kind))| (id, text, kind))
    }

    /// The token that `tokenizer.ggml.<name>_token_id` names.
    pub(super) fn special(
        &self,
        keys: &Keys<'a>,
        name: &str,
    ) -> Result<Option<Special<'a>>, ConvertError> {
        let key = format!("tokenizer.ggml.{name}_token_id");
        let Some(id) = keys.optional_count(&key)? else {
            return Ok(None);
        };
        let text = self.texts.get(id).copied().ok_or_else(|| {
            let expected = format!("an id below {}", self.texts.len());
            keys.wrong(&key, &expected, keys.file.value(&key))
        })?;
        Ok(Some(Special { id, text }))
    }

    /// The control token with this text, if there is one.
    pub(super) fn control(&self, text: &str) -> Option<Special<'a>> {
        let id = *self.ids.get(text)?;
        (self.kinds[id] == Kind::Control).then(|| Special {
            id,
            text: self.texts[id],
        })
    }
}
