//! The gate as a CI uses it: exit codes, summary, annotations and JUnit XML for a change
//! that is slower, faster, too noisy to tell, or broken.

use std::fs;
use std::path::PathBuf;

use crate::fixture::{Project, stderr, stdout};

/// What the gate of one experiment said.
struct Gated {
    code: Option<i32>,
    told: String,
    summary: String,
    junit: String,
    _project: Project,
}

/// Measures a base and a main with this rate and this further line, then asks the gate.
fn gated(rate: u32, extra: &str, more: &str) -> Gated {
    let project = Project::new();
    let base = project.commit(1000);
    let main = project.commit_with(rate, "fast", extra);
    project.experiment(&base, &main, more);
    let run = project.bench_run(&["run", "x.yaml", "--quiet", "--no-report"]);
    assert!(run.status.success(), "{}", stderr(&run));
    let record = project.records().remove(0);
    let output = project
        .command(&["gate", record.to_str().unwrap(), "--junit", "junit.xml"])
        .env("GITHUB_STEP_SUMMARY", project.root().join("summary.md"))
        .env("GITHUB_ACTIONS", "true")
        .output()
        .unwrap();
    let read = |name: &str| fs::read_to_string(project.root().join(name)).unwrap();
    Gated {
        code: output.status.code(),
        told: stdout(&output) + &stderr(&output),
        summary: read("summary.md"),
        junit: read("junit.xml"),
        _project: project,
    }
}

/// A rate that five rounds cannot tell from the base's: a quarter more or a fifth less, by
/// the attempt's padding.
const NOISY: &str = "[ $(( ${#BENCH_RUN_PADDING} / 5 % 2 )) = 0 ] && rate=$((rate * 5 / 4)) || rate=$((rate * 4 / 5))";

#[test]
fn a_regressed_change_ends_with_10_and_an_error() {
    let gated = gated(950, "", "");
    assert_eq!(gated.code, Some(10), "{}", gated.told);
    assert!(
        gated
            .told
            .contains("::error file=x.yaml,title=toy regressed%3A rate_tok_s of main in all::")
    );
    assert!(
        gated.told.contains("4.9") && gated.told.contains("%25"),
        "{}",
        gated.told
    );
    assert!(
        gated.summary.starts_with("## toy: regressed"),
        "{}",
        gated.summary
    );
    assert!(
        gated.junit.contains("failures=\"1\" errors=\"0\""),
        "{}",
        gated.junit
    );
    assert!(
        gated.junit.contains("<failure type=\"regressed\""),
        "{}",
        gated.junit
    );
}

#[test]
fn an_improved_change_ends_with_0_and_a_notice() {
    let gated = gated(1050, "", "");
    assert_eq!(gated.code, Some(0), "{}", gated.told);
    assert!(
        gated
            .told
            .contains("::notice file=x.yaml,title=toy improved"),
        "{}",
        gated.told
    );
    assert!(
        gated
            .junit
            .contains("tests=\"1\" failures=\"0\" errors=\"0\"")
    );
    assert!(gated.summary.contains("**improved**"), "{}", gated.summary);
}

#[test]
fn a_noisy_change_ends_with_11_or_passes_with_a_warning_as_the_experiment_asks() {
    let strict = gated(1000, NOISY, "");
    assert_eq!(strict.code, Some(11), "{}", strict.told);
    assert!(
        strict
            .told
            .contains("::error file=x.yaml,title=toy unresolved"),
        "{}",
        strict.told
    );
    assert!(
        strict.junit.contains("<failure type=\"unresolved\""),
        "{}",
        strict.junit
    );
    let lenient = gated(1000, NOISY, "verdict: { undecided: pass }\n");
    assert_eq!(lenient.code, Some(0), "{}", lenient.told);
    assert!(
        lenient
            .told
            .contains("::warning file=x.yaml,title=toy unresolved"),
        "{}",
        lenient.told
    );
    assert!(
        lenient.told.contains("Pass, as the experiment asks"),
        "{}",
        lenient.told
    );
    assert!(lenient.junit.contains("<skipped/>"), "{}", lenient.junit);
}

#[test]
fn a_broken_change_ends_with_12_and_an_error() {
    let gated = gated(1000, "exit 3", "");
    assert_eq!(gated.code, Some(12), "{}", gated.told);
    assert!(
        gated.told.contains("::error file=x.yaml,title=toy invalid"),
        "{}",
        gated.told
    );
    assert!(gated.junit.contains("errors=\"1\""), "{}", gated.junit);
    assert!(gated.summary.contains("**invalid**"), "{}", gated.summary);
}

