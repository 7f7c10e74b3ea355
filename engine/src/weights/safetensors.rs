//! A safetensors file, mapped and checked before any tensor is handed out.
//!
//! The format: eight bytes of header length, a JSON header, then the data; offsets are relative to
//! the data. A file is refused when any statement in it cannot be true, so that later code may
//! slice without thinking. Not here: names, shards, quantisation (see `store.rs` and `model/`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use memmap2::Mmap;
use serde_json::Value;

use crate::error::LoadError;
use crate::memory::MappingAccount;

/// The largest header accepted, in bytes; real ones are below 10 MB. It bounds what a lying
/// length can make us parse.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// Element types that occur in model files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it all")]
pub enum Dtype {
    F32,
    F16,
    Bf16,
    U32,
    I32,
    U8,
    I8,
    Bool,
    I64,
    U64,
    F64,
    I16,
    U16,
}

impl Dtype {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "F32" => Self::F32,
            "F16" => Self::F16,
            "BF16" => Self::Bf16,
            "U32" => Self::U32,
            "I32" => Self::I32,
            "U8" => Self::U8,
            "I8" => Self::I8,
            "BOOL" => Self::Bool,
            "I64" => Self::I64,
            "U64" => Self::U64,
            "F64" => Self::F64,
            "I16" => Self::I16,
            "U16" => Self::U16,
            _ => return None,
        })
    }

    /// Bytes of one element.
    pub fn size_bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::F16 | Self::Bf16 | Self::I16 | Self::U16 => 2,
            Self::F32 | Self::U32 | Self::I32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// Widens the first `out.len()` elements of `bytes`; bf16 and f16 widen exactly.
    ///
    /// # Panics
    /// When the type is not floating point (see [`Dtype::is_float`]) or `bytes` is too short.
    pub fn widen(self, bytes: &[u8], out: &mut [f32]) {
        let bytes = &bytes[..out.len() * self.size_bytes()];
        match self {
            Self::F32 => widen(bytes, out, f32::from_le_bytes),
            Self::Bf16 => widen(bytes, out, |b| bf16::from_le_bytes(b).to_f32()),
            Self::F16 => widen(bytes, out, |b| f16::from_le_bytes(b).to_f32()),
            other => unreachable!("{other:?} is not floating point"),
        }
    }

    /// Whether [`TensorView::to_f32`] can read it.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::Bf16)
    }
}

#[derive(Debug, Clone)]
struct TensorInfo {
    dtype: Dtype,
    shape: Vec<usize>,
    begin: usize,
    end: usize,
}

/// One file, mapped read-only.
#[derive(Debug)]
pub struct SafetensorsFile {
    path: PathBuf,
    map: Mmap,
    _account: MappingAccount,
    data_start: usize,
    tensors: BTreeMap<String, TensorInfo>,
}

/// A tensor's bytes in the file, checked against its shape and type.
#[derive(Debug, Clone, Copy)]
pub struct TensorView<'a> {
    /// File it lies in.
    pub path: &'a Path,
    /// Name as the file has it.
    pub name: &'a str,
    /// Element type.
    pub dtype: Dtype,
    /// Extents, slowest first.
    pub shape: &'a [usize],
    /// Little-endian elements; not necessarily aligned.
    pub bytes: &'a [u8],
}

impl SafetensorsFile {
    /// Maps `path` and checks its whole header.
    ///
    /// # Errors
    /// When the file cannot be read or any statement of its header is impossible.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        let io = |source| LoadError::Io {
            path: path.to_owned(),
            source,
        };
        let file = std::fs::File::open(path).map_err(io)?;
        let map = map_read_only(&file).map_err(io)?;
        let (data_start, tensors) =
            parse_header(&map).map_err(|problem| LoadError::Safetensors {
                path: path.to_owned(),
                problem,
            })?;
        Ok(Self {
            path: path.to_owned(),
            _account: MappingAccount::new(map.len()),
            map,
            data_start,
            tensors,
        })
    }

    /// Where it came from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The whole file.
    pub fn file_bytes(&self) -> &[u8] {
        &self.map
    }

    /// Names in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// The tensor called `name`, if there is one.
    pub fn tensor(&self, name: &str) -> Option<TensorView<'_>> {
        let (name, info) = self.tensors.get_key_value(name)?;
        Some(TensorView {
            path: &self.path,
            name,
            dtype: info.dtype,
            shape: &info.shape,
            bytes: &self.map[self.data_start + info.begin..self.data_start + info.end],
        })
    }
}

#[expect(unsafe_code, reason = "mapping a file is unsafe by nature")]
pub(super) fn map_read_only(file: &std::fs::File) -> std::io::Result<Mmap> {
    // SAFETY: the map is private and read-only and only ever seen as bytes. A writer that changes
    // or truncates the file meanwhile would break this; model files are written once and renamed
    // into place, which is the contract that every engine that maps weights relies on.
    unsafe { Mmap::map(file) }
}

