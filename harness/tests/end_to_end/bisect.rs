//! A history of sixty commits, some of which do not build, and the one that made it slower.

use std::fs;
use std::path::{Path, PathBuf};

use crate::fixture::{Project, stderr, stdout};

/// Commits 1 to 60 behind a good one; those from `first` on are 5 % slower.
fn history(project: &Project, first: usize, broken: &[usize]) -> (String, Vec<String>) {
    let good = project.commit(1000);
    let commits = (1..=60).map(|number| {
        if broken.contains(&number) {
            let _ = fs::remove_file(project.root().join("prog.sh"));
            return project.commit_all(&format!("commit {number} does not build"));
        }
        let rate = if number >= first { 950 } else { 1000 };
        // A line of its own, so that no two commits have equal code.
        project.commit_with(rate, "fast", &format!(": {number}"))
    });
    (good.clone(), commits.collect())
}

#[test]
fn the_first_slower_commit_is_found_by_a_few_runs_that_are_not_made_twice() {
    let project = Project::new();
    let (good, commits) = history(&project, 34, &[10, 29, 30, 33, 45]);
    project.experiment(&good, &commits[59], "");
    let bad = &commits[59];
    let bisect = |more: &[&str]| {
        let asked = ["bisect", "x.yaml", "--good", &good, "--bad", bad];
        project.bench_run(&[&asked, more].concat())
    };
    let output = bisect(&[]);
    let text = stdout(&output);
    assert!(output.status.success(), "{text}{}", stderr(&output));
    // Commit 33 does not build, so nothing tells it from 34.
    let answer = text
        .lines()
        .find(|line| line.starts_with("first commit"))
        .unwrap();
    assert!(answer.contains("that nothing can tell apart"), "{text}");
    assert!(
        answer.ends_with(&format!("{} {}", commits[32], commits[33])),
        "{text}"
    );
    let shown = text.lines().filter(|line| line.contains(" %  ")).count();
    assert_eq!(shown, 60, "{text}");
    let folder = only_entry(&project.root().join("results"));
    let steps = || fs::read_dir(&folder).unwrap().count();
    let first = steps();
    assert!((5..=14).contains(&first), "{first} runs");
    let published = Published::read(&project);
    assert!(
        published.page.contains(&format!("**{answer}**")),
        "{}",
        published.page
    );
    assert_eq!(
        published.records,
        published.page.matches(" is slower than `good`").count()
            + published.page.matches(" are equal within").count()
    );
    assert_eq!(stdout(&bisect(&[])), text);
    assert_eq!(steps(), first);
    assert_eq!(Published::read(&project), published);
    // Asked for less, it says what is known all the same.
    let less = bisect(&["--max-runs", "2"]);
    assert_eq!(stdout(&less), text);
    assert_eq!(Published::read(&project), published);
    let less = bisect(&["--confidence", "0.5"]);
    assert!(less.status.success(), "{}", stderr(&less));
    assert_eq!(Published::read(&project).picture, published.picture);
    assert_eq!(steps(), first);
}

/// What a search left to be read.
#[derive(Debug, PartialEq)]
struct Published {
    page: String,
    figures: serde_json::Value,
    picture: String,
    records: usize,
}

impl Published {
    fn read(project: &Project) -> Self {
        let reports = project.root().join("docs/benchmark_results");
        let data = only_entry(&reports.join("data"));
        let name = data.file_name().unwrap().to_str().unwrap();
        let read = |path: std::path::PathBuf| fs::read_to_string(path).unwrap();
        let entries = fs::read_dir(&data).unwrap();
        let is_record = |entry: &fs::DirEntry| entry.path().join("attempts.jsonl").is_file();
        Published {
            page: read(reports.join(format!("{name}.md"))),
            figures: serde_json::from_str(&read(data.join("search.json"))).unwrap(),
            picture: read(data.join("commits.svg")),
            records: entries
                .filter(|entry| is_record(entry.as_ref().unwrap()))
                .count(),
        }
    }
}

fn only_entry(folder: &Path) -> PathBuf {
    let mut entries = fs::read_dir(folder).unwrap();
    let first = entries.next().unwrap().unwrap().path();
    assert!(entries.next().is_none(), "{}", folder.display());
    first
}

#[test]
fn an_effect_is_looked_for_in_the_direction_that_is_asked_for() {
    let project = Project::new();
    let good = project.commit(1000);
    let second = project.commit_with(1000, "fast", ": 2");
    let slower = project.commit_with(950, "fast", ": 3");
    let bad = project.commit_with(950, "fast", ": 4");
    project.experiment(&good, &bad, "");
    let bisect = |direction: &str| {
        let ends = ["--good", &good, "--bad", &bad, "--direction", direction];
        project.bench_run(&[&["bisect", "x.yaml"][..], &ends[..]].concat())
    };
    let output = bisect("faster");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("expected an effect that is faster"),
        "{}",
        stderr(&output)
    );
    let output = bisect("slower");
    let text = stdout(&output);
    assert!(output.status.success(), "{text}{}", stderr(&output));
    assert!(text.contains(&slower) && !text.contains(&second), "{text}");
    let page = Published::read(&project).page;
    assert!(page.contains("--direction slower"), "{page}");
}

#[test]
fn steps_of_another_version_of_the_experiment_are_not_used() {
    let project = Project::new();
    let good = project.commit(1000);
    let bad = project.commit_with(950, "fast", ": 2");
    project.experiment(&good, &bad, "");
    let bisect = || project.bench_run(&["bisect", "x.yaml", "--good", &good, "--bad", &bad]);
    assert!(bisect().status.success());
    project.experiment(&good, &bad, "rounds: 7\n");
    let output = bisect();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let said = stderr(&output);
    assert!(
        said.contains("experiment.yaml: expected what x.yaml asks for now"),
        "{said}"
    );
}

#[test]
fn ends_without_a_difference_or_a_line_between_them_are_refused() {
    let project = Project::new();
    let good = project.commit(1000);
    let same = project.commit_with(1000, "fast", ": 2");
    project.experiment(&good, &same, "");
    let bisect = |good: &str, bad: &str| {
        let output = project.bench_run(&["bisect", "x.yaml", "--good", good, "--bad", bad]);
        (output.status.code(), stderr(&output))
    };
    let (code, text) = bisect(&good, &same);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("--bad: expected an effect"), "{text}");
    let (code, text) = bisect(&same, &good);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("swap them"), "{text}");
    let (code, text) = bisect(&good, &good);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("are the same"), "{text}");
    let (code, text) = bisect("nonsuch", &same);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("nonsuch"), "{text}");
}
