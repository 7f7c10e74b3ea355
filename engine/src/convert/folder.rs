//! The whole conversion: check everything, write aside, rename.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::error::ConvertError;
use super::keys::Keys;
use super::matrix::{Encoding, PlainFormat, encoding};
use super::plan::{Plan, Role, Step, plan};
use super::{tokenizer, writer};
use crate::quant::AffineFormat;
use crate::weights::gguf::{BlockType, GgufFile};

/// What a user may choose.
#[derive(Debug, Clone, Copy, Default)]
pub struct ConvertOptions {
    /// Quantises matrices that the file holds as F32, F16 or BF16; `None` keeps them.
    pub quantise_plain: PlainFormat,
}

/// What became of all matrices of one type.
#[derive(Debug, Clone, PartialEq)]
pub struct TypeReport {
    /// Type in the GGUF file.
    pub from: BlockType,
    /// How they are written.
    pub to: Encoding,
    /// Matrices.
    pub tensors: usize,
    /// Their elements.
    pub weights: u64,
    /// Root mean square of what changed over that of the weights; 0 where nothing did.
    pub relative_rms: f64,
}

impl TypeReport {
    /// Whether the weights keep their values.
    pub fn is_exact(&self) -> bool {
        !matches!(self.to, Encoding::Requantised(..))
    }
}

/// What was written.
#[derive(Debug, Clone, PartialEq)]
pub struct Conversion {
    /// One entry for each type of matrix.
    pub types: Vec<TypeReport>,
    /// Bytes of model.safetensors.
    pub weight_bytes: u64,
    /// SHA-256 of the GGUF file, in hex.
    pub source_sha256: String,
}

/// Converts `gguf` into an MLX model folder at `dir`, which must be absent or empty. `progress`
/// gets bytes done and bytes to do.
///
/// # Errors
/// Everything that can be wrong with the file is found before the folder is touched, except
/// weights that are not finite; the folder appears whole or not at all.
pub fn convert(
    gguf: &Path,
    dir: &Path,
    options: ConvertOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Conversion, ConvertError> {
    refuse_used(dir)?;
    let file = GgufFile::open(gguf)?;
    let plan = plan(&file)?;
    let keys = Keys::new(&file, "");
    let tokenizer = tokenizer::read(&keys)?;
    tokenizer.check_rows(&file, plan.config.get("vocab_size"))?;
    let encodings = encodings(gguf, &plan, options)?;
    let aside = aside(dir)?;
    let written = (|| {
        let weights = aside.join("model.safetensors");
        let total = plan.steps.iter().map(|step| step.source.bytes.len() as u64);
        let total = total.sum();
        let mut tell = |done| progress(done, total);
        let (weight_bytes, squares) =
            writer::write(&weights, gguf, &plan.steps, &encodings, &mut tell)?;
        let conversion = Conversion {
            types: summarise(&plan.steps, &encodings, &squares),
            weight_bytes,
            source_sha256: sha256(file.file_bytes()),
        };
        let config = config_json(&plan, &encodings, &conversion, gguf, &tokenizer);
        write_json(&aside.join("config.json"), &config, true)?;
        let path = aside.join("generation_config.json");
        write_json(&path, &tokenizer.generation_config(), true)?;
        let path = aside.join("tokenizer_config.json");
        write_json(&path, &tokenizer.config, true)?;
        write_json(&aside.join("tokenizer.json"), &tokenizer.json, false)?;
        std::fs::rename(&aside, dir).map_err(ConvertError::io("rename into place", dir))?;
        Ok(conversion)
    })();
    if written.is_err() {
        // What is left is of no use, and the first error is the one to tell.
        let _ = std::fs::remove_dir_all(&aside);
    }
    written
}

fn refuse_used(dir: &Path) -> Result<(), ConvertError> {
    let got = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => "a file".to_owned(),
        Err(error) => return Err(ConvertError::io("read", dir)(error)),
        Ok(entries) => match entries.count() {
            0 => return Ok(()),
            count => format!("one with {count} entries"),
        },
    };
    Err(ConvertError::Target {
        path: dir.to_owned(),
        got,
    })
}

/// A fresh hidden folder beside `dir`: on the same file system, so the rename is atomic.
fn aside(dir: &Path) -> Result<PathBuf, ConvertError> {
    let mut name = OsString::from(".");
    name.push(dir.file_name().unwrap_or(OsStr::new("model")));
    name.push(format!(".partial-{}", std::process::id()));
    let aside = dir.with_file_name(name);
    if aside.exists() {
        std::fs::remove_dir_all(&aside).map_err(ConvertError::io("remove", &aside))?;
    }
    std::fs::create_dir_all(&aside).map_err(ConvertError::io("create", &aside))?;
    Ok(aside)
}

