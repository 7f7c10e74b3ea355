//! Every affine format, dequantised bit for bit as the reference implementation does it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use mlxcel_engine::quant::{AffineFormat, dequantize_row};
use mlxcel_engine::weights::SafetensorsFile;

fn fixture() -> SafetensorsFile {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/quant/quant.safetensors");
    SafetensorsFile::open(&path).unwrap()
}

fn values(file: &SafetensorsFile, name: &str) -> Vec<f32> {
    file.tensor(name).unwrap().to_f32().unwrap()
}

#[test]
fn affine_formats_are_bit_exact() {
    let file = fixture();
    let mut seen_negative = false;
    for bits in [2u64, 3, 4, 5, 6, 8] {
        for group in [32u64, 64, 128] {
            let name = |part: &str| format!("affine_{bits}_{group}.{part}");
            let format = AffineFormat::new(bits, group).unwrap();
            let codes = file.tensor(&name("weight")).unwrap();
            let (scales, biases) = (
                values(&file, &name("scales")),
                values(&file, &name("biases")),
            );
            let wanted = values(&file, &name("dequant"));
            seen_negative |= scales.iter().any(|scale| *scale < 0.0);
            let (stream, groups) = (format.bytes_per_row(256), format.groups_per_row(256));
            for row in 0..16 {
                let mut got = vec![0.0; 256];
                dequantize_row(
                    format,
                    &codes.bytes[row * stream..(row + 1) * stream],
                    &scales[row * groups..(row + 1) * groups],
                    &biases[row * groups..(row + 1) * groups],
                    &mut got,
                );
                let bits_of =
                    |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                assert_eq!(
                    bits_of(&got),
                    bits_of(&wanted[row * 256..(row + 1) * 256]),
                    "{format}"
                );
            }
        }
    }
    assert!(seen_negative, "the fixture must exercise negative scales");
}
