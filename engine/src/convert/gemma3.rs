//! Gemma 3 files: keys to config.json, tensors to modules.
//!
//! llama.cpp stores norms as 1 + w, which is what multiplies; an MLX folder holds w.

use serde_json::{Map, Value, json};

use super::error::ConvertError;
use super::keys::Keys;
use super::llama::{linear_scaling, vocab_rows};
use super::plan::{Collector, Plan, RowOrder};

/// Layer i is global iff (i + 1) is a multiple of this; all sizes agree, no key says so.
const SLIDING_WINDOW_PATTERN: usize = 6;

/// Base of the sliding layers' rotation where the file does not say.
const LOCAL_ROPE_BASE: f64 = 10_000.0;

/// Layers of the 27B model, the one whose scores are not scaled by the size of a head.
const LAYERS_27B: usize = 62;

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
    let cap = keys.own("final_logit_softcapping");
    if keys.optional_number(&cap)?.is_some_and(|cap| cap != 0.0) {
        return Err(keys.wrong(&cap, "no capping", keys.file.value(&cap)));
    }
    let sizes = Sizes {
        hidden: keys.count(&keys.own("embedding_length"))?,
        ffn: keys.count(&keys.own("feed_forward_length"))?,
        layers: keys.count(&keys.own("block_count"))?,
        heads: keys.count(&keys.own("attention.head_count"))?,
        kv_heads: keys.count(&keys.own("attention.head_count_kv"))?,
        head_dim: keys
            .optional_count(&keys.own("attention.key_length"))?
            .unwrap_or(256),
        vocab: vocab_rows(keys),
    };
    let mut collector = Collector::new(keys.file);
    collect(&mut collector, sizes)?;
    Ok(Plan {
        config: config(keys, sizes)?,
        steps: collector.finish()?,
    })
}

fn collect(collector: &mut Collector<'_>, sizes: Sizes) -> Result<(), ConvertError> {
    let Sizes { hidden, ffn, .. } = sizes;
    let head_dim = sizes.head_dim;
    let same = RowOrder::Same;
    let (q, kv) = (sizes.heads * head_dim, sizes.kv_heads * head_dim);
    let table = [sizes.vocab, hidden];
    collector.matrix("token_embd.weight", "model.embed_tokens", table, same)?;
    for layer in 0..sizes.layers {
        let from = |name: &str| format!("blk.{layer}.{name}");
        let to = |name: &str| format!("model.layers.{layer}.{name}");
        for (source, target, shape) in [
            ("attn_q", "self_attn.q_proj", [q, hidden]),
            ("attn_k", "self_attn.k_proj", [kv, hidden]),
            ("attn_v", "self_attn.v_proj", [kv, hidden]),
            ("attn_output", "self_attn.o_proj", [hidden, q]),
            ("ffn_gate", "mlp.gate_proj", [ffn, hidden]),
            ("ffn_up", "mlp.up_proj", [ffn, hidden]),
            ("ffn_down", "mlp.down_proj", [hidden, ffn]),
        ] {
            collector.linear(&from(source), &to(target), shape, same)?;
        }
        for (source, target, width) in [
            ("attn_norm", "input_layernorm", hidden),
            ("post_attention_norm", "post_attention_layernorm", hidden),
            ("ffn_norm", "pre_feedforward_layernorm", hidden),
            ("post_ffw_norm", "post_feedforward_layernorm", hidden),
            ("attn_q_norm", "self_attn.q_norm", head_dim),
            ("attn_k_norm", "self_attn.k_norm", head_dim),
        ] {
            collector.norm(&from(source), &to(target), width, -1.0)?;
        }
    }
    collector.norm("output_norm", "model.norm", hidden, -1.0)?;
    // A file of its own for the head would be a copy of the table; keep what the file says.
    collector.optional_matrix("output.weight", "lm_head", table, same)?;
    Ok(())
}

fn config(keys: &Keys<'_>, sizes: Sizes) -> Result<Map<String, Value>, ConvertError> {
    let mut config = Map::new();
    let mut put = |key: &str, value: Value| config.insert(key.to_owned(), value);
    put("model_type", json!("gemma3_text"));
    put("architectures", json!(["Gemma3ForCausalLM"]));
    put("hidden_size", json!(sizes.hidden));
    put("intermediate_size", json!(sizes.ffn));
    put("num_hidden_layers", json!(sizes.layers));
    put("num_attention_heads", json!(sizes.heads));
    put("num_key_value_heads", json!(sizes.kv_heads));
    put("head_dim", json!(sizes.head_dim));
    put("vocab_size", json!(sizes.vocab));
    put("hidden_activation", json!("gelu_pytorch_tanh"));
    let eps = keys.number(&keys.own("attention.layer_norm_rms_epsilon"))?;
    put("rms_norm_eps", json!(eps));
    let theta = keys
        .optional_number(&keys.own("rope.freq_base"))?
        .unwrap_or(1_000_000.0);
    put("rope_theta", json!(theta));
    let local = keys
        .optional_number(&keys.own("rope.freq_base_swa"))?
        .unwrap_or(LOCAL_ROPE_BASE);
    put("rope_local_base_freq", json!(local));
    if let Some(scaling) = linear_scaling(keys)? {
        put("rope_scaling", scaling);
    }
    let scalar = if sizes.layers == LAYERS_27B {
        sizes.hidden / sizes.heads
    } else {
        sizes.head_dim
    };
    put("query_pre_attn_scalar", json!(scalar));
    let window = keys.count(&keys.own("attention.sliding_window"))?;
    put("sliding_window", json!(window));
    put("sliding_window_pattern", json!(SLIDING_WINDOW_PATTERN));
    let context = keys.count(&keys.own("context_length"))?;
    put("max_position_embeddings", json!(context));
    Ok(config)
}
