//! Text to ids and back, against ids that other programs made (scripts/make_tokenizer_fixtures.py).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use mlxcel_engine::tokenizer::{Message, Role, TextStream, TextTokenizer, TokenizerError};
use proptest::prelude::*;
use serde_json::{Value, json};

const NAMES: [&str; 2] = ["bytelevel", "sentencepiece"];

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/tokenizers")
        .join(name)
}

fn load(name: &str) -> TextTokenizer {
    TextTokenizer::load(&folder(name)).unwrap()
}

/// The texts with their ids by each tokenizer.
fn texts() -> Vec<Value> {
    let lines = std::fs::read_to_string(folder("texts.jsonl")).unwrap();
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn ids(value: &Value) -> Vec<u32> {
    let list = value.as_array().unwrap();
    list.iter()
        .map(|id| u32::try_from(id.as_u64().unwrap()).unwrap())
        .collect()
}

#[test]
fn ids_are_those_of_the_reference_programs() {
    let texts = texts();
    assert!(texts.len() > 300);
    for name in NAMES {
        let tokenizer = load(name);
        for row in &texts {
            let text = row["text"].as_str().unwrap();
            assert_eq!(
                tokenizer.encode_plain(text).unwrap(),
                ids(&row[name]),
                "{name}: {text:?}"
            );
        }
    }
}

#[test]
fn ids_lead_back_to_the_text() {
    for name in NAMES {
        let tokenizer = load(name);
        for row in &texts() {
            let text = row["text"].as_str().unwrap();
            assert_eq!(tokenizer.decode(&ids(&row[name])).unwrap(), text, "{name}");
        }
    }
}

/// The pieces that a stream hands out, the last one at its end.
fn stream(tokenizer: &TextTokenizer, prompt: &[u32], ids: &[u32]) -> Vec<String> {
    let mut stream = TextStream::after(tokenizer, prompt).unwrap();
    let mut pieces: Vec<String> = ids.iter().map(|id| stream.push(*id).unwrap()).collect();
    pieces.push(stream.finish().unwrap());
    pieces
}

#[test]
fn streamed_pieces_make_up_the_text_and_none_holds_half_a_character() {
    for name in NAMES {
        let tokenizer = load(name);
        for row in &texts() {
            let (text, ids) = (row["text"].as_str().unwrap(), ids(&row[name]));
            let pieces = stream(&tokenizer, &[], &ids);
            assert_eq!(pieces.concat(), text, "{name}");
            assert!(!pieces.concat().contains('\u{FFFD}') || text.contains('\u{FFFD}'));
        }
    }
}

#[test]
fn a_stream_goes_on_where_the_prompt_ended() {
    for name in NAMES {
        let tokenizer = load(name);
        for row in texts()
            .iter()
            .filter(|row| row[name].as_array().unwrap().len() > 4)
        {
            let (text, ids) = (row["text"].as_str().unwrap(), ids(&row[name]));
            let (prompt, rest) = ids.split_at(ids.len() / 2);
            let start = tokenizer.decode(prompt).unwrap();
            // A prompt is a whole text: it cannot end inside a character.
            if let Some(wanted) = text.strip_prefix(&start) {
                assert_eq!(stream(&tokenizer, prompt, rest).concat(), wanted, "{name}");
            }
        }
    }
}

#[test]
fn an_unfinished_character_is_held_back_and_shown_at_the_end() {
    for name in NAMES {
        let tokenizer = load(name);
        let mut ids = tokenizer.encode_plain("ok 🎉").unwrap();
        ids.pop();
        let pieces = stream(&tokenizer, &[], &ids);
        let (last, before) = pieces.split_last().unwrap();
        assert_eq!(before.concat(), "ok ", "{name}");
        assert!(
            last.chars().all(|c| c == '\u{FFFD}') && !last.is_empty(),
            "{name}: {last:?}"
        );
    }
}

#[test]
fn special_tokens_are_read_in_a_text_and_left_out_of_it() {
    let tokenizer = load("bytelevel");
    let ids = tokenizer.encode_plain("<|im_start|>user").unwrap();
    assert_eq!(ids[0], 1);
    assert_eq!(tokenizer.decode(&ids).unwrap(), "user");
    assert_eq!(stream(&tokenizer, &[], &ids).concat(), "user");
    assert_eq!(tokenizer.end_token(), Some(2));
}

#[test]
fn a_text_starts_as_the_folder_says() {
    let tokenizer = load("sentencepiece");
    let ids = tokenizer.encode("hello").unwrap();
    assert_eq!(ids[0], 2);
    assert_eq!(ids[1..], tokenizer.encode_plain("hello").unwrap());
    assert_eq!(tokenizer.start_tokens().unwrap(), [2]);
    let tokenizer = load("bytelevel");
    assert_eq!(
        tokenizer.encode("hello").unwrap(),
        tokenizer.encode_plain("hello").unwrap()
    );
    assert!(tokenizer.start_tokens().unwrap().is_empty());
}

/// A copy of a fixture with one file changed.
fn changed(name: &str, file: &str, change: impl FnOnce(&mut Value)) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(folder(name)).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, dir.path().join(path.file_name().unwrap())).unwrap();
    }
    let path = dir.path().join(file);
    let mut value: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut value);
    std::fs::write(&path, value.to_string()).unwrap();
    dir
}

