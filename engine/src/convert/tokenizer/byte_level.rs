//! Byte-level vocabularies (`gpt2`): merges are in the file, how a text is split goes by a name.

use serde_json::{Value, json};

use super::json::TokenizerJson;
use super::vocabulary::{Vocabulary, wrong};
use crate::convert::error::ConvertError;
use crate::convert::keys::Keys;
use crate::weights::gguf::ListRange;

const PRE: &str = "tokenizer.ggml.pre";

/// How Llama 3 splits a text, as its published tokenizer.json has it.
const LLAMA3_SPLIT: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

pub(super) fn build<'a>(
    keys: &Keys<'a>,
    vocabulary: &Vocabulary<'a>,
) -> Result<TokenizerJson<'a>, ConvertError> {
    let name = keys.text(PRE)?;
    let own_split = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let (pre_tokenizer, whole_words_first) = match name {
        "gpt-2" => (own_split, false),
        "smollm" => (
            sequence(&[
                json!({"type": "Digits", "individual_digits": true}),
                own_split,
            ]),
            false,
        ),
        "llama-bpe" | "llama3" | "llama-v3" => {
            let split = json!({"type": "Split", "pattern": {"Regex": LLAMA3_SPLIT}, "behavior": "Isolated", "invert": false});
            let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
            (sequence(&[split, bytes]), true)
        }
        _ => {
            let expected = "`smollm`, `llama-bpe` or `gpt-2`";
            return Err(keys.wrong(PRE, expected, keys.file.value(PRE)));
        }
    };
    let mut json = TokenizerJson::new(vocabulary, merges(keys, vocabulary)?);
    json.pre_tokenizer = pre_tokenizer;
    json.decoder = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
    json.model.ignore_merges = whole_words_first;
    Ok(json)
}

fn sequence(parts: &[Value]) -> Value {
    json!({"type": "Sequence", "pretokenizers": parts})
}

/// Each merge is two pieces with a blank between; blanks inside pieces are written otherwise.
fn merges<'a>(
    keys: &Keys<'a>,
    vocabulary: &Vocabulary<'a>,
) -> Result<Vec<(&'a str, &'a str)>, ConvertError> {
    let key = "tokenizer.ggml.merges";
    let texts = keys.list(key, "a list of texts", ListRange::texts)?;
    let mut joined = String::new();
    texts
        .into_iter()
        .enumerate()
        .map(|(index, text)| {
            let pair = text.split_once(' ').filter(|(left, right)| {
                joined.clear();
                joined.push_str(left);
                joined.push_str(right);
                let known = |piece: &str| vocabulary.ids.contains_key(piece);
                known(left) && known(right) && known(&joined)
            });
            pair.ok_or_else(|| {
                let problem = format!(
                    "merge {index} is {text:?}, expected two known pieces that make a third"
                );
                wrong(keys, problem)
            })
        })
        .collect()
}
