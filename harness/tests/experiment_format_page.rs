//! docs/EXPERIMENT_FORMAT.md and docs/experiment.schema.json say what the code does.

use std::path::{Path, PathBuf};

use bench_run::experiment::load::load_bytes;
use bench_run::experiment::schema::json_schema;
use serde_json::Value;

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

fn page() -> String {
    std::fs::read_to_string(docs().join("EXPERIMENT_FORMAT.md")).expect("the page exists")
}

#[test]
fn every_yaml_example_of_the_page_and_of_the_readme_loads_without_a_warning() {
    let readme = std::fs::read_to_string(docs().join("../README.md")).expect("the readme exists");
    let text = page() + &readme;
    let pieces = text.split("```yaml\n").skip(1);
    let blocks: Vec<&str> = pieces.filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() >= 4);
    for block in blocks {
        let loaded = load_bytes(Path::new("EXPERIMENT_FORMAT.md"), block.as_bytes());
        let loaded = loaded.unwrap_or_else(|errors| panic!("{errors}\n{block}"));
        assert_eq!(loaded.warnings, vec![], "{block}");
    }
}

/// The section of the page under the heading `title`.
fn section(page: &str, title: &str) -> String {
    let start = page.find(&format!("\n{title}\n")).expect(title) + 1;
    let rest = &page[start..];
    let end = rest[1..].find("\n#").map_or(rest.len(), |end| end + 1);
    rest[..end].to_owned()
}

/// The row of the section's table that describes `key`.
fn row<'a>(section: &'a str, key: &str) -> Option<&'a str> {
    let beginnings = [format!("| `{key}` |"), format!("| `{key}` • |")];
    section
        .lines()
        .find(|line| beginnings.iter().any(|start| line.starts_with(start)))
}

#[test]
fn the_page_has_a_row_for_every_key_with_its_default() {
    let schema: Value = serde_json::from_str(&json_schema()).unwrap();
    let page = page();
    let whole = ("## Keys", &schema);
    let parts = [
        ("### source", "Source"),
        ("### build", "Build"),
        ("### arms", "Arm"),
        ("### setup", "SetupStep"),
        ("### control", "Control"),
        ("### cells", "Cells"),
        ("### metrics", "Metric"),
        ("### expect", "Expect"),
        ("### claim", "Claim"),
        ("### guard", "Guard"),
        ("### verdict", "Verdict"),
    ];
    let parts = parts.map(|(title, name)| (title, &schema["$defs"][name]));
    for (title, part) in std::iter::once(whole).chain(parts) {
        let section = section(&page, title);
        for (key, about) in part["properties"].as_object().unwrap() {
            let row = row(&section, key).unwrap_or_else(|| panic!("{title}: no row for {key}"));
            let required = part["required"].as_array();
            let required = required.is_some_and(|list| list.contains(&Value::from(key.as_str())));
            assert_eq!(row.contains('•'), required, "{title}: {row}");
            // Defaults that are a whole object are told in their own section.
            let Some(default) = about.get("default").filter(|d| !d.is_object()) else {
                continue;
            };
            let shown = default.to_string().replace('"', "`");
            let number = default.as_f64().map(|number| number.to_string());
            let told = row.contains(&shown) || number.is_some_and(|n| row.contains(&n));
            assert!(told, "{title}: the default {shown} is not in: {row}");
        }
        // And no row for a key that does not exist.
        for line in section.lines().filter(|line| line.starts_with("| `")) {
            let key = line
                .trim_start_matches("| `")
                .split('`')
                .next()
                .unwrap_or_default();
            assert!(part["properties"].get(key).is_some(), "{title}: {line}");
        }
    }
}

#[test]
fn the_committed_schema_is_the_generated_one() {
    let path = docs().join("experiment.schema.json");
    let generated = json_schema();
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == generated,
        "docs/experiment.schema.json is out of date: \
         run `bench-run schema > docs/experiment.schema.json`"
    );
}

#[test]
fn every_key_of_the_schema_is_described() {
    let schema: Value = serde_json::from_str(&json_schema()).unwrap();
    let definitions = schema["$defs"].as_object().unwrap().values();
    for part in definitions.chain([&schema]) {
        let Some(properties) = part["properties"].as_object() else {
            continue;
        };
        for (key, about) in properties {
            let text = about["description"].as_str().unwrap_or_default();
            assert!(!text.is_empty(), "{key} has no description");
        }
    }
}