/// One for each step; a vector's is never looked at.
fn encodings(
    gguf: &Path,
    plan: &Plan<'_>,
    options: ConvertOptions,
) -> Result<Vec<Encoding>, ConvertError> {
    plan.steps
        .iter()
        .map(|step| {
            encoding(&step.source, options.quantise_plain).map_err(|got| {
                let expected = "finite scales".to_owned();
                ConvertError::tensor(gguf, step.source.name, expected, got)
            })
        })
        .collect()
}

fn summarise(
    steps: &[Step<'_>],
    encodings: &[Encoding],
    squares: &[writer::Squares],
) -> Vec<TypeReport> {
    let mut types: BTreeMap<(BlockType, Encoding), (TypeReport, writer::Squares)> = BTreeMap::new();
    for ((step, &to), squares) in steps.iter().zip(encodings).zip(squares) {
        if !matches!(step.role, Role::Matrix(_)) {
            continue;
        }
        let from = step.source.kind;
        let fresh = TypeReport {
            from,
            to,
            tensors: 0,
            weights: 0,
            relative_rms: 0.0,
        };
        let (report, sums) = types.entry((from, to)).or_insert((fresh, [0.0; 2]));
        report.tensors += 1;
        report.weights += step.source.shape.iter().product::<usize>() as u64;
        sums[0] += squares[0];
        sums[1] += squares[1];
    }
    let finish = |(mut report, [changed, whole]): (TypeReport, writer::Squares)| {
        if whole > 0.0 {
            report.relative_rms = (changed / whole).sqrt();
        }
        report
    };
    types.into_values().map(finish).collect()
}

fn config_json(
    plan: &Plan<'_>,
    encodings: &[Encoding],
    conversion: &Conversion,
    gguf: &Path,
    tokenizer: &tokenizer::Tokenizer<'_>,
) -> Value {
    let mut config = plan.config.clone();
    tokenizer.add_ids(&mut config);
    if let Some(quantization) = quantization(&plan.steps, encodings) {
        config.insert("quantization".to_owned(), quantization.clone());
        config.insert("quantization_config".to_owned(), quantization);
    }
    let types = conversion.types.iter().map(|report| {
        json!({
            "from": report.from.name(),
            "to": report.to.to_string(),
            "tensors": report.tensors,
            "exact": report.is_exact(),
            "relative_rms_error": report.relative_rms,
        })
    });
    let source = gguf.file_name().unwrap_or_default().to_string_lossy();
    config.insert(
        "converted_from".to_owned(),
        json!({
            "file": source,
            "sha256": conversion.source_sha256,
            "types": types.collect::<Vec<_>>(),
        }),
    );
    Value::Object(config)
}

/// The commonest format as the default, an entry for each module of another one.
fn quantization(steps: &[Step<'_>], encodings: &[Encoding]) -> Option<Value> {
    let formats: Vec<(&Step<'_>, AffineFormat)> = steps
        .iter()
        .zip(encodings)
        .filter_map(|(step, encoding)| match (step.role, *encoding) {
            (Role::Matrix(_), Encoding::Repacked(format, _) | Encoding::Requantised(format, _)) => {
                Some((step, format))
            }
            _ => None,
        })
        .collect();
    let mut counts = BTreeMap::new();
    for (_, format) in &formats {
        *counts.entry(*format).or_insert(0usize) += 1;
    }
    let (&default, _) = counts.iter().max_by_key(|(_, count)| **count)?;
    let describe =
        |format: AffineFormat| json!({"group_size": format.group_size(), "bits": format.bits()});
    let mut section = Map::new();
    section.insert("group_size".to_owned(), json!(default.group_size()));
    section.insert("bits".to_owned(), json!(default.bits()));
    for (step, format) in formats {
        if format != default {
            section.insert(step.target.clone(), describe(format));
        }
    }
    Some(Value::Object(section))
}

fn write_json(path: &Path, value: &impl Serialize, pretty: bool) -> Result<(), ConvertError> {
    let write = || {
        let file = std::fs::File::create(path)?;
        let mut out = std::io::BufWriter::new(file);
        if pretty {
            serde_json::to_writer_pretty(&mut out, value)?;
        } else {
            serde_json::to_writer(&mut out, value)?;
        }
        out.write_all(b"\n")?;
        out.into_inner()
            .map_err(|error| error.into_error())?
            .sync_all()
    };
    write().map_err(ConvertError::io("write", path))
}

fn sha256(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
