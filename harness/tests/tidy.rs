//! What no compiler checks: layering, absences, file lengths, links.
//!
//! The tables of docs/ARCHITECTURE.md are the rules; this test holds the code against them.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Longest source file in lines; catalogues that may be longer are named below.
const MAX_FILE_LINES: usize = 600;

/// The same for a file of tests: a list of stories, read one at a time.
const MAX_TEST_LINES: usize = 700;

/// Files that are one long list of data or straight-line kernels.
const CATALOGUES: &[&str] = &[];

/// Rooms and files that decide: nothing in them may act.
const PURE: &[&str] = &[
    "harness/src/stats",
    "harness/src/verdict",
    "harness/src/plan",
    "harness/src/analysis",
    "harness/src/cache/keep.rs",
    "harness/src/guard/policy.rs",
    "harness/src/host/findings.rs",
    "harness/src/history/known.rs",
    "harness/src/metric/expect.rs",
    "harness/src/record/cell_progress.rs",
    "harness/src/record/rounds.rs",
    "harness/src/replay/judge.rs",
    "harness/src/replay/session.rs",
    "harness/src/session/treatment.rs",
    "harness/src/setup/demand.rs",
    "engine/src/decode/eligibility.rs",
    "engine/src/decode/unwind.rs",
    "engine/src/kv_cache",
    "engine/src/qmm",
];

/// What acting looks like in source.
const ACTING: &[&str] = &[
    "std::fs",
    "std::env",
    "std::process",
    "std::net",
    "Instant::now",
    "SystemTime",
    "println!",
    "eprintln!",
    "print!(",
    "eprint!(",
];

/// Where `unsafe` may stand, each block with its reason.
const UNSAFE_ROOMS: &[&str] = &[
    "harness/src/execute",
    "harness/src/guard",
    "engine/src/backend",
    "engine/src/weights",
    "engine/src/memory.rs",
    "engine/src/version.rs",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

/// Every file below `directory` that `keep` accepts, as (path relative to the root, text).
fn files(directory: &str, keep: &dyn Fn(&Path) -> bool) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut pending = vec![root().join(directory)];
    while let Some(path) = pending.pop() {
        let Ok(entries) = fs::read_dir(&path) else {
            continue;
        };
        for entry in entries {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if !matches!(name.as_str(), "target" | ".git" | "models" | "node_modules") {
                    pending.push(path);
                }
            } else if keep(&path) {
                let relative = path
                    .strip_prefix(root())
                    .unwrap()
                    .to_string_lossy()
                    .into_owned();
                found.push((relative, fs::read_to_string(&path).unwrap_or_default()));
            }
        }
    }
    found.sort();
    found
}

/// All Rust files below `directory`, but those that are compiled for tests only.
fn rust_files(directory: &str) -> Vec<(String, String)> {
    let is_rust = |path: &Path| path.extension().is_some_and(|ending| ending == "rs");
    let mut found = files(directory, &is_rust);
    found.retain(|(path, _)| !is_test_module(&root().join(path)));
    found
}

/// True for a file that its `mod.rs` declares behind `#[cfg(test)]`.
fn is_test_module(path: &Path) -> bool {
    let stem = path.file_stem().unwrap().to_string_lossy();
    if stem == "tests" {
        return true;
    }
    let parent = fs::read_to_string(path.with_file_name("mod.rs")).unwrap_or_default();
    ["mod", "pub mod", "pub(crate) mod", "pub(super) mod"]
        .iter()
        .any(|word| parent.contains(&format!("#[cfg(test)]\n{word} {stem};")))
}

/// The part of a source file before its unit tests, without comment lines.
fn code(text: &str) -> String {
    let before_tests = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
    before_tests
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Reads `| room | may import | …` rows below a heading of ARCHITECTURE.md.
fn import_table(heading: &str) -> BTreeMap<String, Vec<String>> {
    let text = fs::read_to_string(root().join("docs/ARCHITECTURE.md")).unwrap();
    let section = text
        .split(heading)
        .nth(1)
        .unwrap_or_else(|| panic!("no heading {heading}"));
    let section = section.split("\n## ").next().unwrap();
    section
        .lines()
        .filter(|line| {
            line.starts_with("| ") && !line.starts_with("| room") && !line.starts_with("| ---")
        })
        .map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let allowed = cells[2]
                .split(',')
                .map(str::trim)
                .filter(|name| *name != "–")
                .map(str::to_owned);
            (cells[1].to_owned(), allowed.collect())
        })
        .collect()
}

