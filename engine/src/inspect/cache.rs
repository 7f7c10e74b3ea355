//! Bytes of keys and values, from a configuration or, for unknown families, from its usual keys.

use serde_json::Value;

use crate::model::ModelConfig;

/// Tokens of the figure "per 1k tokens".
pub const TOKENS: u64 = 1024;

/// Bytes of an element of a key or value in fast arithmetic (f16).
const FAST_ELEMENT_BYTES: u64 = 2;

/// Layers of models that anybody could run; a wrong file must not overflow a product.
const MOST: u64 = 1 << 20;

/// What one sequence keeps.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct CacheReport {
    /// Layers that keep every token.
    pub full_layers: u64,
    /// Layers that keep a window.
    pub window_layers: u64,
    /// The window in tokens.
    pub window_tokens: Option<u64>,
    /// Elements of one token's key and value in one layer.
    pub row_elements: u64,
    /// Bytes that every further 1024 tokens add once windows are full, in f16; float32
    /// arithmetic takes twice as much.
    pub bytes_per_1k_tokens: u64,
    /// Bytes that the windows take when they are full, in f16.
    pub window_bytes: u64,
    /// Whether this was worked out from the usual keys of a family that the engine does not know.
    pub estimated: bool,
}

impl CacheReport {
    fn new(full: u64, windows: u64, window_tokens: Option<u64>, row: u64, estimated: bool) -> Self {
        let row_bytes = row * FAST_ELEMENT_BYTES;
        Self {
            full_layers: full,
            window_layers: windows,
            window_tokens,
            row_elements: row,
            bytes_per_1k_tokens: full * row_bytes * TOKENS,
            window_bytes: windows * row_bytes * window_tokens.unwrap_or(0),
            estimated,
        }
    }

    /// Of a family that the engine knows.
    pub fn of(config: &ModelConfig) -> Self {
        let windows = (0..config.layers)
            .filter(|layer| config.window_tokens(*layer).is_some())
            .count();
        let row = 2 * config.kv_heads * config.head_dim;
        let window = config.sliding.as_ref().map(|s| s.window_tokens as u64);
        let full = config.layers - windows;
        Self::new(full as u64, windows as u64, window, row as u64, false)
    }

    /// Of any other, from the keys that most families share; `None` where they are missing.
    pub fn estimate(config: &Value) -> Option<Self> {
        let count = |key: &str| {
            let number = config.get(key).and_then(Value::as_u64);
            number.filter(|number| (1..=MOST).contains(number))
        };
        let heads = count("num_attention_heads");
        let kv_heads = count("num_key_value_heads").or(heads)?;
        let per_head = || Some(count("hidden_size")? / heads?);
        let head_dim = count("head_dim").or_else(per_head)?;
        let window = count("sliding_window");
        let (full, windows) = attention_layers(config, count("num_hidden_layers")?);
        let row = 2 * kv_heads * head_dim;
        Some(Self::new(full, windows, window, row, true))
    }
}

/// Layers with full and with windowed attention; others keep a state of fixed size.
fn attention_layers(config: &Value, layers: u64) -> (u64, u64) {
    if let Some(kinds) = config.get("layer_types").and_then(Value::as_array) {
        let named = |names: &[&str]| {
            let kinds = kinds.iter().filter_map(Value::as_str);
            kinds.filter(|kind| names.contains(kind)).count() as u64
        };
        return (
            named(&["full_attention", "attention"]),
            named(&["sliding_attention"]),
        );
    }
    // Hybrid families spell a layer as a letter, attention as a star.
    if let Some(pattern) = config
        .get("hybrid_override_pattern")
        .and_then(Value::as_str)
    {
        return (pattern.matches('*').count() as u64, 0);
    }
    (layers, 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_unknown_family_is_estimated_from_the_usual_keys() {
        let config = json!({"num_hidden_layers": 4, "num_attention_heads": 8,
            "num_key_value_heads": 2, "hidden_size": 512});
        let cache = CacheReport::estimate(&config).unwrap();
        assert_eq!(cache.row_elements, 2 * 2 * 64);
        assert_eq!(cache.bytes_per_1k_tokens, 4 * 256 * 2 * 1024);
        assert!(cache.estimated);
    }

    #[test]
    fn layers_without_keys_and_values_do_not_count() {
        let mut config = json!({"num_hidden_layers": 4, "num_attention_heads": 8, "head_dim": 64,
            "sliding_window": 128,
            "layer_types": ["mamba", "attention", "sliding_attention", "linear_attention"]});
        let cache = CacheReport::estimate(&config).unwrap();
        assert_eq!((cache.full_layers, cache.window_layers), (1, 1));
        assert_eq!(cache.window_bytes, 2 * 8 * 64 * 2 * 128);
        config["layer_types"] = json!(null);
        config["hybrid_override_pattern"] = json!("M-M*E*");
        let cache = CacheReport::estimate(&config).unwrap();
        assert_eq!((cache.full_layers, cache.window_layers), (2, 0));
    }

    #[test]
    fn absurd_or_missing_numbers_give_no_estimate() {
        for config in [
            json!({}),
            json!({"num_hidden_layers": 4}),
            json!({"num_hidden_layers": u64::MAX, "num_attention_heads": 8, "head_dim": 64}),
            json!({"num_hidden_layers": 4, "num_attention_heads": 0, "hidden_size": 64}),
        ] {
            assert_eq!(CacheReport::estimate(&config), None, "{config}");
        }
    }
}
