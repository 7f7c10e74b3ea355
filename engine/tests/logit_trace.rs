//! `mlxcel logit-trace` and the script that compares its traces.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

fn mlxcel(cache: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mlxcel"))
        .arg("logit-trace")
        .args(arguments)
        .env("MLXCEL_SYNTH_CACHE", cache)
        .output()
        .unwrap()
}

fn lines(output: &Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn every_token_but_the_last_of_a_chunk_predicts_the_next() {
    let cache = tempfile::tempdir().unwrap();
    let arguments = [
        "-m",
        "synthetic:tiny-gemma3",
        "--tokens",
        "50",
        "--chunk",
        "20",
        "--top",
        "3",
    ];
    let output = mlxcel(cache.path(), &arguments);
    assert!(output.status.success(), "{output:?}");
    let lines = lines(&output);
    let (header, rows) = lines.split_first().unwrap();
    assert_eq!(header["logit_trace"], 1);
    assert_eq!(
        (&header["tokens"], &header["chunk_tokens"]),
        (&json!(50), &json!(20))
    );
    let places: Vec<(u64, u64)> = rows
        .iter()
        .map(|row| (row["chunk"].as_u64().unwrap(), row["pos"].as_u64().unwrap()))
        .collect();
    let expected: Vec<(u64, u64)> = [(0, 19), (1, 19), (2, 9)]
        .into_iter()
        .flat_map(|(chunk, count)| (0..count).map(move |pos| (chunk, pos)))
        .collect();
    assert_eq!(places, expected);
    for row in rows {
        let logits: Vec<f64> = row["logits"]
            .as_array()
            .unwrap()
            .iter()
            .map(|l| l.as_f64().unwrap())
            .collect();
        assert!(
            logits.len() == 3 && logits.is_sorted_by(|a, b| a >= b),
            "{row}"
        );
        assert!(row["nll"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn a_trace_that_fails_leaves_the_file_that_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let (text, trace) = (folder.path().join("text"), folder.path().join("trace"));
    std::fs::write(&text, "a").unwrap();
    std::fs::write(&trace, "of yesterday").unwrap();
    let arguments = |text: &Path| {
        let mut arguments: Vec<String> = ["-m", "synthetic:tiny-gemma3", "--tokens", "20"]
            .map(str::to_owned)
            .into();
        for (name, path) in [("--file", text), ("--output", &trace)] {
            arguments.extend([name.to_owned(), path.display().to_string()]);
        }
        arguments
    };
    let run = |text: &Path| {
        let arguments = arguments(text);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        mlxcel(folder.path(), &arguments)
    };
    let failed = run(&text);
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
    assert!(String::from_utf8_lossy(&failed.stderr).contains("nothing to predict"));
    assert_eq!(std::fs::read_to_string(&trace).unwrap(), "of yesterday");
    std::fs::write(&text, "several words that make more than one token").unwrap();
    let whole = run(&text);
    assert!(whole.status.success(), "{whole:?}");
    let lines = std::fs::read_to_string(&trace).unwrap();
    assert!(
        lines.lines().count() > 2 && lines.starts_with('{'),
        "{lines}"
    );
    let left: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| name.to_string_lossy().contains("incomplete"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn another_size_of_the_cache_gives_the_same_bytes_and_another_device_does_not() {
    let cache = tempfile::tempdir().unwrap();
    let trace = |extra: &[&str], entries: &str| {
        let mut arguments = vec!["-m", "synthetic:tiny-gemma3-f16", "--tokens", "300"];
        arguments.extend(extra);
        let output = Command::new(env!("CARGO_BIN_EXE_mlxcel"))
            .arg("logit-trace")
            .args(&arguments)
            .env("MLXCEL_SYNTH_CACHE", cache.path())
            .env("MLX_ROCM_QMM_DEQUANT_CACHE_SIZE", entries)
            .env("MLX_ROCM_QMM_DEQUANT_CACHE_STATS", "1")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        (output.stdout, String::from_utf8(output.stderr).unwrap())
    };
    let gfx1151 = ["--route-profile", "gfx1151"];
    let (on, counters) = trace(&gfx1151, "8");
    let (off, none) = trace(&gfx1151, "0");
    assert!(on == off);
    assert!(
        counters.contains("[qmm dequant cache] hits=0 misses="),
        "{counters}"
    );
    assert!(counters.contains("entries=8"), "{counters}");
    assert!(none.contains("misses=0 inserts=0"), "{none}");
    let (own, _) = trace(&[], "8");
    assert!(own != on);
}

#[test]
fn a_value_that_is_not_understood_is_one_warning() {
    let cache = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_mlxcel"))
        .args([
            "logit-trace",
            "-m",
            "synthetic:tiny-gemma3",
            "--tokens",
            "2",
        ])
        .env("MLXCEL_SYNTH_CACHE", cache.path())
        .env("MLX_ROCM_WMMA_QMM_MAX_M", "lots")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        stderr.matches("MLX_ROCM_WMMA_QMM_MAX_M").count(),
        1,
        "{stderr}"
    );
}

fn write(folder: &Path, name: &str, header: &Value, rows: &[Value]) -> PathBuf {
    let path = folder.join(name);
    let lines: Vec<String> = std::iter::once(header)
        .chain(rows)
        .map(Value::to_string)
        .collect();
    std::fs::write(&path, lines.join("\n") + "\n").unwrap();
    path
}

fn header() -> Value {
    json!({"logit_trace": 1, "model_hash": "ab", "tokens": 3, "chunk_tokens": 3, "top": 2})
}

/// Position 0 is decided by 3, position 1 by 1.
fn rows() -> Vec<Value> {
    vec![
        json!({"chunk": 0, "pos": 0, "target": 7, "nll": 0.5, "ids": [7, 9], "logits": [5.0, 2.0]}),
        json!({"chunk": 0, "pos": 1, "target": 9, "nll": 1.5, "ids": [8, 9], "logits": [4.0, 3.0]}),
    ]
}

fn compare(a: &Path, b: &Path, options: &[&str]) -> (i32, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/compare_logit_traces.py");
    let output = Command::new("python3")
        .arg(script)
        .args([a, b])
        .args(options)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code().unwrap(),
        String::from_utf8(text).unwrap(),
    )
}

#[test]
fn equal_traces_are_identical_and_every_figure_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    let a = write(folder.path(), "a", &header(), &rows());
    let b = write(folder.path(), "b", &header(), &rows());
    let (code, text) = compare(&a, &b, &["--identical"]);
    assert_eq!(code, 0, "{text}");
    for expected in [
        "positions             2",
        "another best token    0 of 2 (0.00 %)",
        "  where decided       0 of 1 (0.00 %), by at least 2",
        "|logit difference|    p50 0, p90 0, p99 0, max 0",
        "perplexity            2.718282 and 2.718282",
        "files                 identical",
    ] {
        assert!(text.contains(expected), "{expected:?} in {text}");
    }
}

#[test]
fn only_a_decided_position_makes_a_difference() {
    let folder = tempfile::tempdir().unwrap();
    let a = write(folder.path(), "a", &header(), &rows());
    let mut toss = rows();
    toss[1]["ids"] = json!([9, 8]);
    let b = write(folder.path(), "b", &header(), &toss);
    let (code, text) = compare(&a, &b, &["--decided", "2.0"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("another best token    1 of 2"), "{text}");
    // Lists of (8, 9) with logits exchanged: 4 against 3, twice.
    assert!(text.contains("max 1"), "{text}");
    assert_eq!(compare(&a, &b, &["--decided", "0.5"]).0, 1);
    assert_eq!(compare(&a, &b, &["--identical"]).0, 1);

    let mut other = rows();
    other[0]["ids"] = json!([9, 7]);
    let c = write(folder.path(), "c", &header(), &other);
    let (code, text) = compare(&a, &c, &[]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("where decided       1 of 1"), "{text}");
}

#[test]
fn what_cannot_be_compared_is_code_two_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let a = write(folder.path(), "a", &header(), &rows());
    let mut model = header();
    model["model_hash"] = json!("cd");
    let mut version = header();
    version["logit_trace"] = json!(2);
    let mut target = rows();
    target[0]["target"] = json!(1);
    let mut missing = rows();
    missing[0]["logits"] = json!([null, 1.0]);
    let cases = [
        (
            write(folder.path(), "model", &model, &rows()),
            "model_hash: ab and cd",
        ),
        (
            write(folder.path(), "version", &version, &rows()),
            "expected trace format 1, got 2",
        ),
        (
            write(folder.path(), "short", &header(), &rows()[..1]),
            "short: 1 positions, expected 2",
        ),
        (
            write(folder.path(), "target", &header(), &target),
            "other targets: 7 and 1 at (0, 0)",
        ),
        (
            write(folder.path(), "empty", &header(), &[]),
            "empty: 0 positions",
        ),
        (
            write(folder.path(), "row", &header(), &[json!({"chunk": 0})]),
            "row:2: not a row of a logit trace: no 'pos'",
        ),
        (
            write(folder.path(), "missing", &header(), &missing),
            "missing:2: not a row of a logit trace: null, as which NaN",
        ),
        (folder.path().join("absent"), "cannot be read"),
    ];
    for (path, expected) in cases {
        let (code, text) = compare(&a, &path, &[]);
        assert_eq!(code, 2, "{expected}: {text}");
        assert!(text.contains(expected), "{expected}: {text}");
        assert!(!text.contains("Traceback"), "{text}");
    }
    std::fs::write(folder.path().join("text"), "hello\n").unwrap();
    assert_eq!(compare(&a, &folder.path().join("text"), &[]).0, 2);
    assert_eq!(compare(&a, &a, &["--decided", "-1"]).0, 2);
}

/// The first row with one field replaced, as text: some of these are no JSON that a library writes.
fn with_field(folder: &Path, field: &str, value: &str) -> PathBuf {
    let (old, path) = (rows()[0][field].to_string(), folder.join("changed"));
    let row = rows()[0].to_string();
    let (from, to) = (format!("\"{field}\":{old}"), format!("\"{field}\":{value}"));
    assert!(row.contains(&from), "{row}");
    let lines = [header().to_string(), row.replace(&from, &to)].join("\n");
    std::fs::write(&path, format!("{lines}\n{}\n", rows()[1])).unwrap();
    path
}

// A program that ends with a traceback ends with 1, which would say that the traces differ.
#[test]
fn no_field_of_a_row_makes_the_script_fail_with_another_code() {
    let folder = tempfile::tempdir().unwrap();
    let a = write(folder.path(), "a", &header(), &rows());
    let huge = format!("1{}", "0".repeat(400));
    let deep = "[".repeat(100_000);
    let cases = [
        ("nll", "NaN", "not finite"),
        ("nll", huge.as_str(), "not finite"),
        ("nll", "true", "expected a number"),
        ("logits", "[Infinity,1]", "not finite"),
        ("logits", "[1,2]", "descending"),
        ("logits", "\"52\"", "expected a number"),
        ("logits", deep.as_str(), "not a row"),
        ("ids", "[7,7]", "twice"),
        ("ids", "[[7],9]", "expected a whole number"),
        ("ids", "7", "not a row"),
        ("pos", "1", "chunk and pos (0, 1), expected (0, 0)"),
        ("chunk", "-1", "expected a whole number"),
    ];
    for (field, value, expected) in cases {
        let changed = with_field(folder.path(), field, value);
        let (code, text) = compare(&a, &changed, &[]);
        let shown = &value[..value.len().min(40)];
        assert_eq!(code, 2, "{field}={shown}: {text}");
        assert!(text.contains(expected), "{field}={shown}: {text}");
        assert!(!text.contains("Traceback"), "{field}={shown}: {text}");
    }
    let surprised = with_field(folder.path(), "nll", "5000");
    let (code, text) = compare(&surprised, &surprised, &[]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("perplexity            inf"), "{text}");
}

#[test]
fn two_traces_that_both_lost_their_end_are_not_comparable() {
    let folder = tempfile::tempdir().unwrap();
    let short = write(folder.path(), "short", &header(), &rows()[..1]);
    assert_eq!(compare(&short, &short, &["--identical"]).0, 2);
}

/// Runs a line of bash with the script as `$0` and two traces, which differ, as `$1` and `$2`.
fn compare_in_shell(line: &str) -> (i32, String) {
    let folder = tempfile::tempdir().unwrap();
    let a = write(folder.path(), "a", &header(), &rows());
    let mut toss = rows();
    toss[1]["ids"] = json!([9, 8]);
    let b = write(folder.path(), "b", &header(), &toss);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/compare_logit_traces.py");
    let output = Command::new("bash")
        .args(["-c", line])
        .args([&script, &a, &b])
        .output()
        .unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    (output.status.code().unwrap(), text)
}

// What a pipe gave cannot be read again, and nothing is equal to nothing.
#[test]
fn traces_that_come_through_pipes_are_compared_by_their_bytes() {
    let line = "python3 \"$0\" <(cat \"$1\") <(cat \"$2\") --identical";
    assert_eq!(compare_in_shell(line).0, 1);
    let line = "python3 \"$0\" <(cat \"$1\") <(cat \"$1\") --identical";
    assert_eq!(compare_in_shell(line).0, 0);
}

#[test]
fn a_comparison_that_cannot_be_written_says_nothing_about_the_traces() {
    if !Path::new("/dev/full").exists() {
        return;
    }
    let (code, text) = compare_in_shell("python3 \"$0\" \"$1\" \"$2\" >/dev/full");
    assert_eq!(code, 2, "{text}");
    assert!(
        text.contains("cannot write") && !text.contains("Traceback"),
        "{text}"
    );
}