/// A look before the end would be one that nobody planned.
#[test]
fn a_run_that_has_not_ended_is_invalid_whatever_its_rounds_say() {
    for rate in [1000, 900] {
        let project = Project::new();
        let (base, main) = (project.commit(1000), project.commit(rate));
        project.experiment(&base, &main, "identical: as-null\n");
        let run = project.bench_run(&["run", "x.yaml", "--quiet", "--no-report"]);
        assert!(run.status.success(), "{}", stderr(&run));
        let record = project.records().remove(0);
        let attempts = record.join("attempts.jsonl");
        let rows = fs::read_to_string(&attempts).unwrap();
        let most: Vec<&str> = rows.lines().collect();
        fs::write(&attempts, most[..most.len() - 1].join("\n") + "\n").unwrap();
        let gate = project.bench_run(&["gate", record.to_str().unwrap()]);
        assert_eq!(gate.status.code(), Some(12), "{}", stdout(&gate));
        let said = stdout(&gate);
        assert!(said.contains("not finished, 4 rounds"), "{said}");
    }
}

#[test]
fn annotations_are_printed_only_where_they_are_wanted() {
    let project = Project::new();
    let (base, main) = (project.commit(1000), project.commit(950));
    project.experiment(&base, &main, "");
    project.bench_run(&["run", "x.yaml", "--quiet", "--no-report"]);
    let record: PathBuf = project.records().remove(0);
    let record = record.to_str().unwrap();
    let quiet = project.bench_run(&["gate", record, "--json"]);
    assert_eq!(stderr(&quiet), "");
    let asked = project.bench_run(&["gate", record, "--json", "--annotations"]);
    assert!(stderr(&asked).starts_with("::error "), "{}", stderr(&asked));
    let parsed: Result<serde_json::Value, _> = serde_json::from_slice(&asked.stdout);
    assert!(parsed.is_ok(), "standard output stays one document");
}

#[test]
fn a_junit_file_that_cannot_be_written_is_an_error_and_no_verdict() {
    let project = Project::new();
    let (base, main) = (project.commit(1000), project.commit(950));
    project.experiment(&base, &main, "");
    project.bench_run(&["run", "x.yaml", "--quiet", "--no-report"]);
    let record: PathBuf = project.records().remove(0);
    let output = project.bench_run(&[
        "gate",
        record.to_str().unwrap(),
        "--junit",
        "no/such/folder.xml",
    ]);
    assert_eq!(output.status.code(), Some(74), "{}", stderr(&output));
    assert!(stderr(&output).contains("no/such/folder.xml"));
}

#[test]
fn a_published_effect_is_judged_in_table_report_and_json() {
    let project = Project::new();
    let (base, main) = (project.commit(1000), project.commit(950));
    let claims = "claim:\n\
        - { metric: rate_tok_s, change_pct: -5, source: a release note }\n\
        - { metric: rate_tok_s, change_pct: 20, source: a blog }\n";
    project.experiment(&base, &main, claims);
    let run = project.bench_run(&["x.yaml", "--host", "t"]);
    assert!(run.status.success(), "{}", stderr(&run));
    let table = stdout(&run);
    assert!(
        table.contains("claim confirmed: all: a release note"),
        "{table}"
    );
    assert!(table.contains("the change goes the other way"), "{table}");
    let reports = fs::read_dir(project.root().join("docs/benchmark_results")).unwrap();
    let mut reports = reports.map(|entry| entry.unwrap().path());
    let report = reports.find(|path| path.extension().is_some_and(|ending| ending == "md"));
    let report = fs::read_to_string(report.unwrap()).unwrap();
    assert!(
        report.contains("| −5.00 %: confirmed; +20.00 %: contradicted |"),
        "{report}"
    );
    let record = project.records().remove(0);
    let gate = project.bench_run(&["gate", record.to_str().unwrap(), "--json"]);
    let analysis: serde_json::Value = serde_json::from_slice(&gate.stdout).unwrap();
    let verdicts: Vec<&str> = analysis["claims"]
        .as_array()
        .unwrap()
        .iter()
        .map(|claim| claim["verdict"].as_str().unwrap())
        .collect();
    assert_eq!(verdicts, ["confirmed", "contradicted"]);
}
