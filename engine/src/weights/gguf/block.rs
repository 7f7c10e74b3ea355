//! Tensor types of GGUF files: which are read, and how many bytes hold how many elements.

/// How the elements of a tensor are stored. Elements come in blocks along a row; a plain type is
/// a block of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlockType {
    /// IEEE single.
    F32,
    /// IEEE half.
    F16,
    /// The upper half of a single.
    Bf16,
    /// 32 codes of 4 bits: `d (q - 8)`.
    Q4_0,
    /// 32 codes of 4 bits: `d q + m`.
    Q4_1,
    /// 32 codes of 5 bits: `d (q - 16)`.
    Q5_0,
    /// 32 codes of 5 bits: `d q + m`.
    Q5_1,
    /// 32 signed codes of 8 bits: `d q`.
    Q8_0,
    /// 8 groups of 32 codes of 4 bits: `d s q - e m`, s and m of 6 bits a group.
    Q4K,
    /// The same with codes of 5 bits.
    Q5K,
    /// 16 groups of 16 codes of 6 bits: `d s (q - 32)`, s of 8 bits a group.
    Q6K,
}

/// Number in the file, type, name, elements of a block, bytes of a block.
const READ: [(u32, BlockType, &str, usize, usize); 11] = [
    (0, BlockType::F32, "F32", 1, 4),
    (1, BlockType::F16, "F16", 1, 2),
    (2, BlockType::Q4_0, "Q4_0", 32, 18),
    (3, BlockType::Q4_1, "Q4_1", 32, 20),
    (6, BlockType::Q5_0, "Q5_0", 32, 22),
    (7, BlockType::Q5_1, "Q5_1", 32, 24),
    (8, BlockType::Q8_0, "Q8_0", 32, 34),
    (12, BlockType::Q4K, "Q4_K", 256, 144),
    (13, BlockType::Q5K, "Q5_K", 256, 176),
    (14, BlockType::Q6K, "Q6_K", 256, 210),
    (30, BlockType::Bf16, "BF16", 1, 2),
];

/// Types that exist and are not read, for messages.
const NOT_READ: [(u32, &str); 22] = [
    (9, "Q8_1"),
    (10, "Q2_K"),
    (11, "Q3_K"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (20, "IQ4_NL"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (39, "MXFP4"),
    (40, "NVFP4"),
];

impl BlockType {
    /// The type with this number in the file.
    ///
    /// # Errors
    /// What the number means and which types are read.
    pub fn from_number(number: u32) -> Result<Self, String> {
        if let Some(entry) = READ.iter().find(|entry| entry.0 == number) {
            return Ok(entry.1);
        }
        let name = NOT_READ.iter().find(|entry| entry.0 == number);
        let names: Vec<&str> = READ.iter().map(|entry| entry.2).collect();
        Err(format!(
            "type {number} ({}), expected one of {}",
            name.map_or("unknown", |entry| entry.1),
            names.join(", ")
        ))
    }

    fn entry(self) -> &'static (u32, Self, &'static str, usize, usize) {
        // Every variant has its row, which a test checks.
        READ.iter().find(|row| row.1 == self).unwrap_or(&READ[0])
    }

    /// Name as GGUF tools print it.
    pub fn name(self) -> &'static str {
        self.entry().2
    }

    /// Number in the file.
    pub fn number(self) -> u32 {
        self.entry().0
    }

    /// Elements of a block.
    pub fn block_elements(self) -> usize {
        self.entry().3
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        self.entry().4
    }

    /// Bytes of a row of `elements`, if it is whole blocks and does not overflow.
    pub fn row_bytes(self, elements: usize) -> Option<usize> {
        let block = self.block_elements();
        elements
            .is_multiple_of(block)
            .then(|| (elements / block).checked_mul(self.block_bytes()))?
    }
}

impl std::fmt::Display for BlockType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_to_types_and_back() {
        for &(number, kind, name, ..) in &READ {
            assert_eq!(BlockType::from_number(number), Ok(kind));
            assert_eq!((kind.number(), kind.name()), (number, name));
        }
    }

    #[test]
    fn a_type_that_is_not_read_is_named_in_the_refusal() {
        let error = BlockType::from_number(23).unwrap_err();
        assert!(
            error.contains("IQ4_XS") && error.contains("Q4_K"),
            "{error}"
        );
        assert!(BlockType::from_number(999).unwrap_err().contains("unknown"));
    }

    #[test]
    fn a_row_is_whole_blocks() {
        assert_eq!(BlockType::Q4_1.row_bytes(64), Some(40));
        assert_eq!(BlockType::Q4_1.row_bytes(65), None);
        assert_eq!(BlockType::F32.row_bytes(usize::MAX), None);
    }
}
