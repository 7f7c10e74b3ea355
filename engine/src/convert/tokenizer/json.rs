//! What tokenizer.json holds, as borrowed data: half a million merges are not copied.

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::vocabulary::{Kind, Special, Vocabulary};

/// The file.
#[derive(Debug, Serialize)]
pub(in crate::convert) struct TokenizerJson<'a> {
    version: &'static str,
    truncation: (),
    padding: (),
    added_tokens: Vec<AddedToken<'a>>,
    pub(super) normalizer: Value,
    pub(super) pre_tokenizer: Value,
    pub(super) post_processor: Value,
    pub(super) decoder: Value,
    pub(super) model: Model<'a>,
}

/// A token that is found in the text before anything else happens to it.
#[derive(Debug, Serialize)]
struct AddedToken<'a> {
    id: usize,
    content: &'a str,
    single_word: bool,
    lstrip: bool,
    rstrip: bool,
    normalized: bool,
    special: bool,
}

/// Byte-pair encoding.
#[derive(Debug, Serialize)]
pub(super) struct Model<'a> {
    pub(super) r#type: &'static str,
    pub(super) dropout: (),
    pub(super) unk_token: Option<&'a str>,
    pub(super) continuing_subword_prefix: (),
    pub(super) end_of_word_suffix: (),
    pub(super) fuse_unk: bool,
    pub(super) byte_fallback: bool,
    pub(super) ignore_merges: bool,
    pub(super) vocab: Vocab<'a>,
    pub(super) merges: Vec<(&'a str, &'a str)>,
}

/// Pieces in the order of their ids.
#[derive(Debug)]
pub(super) struct Vocab<'a>(pub(super) Vec<(&'a str, usize)>);

impl Serialize for Vocab<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

impl<'a> TokenizerJson<'a> {
    /// The parts that every vocabulary has; the rest is null until it is filled in.
    pub(super) fn new(vocabulary: &Vocabulary<'a>, merges: Vec<(&'a str, &'a str)>) -> Self {
        let pieces = || vocabulary.pieces().filter(|piece| piece.2 != Kind::Unused);
        let added = |kind| matches!(kind, Kind::Control | Kind::Unknown | Kind::UserDefined);
        Self {
            version: "1.0",
            truncation: (),
            padding: (),
            added_tokens: pieces()
                .filter(|&(_, text, kind)| added(kind) && !text.is_empty())
                .map(|(id, content, kind)| AddedToken {
                    id,
                    content,
                    single_word: false,
                    lstrip: false,
                    rstrip: false,
                    normalized: false,
                    special: kind != Kind::UserDefined,
                })
                .collect(),
            normalizer: Value::Null,
            pre_tokenizer: Value::Null,
            post_processor: Value::Null,
            decoder: Value::Null,
            model: Model {
                r#type: "BPE",
                dropout: (),
                unk_token: None,
                continuing_subword_prefix: (),
                end_of_word_suffix: (),
                fuse_unk: false,
                byte_fallback: false,
                ignore_merges: false,
                vocab: Vocab(pieces().map(|(id, text, _)| (text, id)).collect()),
                merges,
            },
        }
    }
}

/// Puts `first` before a text and `last` after it.
pub(super) fn template(first: Option<Special<'_>>, last: Option<Special<'_>>) -> Value {
    if first.is_none() && last.is_none() {
        return Value::Null;
    }
    let token = |special: Special<'_>, type_id: u8| json!({"SpecialToken": {"id": special.text, "type_id": type_id}});
    let around = |id: &str, type_id: u8| {
        let mut parts: Vec<Value> = first.map(|s| token(s, type_id)).into_iter().collect();
        parts.push(json!({"Sequence": {"id": id, "type_id": type_id}}));
        parts.extend(last.map(|s| token(s, type_id)));
        parts
    };
    let pair = [around("A", 0), around("B", 1)].concat();
    let tokens = first.into_iter().chain(last).map(|special| {
        let entry = json!({"id": special.text, "ids": [special.id], "tokens": [special.text]});
        (special.text.to_owned(), entry)
    });
    json!({
        "type": "TemplateProcessing",
        "single": around("A", 0),
        "pair": pair,
        "special_tokens": Value::Object(tokens.collect()),
    })
}
