//! Writes GGUF files for tests; the twin of `file.rs`, without its checks.

use super::block::BlockType;

/// A file in the making.
#[derive(Debug, Default, Clone)]
pub(crate) struct Builder {
    pairs: Vec<(String, Vec<u8>)>,
    tensors: Vec<(String, BlockType, Vec<usize>, Vec<u8>)>,
}

fn text_bytes(text: &str) -> Vec<u8> {
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

impl Builder {
    fn pair(&mut self, key: &str, kind: u32, value: &[u8]) -> &mut Self {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend(value);
        self.pairs.retain(|(name, _)| name != key);
        self.pairs.push((key.to_owned(), bytes));
        self
    }

    pub(crate) fn remove(&mut self, key: &str) -> &mut Self {
        self.pairs.retain(|(name, _)| name != key);
        self.tensors.retain(|(name, ..)| name != key);
        self
    }

    pub(crate) fn u32(&mut self, key: &str, value: u32) -> &mut Self {
        self.pair(key, 4, &value.to_le_bytes())
    }

    pub(crate) fn f32(&mut self, key: &str, value: f32) -> &mut Self {
        self.pair(key, 6, &value.to_le_bytes())
    }

    pub(crate) fn bool(&mut self, key: &str, value: bool) -> &mut Self {
        self.pair(key, 7, &[u8::from(value)])
    }

    pub(crate) fn text(&mut self, key: &str, value: &str) -> &mut Self {
        self.pair(key, 8, &text_bytes(value))
    }

    fn list(&mut self, key: &str, kind: u32, elements: &[Vec<u8>]) -> &mut Self {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend((elements.len() as u64).to_le_bytes());
        bytes.extend(elements.concat());
        self.pair(key, 9, &bytes)
    }

    pub(crate) fn texts(&mut self, key: &str, values: &[&str]) -> &mut Self {
        let elements: Vec<_> = values.iter().map(|value| text_bytes(value)).collect();
        self.list(key, 8, &elements)
    }

    pub(crate) fn integers(&mut self, key: &str, values: &[i32]) -> &mut Self {
        let elements: Vec<_> = values.iter().map(|v| v.to_le_bytes().to_vec()).collect();
        self.list(key, 5, &elements)
    }

    pub(crate) fn floats(&mut self, key: &str, values: &[f32]) -> &mut Self {
        let elements: Vec<_> = values.iter().map(|v| v.to_le_bytes().to_vec()).collect();
        self.list(key, 6, &elements)
    }

    /// `shape` is slowest first.
    pub(crate) fn tensor(
        &mut self,
        name: &str,
        kind: BlockType,
        shape: &[usize],
        bytes: Vec<u8>,
    ) -> &mut Self {
        self.tensors.retain(|(other, ..)| other != name);
        let entry = (name.to_owned(), kind, shape.to_vec(), bytes);
        self.tensors.push(entry);
        self
    }

    /// A tensor of float32.
    pub(crate) fn floats_tensor(
        &mut self,
        name: &str,
        shape: &[usize],
        values: &[f32],
    ) -> &mut Self {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.tensor(name, BlockType::F32, shape, bytes)
    }

    /// The file.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut file = b"GGUF\x03\0\0\0".to_vec();
        file.extend((self.tensors.len() as u64).to_le_bytes());
        file.extend((self.pairs.len() as u64).to_le_bytes());
        for (key, value) in &self.pairs {
            file.extend(text_bytes(key));
            file.extend(value);
        }
        let mut offset = 0usize;
        for (name, kind, shape, bytes) in &self.tensors {
            file.extend(text_bytes(name));
            file.extend((shape.len() as u32).to_le_bytes());
            for extent in shape.iter().rev() {
                file.extend((*extent as u64).to_le_bytes());
            }
            file.extend(kind.number().to_le_bytes());
            file.extend((offset as u64).to_le_bytes());
            offset = (offset + bytes.len()).next_multiple_of(32);
        }
        for (.., bytes) in &self.tensors {
            file.resize(file.len().next_multiple_of(32), 0);
            file.extend(bytes);
        }
        file
    }
}
