//! Which tensors a synthetic model has, and where each lies in the file.
//!
//! The whole plan is known before a byte is made, so the file can be written
//! front to back while no tensor is ever held in memory.

use serde_json::{Map, Value, json};

use super::catalogue::{BITS, Configuration, Family, GROUP_SIZE, Half, SEED};
use super::fill::{Content, RMS_OVER_STEP, tensor_key};

/// The header is padded so that the data starts on a cache line.
const DATA_ALIGNMENT: usize = 64;

/// One tensor: what it is and where its bytes lie.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorPlan {
    /// Full name in the file.
    pub name: String,
    /// Safetensors type name.
    pub dtype: &'static str,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// What its bytes are.
    pub content: Content,
    /// Key of the generator.
    pub key: u64,
    /// First byte, counted from the start of the data.
    pub begin: u64,
    /// One past the last byte.
    pub end: u64,
}

/// Header and tensors of one `model.safetensors`.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    /// The tensors in file order, without gaps.
    pub tensors: Vec<TensorPlan>,
    /// Length prefix, JSON and padding: the file's first bytes.
    pub header: Vec<u8>,
    /// Bytes after the header.
    pub data_bytes: u64,
}

impl Layout {
    /// Plans the file of a configuration.
    pub fn new(configuration: &Configuration) -> Self {
        let mut plan = Planner {
            half: configuration.half,
            tensors: Vec::new(),
            end: 0,
        };
        plan.model(configuration);
        let header = header(&plan.tensors);
        Self {
            tensors: plan.tensors,
            header,
            data_bytes: plan.end,
        }
    }

    /// Size of the whole file.
    pub fn file_bytes(&self) -> u64 {
        self.header.len() as u64 + self.data_bytes
    }

    /// The index that published folders carry beside the weights.
    pub fn index_json(&self, file: &str) -> Value {
        let map: Map<String, Value> = self
            .tensors
            .iter()
            .map(|tensor| (tensor.name.clone(), json!(file)))
            .collect();
        json!({ "metadata": { "total_size": self.data_bytes }, "weight_map": map })
    }
}

fn header(tensors: &[TensorPlan]) -> Vec<u8> {
    let mut map = Map::new();
    map.insert("__metadata__".into(), json!({ "format": "mlx" }));
    for tensor in tensors {
        map.insert(
            tensor.name.clone(),
            json!({
                "dtype": tensor.dtype,
                "shape": tensor.shape,
                "data_offsets": [tensor.begin, tensor.end],
            }),
        );
    }
    let mut json = Value::Object(map).to_string().into_bytes();
    let padded = (8 + json.len()).next_multiple_of(DATA_ALIGNMENT) - 8;
    // The format allows trailing spaces for exactly this purpose.
    json.resize(padded, b' ');
    let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
    bytes.append(&mut json);
    bytes
}

struct Planner {
    half: Half,
    tensors: Vec<TensorPlan>,
    end: u64,
}

impl Planner {
    fn model(&mut self, c: &Configuration) {
        let root = match c.family {
            Family::Gemma3 => "language_model.",
            _ => "",
        };
        let model = format!("{root}model");
        // Gemma multiplies the row by √hidden.
        let multiplier = if c.is_gemma() {
            (c.hidden as f64).sqrt()
        } else {
            1.0
        };
        let spread = f64::from(c.gains.embed) / multiplier;
        self.linear(&format!("{model}.embed_tokens"), c.vocab, c.hidden, spread);
        for layer in 0..c.layers {
            self.layer(&format!("{model}.layers.{layer}"), c);
        }
        self.norm(&format!("{model}.norm"), c.hidden, c, c.gains.last_norm);
        if !c.tied {
            let spread = 1.0 / (c.hidden as f64).sqrt();
            self.linear(&format!("{root}lm_head"), c.vocab, c.hidden, spread);
        }
    }

    fn layer(&mut self, layer: &str, c: &Configuration) {
        let attention = format!("{layer}.self_attn");
        let (query_width, kv_width) = (c.heads * c.head_dim, c.kv_heads * c.head_dim);
        // With q/k norms the norm's weight decides how sharp attention is and
        // the projection's spread cancels; without them the projection does.
        let has_qk_norm = c.family != Family::Llama;
        let query_gain = if has_qk_norm { 1.0 } else { c.gains.query };
        let gain = |gain: f32, inputs: usize| f64::from(gain) / (inputs as f64).sqrt();

        self.norm(&format!("{layer}.input_layernorm"), c.hidden, c, 1.0);
        let q = gain(query_gain, c.hidden);
        self.linear(&format!("{attention}.q_proj"), query_width, c.hidden, q);
        for name in ["k_proj", "v_proj"] {
            let spread = gain(1.0, c.hidden);
            self.linear(&format!("{attention}.{name}"), kv_width, c.hidden, spread);
        }
        if has_qk_norm {
            let (q, k) = ("q_norm", "k_norm");
            self.norm(&format!("{attention}.{q}"), c.head_dim, c, c.gains.query);
            self.norm(&format!("{attention}.{k}"), c.head_dim, c, 1.0);
        }
        // Gemma norms what attention and MLP give back, which cancels the
        // spread of their last projection.
        let gains = c.gains;
        let (out, down) = if c.is_gemma() {
            (1.0, 1.0)
        } else {
            (gains.attention_out, gains.mlp_out)
        };
        let spread = gain(out, query_width);
        self.linear(
            &format!("{attention}.o_proj"),
            c.hidden,
            query_width,
            spread,
        );
        let after_attention = format!("{layer}.post_attention_layernorm");
        if c.is_gemma() {
            self.norm(&after_attention, c.hidden, c, gains.attention_out);
            self.norm(
                &format!("{layer}.pre_feedforward_layernorm"),
                c.hidden,
                c,
                1.0,
            );
            self.norm(
                &format!("{layer}.post_feedforward_layernorm"),
                c.hidden,
                c,
                gains.mlp_out,
            );
        } else {
            self.norm(&after_attention, c.hidden, c, 1.0);
        }
        for name in ["gate_proj", "up_proj"] {
            let spread = gain(1.0, c.hidden);
            self.linear(
                &format!("{layer}.mlp.{name}"),
                c.intermediate,
                c.hidden,
                spread,
            );
        }
        let spread = gain(down, c.intermediate);
        self.linear(
            &format!("{layer}.mlp.down_proj"),
            c.hidden,
            c.intermediate,
            spread,
        );
    }

