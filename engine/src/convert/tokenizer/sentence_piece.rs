//! SentencePiece vocabularies (`llama`): pieces with scores, from which merges are rebuilt.
//!
//! SentencePiece joins the two neighbours whose union is the piece with the highest score. A merge
//! table does the same when it lists, by falling score, every way to split a piece into two known
//! ones. Pieces that are matched before any merging (control and user-defined ones) and bytes take
//! no part.

use serde_json::{Value, json};

use super::json::TokenizerJson;
use super::vocabulary::{Kind, Vocabulary, wrong};
use crate::convert::error::ConvertError;
use crate::convert::keys::Keys;
use crate::weights::gguf::ListRange;

/// What SentencePiece writes for a blank.
const BLANK: &str = "\u{2581}";

/// Longest piece that is split; it bounds the work that a made-up vocabulary can ask for. Real
/// pieces are below 100 bytes.
const MAX_PIECE_BYTES: usize = 512;

pub(super) fn build<'a>(
    keys: &Keys<'a>,
    vocabulary: &Vocabulary<'a>,
) -> Result<TokenizerJson<'a>, ConvertError> {
    let key = "tokenizer.ggml.scores";
    let scores = keys.list(key, "a list of float32", ListRange::floats)?;
    let pieces = vocabulary.texts.len();
    if scores.len() != pieces {
        let got = scores.len();
        return Err(wrong(keys, format!("{got} scores, expected {pieces}")));
    }
    let blank_first = keys.boolean_or("tokenizer.ggml.add_space_prefix", true)?;
    let merges = merges(vocabulary, &scores).map_err(|problem| wrong(keys, problem))?;
    let mut json = TokenizerJson::new(vocabulary, merges);
    json.normalizer = normalizer(blank_first);
    json.decoder = decoder(blank_first);
    json.model.unk_token = vocabulary
        .special(keys, "unknown")?
        .map(|special| special.text);
    json.model.fuse_unk = true;
    json.model.byte_fallback = vocabulary.kinds.contains(&Kind::Byte);
    Ok(json)
}

fn normalizer(blank_first: bool) -> Value {
    let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": BLANK});
    if !blank_first {
        return replace;
    }
    let prepend = json!({"type": "Prepend", "prepend": BLANK});
    json!({"type": "Sequence", "normalizers": [prepend, replace]})
}

fn decoder(blank_first: bool) -> Value {
    let mut decoders = vec![
        json!({"type": "Replace", "pattern": {"String": BLANK}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if blank_first {
        decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    json!({"type": "Sequence", "decoders": decoders})
}

fn merges<'a>(
    vocabulary: &Vocabulary<'a>,
    scores: &[f32],
) -> Result<Vec<(&'a str, &'a str)>, String> {
    let known = |text: &str| {
        let id = vocabulary.ids.get(text).copied();
        id.filter(|&id| vocabulary.kinds[id] == Kind::Normal)
    };
    let mut ranked = Vec::new();
    for (id, text, kind) in vocabulary.pieces() {
        if kind != Kind::Normal {
            continue;
        }
        if text.len() > MAX_PIECE_BYTES {
            let got = text.len();
            return Err(format!(
                "token {id} has {got} bytes, expected at most {MAX_PIECE_BYTES}"
            ));
        }
        for (at, _) in text.char_indices().skip(1) {
            let (left, right) = text.split_at(at);
            if let (Some(l), Some(r)) = (known(left), known(right)) {
                ranked.push((id, l, r, (left, right)));
            }
        }
    }
    // By falling score; ids make the order of the rest, which does not matter, the same each time.
    ranked.sort_unstable_by(|a, b| {
        let by_score = scores[b.0].total_cmp(&scores[a.0]);
        by_score.then((a.0, a.1, a.2).cmp(&(b.0, b.1, b.2)))
    });
    Ok(ranked.into_iter().map(|entry| entry.3).collect())
}
