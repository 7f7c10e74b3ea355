//! A text as one short string, by which reports of two programs are compared.

use sha2::{Digest, Sha256};

/// SHA-256 of the tokens as little-endian 32-bit words, in hexadecimal.
#[must_use]
pub fn token_sha256(tokens: &[u32]) -> String {
    let mut hash = Sha256::new();
    for token in tokens {
        hash.update(token.to_le_bytes());
    }
    hex(&hash.finalize())
}

/// Two digits a byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_hashed_as_their_bytes() {
        // `printf '\1\0\0\0\0\1\0\0' | sha256sum`
        let wanted = "242045e2f1bb37769b514f182fd91b3d215324cb57f187cced1e9c62921dbac3";
        assert_eq!(token_sha256(&[1, 256]), wanted);
    }
}
