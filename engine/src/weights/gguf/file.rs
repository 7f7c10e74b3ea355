//! A GGUF file, mapped and checked before any tensor is handed out.
//!
//! The format: magic and version, two counts, pairs of keys and values, one entry a tensor, then
//! the data at the next multiple of the alignment. As in `safetensors.rs`, a file is refused when
//! any statement in it cannot be true. Nothing is allocated by a count that the file states: every
//! entry is read before room is made for it, so memory stays a small multiple of the file's size.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use super::block::BlockType;
use super::cursor::Cursor;
use super::metadata::{self, Value};
use crate::error::LoadError;
use crate::memory::MappingAccount;
use crate::weights::safetensors::map_read_only;

const MAGIC: [u8; 4] = *b"GGUF";

/// Versions with 64-bit lengths; the first one, of August 2023, had 32-bit ones.
const VERSIONS: [u32; 2] = [2, 3];

/// Alignment of the data where no key says otherwise, in bytes.
const DEFAULT_ALIGNMENT: u64 = 32;

/// Largest alignment accepted, in bytes.
const MAX_ALIGNMENT: u64 = 1 << 20;

/// Largest number of axes of a tensor.
const MAX_AXES: u32 = 4;

/// What a tensor entry says, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TensorInfo {
    kind: BlockType,
    shape: Vec<usize>,
    begin: usize,
    end: usize,
}

/// All that a file says; ranges refer to its bytes.
#[derive(Debug)]
struct Contents {
    metadata: BTreeMap<String, Value>,
    tensors: BTreeMap<String, TensorInfo>,
}

/// One file, mapped read-only.
#[derive(Debug)]
pub struct GgufFile {
    path: PathBuf,
    map: Mmap,
    _account: MappingAccount,
    contents: Contents,
}

/// A tensor's blocks in the file.
#[derive(Debug, Clone, Copy)]
pub struct GgufTensor<'a> {
    /// Name as the file has it.
    pub name: &'a str,
    /// Type of the blocks.
    pub kind: BlockType,
    /// Extents, slowest first (the file has them the other way round).
    pub shape: &'a [usize],
    /// The blocks, row after row.
    pub bytes: &'a [u8],
}

impl GgufTensor<'_> {
    /// Elements of a row: the extent of the fastest axis.
    pub fn row_elements(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }
}

impl GgufFile {
    /// Maps `path` and checks all of it but the values of the weights.
    ///
    /// # Errors
    /// When the file cannot be read or any of its statements is impossible.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        let io = |source| LoadError::Io {
            path: path.to_owned(),
            source,
        };
        let file = std::fs::File::open(path).map_err(io)?;
        let map = map_read_only(&file).map_err(io)?;
        let contents = parse(&map).map_err(|problem| LoadError::Gguf {
            path: path.to_owned(),
            problem,
        })?;
        Ok(Self {
            path: path.to_owned(),
            _account: MappingAccount::new(map.len()),
            map,
            contents,
        })
    }

    /// Where it came from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The whole file; lists of the metadata refer to it.
    pub fn file_bytes(&self) -> &[u8] {
        &self.map
    }

    /// The value of a key, if there is one.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.contents.metadata.get(key)
    }

    /// Tensor names in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.contents.tensors.keys().map(String::as_str)
    }

    /// The tensor called `name`, if there is one.
    pub fn tensor(&self, name: &str) -> Option<GgufTensor<'_>> {
        let (name, info) = self.contents.tensors.get_key_value(name)?;
        Some(GgufTensor {
            name,
            kind: info.kind,
            shape: &info.shape,
            bytes: &self.map[info.begin..info.end],
        })
    }
}

/// Whether `bytes` is a file that [`GgufFile::open`] would accept: the entry for tests and
/// fuzzing, which have no file.
///
/// # Errors
/// The first thing found wrong.
pub fn check_bytes(bytes: &[u8]) -> Result<(), String> {
    parse(bytes).map(|_| ())
}

fn parse(bytes: &[u8]) -> Result<Contents, String> {
    let mut cursor = Cursor::new(bytes);
    let magic = cursor.array::<4>("the magic")?;
    if magic != MAGIC {
        return Err(format!("starts with {magic:?}, expected {MAGIC:?} (GGUF)"));
    }
    let version = cursor.u32("the version")?;
    if VERSIONS.contains(&version.swap_bytes()) {
        return Err("big-endian, expected little-endian".to_owned());
    }
    if !VERSIONS.contains(&version) {
        return Err(format!("version {version}, expected 2 or 3"));
    }
    let tensor_count = cursor.u64("the number of tensors")?;
    let pair_count = cursor.u64("the number of keys")?;
    let metadata = metadata::read(&mut cursor, pair_count)?;
    let alignment = alignment(&metadata)?;
    let entries = read_entries(&mut cursor, tensor_count)?;
    let data_start = (cursor.position() as u64).next_multiple_of(alignment);
    let tensors = place(entries, data_start, alignment, bytes.len() as u64)?;
    Ok(Contents { metadata, tensors })
}

