//! Which affine formats exist and how long their rows are.

/// Bit widths that affine files use.
pub const AFFINE_BITS: [u8; 6] = [2, 3, 4, 5, 6, 8];

/// Elements that may share one scale and bias.
pub const AFFINE_GROUPS: [usize; 3] = [32, 64, 128];

/// Affine groups: `w = scale * q + bias`, `q` in `0..2^bits`, one scale and bias a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AffineFormat {
    bits: u8,
    group_size: usize,
}

/// A format that no file may have.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FormatError {
    /// The width is none of [`AFFINE_BITS`].
    #[error("affine quantisation of {got} bits, expected one of 2, 3, 4, 5, 6, 8")]
    Bits {
        /// The width asked for.
        got: u64,
    },
    /// The group is none of [`AFFINE_GROUPS`].
    #[error("affine quantisation in groups of {got}, expected 32, 64 or 128")]
    Group {
        /// The group asked for.
        got: u64,
    },
}

impl AffineFormat {
    /// What mxfp4 is executed as, see [`super::mxfp4`].
    pub const OF_MXFP4: Self = Self {
        bits: 5,
        group_size: 32,
    };

    /// Checks both numbers.
    ///
    /// # Errors
    /// When `bits` or `group_size` is not in use by any affine file.
    pub fn new(bits: u64, group_size: u64) -> Result<Self, FormatError> {
        let width = AFFINE_BITS.iter().find(|&&b| u64::from(b) == bits);
        let group = AFFINE_GROUPS.iter().find(|&&g| g as u64 == group_size);
        match (width, group) {
            (Some(&bits), Some(&group_size)) => Ok(Self { bits, group_size }),
            (None, _) => Err(FormatError::Bits { got: bits }),
            (_, None) => Err(FormatError::Group { got: group_size }),
        }
    }

    /// Bits of one code.
    pub fn bits(self) -> u8 {
        self.bits
    }

    /// Elements that share a scale and a bias.
    pub fn group_size(self) -> usize {
        self.group_size
    }

    /// Largest code, `2^bits - 1`.
    pub fn max_code(self) -> u8 {
        ((1u16 << self.bits) - 1) as u8
    }

    /// `u32` words that hold a row of `in_features` codes; whole for every multiple of 32.
    pub fn words_per_row(self, in_features: usize) -> usize {
        in_features * usize::from(self.bits) / 32
    }

    /// Bytes that hold a row of `in_features` codes.
    pub fn bytes_per_row(self, in_features: usize) -> usize {
        in_features * usize::from(self.bits) / 8
    }

    /// Scales (and biases) of a row of `in_features` codes.
    pub fn groups_per_row(self, in_features: usize) -> usize {
        in_features / self.group_size
    }
}

impl std::fmt::Display for AffineFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "affine {}-bit g{}", self.bits, self.group_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_real_format_is_accepted_and_no_other() {
        let real = (0..=16).flat_map(|b| (0..=256).map(move |g| (b, g)));
        let count = real
            .filter(|&(b, g)| AffineFormat::new(b, g).is_ok())
            .count();
        assert_eq!(count, 18);
    }

    #[test]
    fn the_error_names_the_number_that_is_wrong() {
        assert_eq!(AffineFormat::new(7, 64), Err(FormatError::Bits { got: 7 }));
        assert_eq!(
            AffineFormat::new(4, 48),
            Err(FormatError::Group { got: 48 })
        );
    }

    #[test]
    fn rows_have_whole_words() {
        for bits in AFFINE_BITS {
            let format = AffineFormat::new(u64::from(bits), 32).unwrap();
            assert_eq!(format.words_per_row(32) * 4, format.bytes_per_row(32));
            assert_eq!(format.words_per_row(32), usize::from(bits));
        }
    }
}