/// The rooms that `code` names as `crate::<room>`.
fn imported_rooms(code: &str) -> Vec<String> {
    let mut rooms = Vec::new();
    for piece in code.split("crate::").skip(1) {
        if let Some(list) = piece.strip_prefix('{') {
            let list = list.split("};").next().unwrap_or(list);
            let mut depth = 0;
            for word in list.split_inclusive([',', '{', '}']) {
                let name: String = word
                    .trim()
                    .chars()
                    .take_while(|c| c.is_alphanumeric() || *c == '_')
                    .collect();
                if depth == 0 && !name.is_empty() {
                    rooms.push(name);
                }
                depth += word.matches('{').count();
                depth = depth.saturating_sub(word.matches('}').count());
            }
        } else {
            rooms.push(
                piece
                    .chars()
                    .take_while(|c| c.is_alphanumeric() || *c == '_')
                    .collect(),
            );
        }
    }
    rooms
}

fn layering_faults(source: &str, heading: &str) -> Vec<String> {
    let table = import_table(heading);
    let mut faults = Vec::new();
    for (path, text) in rust_files(source) {
        let inside = path.strip_prefix(source).unwrap().trim_start_matches('/');
        let room = inside.split('/').next().unwrap().trim_end_matches(".rs");
        let Some(allowed) = table.get(room) else {
            continue;
        };
        for imported in imported_rooms(&code(&text)) {
            if imported != room && table.contains_key(&imported) && !allowed.contains(&imported) {
                faults.push(format!("{path}: room `{room}` may not import `{imported}`"));
            }
        }
    }
    faults
}

fn assert_none(what: &str, faults: &[String]) {
    assert!(faults.is_empty(), "{what}:\n  {}", faults.join("\n  "));
}

#[test]
fn rooms_import_only_what_the_architecture_allows() {
    let mut faults = layering_faults("harness/src", "## The harness, room by room");
    faults.extend(layering_faults("engine/src", "## The engine, room by room"));
    assert_none("docs/ARCHITECTURE.md does not allow these imports", &faults);
}

#[test]
fn every_room_stands_in_the_architecture() {
    let mut faults = Vec::new();
    for (source, heading) in [
        ("harness/src", "## The harness, room by room"),
        ("engine/src", "## The engine, room by room"),
    ] {
        let table = import_table(heading);
        for entry in fs::read_dir(root().join(source)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            if !table.contains_key(&name) && !matches!(name.as_str(), "main" | "lib" | "bin") {
                faults.push(format!("{source}/{name} has no row"));
            }
        }
    }
    assert_none("rooms missing from docs/ARCHITECTURE.md", &faults);
}

#[test]
fn harness_and_engine_do_not_know_each_other() {
    for (path, text) in files("harness", &|path| path.ends_with("Cargo.toml")) {
        assert!(!text.contains("mlxcel"), "{path} depends on the engine");
    }
    for (path, text) in files("engine", &|path| path.ends_with("Cargo.toml")) {
        assert!(
            !text.contains("bench-run ="),
            "{path} depends on the harness"
        );
    }
}

#[test]
fn deciding_code_does_not_act() {
    let mut faults = Vec::new();
    for place in PURE {
        let inside = if place.ends_with(".rs") {
            Path::new(place).parent().unwrap().to_str().unwrap()
        } else {
            place
        };
        for (path, text) in rust_files(inside) {
            if !path.starts_with(place) {
                continue;
            }
            let code = code(&text);
            faults.extend(
                ACTING
                    .iter()
                    .filter(|word| code.contains(**word))
                    .map(|word| format!("{path}: {word}")),
            );
        }
    }
    assert_none("these files must stay pure", &faults);
}