fn alignment(metadata: &BTreeMap<String, Value>) -> Result<u64, String> {
    match metadata.get("general.alignment") {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(&Value::Unsigned(bytes)) if bytes.is_power_of_two() && bytes <= MAX_ALIGNMENT => {
            Ok(bytes)
        }
        Some(other) => Err(format!(
            "`general.alignment` is {other:?}, expected a power of two up to {MAX_ALIGNMENT}"
        )),
    }
}

/// A tensor entry: name, type, shape (slowest first), bytes, offset from the start of the data.
struct Entry<'a> {
    name: &'a str,
    kind: BlockType,
    shape: Vec<usize>,
    bytes: u64,
    offset: u64,
}

fn read_entries<'a>(cursor: &mut Cursor<'a>, count: u64) -> Result<Vec<Entry<'a>>, String> {
    let mut entries = Vec::new();
    for index in 0..count {
        let name = cursor.name(&format!("the name of tensor {index} of {count}"))?;
        let entry =
            read_entry(cursor, name).map_err(|problem| format!("tensor `{name}`: {problem}"))?;
        entries.push(entry);
    }
    Ok(entries)
}

fn read_entry<'a>(cursor: &mut Cursor<'a>, name: &'a str) -> Result<Entry<'a>, String> {
    let axes = cursor.u32("the number of axes")?;
    if !(1..=MAX_AXES).contains(&axes) {
        return Err(format!("{axes} axes, expected 1 to {MAX_AXES}"));
    }
    let mut shape = Vec::with_capacity(axes as usize);
    for _ in 0..axes {
        let extent = cursor.u64("an extent")?;
        let extent = usize::try_from(extent).ok().filter(|extent| *extent > 0);
        shape.push(extent.ok_or("an extent of 0 or beyond this machine's memory")?);
    }
    let kind = BlockType::from_number(cursor.u32("the type")?)?;
    let offset = cursor.u64("the offset")?;
    let row_bytes = kind.row_bytes(shape[0]).ok_or_else(|| {
        format!(
            "rows of {} elements, expected whole blocks of {kind}",
            shape[0]
        )
    })?;
    let bytes = shape[1..]
        .iter()
        .try_fold(row_bytes, |product, &extent| product.checked_mul(extent))
        .ok_or_else(|| format!("shape {shape:?} overflows"))?;
    shape.reverse();
    Ok(Entry {
        name,
        kind,
        shape,
        bytes: bytes as u64,
        offset,
    })
}

/// Turns offsets into ranges of the file; they must be aligned, inside and apart.
fn place(
    mut entries: Vec<Entry<'_>>,
    data_start: u64,
    alignment: u64,
    file_bytes: u64,
) -> Result<BTreeMap<String, TensorInfo>, String> {
    entries.sort_by_key(|entry| entry.offset);
    let mut tensors = BTreeMap::new();
    let mut reached = 0u64;
    for entry in entries {
        let Entry { name, offset, .. } = entry;
        if !offset.is_multiple_of(alignment) {
            return Err(format!(
                "tensor `{name}`: offset {offset}, expected a multiple of {alignment}"
            ));
        }
        if offset < reached {
            return Err(format!(
                "tensor `{name}` overlaps the one before it: offset {offset}, expected at least {reached}"
            ));
        }
        let begin = data_start.checked_add(offset);
        let end = begin.and_then(|begin| begin.checked_add(entry.bytes));
        let (Some(begin), Some(end)) = (begin, end.filter(|end| *end <= file_bytes)) else {
            return Err(format!(
                "tensor `{name}`: {} bytes at offset {offset} of the data, which has {}",
                entry.bytes,
                file_bytes.saturating_sub(data_start)
            ));
        };
        // Inside the file, so the sum cannot overflow and both ends fit an index.
        reached = offset + entry.bytes;
        let info = TensorInfo {
            kind: entry.kind,
            shape: entry.shape,
            begin: begin as usize,
            end: end as usize,
        };
        if tensors.insert(name.to_owned(), info).is_some() {
            return Err(format!("tensor `{name}` occurs twice"));
        }
    }
    Ok(tensors)
}