    /// A quantised matrix `[out, in]` whose weights have the given spread.
    fn linear(&mut self, path: &str, out: usize, inputs: usize, spread: f64) {
        let step = (spread / RMS_OVER_STEP) as f32;
        let half = self.half;
        let scales = format!("{path}.scales");
        let scale_key = tensor_key(SEED, &scales);
        let weight = format!("{path}.weight");
        let weight_key = tensor_key(SEED, &weight);
        let words = inputs * BITS / 32;
        let groups = inputs / GROUP_SIZE;
        self.push(weight, "U32", vec![out, words], Content::Codes, weight_key);
        let content = Content::Scales { step, half };
        self.push(scales, half.dtype(), vec![out, groups], content, scale_key);
        let content = Content::Biases { step, half };
        let biases = format!("{path}.biases");
        self.push(biases, half.dtype(), vec![out, groups], content, scale_key);
    }

    /// A norm whose effective weight lies around `weight`.
    fn norm(&mut self, path: &str, width: usize, c: &Configuration, weight: f32) {
        // Gemma's norms multiply by one plus what the file holds.
        let centre = if c.is_gemma() { weight - 1.0 } else { weight };
        let name = format!("{path}.weight");
        let key = tensor_key(SEED, &name);
        self.push(
            name,
            c.half.dtype(),
            vec![width],
            Content::Norm {
                centre,
                half: c.half,
            },
            key,
        );
    }

    fn push(
        &mut self,
        name: String,
        dtype: &'static str,
        shape: Vec<usize>,
        content: Content,
        key: u64,
    ) {
        let element_bytes = if dtype == "U32" { 4 } else { 2 };
        let bytes = shape.iter().product::<usize>() as u64 * element_bytes;
        let begin = self.end;
        self.end += bytes;
        self.tensors.push(TensorPlan {
            name,
            dtype,
            shape,
            content,
            key,
            begin,
            end: self.end,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::catalogue::{CONFIGURATIONS, find};
    use super::*;

    fn shape(layout: &Layout, name: &str) -> Vec<usize> {
        let found = layout.tensors.iter().find(|tensor| tensor.name == name);
        found.map(|tensor| tensor.shape.clone()).unwrap_or_default()
    }

    #[test]
    fn tensors_fill_the_file_without_gaps_and_start_on_a_cache_line() {
        for configuration in &CONFIGURATIONS {
            let layout = Layout::new(configuration);
            let mut end = 0;
            for tensor in &layout.tensors {
                assert_eq!(tensor.begin, end, "{}", tensor.name);
                end = tensor.end;
            }
            assert_eq!(end, layout.data_bytes);
            assert_eq!(layout.header.len() % DATA_ALIGNMENT, 0);
        }
    }

    #[test]
    fn sizes_are_those_of_the_published_4_bit_files() {
        // 4.5 bits a quantised weight; 4.51 GB is the 8B's published size.
        let bytes = |name: &str| Layout::new(find(name).unwrap()).file_bytes();
        assert!((4_510_000_000..4_530_000_000).contains(&bytes("llama-3.1-8b")));
        assert!((2_180_000_000..2_190_000_000).contains(&bytes("gemma3-4b")));
        assert!((150_000_000..152_000_000).contains(&bytes("gemma3-270m")));
    }

    #[test]
    fn families_use_their_own_names() {
        let gemma = Layout::new(find("gemma3-4b").unwrap());
        let embed = "language_model.model.embed_tokens.weight";
        assert_eq!(shape(&gemma, embed), [262_208, 320]);
        assert!(!gemma.tensors.iter().any(|t| t.name.contains("lm_head")));

        let llama = Layout::new(find("llama-3.1-8b").unwrap());
        assert_eq!(shape(&llama, "lm_head.scales"), [128_256, 64]);
        assert_eq!(
            shape(&llama, "model.layers.31.self_attn.k_proj.weight"),
            [1024, 512]
        );
        assert!(!llama.tensors.iter().any(|t| t.name.contains("q_norm")));

        let qwen = Layout::new(find("qwen3-4b").unwrap());
        assert_eq!(
            shape(&qwen, "model.layers.0.self_attn.q_proj.weight"),
            [4096, 320]
        );
        assert_eq!(
            shape(&qwen, "model.layers.0.self_attn.q_norm.weight"),
            [128]
        );
    }
}
