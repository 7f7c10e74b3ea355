//! Codes to bits and back: a row is one little-endian stream of bits.
//!
//! Two, four and eight bits fill a `u32` from its low end; three, five and six straddle words.
//! As bytes of the file all of them are the same thing: code `i` occupies stream bits
//! `i * bits .. (i + 1) * bits`, bit 0 of byte 0 first.

/// Reads `codes.len()` codes of `bits` bits from the start of `stream`.
///
/// # Panics
/// When `stream` is shorter than the codes; callers check shapes when they load a file.
pub fn unpack_row(stream: &[u8], bits: u8, codes: &mut [u8]) {
    let bits = usize::from(bits);
    let mask = ((1u16 << bits) - 1) as u8;
    match bits {
        8 => codes.copy_from_slice(&stream[..codes.len()]),
        4 => {
            for (pair, byte) in codes.chunks_mut(2).zip(stream) {
                pair[0] = byte & mask;
                if let Some(high) = pair.get_mut(1) {
                    *high = byte >> 4;
                }
            }
        }
        _ => {
            for (i, code) in codes.iter_mut().enumerate() {
                let bit = i * bits;
                let low = u16::from(stream[bit / 8]);
                let high = stream.get(bit / 8 + 1).copied().map_or(0, u16::from);
                *code = ((low | (high << 8)) >> (bit % 8)) as u8 & mask;
            }
        }
    }
}

/// Writes codes as the words of one row, padding the last word with zeros.
pub fn pack_row(codes: &[u8], bits: u8) -> Vec<u32> {
    let bits = usize::from(bits);
    let mut words = vec![0u32; (codes.len() * bits).div_ceil(32)];
    for (i, &code) in codes.iter().enumerate() {
        let bit = i * bits;
        let wide = u64::from(code) << (bit % 32);
        words[bit / 32] |= wide as u32;
        let spill = (wide >> 32) as u32;
        if spill != 0 {
            words[bit / 32 + 1] |= spill;
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::super::format::AFFINE_BITS;
    use super::*;
    use proptest::prelude::*;

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    #[test]
    fn the_even_element_of_four_bits_is_the_low_nibble() {
        assert_eq!(pack_row(&[1, 2, 3, 4, 5, 6, 7, 8], 4), [0x8765_4321]);
    }

    #[test]
    fn three_bits_straddle_bytes() {
        // Bits of 5, 6, 7 low first: 101 011 111 and then zeros: 0b1_1111_0101.
        assert_eq!(pack_row(&[5, 6, 7], 3), [0b1_1111_0101]);
    }

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked(raw in prop::collection::vec(0u8..=255, 32 * 4)) {
            for bits in AFFINE_BITS {
                let mask = ((1u16 << bits) - 1) as u8;
                let codes: Vec<u8> = raw.iter().map(|c| c & mask).collect();
                let mut back = vec![0; codes.len()];
                unpack_row(&bytes(&pack_row(&codes, bits)), bits, &mut back);
                prop_assert_eq!(&back, &codes);
            }
        }
    }
}
