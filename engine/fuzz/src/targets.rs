//! What is done with an input: its bytes become files of a model folder, and the folder is used as
//! far as it can be.
//!
//! An input of several files has them one after another, with a zero byte between: neither JSON
//! nor a template can contain one. A file that is not in the input is not in the folder.

use std::path::Path;

use mlxcel_engine::convert::{ConvertOptions, convert};
use mlxcel_engine::decode::{LoopChoice, Sampler, SamplerOptions, StopRule};
use mlxcel_engine::inspect::inspect;
use mlxcel_engine::tokenizer::{Message, Role, TextStream, TextTokenizer};
use mlxcel_engine::weights::SafetensorsFile;
use mlxcel_engine::{Arithmetic, Engine, LoadOptions};

/// A configuration that the weights of the corpus satisfy.
const CONFIG: &[u8] = include_bytes!("../corpus/config/llama");

/// Weights with the tensors of every family, for configurations.
const WEIGHTS: &[u8] = include_bytes!("../corpus/safetensors/all_families");

/// What is done with an input, in a folder for its files.
pub type Target = fn(&Path, &[u8]);

/// Every target, by name.
pub const ALL: [(&str, Target); 4] = [
    ("safetensors", safetensors),
    ("gguf", gguf),
    ("config", config),
    ("tokenizer", tokenizer),
];

/// `model.safetensors` beside a fixed config.json.
pub fn safetensors(dir: &Path, input: &[u8]) {
    write(dir, "config.json", Some(CONFIG));
    write(dir, "model.safetensors", Some(input));
    if let Ok(file) = SafetensorsFile::open(&dir.join("model.safetensors")) {
        for name in file.names() {
            let tensor = file.tensor(name);
            let _ = tensor.map(|tensor| (tensor.to_f32(), tensor.to_i32()));
        }
    }
    use_model(dir);
}

/// A GGUF file, and the folder that it is converted to.
pub fn gguf(dir: &Path, input: &[u8]) {
    write(dir, "model.gguf", Some(input));
    let folder = dir.join("converted");
    let options = ConvertOptions::default();
    if convert(&dir.join("model.gguf"), &folder, options, &mut |_, _| {}).is_ok() {
        use_model(&folder);
        use_tokenizer(&folder);
        std::fs::remove_dir_all(&folder).expect("a folder that was just made");
    }
}

/// config.json, generation_config.json and the index of shards, beside fixed weights.
pub fn config(dir: &Path, input: &[u8]) {
    let mut parts = input.split(|byte| *byte == 0);
    write(dir, "config.json", parts.next());
    write(dir, "generation_config.json", parts.next());
    write(dir, "model.safetensors.index.json", parts.next());
    write(dir, "model.safetensors", Some(WEIGHTS));
    use_model(dir);
}

/// tokenizer.json, tokenizer_config.json and chat_template.jinja.
pub fn tokenizer(dir: &Path, input: &[u8]) {
    let mut parts = input.split(|byte| *byte == 0);
    write(dir, "tokenizer.json", parts.next());
    write(dir, "tokenizer_config.json", parts.next());
    write(dir, "chat_template.jinja", parts.next());
    use_tokenizer(dir);
}

fn write(dir: &Path, name: &str, content: Option<&[u8]>) {
    let path = dir.join(name);
    match content {
        Some(content) => std::fs::write(path, content).expect("a writable scratch folder"),
        None => {
            // Most often there is none.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Loads the folder and, if it loads, writes some tokens.
fn use_model(dir: &Path) {
    if !inspect(dir).loads {
        return;
    }
    for arithmetic in [Arithmetic::Float32, Arithmetic::Fast] {
        let options = LoadOptions {
            arithmetic,
            threads: 1,
            ..LoadOptions::default()
        };
        let Ok(engine) = Engine::load(dir, &options, &mut |_| {}) else {
            continue;
        };
        let Ok(mut sequence) = engine.new_sequence() else {
            continue;
        };
        let sampler = Sampler::new(SamplerOptions {
            temperature: 1.0,
            top_p: 0.9,
            seed: 1,
        });
        let stop = StopRule {
            max_tokens: 4,
            end_tokens: Vec::new(),
        };
        let choice = LoopChoice::Engine(Default::default());
        let mut decoder = choice.over(&mut sequence, sampler, stop, false);
        if decoder.prefill(&[1, 2, 3]).is_ok() {
            while let Ok(Some(_)) = decoder.next() {}
        }
    }
}

/// Loads the folder's tokenizer and, if it loads, runs it there and back.
fn use_tokenizer(dir: &Path) {
    let Ok(tokenizer) = TextTokenizer::load(dir) else {
        return;
    };
    let text = "The mill, 12 é 🎉 \u{2581}<|im_end|>";
    if let Ok(ids) = tokenizer.encode(text) {
        let _ = tokenizer.decode(&ids);
        if let Ok(mut stream) = TextStream::after(&tokenizer, &ids) {
            for id in ids.iter().chain(&[0, 511, u32::MAX]) {
                let _ = stream.push(*id);
            }
            let _ = stream.finish();
        }
    }
    let _ = tokenizer.start_tokens();
    let _ = tokenizer.encode_chat(&[
        Message::new(Role::System, "Be brief."),
        Message::new(Role::User, text),
    ]);
}
