//! Model folders made from the fixtures: other names, other shards, other configurations.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mlxcel_engine::weights::SafetensorsFile;
use serde_json::{Value, json};

/// The folder of a fixture.
pub(crate) fn fixture(family: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(family)
}

/// The fixture's config.json.
pub(crate) fn config(family: &str) -> Value {
    let text = std::fs::read(fixture(family).join("config.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// A tensor to write.
#[derive(Clone)]
pub(crate) struct Tensor {
    pub(crate) dtype: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

/// Every tensor of the fixture, by name.
pub(crate) fn tensors(family: &str) -> BTreeMap<String, Tensor> {
    let file = SafetensorsFile::open(&fixture(family).join("model.safetensors")).unwrap();
    file.names()
        .map(|name| {
            let view = file.tensor(name).unwrap();
            let tensor = Tensor {
                dtype: format!("{:?}", view.dtype).to_uppercase(),
                shape: view.shape.to_vec(),
                bytes: view.bytes.to_vec(),
            };
            (name.to_owned(), tensor)
        })
        .collect()
}

/// Writes one safetensors file.
pub(crate) fn write_shard(path: &Path, tensors: &BTreeMap<String, Tensor>) {
    let mut header = serde_json::Map::new();
    let mut data = Vec::new();
    for (name, tensor) in tensors {
        let begin = data.len();
        data.extend_from_slice(&tensor.bytes);
        let entry = json!({
            "dtype": tensor.dtype,
            "shape": tensor.shape,
            "data_offsets": [begin, data.len()],
        });
        header.insert(name.clone(), entry);
    }
    let header = Value::Object(header).to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(&data);
    std::fs::write(path, bytes).unwrap();
}

/// Writes config.json and the tensors in `shards` files with an index.
pub(crate) fn write_folder(
    dir: &Path,
    config: &Value,
    tensors: &BTreeMap<String, Tensor>,
    shards: usize,
) {
    std::fs::write(dir.join("config.json"), config.to_string()).unwrap();
    let mut parts = vec![BTreeMap::new(); shards];
    let mut weight_map = serde_json::Map::new();
    for (index, (name, tensor)) in tensors.iter().enumerate() {
        // Neighbours in different files, as a boundary in the middle of a layer would have it.
        let shard = index % shards;
        parts[shard].insert(name.clone(), tensor.clone());
        weight_map.insert(name.clone(), json!(shard_name(shard, shards)));
    }
    for (shard, part) in parts.iter().enumerate() {
        write_shard(&dir.join(shard_name(shard, shards)), part);
    }
    let index = json!({"metadata": {}, "weight_map": weight_map});
    std::fs::write(dir.join("model.safetensors.index.json"), index.to_string()).unwrap();
}

/// `model-00001-of-00003.safetensors` for shard 0 of 3.
pub(crate) fn shard_name(shard: usize, shards: usize) -> String {
    format!("model-{:05}-of-{shards:05}.safetensors", shard + 1)
}

/// The Gemma 3 fixture as a multimodal folder: keys one level down, names prefixed, a vision tower
/// and a projector beside it.
pub(crate) fn multimodal(dir: &Path, shards: usize) {
    let mut text = config("gemma3_text");
    let mut outer = json!({"model_type": "gemma3", "vision_config": {"hidden_size": 8}});
    for key in ["quantization", "quantization_config", "eos_token_id"] {
        let value = text.as_object_mut().unwrap().remove(key);
        outer[key] = value.unwrap_or(Value::Null);
    }
    outer["text_config"] = text;
    let mut all: BTreeMap<String, Tensor> = tensors("gemma3_text")
        .into_iter()
        .map(|(name, tensor)| (format!("language_model.{name}"), tensor))
        .collect();
    let picture = Tensor {
        dtype: "BF16".to_owned(),
        shape: vec![2, 4],
        bytes: vec![0; 16],
    };
    for name in [
        "vision_tower.vision_model.embeddings.patch_embedding.weight",
        "vision_tower.vision_model.post_layernorm.weight",
        "multi_modal_projector.mm_input_projection_weight",
    ] {
        all.insert(name.to_owned(), picture.clone());
    }
    write_folder(dir, &outer, &all, shards);
}