#[test]
fn only_the_command_line_prints() {
    let mut faults = Vec::new();
    for (path, text) in rust_files("harness/src")
        .into_iter()
        .chain(rust_files("engine/src"))
    {
        let may_print =
            path.contains("/cli/") || path.contains("/bin/") || path.ends_with("main.rs");
        let prints = ["println!", "eprintln!"]
            .iter()
            .any(|word| code(&text).contains(word));
        if prints && !may_print {
            faults.push(path);
        }
    }
    assert_none("printing outside the command line", &faults);
}

#[test]
fn unsafe_stands_only_where_it_is_allowed() {
    let mut faults = Vec::new();
    for (path, text) in rust_files("harness/src")
        .into_iter()
        .chain(rust_files("engine/src"))
    {
        let has_unsafe = code(&text)
            .lines()
            .any(|line| line.contains("unsafe ") && !line.contains("unsafe_code"));
        if has_unsafe && !UNSAFE_ROOMS.iter().any(|room| path.starts_with(room)) {
            faults.push(path);
        }
    }
    assert_none("unsafe outside its rooms", &faults);
}

#[test]
fn features_are_chosen_in_one_place() {
    let mut faults = Vec::new();
    for (path, text) in rust_files("harness/src")
        .into_iter()
        .chain(rust_files("engine/src"))
    {
        if code(&text).contains("cfg(feature") && path != "engine/src/backend/mod.rs" {
            faults.push(path);
        }
    }
    assert_none("cfg(feature) outside engine/src/backend/mod.rs", &faults);
}

#[test]
fn a_mod_file_holds_no_logic() {
    let mut faults = Vec::new();
    for (path, text) in rust_files("harness/src")
        .into_iter()
        .chain(rust_files("engine/src"))
    {
        if path.ends_with("/mod.rs")
            && code(&text)
                .lines()
                .any(|line| line.trim_start().starts_with("fn "))
        {
            faults.push(path);
        }
    }
    assert_none("functions in mod.rs", &faults);
}

#[test]
fn files_stay_readable() {
    let mut faults = Vec::new();
    for (path, text) in rust_files("harness")
        .into_iter()
        .chain(rust_files("engine"))
    {
        let lines = text.lines().count();
        let most = if path.contains("/tests/") {
            MAX_TEST_LINES
        } else {
            MAX_FILE_LINES
        };
        if lines > most && !CATALOGUES.contains(&path.as_str()) {
            faults.push(format!("{path}: {lines} lines"));
        }
        if !text.starts_with("//!") && !path.contains("/tests/") {
            faults.push(format!("{path}: does not open with what it is for"));
        }
    }
    assert_none("files too long or without an opening", &faults);
}

#[test]
fn lints_are_expected_never_allowed() {
    let mut faults = Vec::new();
    for (path, text) in rust_files("harness")
        .into_iter()
        .chain(rust_files("engine"))
    {
        let forbidden = ["#[allow", "#![allow", "todo!(", "unimplemented!("];
        if path != "harness/tests/tidy.rs"
            && forbidden.iter().any(|word| code(&text).contains(word))
        {
            faults.push(path);
        }
    }
    assert_none("allow, todo or unimplemented", &faults);
}

/// The targets of `[text](target)` in Markdown, code blocks left out.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut in_block = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        }
        if in_block {
            continue;
        }
        for piece in line.split("](").skip(1) {
            found.push(piece.split(')').next().unwrap_or_default().to_owned());
        }
    }
    found
}

#[test]
fn links_in_documents_lead_somewhere() {
    let mut faults = Vec::new();
    for (path, text) in files("", &|path| {
        path.extension().is_some_and(|ending| ending == "md")
    }) {
        let folder = root().join(&path).parent().unwrap().to_owned();
        for link in links(&text) {
            let target = link
                .split('#')
                .next()
                .unwrap_or_default()
                .split(' ')
                .next()
                .unwrap_or_default();
            if target.is_empty()
                || target.contains("://")
                || target.starts_with("mailto:")
                || path.starts_with("templates/")
            {
                continue;
            }
            if !folder.join(target).exists() {
                faults.push(format!("{path}: {link}"));
            }
        }
    }
    assert_none("dead links", &faults);
}

#[test]
fn the_reader_of_imports_sees_lists_and_paths() {
    let code = "use crate::{stats::{a, b}, unit};\nfn f() { crate::record::x(); }";
    assert_eq!(imported_rooms(code), ["stats", "unit", "record"]);
}
