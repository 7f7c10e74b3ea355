//! `reference.safetensors`: what a trusted implementation computed for this folder.

use std::path::Path;

use crate::check::compare::{distance, standard_deviation};
use crate::error::LoadError;
use crate::weights::{SafetensorsFile, TensorView};

/// Name of the file in the model's folder.
pub const FILE_NAME: &str = "reference.safetensors";

/// Its contents.
#[derive(Debug, Clone)]
pub struct Reference {
    /// Tokens of the prompt.
    pub prompt_ids: Vec<u32>,
    /// Greedy tokens after it; the first comes from the prompt's last row.
    pub decode_ids: Vec<u32>,
    /// Logits of the prompt's rows, then of the rows after each decoded token, `[rows, vocab]`.
    pub logits: Vec<f32>,
    /// Logits a row.
    pub vocab_size: usize,
    /// Input of layer 0 and output of each layer for the prompt, `[layers + 1][prompt * hidden]`;
    /// empty where the file has none.
    pub hidden: Vec<Vec<f32>>,
    /// Standard deviation of all logits: the unit of every distance.
    pub unit: f64,
    /// Distance between the same logits with bf16 activations and these, where the file has both.
    pub bf16_rms: Option<f64>,
}

impl Reference {
    /// Reads `dir/reference.safetensors`.
    ///
    /// # Errors
    /// When the file is not there, invalid, or its tensors do not fit each other.
    pub fn load(dir: &Path) -> Result<Self, LoadError> {
        let file = SafetensorsFile::open(&dir.join(FILE_NAME))?;
        let tensor = |name: &str| {
            file.tensor(name).ok_or_else(|| LoadError::MissingTensor {
                dir: file.path().to_owned(),
                tensor: name.to_owned(),
            })
        };
        let prompt_ids = ids(&tensor("prompt_ids")?)?;
        let decode_ids = ids(&tensor("decode_ids")?)?;
        let prefill = tensor("prefill_logits")?;
        let &[_, vocab_size] = prefill.shape else {
            return Err(prefill.mismatch("two axes".to_owned()));
        };
        let rows = |name: &str, count: usize| -> Result<Vec<f32>, LoadError> {
            let tensor = tensor(name)?;
            tensor.expect_shape(&[count, vocab_size])?;
            tensor.to_f32()
        };
        let both = |suffix: &str| -> Result<Vec<f32>, LoadError> {
            let mut all = rows(&format!("prefill_logits{suffix}"), prompt_ids.len())?;
            all.extend(rows(&format!("decode_logits{suffix}"), decode_ids.len())?);
            Ok(all)
        };
        let logits = both("")?;
        let unit = standard_deviation(&logits);
        let bf16_rms = match file.tensor("prefill_logits_bf16") {
            Some(_) => Some(distance(&both("_bf16")?, &logits, unit).rms),
            None => None,
        };
        let hidden = match file.tensor("hidden") {
            Some(hidden) => hidden_by_layer(&hidden, prompt_ids.len())?,
            None => Vec::new(),
        };
        Ok(Self {
            prompt_ids,
            decode_ids,
            logits,
            vocab_size,
            hidden,
            unit,
            bf16_rms,
        })
    }
}

fn ids(tensor: &TensorView<'_>) -> Result<Vec<u32>, LoadError> {
    let ids = tensor.to_i32()?;
    let converted: Option<Vec<u32>> = ids.iter().map(|id| u32::try_from(*id).ok()).collect();
    converted
        .filter(|ids| !ids.is_empty())
        .ok_or_else(|| tensor.mismatch("at least one token id, none below zero".to_owned()))
}

fn hidden_by_layer(tensor: &TensorView<'_>, tokens: usize) -> Result<Vec<Vec<f32>>, LoadError> {
    let &[layers, rows, width] = tensor.shape else {
        return Err(tensor.mismatch("three axes".to_owned()));
    };
    if rows != tokens || rows * width == 0 {
        return Err(tensor.mismatch(format!("[{layers}, {tokens}, hidden]")));
    }
    let values = tensor.to_f32()?;
    Ok(values
        .chunks_exact(rows * width)
        .map(<[f32]>::to_vec)
        .collect())
}
