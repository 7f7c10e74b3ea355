//! A history of sixty commits, some of which do not build, and the one that made it slower.

use std::fs;

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
    let bisect = || project.bench_run(&["bisect", "x.yaml", "--good", &good, "--bad", bad]);
    let output = bisect();
    let text = stdout(&output);
    assert!(output.status.success(), "{text}{}", stderr(&output));
    // Commit 33 does not build, so nothing tells it from 34.
    let answer = text.lines().last().unwrap();
    assert!(answer.contains("that nothing can tell apart"), "{text}");
    assert!(
        answer.ends_with(&format!("{} {}", commits[32], commits[33])),
        "{text}"
    );
    let shown = text.lines().filter(|line| line.contains(" %  ")).count();
    assert_eq!(shown, 60, "{text}");
    let folder = fs::read_dir(project.root().join("results")).unwrap();
    let folder = folder.map(|entry| entry.unwrap().path()).next().unwrap();
    let steps = || fs::read_dir(&folder).unwrap().count();
    let first = steps();
    assert!((5..=14).contains(&first), "{first} runs");
    assert_eq!(stdout(&bisect()), text);
    assert_eq!(steps(), first);
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
    assert!(text.contains("among the first parents"), "{text}");
    let (code, text) = bisect("nonsuch", &same);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("nonsuch"), "{text}");
}
