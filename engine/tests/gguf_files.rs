//! GGUF files: what another writer made is read as it was meant, and damage is refused.
//!
//! `fixtures/gguf/blocks.gguf` was written by the `gguf` package of the Python registry from random
//! blocks; beside each tensor of blocks it holds the float32 values that package reads from them.
//! One test process measures allocations, so all tests here are single-threaded by one lock.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use mlxcel_engine::memory::{self, CountingAllocator};
use mlxcel_engine::weights::gguf::file::check_bytes;
use mlxcel_engine::weights::gguf::{GgufFile, Value, dequantize_row};
use proptest::prelude::*;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Held by every test: a peak is of the whole process.
static ALONE: Mutex<()> = Mutex::new(());

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/gguf/blocks.gguf")
}

fn bytes() -> Vec<u8> {
    std::fs::read(fixture()).unwrap()
}

#[test]
fn blocks_of_every_type_have_the_values_that_another_reader_gives_them() {
    let _alone = ALONE.lock();
    let file = GgufFile::open(&fixture()).unwrap();
    let mut kinds = Vec::new();
    for name in file.names().filter(|name| name.ends_with(".blocks")) {
        let blocks = file.tensor(name).unwrap();
        let values = file.tensor(&name.replace(".blocks", ".values")).unwrap();
        let (chunks, _) = values.bytes.as_chunks::<4>();
        let expected: Vec<f32> = chunks.iter().map(|b| f32::from_le_bytes(*b)).collect();
        let mut got = vec![0.0; blocks.row_elements()];
        dequantize_row(blocks.kind, blocks.bytes, &mut got);
        assert_eq!(got, expected, "{name}");
        kinds.push(blocks.kind.name());
    }
    let all = [
        "BF16", "F16", "Q4_0", "Q4_1", "Q4_K", "Q5_0", "Q5_1", "Q5_K", "Q6_K", "Q8_0",
    ];
    assert_eq!(kinds, all);
}

#[test]
fn values_of_every_type_are_read() {
    let _alone = ALONE.lock();
    let file = GgufFile::open(&fixture()).unwrap();
    let value = |name: &str| file.value(&format!("example.{name}")).unwrap();
    assert_eq!(value("u8"), &Value::Unsigned(255));
    assert_eq!(value("u16"), &Value::Unsigned(65_535));
    assert_eq!(value("u32"), &Value::Unsigned(7));
    assert_eq!(value("u64"), &Value::Unsigned(1 << 40));
    assert_eq!(value("i8"), &Value::Signed(-128));
    assert_eq!(value("i16"), &Value::Signed(-32_768));
    assert_eq!(value("i32"), &Value::Signed(-7));
    assert_eq!(value("i64"), &Value::Signed(-(1 << 40)));
    assert_eq!(value("f32"), &Value::Float(f64::from(1e-5f32)));
    assert_eq!(value("f64"), &Value::Float(0.1));
    assert_eq!(value("bool"), &Value::Bool(true));
    let list = |name: &str| match value(name) {
        Value::List(range) => *range,
        other => panic!("{name} is {other:?}"),
    };
    let bytes = file.file_bytes();
    let texts = list("texts").texts(bytes).unwrap();
    assert_eq!(texts, ["a", "", "\u{2581}bc", "<0x0A>"]);
    assert_eq!(list("integers").integers(bytes).unwrap(), [1, -2, 3]);
    assert_eq!(list("floats").floats(bytes).unwrap(), [0.5, -1.0]);
    assert_eq!(list("bools").integers(bytes).unwrap(), [1, 0, 1]);
    assert_eq!(list("texts").integers(bytes), None);
    assert_eq!(list("floats").texts(bytes), None);
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let _alone = ALONE.lock();
    let whole = bytes();
    assert_eq!(check_bytes(&whole), Ok(()));
    // The writer pads the last tensor to the alignment; cutting that off loses nothing.
    let needed = whole.len() - 32;
    for length in 0..needed {
        assert!(check_bytes(&whole[..length]).is_err(), "{length} bytes");
    }
}

/// The fixture with `replacement` in place of `original`, which must be as long.
fn altered(original: &[u8], replacement: &[u8]) -> Vec<u8> {
    assert_eq!(original.len(), replacement.len());
    let mut file = bytes();
    let mut windows = file.windows(original.len());
    let at = windows.position(|window| window == original).unwrap();
    file[at..at + original.len()].copy_from_slice(replacement);
    file
}