#[test]
fn the_settings_can_ask_for_a_start_token_that_tokenizer_json_does_not_add() {
    let dir = changed("sentencepiece", "tokenizer.json", |file| {
        file["post_processor"] = Value::Null;
    });
    let tokenizer = TextTokenizer::load(dir.path()).unwrap();
    assert_eq!(tokenizer.encode("hello").unwrap()[0], 2);
    let dir = changed("bytelevel", "tokenizer_config.json", |settings| {
        settings["add_bos_token"] = json!(true);
    });
    let tokenizer = TextTokenizer::load(dir.path()).unwrap();
    assert_eq!(tokenizer.encode("hello").unwrap()[0], 1);
}

#[test]
fn a_prompt_is_neither_cut_nor_padded() {
    let dir = changed("bytelevel", "tokenizer.json", |file| {
        file["truncation"] = json!({"direction": "Right", "max_length": 3,
            "strategy": "LongestFirst", "stride": 0});
        file["padding"] = json!({"strategy": {"Fixed": 50}, "direction": "Right",
            "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0, "pad_token": "x"});
    });
    let tokenizer = TextTokenizer::load(dir.path()).unwrap();
    let text = "a text of more than three tokens";
    assert_eq!(
        tokenizer.encode(text).unwrap(),
        load("bytelevel").encode(text).unwrap()
    );
}

#[test]
fn chats_are_written_as_the_template_says() {
    let user = Message::new(Role::User, " Where is the mill? ");
    let tokenizer = load("sentencepiece");
    let template = tokenizer.chat_template().unwrap();
    assert_eq!(
        template.render(std::slice::from_ref(&user)).unwrap(),
        "<bos><start_of_turn>user\nWhere is the mill?<end_of_turn>\n<start_of_turn>model\n"
    );
    let system = Message::new(Role::System, "Be brief.");
    assert_eq!(
        template.render(&[system.clone(), user.clone()]).unwrap(),
        "<bos><start_of_turn>user\nBe brief.\n\nWhere is the mill?<end_of_turn>\n\
         <start_of_turn>model\n"
    );
    let error = template.render(&[user.clone(), user.clone()]).unwrap_err();
    assert!(
        error.to_string().contains("roles must alternate"),
        "{error}"
    );
    let ids = tokenizer.encode_chat(std::slice::from_ref(&user)).unwrap();
    assert_eq!(
        ids.iter().filter(|id| **id == 2).count(),
        1,
        "one start token: {ids:?}"
    );

    let template = load("bytelevel");
    let template = template.chat_template().unwrap();
    let default = template.render(std::slice::from_ref(&user)).unwrap();
    assert!(default.starts_with("<|im_start|>system\nYou are a careful assistant.<|im_end|>\n"));
    let own = template.render(&[system, user]).unwrap();
    assert!(own.starts_with("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n"));
    assert!(own.ends_with("<|im_start|>assistant\n"));
}

#[test]
fn what_is_missing_or_broken_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let error = TextTokenizer::load(dir.path()).unwrap_err();
    assert!(matches!(error, TokenizerError::Missing { .. }), "{error}");
    assert!(TextTokenizer::find(dir.path()).unwrap().is_none());
    for text in ["", "{}", "[1]", "{\"model\": {\"type\": \"BPE\"}}"] {
        std::fs::write(dir.path().join("tokenizer.json"), text).unwrap();
        let error = TextTokenizer::load(dir.path()).unwrap_err().to_string();
        assert!(error.contains("tokenizer.json"), "{error}");
    }
    let dir = changed("bytelevel", "tokenizer_config.json", |settings| {
        settings["chat_template"] = json!("{% for %}");
    });
    let error = TextTokenizer::load(dir.path()).unwrap_err().to_string();
    assert!(
        error.contains("tokenizer_config.json: chat template"),
        "{error}"
    );
    let dir = changed("bytelevel", "tokenizer_config.json", |settings| {
        settings["chat_template"] = Value::Null;
    });
    let tokenizer = TextTokenizer::load(dir.path()).unwrap();
    let error = tokenizer.encode_chat(&[]).unwrap_err().to_string();
    assert!(error.contains("--raw"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn any_text_survives_the_way_there_and_back(text in "\\PC{0,40}", which in 0usize..2) {
        // Special tokens in a text are read as such and left out on the way back.
        prop_assume!(!text.contains('<'));
        let tokenizer = load(NAMES[which]);
        let ids = tokenizer.encode_plain(&text).unwrap();
        prop_assert_eq!(&tokenizer.decode(&ids).unwrap(), &text);
        prop_assert_eq!(&stream(&tokenizer, &[], &ids).concat(), &text);
    }

    #[test]
    fn any_ids_give_text_without_a_panic(
        ids in prop::collection::vec(0u32..600, 0..40),
        which in 0usize..2,
        cut in any::<prop::sample::Index>(),
    ) {
        let tokenizer = load(NAMES[which]);
        let cut = cut.index(ids.len() + 1);
        let pieces = stream(&tokenizer, &ids[..cut], &ids[cut..]);
        // Waiting is bounded: of so many ids, most have been handed out before the end.
        prop_assert!(pieces.last().unwrap().chars().count() <= 64);
    }

    #[test]
    fn a_damaged_tokenizer_file_never_panics(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        which in 0usize..2,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut bytes = std::fs::read(folder(NAMES[which]).join("tokenizer.json")).unwrap();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        std::fs::write(dir.path().join("tokenizer.json"), bytes).unwrap();
        use_it(dir.path());
    }

    #[test]
    fn a_tokenizer_file_with_other_values_never_panics(
        picks in prop::collection::vec((any::<prop::sample::Index>(), 0usize..9), 1..4),
        which in 0usize..2,
    ) {
        let dir = changed(NAMES[which], "tokenizer.json", |file| {
            // Thousands of vocabulary entries would leave the rest untouched.
            for (at, kind) in &picks {
                let mut paths = Vec::new();
                pointers(file, String::new(), &mut paths);
                let path = at.get(&paths);
                *file.pointer_mut(path).unwrap() = other_value(*kind);
            }
        });
        use_it(dir.path());
    }

    #[test]
    fn settings_with_other_values_never_panic(
        key in prop::sample::select(vec!["bos_token", "eos_token", "add_bos_token", "chat_template"]),
        kind in 0usize..9,
        template in "[-{}% a-z.'\\[\\]()|+*0-9]{0,40}",
    ) {
        let dir = changed("bytelevel", "tokenizer_config.json", |settings| {
            settings["chat_template"] = json!(template);
            settings[key] = other_value(kind);
        });
        use_it(dir.path());
        let dir = changed("bytelevel", "tokenizer_config.json", |settings| {
            settings["chat_template"] = json!(template);
        });
        use_it(dir.path());
    }
}

/// Loads a folder that may be broken and, if it loads, runs it.
fn use_it(dir: &Path) {
    let Ok(tokenizer) = TextTokenizer::load(dir) else {
        return;
    };
    let text = "The mill, 12 é 🎉 \u{2581}<|im_end|>";
    if let Ok(ids) = tokenizer.encode(text) {
        let _ = tokenizer.decode(&ids);
        if let Ok(mut stream) = TextStream::after(&tokenizer, &ids) {
            for id in ids.iter().chain(&[0, 511, 100_000]) {
                let _ = stream.push(*id);
            }
            let _ = stream.finish();
        }
    }
    let _ = tokenizer.start_tokens();
    let _ = tokenizer.encode_chat(&[Message::new(Role::User, text)]);
}

/// Paths of the values of a file, few of them inside the vocabulary and the merges.
fn pointers(value: &Value, at: String, paths: &mut Vec<String>) {
    paths.push(at.clone());
    let most = if at.ends_with("/vocab") || at.ends_with("/merges") {
        4
    } else {
        usize::MAX
    };
    match value {
        Value::Object(map) => {
            for (key, inner) in map.iter().take(most) {
                let key = key.replace('~', "~0").replace('/', "~1");
                pointers(inner, format!("{at}/{key}"), paths);
            }
        }
        Value::Array(list) => {
            for (index, inner) in list.iter().enumerate().take(most) {
                pointers(inner, format!("{at}/{index}"), paths);
            }
        }
        _ => {}
    }
}

fn other_value(kind: usize) -> Value {
    match kind {
        0 => Value::Null,
        1 => json!(-1),
        2 => json!(u64::MAX),
        3 => json!(1e300),
        4 => json!("BPE"),
        5 => json!(""),
        6 => json!([]),
        7 => json!({}),
        _ => json!(true),
    }
}
