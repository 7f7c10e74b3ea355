//! The key and value section: values as they are, lists left in the file until somebody asks.

use std::collections::BTreeMap;

use super::cursor::Cursor;

/// The value of a key.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Any unsigned integer type.
    Unsigned(u64),
    /// Any signed integer type.
    Signed(i64),
    /// Either floating-point type.
    Float(f64),
    /// One byte, 0 or 1.
    Bool(bool),
    /// UTF-8.
    Text(String),
    /// Elements of one type, checked and left in the file.
    List(ListRange),
}

/// Where a list lies: a vocabulary of a quarter of a million texts is not copied to be skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListRange {
    kind: Kind,
    /// Elements.
    pub count: usize,
    start: usize,
    end: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    Text,
    List,
    U64,
    I64,
    F64,
}

impl Kind {
    fn from_number(number: u32) -> Option<Self> {
        const KINDS: [Kind; 13] = [
            Kind::U8,
            Kind::I8,
            Kind::U16,
            Kind::I16,
            Kind::U32,
            Kind::I32,
            Kind::F32,
            Kind::Bool,
            Kind::Text,
            Kind::List,
            Kind::U64,
            Kind::I64,
            Kind::F64,
        ];
        KINDS.get(usize::try_from(number).ok()?).copied()
    }

    /// Bytes of an element, where all are equally long.
    fn size_bytes(self) -> Option<u64> {
        match self {
            Self::U8 | Self::I8 | Self::Bool => Some(1),
            Self::U16 | Self::I16 => Some(2),
            Self::U32 | Self::I32 | Self::F32 => Some(4),
            Self::U64 | Self::I64 | Self::F64 => Some(8),
            Self::Text | Self::List => None,
        }
    }
}

/// Reads `count` pairs.
pub(super) fn read(cursor: &mut Cursor<'_>, count: u64) -> Result<BTreeMap<String, Value>, String> {
    let mut values = BTreeMap::new();
    for index in 0..count {
        let key = cursor.name(&format!("key {index} of {count}"))?;
        let kind = read_kind(cursor, key)?;
        let value = read_value(cursor, key, kind)?;
        if values.insert(key.to_owned(), value).is_some() {
            return Err(format!("key `{key}` occurs twice"));
        }
    }
    Ok(values)
}

fn read_kind(cursor: &mut Cursor<'_>, key: &str) -> Result<Kind, String> {
    let number = cursor.u32(key)?;
    Kind::from_number(number)
        .ok_or_else(|| format!("key `{key}`: value type {number}, expected 0 to 12"))
}

fn read_value(cursor: &mut Cursor<'_>, key: &str, kind: Kind) -> Result<Value, String> {
    Ok(match kind {
        Kind::U8 => Value::Unsigned(u64::from(cursor.array::<1>(key)?[0])),
        Kind::U16 => Value::Unsigned(u64::from(u16::from_le_bytes(cursor.array(key)?))),
        Kind::U32 => Value::Unsigned(u64::from(cursor.u32(key)?)),
        Kind::U64 => Value::Unsigned(cursor.u64(key)?),
        Kind::I8 => Value::Signed(i64::from(i8::from_le_bytes(cursor.array(key)?))),
        Kind::I16 => Value::Signed(i64::from(i16::from_le_bytes(cursor.array(key)?))),
        Kind::I32 => Value::Signed(i64::from(i32::from_le_bytes(cursor.array(key)?))),
        Kind::I64 => Value::Signed(i64::from_le_bytes(cursor.array(key)?)),
        Kind::F32 => Value::Float(f64::from(f32::from_le_bytes(cursor.array(key)?))),
        Kind::F64 => Value::Float(f64::from_le_bytes(cursor.array(key)?)),
        Kind::Bool => Value::Bool(read_bool(cursor, key)?),
        Kind::Text => Value::Text(cursor.text(key)?.to_owned()),
        Kind::List => Value::List(read_list(cursor, key)?),
    })
}

fn read_bool(cursor: &mut Cursor<'_>, key: &str) -> Result<bool, String> {
    match cursor.array::<1>(key)?[0] {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(format!("key `{key}`: boolean {other}, expected 0 or 1")),
    }
}

/// Walks over a list, so that later reads of it cannot fail.
fn read_list(cursor: &mut Cursor<'_>, key: &str) -> Result<ListRange, String> {
    let kind = read_kind(cursor, key)?;
    let count = cursor.u64(key)?;
    let start = cursor.position();
    match kind {
        Kind::List => {
            return Err(format!(
                "key `{key}`: a list of lists, expected plain values"
            ));
        }
        Kind::Text => {
            for _ in 0..count {
                cursor.text(key)?;
            }
        }
        Kind::Bool => {
            for _ in 0..count {
                read_bool(cursor, key)?;
            }
        }
        _ => {
            let bytes = kind.size_bytes().and_then(|size| count.checked_mul(size));
            let bytes = bytes.ok_or_else(|| format!("key `{key}`: {count} elements overflow"))?;
            cursor.take(bytes, key)?;
        }
    }
    Ok(ListRange {
        kind,
        // Every element takes at least one byte of the file, so the count fits.
        count: count as usize,
        start,
        end: cursor.position(),
    })
}

impl ListRange {
    /// The texts, borrowed from `file`, the bytes that the list was read from.
    pub fn texts(self, file: &[u8]) -> Option<Vec<&str>> {
        if self.kind != Kind::Text {
            return None;
        }
        let mut cursor = Cursor::new(file.get(self.start..self.end)?);
        (0..self.count).map(|_| cursor.text("").ok()).collect()
    }

    /// The numbers of a floating-point list.
    pub fn floats(self, file: &[u8]) -> Option<Vec<f32>> {
        if self.kind != Kind::F32 {
            return None;
        }
        let (chunks, _) = file.get(self.start..self.end)?.as_chunks::<4>();
        Some(chunks.iter().map(|b| f32::from_le_bytes(*b)).collect())
    }

    /// The numbers of any integer list.
    pub fn integers(self, file: &[u8]) -> Option<Vec<i64>> {
        if matches!(self.kind, Kind::F32 | Kind::F64 | Kind::Text | Kind::List) {
            return None;
        }
        let mut cursor = Cursor::new(file.get(self.start..self.end)?);
        (0..self.count)
            .map(|_| match read_value(&mut cursor, "", self.kind).ok()? {
                Value::Unsigned(number) => i64::try_from(number).ok(),
                Value::Signed(number) => Some(number),
                Value::Bool(flag) => Some(i64::from(flag)),
                _ => None,
            })
            .collect()
    }
}