/// Checks the header; returns where the data starts and what is in it.
fn parse_header(bytes: &[u8]) -> Result<(usize, BTreeMap<String, TensorInfo>), String> {
    let Some(prefix) = bytes.first_chunk::<8>() else {
        return Err(format!(
            "expected at least 8 bytes of header length, got a file of {}",
            bytes.len()
        ));
    };
    let header_bytes = u64::from_le_bytes(*prefix);
    let available = bytes.len() as u64 - 8;
    if header_bytes > MAX_HEADER_BYTES || header_bytes > available {
        return Err(format!(
            "header length of {header_bytes} bytes, expected at most {}",
            available.min(MAX_HEADER_BYTES)
        ));
    }
    let data_start = 8 + header_bytes as usize;
    let header: Value = serde_json::from_slice(&bytes[8..data_start])
        .map_err(|error| format!("header is not JSON: {error}"))?;
    let Value::Object(entries) = header else {
        return Err("header is JSON but not an object".to_owned());
    };
    let data_bytes = bytes.len() - data_start;
    let mut tensors = BTreeMap::new();
    for (name, entry) in &entries {
        if name == "__metadata__" {
            continue;
        }
        let info = parse_entry(entry, data_bytes)
            .map_err(|problem| format!("tensor `{name}`: {problem}"))?;
        tensors.insert(name.clone(), info);
    }
    check_cover(&tensors, data_bytes)?;
    Ok((data_start, tensors))
}

fn parse_entry(entry: &Value, data_bytes: usize) -> Result<TensorInfo, String> {
    let dtype = entry
        .get("dtype")
        .and_then(Value::as_str)
        .ok_or("`dtype` is missing or no string")?;
    let dtype = Dtype::parse(dtype).ok_or_else(|| format!("unknown dtype `{dtype}`"))?;
    let shape = unsigned_list(entry, "shape")?;
    let offsets = unsigned_list(entry, "data_offsets")?;
    let &[begin, end] = offsets.as_slice() else {
        return Err(format!(
            "`data_offsets` has {} numbers, expected 2",
            offsets.len()
        ));
    };
    if begin > end || end > data_bytes {
        return Err(format!(
            "data_offsets [{begin}, {end}], expected ascending and at most the {data_bytes} bytes of data"
        ));
    }
    let needed = shape
        .iter()
        .try_fold(dtype.size_bytes(), |product, &extent| {
            product.checked_mul(extent)
        })
        .ok_or_else(|| format!("shape {shape:?} overflows"))?;
    if needed != end - begin {
        return Err(format!(
            "{dtype:?} {shape:?} is {needed} bytes, data_offsets hold {}",
            end - begin
        ));
    }
    Ok(TensorInfo {
        dtype,
        shape,
        begin,
        end,
    })
}

fn unsigned_list(entry: &Value, key: &str) -> Result<Vec<usize>, String> {
    let list = entry
        .get(key)
        .and_then(Value::as_array)
        .ok_or_else(|| format!("`{key}` is missing or no list"))?;
    list.iter()
        .map(|value| {
            value
                .as_u64()
                .and_then(|number| usize::try_from(number).ok())
                .ok_or_else(|| format!("`{key}` holds {value}, expected a whole number"))
        })
        .collect()
}

/// The tensors must tile the data: an overlap or a hole means that some offset lies.
fn check_cover(tensors: &BTreeMap<String, TensorInfo>, data_bytes: usize) -> Result<(), String> {
    let mut ranges: Vec<_> = tensors
        .iter()
        .map(|(name, info)| (info.begin, info.end, name))
        .collect();
    ranges.sort_unstable();
    let mut reached = 0;
    for (begin, end, name) in ranges {
        if begin != reached {
            let what = if begin < reached {
                "overlaps the tensor before it"
            } else {
                "leaves a hole before it"
            };
            return Err(format!(
                "tensor `{name}` {what}: starts at {begin}, expected {reached}"
            ));
        }
        reached = end;
    }
    if reached != data_bytes {
        return Err(format!(
            "tensors cover {reached} bytes of data, the file has {data_bytes}"
        ));
    }
    Ok(())
}

impl TensorView<'_> {
    /// The error for a tensor that is not what config.json implies.
    pub fn mismatch(&self, expected: String) -> LoadError {
        LoadError::Tensor {
            path: self.path.to_owned(),
            tensor: self.name.to_owned(),
            expected,
            got: format!("{:?} {:?}", self.dtype, self.shape),
        }
    }

    /// Checks the shape.
    ///
    /// # Errors
    /// When it is any other.
    pub fn expect_shape(&self, shape: &[usize]) -> Result<(), LoadError> {
        if self.shape == shape {
            return Ok(());
        }
        Err(self.mismatch(format!("shape {shape:?}")))
    }

    /// All elements as float32; bf16 and f16 widen exactly.
    ///
    /// # Errors
    /// When the elements are not floating point of at most 32 bits.
    pub fn to_f32(&self) -> Result<Vec<f32>, LoadError> {
        if !self.dtype.is_float() {
            return Err(self.mismatch("F32, F16 or BF16 elements".to_owned()));
        }
        let mut out = vec![0.0; self.bytes.len() / self.dtype.size_bytes()];
        self.dtype.widen(self.bytes, &mut out);
        Ok(out)
    }

    /// All elements of an I32 tensor.
    ///
    /// # Errors
    /// When the elements are of another type.
    pub fn to_i32(&self) -> Result<Vec<i32>, LoadError> {
        if self.dtype != Dtype::I32 {
            return Err(self.mismatch("I32 elements".to_owned()));
        }
        let (chunks, _) = self.bytes.as_chunks::<4>();
        Ok(chunks.iter().map(|b| i32::from_le_bytes(*b)).collect())
    }
}

fn widen<const N: usize>(bytes: &[u8], out: &mut [f32], convert: impl Fn([u8; N]) -> f32) {
    let (chunks, _) = bytes.as_chunks::<N>();
    for (value, chunk) in out.iter_mut().zip(chunks) {
        *value = convert(*chunk);
    }
}
