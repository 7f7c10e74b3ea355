//! Looks at every part of a folder and keeps going past what is wrong.

use std::path::Path;

use serde_json::Value;

use super::cache::CacheReport;
use super::modules::{self, Module};
use super::report::{InspectReport, Part, Problem, Shard, TokenizerReport, Unused};
use super::survey::survey;
use crate::error::LoadError;
use crate::model::ModelConfig;
use crate::tokenizer::TextTokenizer;
use crate::weights::index::ShardIndex;
use crate::weights::store::shard_paths;
use crate::weights::{SafetensorsFile, WeightStore};

/// Most paths that one problem names.
const MOST_NAMED: usize = 3;

/// Inspects `dir`. What is wrong with the folder is part of the report.
pub fn inspect(dir: &Path) -> InspectReport {
    let mut problems = Vec::new();
    let root = root_of_config(dir);
    let config = match ModelConfig::load(dir) {
        Ok(config) => Some(config),
        Err(error) => {
            note(&mut problems, Part::Config, &error);
            None
        }
    };
    let files = open_shards(dir, &mut problems);
    let modules = modules::modules(&files, &root["quantization"]);
    check_formats(&modules, &mut problems);
    let unused = match &config {
        Some(config) => survey_folder(dir, config, &files, &mut problems),
        None => Vec::new(),
    };
    let tokenizer = tokenizer(dir, config.as_ref(), &mut problems);
    // Multimodal files keep the text model's keys one level down.
    let text = root.get("text_config").unwrap_or(&root);
    let number = |key: &str| text.get(key).and_then(Value::as_u64);
    let of_config = |get: fn(&ModelConfig) -> usize| config.as_ref().map(|c| get(c) as u64);
    let total_bytes = files.iter().map(|f| f.file_bytes().len() as u64).sum();
    let parameters = modules.iter().map(|m| m.parameters).sum();
    let weight_bytes: u64 = modules.iter().map(|m| m.bytes).sum();
    InspectReport {
        model: dir.display().to_string(),
        model_type: root["model_type"].as_str().map(str::to_owned),
        family: config.as_ref().map(|c| c.family.name().to_owned()),
        loads: problems.is_empty(),
        problems,
        synthetic: config.as_ref().is_some_and(|c| c.synthetic),
        layers: of_config(|c| c.layers).or_else(|| number("num_hidden_layers")),
        hidden_size: of_config(|c| c.hidden_size).or_else(|| number("hidden_size")),
        vocab_size: of_config(|c| c.vocab_size).or_else(|| number("vocab_size")),
        max_position_tokens: number("max_position_embeddings"),
        end_tokens: config
            .as_ref()
            .map_or_else(Vec::new, |c| c.end_tokens.clone()),
        shards: files.iter().map(shard).collect(),
        total_bytes,
        parameters,
        bits_per_parameter: weight_bytes as f64 * 8.0 / (parameters.max(1)) as f64,
        formats: modules::by_format(&modules),
        modules: modules::by_path(&modules),
        unused,
        tokenizer,
        cache: match &config {
            Some(config) => Some(CacheReport::of(config)),
            None => CacheReport::estimate(text),
        },
    }
}

fn note(problems: &mut Vec<Problem>, part: Part, error: &dyn std::fmt::Display) {
    let problem = error.to_string();
    let known = |other: &Problem| other.problem == problem;
    if !problems.iter().any(known) {
        problems.push(Problem { part, problem });
    }
}

/// config.json as it is; null where it cannot be read, which [`ModelConfig::load`] reports.
fn root_of_config(dir: &Path) -> Value {
    let text = std::fs::read(dir.join("config.json")).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or(Value::Null)
}

