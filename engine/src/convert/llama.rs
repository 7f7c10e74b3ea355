//! Llama files: keys to config.json, tensors to modules.

use serde_json::{Map, Value, json};

use super::error::ConvertError;
use super::keys::Keys;
use super::plan::{Collector, Plan, RowOrder};

/// Frequency bands that Llama 3.1 and later files use: low and high factor, original context. A
/// GGUF file holds only their product, the divisor of each frequency.
const LOW_FREQ_FACTOR: f64 = 1.0;
const HIGH_FREQ_FACTOR: f64 = 4.0;
const ORIGINAL_CONTEXT_TOKENS: f64 = 8192.0;

/// How far a divisor may be from the formula: they are float32, computed from float32.
const DIVISOR_TOLERANCE: f64 = 1e-3;

const ROPE_FREQS: &str = "rope_freqs.weight";

/// Sizes that shapes are checked against.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    hidden: usize,
    ffn: usize,
    layers: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    vocab: usize,
}

pub(super) fn plan<'a>(keys: &Keys<'a>) -> Result<Plan<'a>, ConvertError> {
    refuse_experts(keys)?;
    let sizes = sizes(keys)?;
    let mut collector = Collector::new(keys.file);
    let tied = collect(&mut collector, sizes)?;
    let config = config(keys, sizes, tied)?;
    Ok(Plan {
        config,
        steps: collector.finish()?,
    })
}

fn refuse_experts(keys: &Keys<'_>) -> Result<(), ConvertError> {
    let key = keys.own("expert_count");
    match keys.optional_count(&key)? {
        None | Some(0) => Ok(()),
        Some(_) => Err(keys.wrong(&key, "no experts", keys.file.value(&key))),
    }
}

fn sizes(keys: &Keys<'_>) -> Result<Sizes, ConvertError> {
    let hidden = keys.count(&keys.own("embedding_length"))?;
    let heads = keys.count(&keys.own("attention.head_count"))?;
    let head_dim = keys
        .optional_count(&keys.own("attention.key_length"))?
        .unwrap_or(hidden / heads);
    let rotated = keys.own("rope.dimension_count");
    if keys
        .optional_count(&rotated)?
        .is_some_and(|n| n != head_dim)
        || head_dim % 2 != 0
    {
        let expected = format!("a whole head of {head_dim} elements, an even number");
        return Err(keys.wrong(&rotated, &expected, keys.file.value(&rotated)));
    }
    Ok(Sizes {
        hidden,
        heads,
        head_dim,
        ffn: keys.count(&keys.own("feed_forward_length"))?,
        layers: keys.count(&keys.own("block_count"))?,
        kv_heads: keys
            .optional_count(&keys.own("attention.head_count_kv"))?
            .unwrap_or(heads),
        vocab: vocab_rows(keys),
    })
}

/// Rows of the embedding table: files pad it, and no key says by how much.
pub(super) fn vocab_rows(keys: &Keys<'_>) -> usize {
    let table = keys.file.tensor("token_embd.weight");
    table.map_or(0, |table| table.shape[0])
}

/// True when the head is the embedding table.
fn collect(collector: &mut Collector<'_>, sizes: Sizes) -> Result<bool, ConvertError> {
    let Sizes { hidden, ffn, .. } = sizes;
    let same = RowOrder::Same;
    let apart = RowOrder::PairsApart {
        head_dim: sizes.head_dim,
    };
    let q = sizes.heads * sizes.head_dim;
    let kv = sizes.kv_heads * sizes.head_dim;
    let table = [sizes.vocab, hidden];
    collector.matrix("token_embd.weight", "model.embed_tokens", table, same)?;
    for layer in 0..sizes.layers {
        let from = |name: &str| format!("blk.{layer}.{name}");
        let to = |name: &str| format!("model.layers.{layer}.{name}");
        for (source, target, shape, order) in [
            ("attn_q", "self_attn.q_proj", [q, hidden], apart),
            ("attn_k", "self_attn.k_proj", [kv, hidden], apart),
            ("attn_v", "self_attn.v_proj", [kv, hidden], same),
            ("attn_output", "self_attn.o_proj", [hidden, q], same),
            ("ffn_gate", "mlp.gate_proj", [ffn, hidden], same),
            ("ffn_up", "mlp.up_proj", [ffn, hidden], same),
            ("ffn_down", "mlp.down_proj", [hidden, ffn], same),
        ] {
            collector.linear(&from(source), &to(target), shape, order)?;
        }
        let norm = to("input_layernorm");
        collector.norm(&from("attn_norm"), &norm, hidden, 0.0)?;
        let norm = to("post_attention_layernorm");
        collector.norm(&from("ffn_norm"), &norm, hidden, 0.0)?;
    }
    collector.norm("output_norm", "model.norm", hidden, 0.0)?;
    collector.consume(ROPE_FREQS);
    let head = collector.optional_matrix("output.weight", "lm_head", table, same)?;
    Ok(!head)
}