#[test]
fn each_kind_of_lie_has_its_message() {
    let _alone = ALONE.lock();
    let refused = |file: &[u8], part: &str| {
        let problem = check_bytes(file).unwrap_err();
        assert!(problem.contains(part), "{problem}");
    };
    refused(b"", "magic");
    refused(&altered(b"GGUF", b"GGML"), "expected");
    let version = |number: u32| {
        let mut file = bytes();
        file[4..8].copy_from_slice(&number.to_le_bytes());
        file
    };
    refused(&version(1), "version 1, expected 2 or 3");
    refused(&version(3u32.swap_bytes()), "big-endian");
    refused(
        &altered(b"example.i8", b"example.u8"),
        "`example.u8` occurs twice",
    );
    refused(
        &altered(b"Q4_0.blocks", b"Q5_0.blocks"),
        "`Q5_0.blocks` occurs twice",
    );
    refused(
        &altered(
            b"example.texts\x09\0\0\0\x08",
            b"example.texts\x09\0\0\0\x09",
        ),
        "list of lists",
    );
    refused(
        &altered(b"example.texts\x09", b"example.texts\x0d"),
        "value type 13",
    );
    refused(
        &altered(b"example.bool\x07\0\0\0\x01", b"example.bool\x07\0\0\0\x02"),
        "boolean 2",
    );
    refused(
        &altered("\u{2581}bc".as_bytes(), b"\xff\xfe\xfdbc"),
        "utf-8",
    );
    // Q4_0.blocks: two axes, 64 x 1, type 2, offset 0.
    let entry = |axes: u32, columns: u64, rows: u64, kind: u32, offset: u64| {
        let mut bytes = b"Q4_0.blocks".to_vec();
        bytes.extend(axes.to_le_bytes());
        bytes.extend(columns.to_le_bytes());
        bytes.extend(rows.to_le_bytes());
        bytes.extend(kind.to_le_bytes());
        bytes.extend(offset.to_le_bytes());
        bytes
    };
    let true_entry = entry(2, 64, 1, 2, 0);
    for (axes, columns, rows, kind, offset, part) in [
        (5, 64, 1, 2, 0, "5 axes"),
        (0, 64, 1, 2, 0, "0 axes"),
        (2, 65, 1, 2, 0, "rows of 65 elements"),
        (2, 0, 1, 2, 0, "extent of 0"),
        (2, 64, 1, 10, 0, "Q2_K"),
        (2, 64, 1, 2, 8, "multiple of 32"),
        (2, 64, 2, 2, 0, "overlaps"),
        (2, 64, 1 << 40, 2, 0, "39582418599936 bytes at offset 0"),
        (2, 1 << 50, 1 << 40, 2, 0, "overflows"),
        (2, 64, 1, 2, u64::MAX - 31, "at offset"),
    ] {
        let lie = entry(axes, columns, rows, kind, offset);
        refused(&altered(&true_entry, &lie), part);
    }
}

#[test]
fn a_stated_size_allocates_nothing() {
    let _alone = ALONE.lock();
    let mut file = b"GGUF\x03\0\0\0".to_vec();
    file.extend(u64::MAX.to_le_bytes());
    file.extend(u64::MAX.to_le_bytes());
    assert!(peak_of(&file) < 10_000);
    let mut list = b"GGUF\x03\0\0\0".to_vec();
    list.extend(0u64.to_le_bytes());
    list.extend(1u64.to_le_bytes());
    list.extend(1u64.to_le_bytes());
    list.extend(b"k\x09\0\0\0");
    for kind in 0..13u32 {
        let mut file = list.clone();
        file.extend(kind.to_le_bytes());
        file.extend((u64::MAX / 2).to_le_bytes());
        assert!(check_bytes(&file).is_err(), "kind {kind}");
        assert!(peak_of(&file) < 10_000, "kind {kind}");
    }
}

/// Bytes allocated at the worst moment of reading `file`.
fn peak_of(file: &[u8]) -> u64 {
    memory::start_phase();
    let before = memory::now().active_bytes;
    let _ = check_bytes(file);
    memory::now().phase_peak_bytes.saturating_sub(before)
}

/// Entries of the shortest kind cost some twenty times their bytes as Rust values.
const MOST_PER_FILE_BYTE: u64 = 24;

#[test]
fn many_short_entries_stay_in_the_size_class_of_the_file() {
    let _alone = ALONE.lock();
    let count = 20_000u64;
    let mut file = b"GGUF\x03\0\0\0".to_vec();
    file.extend(0u64.to_le_bytes());
    file.extend(count.to_le_bytes());
    for key in 0..count {
        let key = format!("{key:05}");
        file.extend((key.len() as u64).to_le_bytes());
        file.extend(key.as_bytes());
        file.extend([0, 0, 0, 0, 1]);
    }
    assert_eq!(check_bytes(&file), Ok(()));
    let peak = peak_of(&file);
    assert!(peak < MOST_PER_FILE_BYTE * file.len() as u64, "{peak}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Whatever is done to the bytes, reading ends without a panic and within the file's size
    /// class; what is accepted can be handed out whole.
    #[test]
    fn damage_is_refused_or_harmless(
        flips in prop::collection::vec((0usize..4096, any::<u8>()), 0..6),
        word in prop::option::of((0usize..4096, prop::sample::select(vec![
            0u64, 1, 5, 31, 255, 65_536, 1 << 31, u64::from(u32::MAX), 1 << 40, 1 << 63, u64::MAX,
        ]))),
        cut in prop::option::of(0usize..8192),
    ) {
        let _alone = ALONE.lock();
        let mut file = bytes();
        for (at, value) in flips {
            file[at] = value;
        }
        if let Some((at, word)) = word {
            file[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        if let Some(length) = cut {
            file.truncate(length);
        }
        let peak = peak_of(&file);
        prop_assert!(peak < 40_000 + MOST_PER_FILE_BYTE * file.len() as u64, "{peak}");
        let scratch = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(scratch.path(), &file).unwrap();
        if let Ok(read) = GgufFile::open(scratch.path()) {
            for name in read.names() {
                let tensor = read.tensor(name).unwrap();
                let row = tensor.row_elements();
                prop_assume!(row < 1 << 20);
                let bytes = tensor.kind.row_bytes(row).unwrap();
                let mut values = vec![0.0; row];
                for blocks in tensor.bytes.chunks_exact(bytes) {
                    dequantize_row(tensor.kind, blocks, &mut values);
                }
            }
        }
    }
}
