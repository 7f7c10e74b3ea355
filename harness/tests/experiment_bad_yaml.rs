//! Files that are no experiment at all: broken YAML, hostile YAML, no text, no
//! file. Each gets a clear error with its place, quickly, and never a panic.

use std::path::Path;
use std::time::{Duration, Instant};

use bench_run::experiment::load::{MAX_BYTES, load, load_bytes};

fn errors(bytes: impl AsRef<[u8]>) -> String {
    match load_bytes(Path::new("x.yaml"), bytes.as_ref()) {
        Ok(_) => String::new(),
        Err(errors) => errors.to_string(),
    }
}

fn first(bytes: impl AsRef<[u8]>) -> String {
    errors(bytes).lines().next().unwrap_or_default().to_owned()
}

#[test]
fn an_empty_file_points_to_the_format() {
    for empty in ["", "\n\n", "# only a comment\n", "---\n", "\u{feff}"] {
        let text = first(empty);
        assert!(
            text.starts_with("x.yaml:1:1: expected "),
            "{empty:?}: {text}"
        );
        assert!(text.contains("EXPERIMENT_FORMAT.md"), "{empty:?}: {text}");
    }
}

#[test]
fn text_in_another_encoding_names_its_first_byte() {
    assert_eq!(
        errors(b"schema: 1\nname: caf\xe9\n"),
        "x.yaml:2:10: expected UTF-8 text, got the byte 0xe9; save the file as UTF-8"
    );
    assert!(first("schema: 1\nname: a\0b\n").contains("x.yaml:2:8: expected printable text"));
    assert!(first("name: a\u{2028}b\n").contains("x.yaml:1:8: expected printable text"));
    assert!(errors(b"\xff\xfes\0c\0").contains("x.yaml:1:1: expected UTF-8 text"));
}

#[test]
fn a_tab_for_indentation_says_so() {
    let text = errors("build:\n\tcommand: make\n");
    assert!(text.contains("x.yaml:2:"), "{text}");
    assert!(text.contains("indent with spaces"), "{text}");
}

#[test]
fn a_placeholder_without_quotes_asks_for_them() {
    let text = errors("command: {artifact} -m {model}\n");
    assert!(text.contains("x.yaml:1:"), "{text}");
    assert!(text.contains("needs quotes"), "{text}");
    let text = errors("arms:\n  a: { requires: { steps: > 0 } }\n");
    assert!(text.contains("x.yaml:2:"), "{text}");
    assert!(text.contains("'> 0'"), "{text}");
}

#[test]
fn repeated_keys_anchors_aliases_and_tags_are_each_reported() {
    let text = errors("name: a\nname: b\nrounds: &r 5\nretries: *r\nseed: !!int '3'\n");
    for part in [
        "x.yaml:2:1: name: expected each key once, got a repeat of the key in line 1",
        "rounds: expected a value, got an anchor",
        "x.yaml:4:10: retries: expected a value, got an alias",
        "seed: expected a plain value, got the tag",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn a_second_document_is_refused() {
    let text = errors("schema: 1\n---\nschema: 1\n");
    assert!(text.contains("expected one document"), "{text}");
}

#[test]
fn something_else_than_a_mapping_is_named() {
    assert!(first("just text").contains("expected a mapping, got the text `just text`"));
    assert!(first("- a\n- b\n").contains("expected a mapping, got a list"));
}

#[test]
fn hostile_files_fail_fast() {
    let mut laughs = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..9 {
        let inner = vec![format!("*a{}", level - 1); 9].join(", ");
        laughs.push_str(&format!("a{level}: &a{level} [{inner}]\n"));
    }
    let deep_block: String = (0..400).map(|n| format!("{}a:\n", " ".repeat(n))).collect();
    for (name, text) in [
        ("aliases", laughs),
        ("deep lists", "[".repeat(500_000)),
        ("deep mappings", "{a: ".repeat(200_000)),
        ("deep block", deep_block),
        ("dashes", "- ".repeat(400_000)),
        ("questions", "? ".repeat(400_000)),
        (
            "many values",
            format!("pass_env: [{}]", "a, ".repeat(300_000)),
        ),
        (
            "many keys",
            (0..100_000).map(|n| format!("k{n}: 1\n")).collect(),
        ),
        ("one long line", "x".repeat(1_000_000)),
        ("quotes", "'".repeat(999_999)),
        ("colons", ": ".repeat(400_000)),
    ] {
        let start = Instant::now();
        let text = errors(&text);
        assert!(!text.is_empty(), "{name}");
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "{name}: {:?}",
            start.elapsed()
        );
    }
}

#[test]
fn a_file_that_is_too_large_or_no_file_is_refused_unread() {
    let folder = tempfile::tempdir().unwrap();
    let large = folder.path().join("large.yaml");
    // Sparse: 100 MB that take no room and would take long to parse.
    std::fs::File::create(&large)
        .unwrap()
        .set_len(100_000_000)
        .unwrap();
    let text = load(&large).unwrap_err().to_string();
    assert!(
        text.contains(&format!("at most {MAX_BYTES} bytes, got 100000000 bytes")),
        "{text}"
    );

    let text = load(folder.path()).unwrap_err().to_string();
    assert!(
        text.contains("expected a regular file, got a directory"),
        "{text}"
    );
    let text = load(&folder.path().join("none.yaml"))
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("none.yaml:1:1: expected a readable file"),
        "{text}"
    );
}
