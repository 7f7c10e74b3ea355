//! The `quantization` object of config.json: which format each module is stored in.

use std::collections::BTreeMap;

use serde_json::Value;

use super::config_reader::Reader;
use crate::error::LoadError;
use crate::quant::{AffineFormat, mxfp4};

/// What config.json says about a module's weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModuleFormat {
    /// Affine groups.
    Affine(AffineFormat),
    /// E2M1 codes with an exponent for each 32 of them.
    Mxfp4,
    /// Left as it was (`false`).
    Plain,
}

/// The `quantization` object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QuantisationConfig {
    /// For modules without an entry of their own.
    pub default: Option<ModuleFormat>,
    /// Module path → its own entry.
    pub overrides: BTreeMap<String, ModuleFormat>,
}

/// Reads `quantization`; overrides lose `prefix`, as tensor names do.
///
/// # Errors
/// When a mode, a width or a group is none that the engine executes.
pub(super) fn read_quantisation(
    outer: &Reader<'_>,
    prefix: &str,
) -> Result<QuantisationConfig, LoadError> {
    if outer.raw("quantization").is_none() {
        return Ok(QuantisationConfig::default());
    }
    let section = outer.object("quantization")?;
    let mut overrides = BTreeMap::new();
    for (key, value) in section.map {
        let format = match value {
            Value::Bool(false) => ModuleFormat::Plain,
            Value::Object(_) => read_format(&section.object(key)?)?,
            _ => continue,
        };
        let path = key.strip_prefix(prefix).unwrap_or(key);
        overrides.insert(path.to_owned(), format);
    }
    Ok(QuantisationConfig {
        default: Some(read_format(&section)?),
        overrides,
    })
}

/// An entry without `mode` is affine, even where the top level has another one: published files
/// write the affine modules of mxfp4 models so.
fn read_format(section: &Reader<'_>) -> Result<ModuleFormat, LoadError> {
    match section.raw("mode").map(|mode| (mode.as_str(), mode)) {
        None | Some((Some("affine"), _)) => read_affine(section).map(ModuleFormat::Affine),
        Some((Some("mxfp4"), _)) => read_mxfp4(section),
        Some((_, mode)) => Err(section.wrong("mode", "affine or mxfp4", mode)),
    }
}

fn read_affine(section: &Reader<'_>) -> Result<AffineFormat, LoadError> {
    let bits = section.count_or("bits", 4)? as u64;
    let group = section.count_or("group_size", 64)? as u64;
    AffineFormat::new(bits, group).map_err(|error| LoadError::ConfigKey {
        path: section.path.clone(),
        key: section.dotted("bits, group_size"),
        expected: "2, 3, 4, 5, 6 or 8 bits in groups of 32, 64 or 128".to_owned(),
        got: error.to_string(),
    })
}

fn read_mxfp4(section: &Reader<'_>) -> Result<ModuleFormat, LoadError> {
    let bits = section.count_or("bits", mxfp4::BITS)?;
    let group = section.count_or("group_size", mxfp4::GROUP)?;
    if (bits, group) == (mxfp4::BITS, mxfp4::GROUP) {
        return Ok(ModuleFormat::Mxfp4);
    }
    Err(LoadError::ConfigKey {
        path: section.path.clone(),
        key: section.dotted("bits, group_size"),
        expected: format!(
            "{} bits in groups of {}, as mxfp4 has",
            mxfp4::BITS,
            mxfp4::GROUP
        ),
        got: format!("{bits} bits in groups of {group}"),
    })
}
