//! The whole set: tokenizer.json, tokenizer_config.json, the ids that other files repeat.

use serde_json::{Map, Value, json};

use super::json::{TokenizerJson, template};
use super::vocabulary::{self, Special, Vocabulary};
use super::{byte_level, sentence_piece};
use crate::convert::error::ConvertError;
use crate::convert::keys::Keys;
use crate::weights::gguf::GgufFile;

/// Control tokens that end a turn in chat templates, where the file names none of its own.
const ENDS_OF_TURN: [&str; 4] = ["<end_of_turn>", "<|im_end|>", "<|eot_id|>", "<|end|>"];

/// What a folder says about text.
#[derive(Debug)]
pub(in crate::convert) struct Tokenizer<'a> {
    /// tokenizer.json.
    pub(in crate::convert) json: TokenizerJson<'a>,
    /// tokenizer_config.json.
    pub(in crate::convert) config: Value,
    tokens: usize,
    bos: Option<Special<'a>>,
    pad: Option<Special<'a>>,
    /// Tokens that end a text, the file's own first.
    ends: Vec<usize>,
}

pub(in crate::convert) fn read<'a>(keys: &Keys<'a>) -> Result<Tokenizer<'a>, ConvertError> {
    let key = "tokenizer.ggml.model";
    let model = keys.text(key)?;
    let vocabulary = vocabulary::read(keys)?;
    // What these models do where the file does not say.
    let (mut json, adds_bos) = match model {
        "gpt2" => {
            let adds_bos = keys.optional_text("tokenizer.ggml.pre")? == Some("llama-bpe");
            (byte_level::build(keys, &vocabulary)?, adds_bos)
        }
        "llama" => (sentence_piece::build(keys, &vocabulary)?, true),
        _ => return Err(keys.wrong(key, "`gpt2` or `llama`", keys.file.value(key))),
    };
    let special = |name| vocabulary.special(keys, name);
    let (bos, eos) = (special("bos")?, special("eos")?);
    let adds_bos = keys.boolean_or("tokenizer.ggml.add_bos_token", adds_bos)?;
    let adds_eos = keys.boolean_or("tokenizer.ggml.add_eos_token", false)?;
    json.post_processor = template(bos.filter(|_| adds_bos), eos.filter(|_| adds_eos));
    let chat_template = keys.optional_text("tokenizer.chat_template")?;
    let ends = ends(keys, &vocabulary, eos, chat_template.is_some())?;
    let mut config = Map::new();
    let mut put = |key: &str, value: Value| config.insert(key.to_owned(), value);
    put("tokenizer_class", json!("PreTrainedTokenizerFast"));
    put("clean_up_tokenization_spaces", json!(false));
    put("add_bos_token", json!(adds_bos));
    put("add_eos_token", json!(adds_eos));
    let pad = special("padding")?;
    let unknown = special("unknown")?;
    let roles = [("bos", bos), ("eos", eos), ("pad", pad), ("unk", unknown)];
    for (name, token) in roles {
        if let Some(token) = token {
            put(&format!("{name}_token"), json!(token.text));
        }
    }
    if let Some(text) = chat_template {
        put("chat_template", json!(text));
    }
    Ok(Tokenizer {
        json,
        config: Value::Object(config),
        tokens: vocabulary.texts.len(),
        bos,
        pad,
        ends,
    })
}

fn ends<'a>(
    keys: &Keys<'a>,
    vocabulary: &Vocabulary<'a>,
    eos: Option<Special<'a>>,
    chats: bool,
) -> Result<Vec<usize>, ConvertError> {
    let mut ends: Vec<usize> = eos.into_iter().map(|token| token.id).collect();
    ends.extend(vocabulary.special(keys, "eot")?.map(|token| token.id));
    if chats {
        let known = ENDS_OF_TURN
            .iter()
            .filter_map(|text| vocabulary.control(text));
        ends.extend(known.map(|token| token.id));
    }
    let mut unique = Vec::new();
    for id in ends {
        if !unique.contains(&id) {
            unique.push(id);
        }
    }
    Ok(unique)
}

impl Tokenizer<'_> {
    /// Every id must have a row in the embedding table, of `rows` rows.
    pub(in crate::convert) fn check_rows(
        &self,
        file: &GgufFile,
        rows: Option<&Value>,
    ) -> Result<(), ConvertError> {
        let rows = rows.and_then(Value::as_u64).unwrap_or(0);
        if self.tokens as u64 <= rows {
            return Ok(());
        }
        let got = self.tokens;
        Err(ConvertError::Vocabulary {
            path: file.path().to_owned(),
            problem: format!("{got} tokens, expected at most the {rows} rows of token_embd.weight"),
        })
    }

    /// Adds the ids that config.json repeats.
    pub(in crate::convert) fn add_ids(&self, config: &mut Map<String, Value>) {
        for (key, value) in self.ids() {
            config.insert(key.to_owned(), value);
        }
    }

    /// generation_config.json.
    pub(in crate::convert) fn generation_config(&self) -> Value {
        let ids = self.ids().into_iter();
        Value::Object(ids.map(|(key, value)| (key.to_owned(), value)).collect())
    }

    fn ids(&self) -> Vec<(&'static str, Value)> {
        let end = match self.ends.as_slice() {
            [] => None,
            [one] => Some(json!(one)),
            several => Some(json!(several)),
        };
        [
            ("bos_token_id", self.bos.map(|token| json!(token.id))),
            ("eos_token_id", end),
            ("pad_token_id", self.pad.map(|token| json!(token.id))),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)))
        .collect()
    }
}