fn open_shards(dir: &Path, problems: &mut Vec<Problem>) -> Vec<SafetensorsFile> {
    let paths = match ShardIndex::read(dir) {
        // Shards that are there are looked at although others are missing.
        Ok(Some(index)) => {
            let (there, missing): (Vec<_>, Vec<_>) = index
                .shards()
                .into_iter()
                .map(|shard| dir.join(shard))
                .partition(|path| path.is_file());
            for shard in missing {
                let index = dir.join(crate::weights::index::FILE_NAME);
                note(
                    problems,
                    Part::Weights,
                    &LoadError::MissingShard { index, shard },
                );
            }
            there
        }
        Ok(None) => shard_paths(dir).unwrap_or_default(),
        Err(error) => {
            note(problems, Part::Weights, &error);
            Vec::new()
        }
    };
    if paths.is_empty() && problems.iter().all(|p| p.part != Part::Weights) {
        let dir = dir.to_owned();
        note(problems, Part::Weights, &LoadError::NoWeights { dir });
    }
    let mut files = Vec::new();
    for path in paths {
        match SafetensorsFile::open(&path) {
            Ok(file) => files.push(file),
            Err(error) => note(problems, Part::Weights, &error),
        }
    }
    files
}

fn shard(file: &SafetensorsFile) -> Shard {
    let name = file.path().file_name().unwrap_or_default();
    Shard {
        file: name.to_string_lossy().into_owned(),
        bytes: file.file_bytes().len() as u64,
        tensors: file.names().count(),
    }
}

/// One problem a format that the engine does not have.
fn check_formats(modules: &[Module], problems: &mut Vec<Problem>) {
    for share in modules::by_format(modules) {
        let of_format = |module: &&Module| module.format == share.format && !module.known_format;
        let paths: Vec<&str> = modules
            .iter()
            .filter(of_format)
            .map(|module| module.path.as_str())
            .collect();
        if paths.is_empty() {
            continue;
        }
        let named = paths[..paths.len().min(MOST_NAMED)].join(", ");
        let more = match paths.len().saturating_sub(MOST_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let problem = format!("no kernel reads `{}`: {named}{more}", share.format);
        note(problems, Part::Format, &problem);
    }
}

/// Runs the family's loader; returns what it leaves alone.
fn survey_folder(
    dir: &Path,
    config: &ModelConfig,
    files: &[SafetensorsFile],
    problems: &mut Vec<Problem>,
) -> Vec<Unused> {
    // With a broken shard the loader would only repeat what is known.
    if files.is_empty() || problems.iter().any(|p| p.part == Part::Weights) {
        return Vec::new();
    }
    let store = match WeightStore::open(dir, &config.name_prefix) {
        Ok(store) => store,
        Err(error) => {
            note(problems, Part::Weights, &error);
            return Vec::new();
        }
    };
    if let Err(error) = survey(config, &store) {
        note(problems, Part::Weights, &error);
        // What comes after the first error was never asked for.
        return Vec::new();
    }
    let mut unused: Vec<Unused> = Vec::new();
    for name in store.unused() {
        let prefix = name.split('.').next().unwrap_or(name);
        match unused.iter_mut().find(|group| group.prefix == prefix) {
            Some(group) => group.tensors += 1,
            None => unused.push(Unused {
                prefix: prefix.to_owned(),
                tensors: 1,
            }),
        }
    }
    unused
}

fn tokenizer(
    dir: &Path,
    config: Option<&ModelConfig>,
    problems: &mut Vec<Problem>,
) -> Option<TokenizerReport> {
    let tokenizer = match TextTokenizer::find(dir) {
        Ok(found) => found?,
        Err(error) => {
            note(problems, Part::Tokenizer, &error);
            return None;
        }
    };
    if let (Some(largest), Some(config)) = (tokenizer.largest_id(), config)
        && largest as usize >= config.vocab_size
    {
        let rows = config.vocab_size;
        let problem = format!("tokenizer.json: id {largest}, but the embedding has {rows} rows");
        note(problems, Part::Tokenizer, &problem);
    }
    Some(TokenizerReport {
        tokens: tokenizer.token_count(),
        start_tokens: tokenizer.start_tokens().unwrap_or_default(),
        chat_template: tokenizer.has_chat_template(),
    })
}
