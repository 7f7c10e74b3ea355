//! SHA-256 as lower-case hex: the one spelling used in plans, rows and keys.

use std::fmt::Write as _;
use std::io::{self, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

/// SHA-256 of `bytes`, 64 lower-case hex digits.
#[must_use]
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// SHA-256 of a file's content, read in pieces of 1 MiB.
///
/// # Errors
/// Any error of opening or reading the file.
pub fn sha256_file(path: &Path) -> io::Result<String> {
    let mut file = std::fs::File::open(path)?;
    let mut hasher = Sha256::new();
    let mut piece = vec![0_u8; 1 << 20];
    loop {
        let count = file.read(&mut piece)?;
        if count == 0 {
            return Ok(hex(&hasher.finalize()));
        }
        hasher.update(&piece[..count]);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_input_has_the_published_digest() {
        assert_eq!(
            sha256_hex(b""),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }

    #[test]
    fn a_file_hashes_like_its_bytes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"abc").unwrap();
        assert_eq!(sha256_file(file.path()).unwrap(), sha256_hex(b"abc"));
    }
}
