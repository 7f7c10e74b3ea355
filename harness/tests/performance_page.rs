//! The tables beside llama.cpp in docs/performance.md say what the reports above them say.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

/// Number at the start of `text`, in the unit it is written with, and half of its last digit.
fn rounded(text: &str) -> (f64, f64) {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let digits = &text[..end];
    let unit = if text[end..].starts_with('k') {
        1000.0
    } else {
        1.0
    };
    let decimals = digits.split_once('.').map_or(0, |(_, after)| after.len());
    let half = 0.5 * unit / 10_f64.powi(decimals as i32);
    (digits.parse::<f64>().unwrap() * unit, half)
}

/// Whether `written` is what `exact` rounds to.
fn says(written: &str, exact: f64, slack: f64) -> bool {
    let (value, half) = rounded(written);
    (value - exact).abs() <= half + slack
}

fn columns(row: &str) -> Vec<&str> {
    row.trim_matches('|').split('|').map(str::trim).collect()
}

/// What a row of the page is about: whose arm is the base, and the part of the report with its metric.
struct Row<'a> {
    base: &'a str,
    report: &'a str,
    model: &'a str,
    /// End of the cell's name.
    end: &'a str,
}

/// Medians of the base and the engine, and the change with its interval as factors.
fn reported(wanted: &Row<'_>) -> ([f64; 2], [f64; 3]) {
    let mut rows = wanted.report.lines().skip_while(|row| {
        let row = columns(row);
        let named = row[0].starts_with(wanted.model) && row[0].ends_with(wanted.end);
        row.get(1) != Some(&wanted.base) || !named
    });
    let base = columns(rows.next().unwrap());
    let engine = columns(
        rows.take_while(|row| columns(row)[0].is_empty())
            .find(|row| columns(row).get(1) == Some(&"engine"))
            .unwrap(),
    );
    let factor = |percent: &str| {
        let percent = percent.trim().trim_start_matches('+');
        1.0 + percent.parse::<f64>().unwrap() / 100.0
    };
    let (change, interval) = engine[4].split_once('[').unwrap();
    let change = change.split_once(" %").unwrap().0;
    let (low, high) = interval.trim_end_matches(']').split_once(',').unwrap();
    let median = |row: &[&str]| rounded(row[3]).0;
    (
        [median(&base), median(&engine)],
        [factor(change), factor(low), factor(high)],
    )
}

/// As cells name it: `Gemma 3 270M` is `gemma-3-270m` or `gemma3-270m`.
fn cell_names(model: &str) -> [String; 2] {
    let dashed = model.to_lowercase().replace(' ', "-");
    let joined = dashed.replacen("gemma-", "gemma", 1);
    [dashed, joined]
}

/// The part of `report` about `metric`.
fn about<'a>(report: &'a str, metric: &str) -> &'a str {
    let heading = format!("\n### {metric}\n");
    let part = report.split_once(&heading).unwrap().1;
    part.split_once("\n### ").map_or(part, |(part, _)| part)
}

fn assert_says(line: &str, row: &[&str], wanted: &Row<'_>) {
    let (medians, factors) = reported(wanted);
    for (column, median) in [row[2], row[3]].into_iter().zip(medians) {
        assert!(says(column, median, 0.0), "{line}: the report has {median}");
    }
    // The report's percentages are rounded themselves.
    let written = row[4].replace(['[', ']', ','], "");
    for (column, factor) in written.split(' ').zip(factors) {
        assert!(
            says(column, factor, 0.0006),
            "{line}: the report has {factor}"
        );
    }
}

#[test]
fn the_rows_beside_other_engines_are_those_of_their_reports() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let page = fs::read_to_string(docs.join("performance.md")).unwrap();
    let (mut report, mut model, mut base, mut checked) = (String::new(), "", "", [0, 0]);
    for line in page.lines() {
        if let Some((_, after)) = line.split_once("[report](") {
            let path = after.split_once(')').unwrap().0;
            report = fs::read_to_string(docs.join(path)).unwrap();
        }
        if line.starts_with("| model | test | llama.cpp |") {
            base = "llama_cpp";
        } else if line.starts_with("| model | speed | mlx-lm |") {
            base = "mlx_lm";
        } else if !line.starts_with('|') {
            base = "";
        } else if !base.is_empty() && !line.starts_with("|---") {
            let row = columns(line);
            model = if row[0].is_empty() { model } else { row[0] };
            let names = cell_names(model);
            let name = names.iter().find(|name| report.contains(*name)).unwrap();
            let test = row[1].replace(" at depth ", "-");
            let llama_cpp = base == "llama_cpp";
            let metric = format!("{}_tok_s", test.split([' ', '-']).next().unwrap());
            let wanted = Row {
                base,
                report: match llama_cpp {
                    true => &report,
                    false => about(&report, &metric),
                },
                model: name,
                end: if llama_cpp { &format!(".{test}") } else { name },
            };
            assert_says(line, &row, &wanted);
            checked[usize::from(llama_cpp)] += 1;
        }
    }
    assert!(checked[1] >= 20 && checked[0] >= 4, "{checked:?}");
}
