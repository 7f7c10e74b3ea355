//! From tensors to modules and their formats, whatever the family.
//!
//! A module is quantised if it has `scales`. Its row of codes tells bits × group only (4 × 64 is
//! also 8 × 32), so config.json's entry for the module, then its default, decide among those that
//! fit. This is for show; the loader has its own, strict rule.

use std::collections::BTreeMap;

use serde_json::Value;

use super::report::{FormatShare, ModuleGroup};
use crate::quant::AffineFormat;
use crate::weights::{Dtype, SafetensorsFile, TensorView};

/// One module, or a tensor that stands alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Path without `.weight`.
    pub path: String,
    /// Format in words.
    pub format: String,
    /// Whether the engine has the format.
    pub known_format: bool,
    /// Format that it is converted to when it is loaded.
    pub executed_as: Option<String>,
    /// Shape of its weight.
    pub shape: Vec<usize>,
    /// Numbers that it stands for.
    pub parameters: u64,
    /// Bytes of all its tensors.
    pub bytes: u64,
}

#[derive(Default)]
struct Tensors<'a> {
    weight: Option<TensorView<'a>>,
    scales: Option<TensorView<'a>>,
    biases: Option<TensorView<'a>>,
    bytes: u64,
    /// Elements of a `bias`, which no format describes.
    bias_elements: u64,
}

/// The modules of all shards; `quantization` is that entry of config.json, null where it has none.
pub fn modules(files: &[SafetensorsFile], quantization: &Value) -> Vec<Module> {
    let mut by_path: BTreeMap<&str, Tensors<'_>> = BTreeMap::new();
    let views = files
        .iter()
        .flat_map(|file| file.names().filter_map(|name| file.tensor(name)));
    for view in views {
        let (path, kind) = match view.name.rsplit_once('.') {
            Some((path, kind @ ("weight" | "scales" | "biases" | "bias"))) => (path, kind),
            _ => (view.name, "weight"),
        };
        let tensors = by_path.entry(path).or_default();
        tensors.bytes += view.bytes.len() as u64;
        match kind {
            "scales" => tensors.scales = Some(view),
            "biases" => tensors.biases = Some(view),
            "bias" => tensors.bias_elements = elements(view.shape),
            _ => tensors.weight = Some(view),
        }
    }
    by_path
        .into_iter()
        .map(|(path, tensors)| module(path, &tensors, quantization))
        .collect()
}

fn module(path: &str, tensors: &Tensors<'_>, quantization: &Value) -> Module {
    let some = tensors.weight.or(tensors.scales).or(tensors.biases);
    let shape = some.map_or_else(Vec::new, |view| view.shape.to_vec());
    let found = match (tensors.weight, tensors.scales) {
        (Some(weight), Some(scales)) => {
            let has_biases = tensors.biases.is_some();
            quantised(path, &weight, &scales, has_biases, quantization)
        }
        (Some(weight), None) => Found {
            format: format!("{:?}", weight.dtype).to_lowercase(),
            known: weight.dtype.is_float(),
            executed_as: None,
            parameters: elements(weight.shape),
        },
        (None, _) => Found {
            format: "no weight".to_owned(),
            // A lone `bias` is a vector of some unknown family's.
            known: tensors.scales.is_none() && tensors.biases.is_none(),
            executed_as: None,
            parameters: 0,
        },
    };
    Module {
        path: path.to_owned(),
        format: found.format,
        known_format: found.known,
        executed_as: found.executed_as,
        shape,
        parameters: found.parameters + tensors.bias_elements,
        bytes: tensors.bytes,
    }
}

struct Found {
    format: String,
    known: bool,
    executed_as: Option<String>,
    parameters: u64,
}

fn quantised(
    path: &str,
    weight: &TensorView<'_>,
    scales: &TensorView<'_>,
    has_biases: bool,
    quantization: &Value,
) -> Found {
    let unknown = |format: String| Found {
        format,
        known: false,
        executed_as: None,
        parameters: 0,
    };
    let words = weight.shape.last().copied().unwrap_or(0);
    let groups = scales.shape.last().copied().unwrap_or(0);
    if weight.dtype != Dtype::U32 || groups == 0 || !(words * 32).is_multiple_of(groups) {
        return unknown(format!("{:?} with scales", weight.dtype).to_lowercase());
    }
    // Bits of codes that share one scale: bits × group.
    let bits_per_scale = (words * 32 / groups) as u64;
    let parameters = |group: u64| elements(scales.shape).saturating_mul(group);
    if !has_biases {
        let known = [("mxfp4", 128, 32), ("nvfp4", 64, 16), ("mxfp8", 256, 32)];
        let bytes = scales.dtype == Dtype::U8;
        let fits = |bits: u64| bytes && bits == bits_per_scale;
        return match known.iter().find(|(_, bits, _)| fits(*bits)) {
            Some((name, _, group)) => Found {
                known: *name == "mxfp4",
                executed_as: (*name == "mxfp4").then(|| AffineFormat::OF_MXFP4.to_string()),
                parameters: parameters(*group),
                ..unknown((*name).to_owned())
            },
            None => unknown("scales without biases".to_owned()),
        };
    }
    let candidates = [quantization.get(path).unwrap_or(&Value::Null), quantization];
    let stated = candidates.into_iter().filter_map(stated_format);
    let format = stated
        .chain(common_formats())
        .find(|format| u64::from(format.bits()) * format.group_size() as u64 == bits_per_scale);
    match format {
        Some(format) => Found {
            format: format.to_string(),
            known: true,
            executed_as: None,
            parameters: parameters(format.group_size() as u64),
        },
        None => unknown(format!("affine, {bits_per_scale} bits a scale")),
    }
}