fn config(keys: &Keys<'_>, sizes: Sizes, tied: bool) -> Result<Map<String, Value>, ConvertError> {
    let theta = keys
        .optional_number(&keys.own("rope.freq_base"))?
        .unwrap_or(10_000.0);
    let mut config = Map::new();
    let mut put = |key: &str, value: Value| config.insert(key.to_owned(), value);
    put("model_type", json!("llama"));
    put("architectures", json!(["LlamaForCausalLM"]));
    put("hidden_size", json!(sizes.hidden));
    put("intermediate_size", json!(sizes.ffn));
    put("num_hidden_layers", json!(sizes.layers));
    put("num_attention_heads", json!(sizes.heads));
    put("num_key_value_heads", json!(sizes.kv_heads));
    put("head_dim", json!(sizes.head_dim));
    put("vocab_size", json!(sizes.vocab));
    put("hidden_act", json!("silu"));
    let eps = keys.number(&keys.own("attention.layer_norm_rms_epsilon"))?;
    put("rms_norm_eps", json!(eps));
    put("rope_theta", json!(theta));
    let scaling = match rope_bands(keys, theta, sizes.head_dim)? {
        Some(bands) => Some(bands),
        None => linear_scaling(keys)?,
    };
    if let Some(scaling) = scaling {
        put("rope_scaling", scaling);
    }
    let context = keys.count(&keys.own("context_length"))?;
    put("max_position_embeddings", json!(context));
    put("tie_word_embeddings", json!(tied));
    Ok(config)
}

/// `rope_scaling` of a file whose positions are divided by a factor.
pub(super) fn linear_scaling(keys: &Keys<'_>) -> Result<Option<Value>, ConvertError> {
    let key = keys.own("rope.scaling.type");
    match keys.optional_text(&key)? {
        None | Some("none") => Ok(None),
        Some("linear") => {
            let factor = keys.number(&keys.own("rope.scaling.factor"))?;
            Ok(Some(json!({ "type": "linear", "factor": factor })))
        }
        Some(_) => Err(keys.wrong(&key, "`none` or `linear`", keys.file.value(&key))),
    }
}

/// `rope_scaling` of a file with divisors of frequencies: they must be those of Llama 3's rule.
fn rope_bands(keys: &Keys<'_>, theta: f64, head_dim: usize) -> Result<Option<Value>, ConvertError> {
    let Some(tensor) = keys.file.tensor(ROPE_FREQS) else {
        return Ok(None);
    };
    let refuse = |expected: String, got: String| {
        ConvertError::tensor(keys.file.path(), ROPE_FREQS, expected, got)
    };
    if tensor.shape != [head_dim / 2] {
        let expected = format!("shape [{}]", head_dim / 2);
        return Err(refuse(expected, format!("{:?}", tensor.shape)));
    }
    let mut divisors = vec![0.0; head_dim / 2];
    crate::weights::gguf::dequantize_row(tensor.kind, tensor.bytes, &mut divisors);
    let factor = divisors.iter().copied().fold(1.0f32, f32::max);
    for (i, &got) in divisors.iter().enumerate() {
        let expected = llama3_divisor(theta, head_dim, i, f64::from(factor));
        let close = (f64::from(got) - expected).abs() <= DIVISOR_TOLERANCE * expected;
        if !close {
            let expected = format!("Llama 3's bands: {expected} at {i} for a factor of {factor}");
            return Err(refuse(expected, got.to_string()));
        }
    }
    Ok(Some(json!({
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": LOW_FREQ_FACTOR,
        "high_freq_factor": HIGH_FREQ_FACTOR,
        "original_max_position_embeddings": ORIGINAL_CONTEXT_TOKENS,
    })))
}

/// Long wavelengths are divided by `factor`, short ones by 1, those between by a harmonic ramp.
fn llama3_divisor(theta: f64, head_dim: usize, i: usize, factor: f64) -> f64 {
    let exponent = 2.0 * i as f64 / head_dim as f64;
    let turns = ORIGINAL_CONTEXT_TOKENS / (std::f64::consts::TAU * theta.powf(exponent));
    let ramp = (turns - LOW_FREQ_FACTOR) / (HIGH_FREQ_FACTOR - LOW_FREQ_FACTOR);
    let share = ramp.clamp(0.0, 1.0);
    1.0 / ((1.0 - share) / factor + share)
}
