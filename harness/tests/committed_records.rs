//! Committed records keep what their reports say, whatever revision of the rule is current.

use std::fs;
use std::path::Path;

use bench_run::analysis::from_record::analyse;
use bench_run::record::format::RuleRevision;
use bench_run::record::reader;
use bench_run::report::words;

#[test]
fn every_committed_record_still_says_what_its_page_says() {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/benchmark_results");
    let mut first_revision = 0;
    for entry in fs::read_dir(pages.join("data")).unwrap() {
        let folder = entry.unwrap().path();
        let name = folder.file_name().unwrap().to_str().unwrap();
        if !folder.join("plan.json").is_file() {
            continue;
        }
        let page = fs::read_to_string(pages.join(format!("{name}.md"))).unwrap();
        let record = reader::read(&folder).unwrap();
        let noise = record.plan.noise.as_ref();
        let revision = noise.map_or(RuleRevision::First, |noise| noise.revision);
        first_revision += u32::from(revision == RuleRevision::First);
        let analysis = analyse(&record.plan, &record.attempts).unwrap();
        for judged in analysis.judgements.iter().filter(|one| one.gated) {
            let estimate = judged.estimate.as_ref();
            let change = estimate.map_or_else(
                || "n/a".to_owned(),
                |estimate| words::estimate(judged.better, estimate),
            );
            let verdict = words::verdict(judged.verdict);
            let row = page.lines().find(|line| {
                line.contains(&format!("| {change} |"))
                    && line.contains(&format!("| **{verdict}** |"))
            });
            assert!(row.is_some(), "{name}: no row with {change} and {verdict}");
        }
    }
    assert!(first_revision >= 6, "{first_revision}");
}