fn stated_format(entry: &Value) -> Option<AffineFormat> {
    let number = |key: &str, default| match entry.get(key) {
        Some(value) => value.as_u64(),
        None => Some(default),
    };
    entry.as_object()?;
    AffineFormat::new(number("bits", 4)?, number("group_size", 64)?).ok()
}

/// For a module whose entry does not fit: the usual group first.
fn common_formats() -> impl Iterator<Item = AffineFormat> {
    let bits = [4, 8, 6, 5, 3, 2];
    [64, 32, 128]
        .into_iter()
        .flat_map(move |group| bits.into_iter().map(move |bits| (bits, group)))
        .filter_map(|(bits, group)| AffineFormat::new(bits, group).ok())
}

fn elements(shape: &[usize]) -> u64 {
    shape.iter().fold(1u64, |product, extent| {
        product.saturating_mul(*extent as u64)
    })
}

/// Formats with their shares, the one with the most bytes first.
pub fn by_format(modules: &[Module]) -> Vec<FormatShare> {
    let mut shares: BTreeMap<&str, FormatShare> = BTreeMap::new();
    for module in modules {
        let share = shares.entry(&module.format).or_insert_with(|| FormatShare {
            format: module.format.clone(),
            executed_as: module.executed_as.clone(),
            modules: 0,
            parameters: 0,
            bytes: 0,
        });
        share.modules += 1;
        share.parameters = share.parameters.saturating_add(module.parameters);
        share.bytes += module.bytes;
    }
    let mut shares: Vec<FormatShare> = shares.into_values().collect();
    shares.sort_by_key(|share| std::cmp::Reverse(share.bytes));
    shares
}

/// Modules whose paths differ in numbers only, and have one format, become one line.
pub fn by_path(modules: &[Module]) -> Vec<ModuleGroup> {
    let mut groups: BTreeMap<(String, &str), (ModuleGroup, Vec<u64>)> = BTreeMap::new();
    for module in modules {
        let (pattern, layer) = pattern(&module.path);
        let (group, layers) = groups
            .entry((pattern.clone(), &module.format))
            .or_insert_with(|| {
                let group = ModuleGroup {
                    path: pattern,
                    format: module.format.clone(),
                    count: 0,
                    layers: String::new(),
                    shape: module.shape.clone(),
                    bytes: 0,
                };
                (group, Vec::new())
            });
        group.count += 1;
        group.bytes += module.bytes;
        if elements(&module.shape) > elements(&group.shape) {
            group.shape.clone_from(&module.shape);
        }
        layers.extend(layer);
    }
    groups
        .into_values()
        .map(|(mut group, mut layers)| {
            layers.sort_unstable();
            layers.dedup();
            group.layers = ranges(&layers);
            group
        })
        .collect()
}

/// The path with `*` for each number, and the first number.
fn pattern(path: &str) -> (String, Option<u64>) {
    let number = |word: &str| word.parse::<u64>().ok();
    let first = path.split('.').find_map(number);
    let words: Vec<&str> = path
        .split('.')
        .map(|word| if number(word).is_some() { "*" } else { word })
        .collect();
    (words.join("."), first)
}

/// `0-5, 7` for ascending numbers.
fn ranges(numbers: &[u64]) -> String {
    let runs = numbers.chunk_by(|a, b| a + 1 == *b);
    let texts: Vec<String> = runs
        .map(|run| match run {
            [single] => single.to_string(),
            run => format!("{}-{}", run[0], run[run.len() - 1]),
        })
        .collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_shown_as_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
        assert_eq!(ranges(&[]), "");
    }

    #[test]
    fn numbers_in_a_path_become_stars() {
        let (path, layer) = pattern("model.layers.12.mlp.experts.3.w1");
        assert_eq!(
            (path.as_str(), layer),
            ("model.layers.*.mlp.experts.*.w1", Some(12))
        );
        assert_eq!(pattern("lm_head"), ("lm_head".to_owned(), None));
    }

    fn found(words: usize, groups: usize, dtype: Dtype, biases: bool, entry: Value) -> String {
        let (weight, scales) = ([8, words], [8, groups]);
        let view = |dtype, shape| TensorView {
            path: std::path::Path::new("x"),
            name: "m.weight",
            dtype,
            shape,
            bytes: &[],
        };
        let weight = view(Dtype::U32, &weight);
        quantised("m", &weight, &view(dtype, &scales), biases, &entry).format
    }

    #[test]
    fn the_configuration_decides_between_formats_of_the_same_shape() {
        use serde_json::json;
        // 128 columns: 16 words and 2 groups are 4 bits in 64 or 8 bits in 32 (of 64 columns).
        let default = json!({"bits": 8, "group_size": 32});
        assert_eq!(
            found(16, 2, Dtype::Bf16, true, default.clone()),
            "affine 8-bit g32"
        );
        let entry = json!({"bits": 8, "group_size": 32, "m": {"bits": 4, "group_size": 64}});
        assert_eq!(found(16, 2, Dtype::Bf16, true, entry), "affine 4-bit g64");
        // An entry that does not fit is not believed.
        assert_eq!(found(24, 2, Dtype::Bf16, true, default), "affine 6-bit g64");
    }

    #[test]
    fn scales_without_biases_are_a_floating_point_mode() {
        for (words, groups, name) in [(16, 4, "mxfp4"), (16, 8, "nvfp4"), (32, 4, "mxfp8")] {
            assert_eq!(found(words, groups, Dtype::U8, false, Value::Null), name);
        }
    }
}
