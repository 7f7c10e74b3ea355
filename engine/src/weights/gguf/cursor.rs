//! A place in a byte slice: every read says what it wanted when the slice is too short.

/// Longest text accepted where a name is expected (keys and tensor names); real ones are below 100.
pub(super) const MAX_NAME_BYTES: u64 = 65_535;

/// Reads little-endian values one after another.
#[derive(Debug, Clone)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes consumed so far.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// Bytes left.
    pub(super) fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub(super) fn take(&mut self, length: u64, what: &str) -> Result<&'a [u8], String> {
        let taken = usize::try_from(length)
            .ok()
            .and_then(|length| self.at.checked_add(length))
            .and_then(|end| self.bytes.get(self.at..end))
            .ok_or_else(|| {
                format!(
                    "{what} at byte {} needs {length} bytes, the file has {} left",
                    self.at,
                    self.remaining()
                )
            })?;
        self.at += taken.len();
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], String> {
        let bytes = self.take(N as u64, what)?;
        // `take` returns exactly what was asked for.
        Ok(*bytes.first_chunk::<N>().unwrap_or(&[0; N]))
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32, String> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64, String> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A length of eight bytes and that many bytes of UTF-8.
    pub(super) fn text(&mut self, what: &str) -> Result<&'a str, String> {
        let start = self.at;
        let length = self.u64(what)?;
        let bytes = self.take(length, what)?;
        std::str::from_utf8(bytes).map_err(|error| format!("{what} at byte {start}: {error}"))
    }

    /// A text that names something.
    pub(super) fn name(&mut self, what: &str) -> Result<&'a str, String> {
        let start = self.at;
        let name = self.text(what)?;
        if name.is_empty() || name.len() as u64 > MAX_NAME_BYTES {
            return Err(format!(
                "{what} at byte {start} has {} bytes, expected 1 to {MAX_NAME_BYTES}",
                name.len()
            ));
        }
        Ok(name)
    }
}
