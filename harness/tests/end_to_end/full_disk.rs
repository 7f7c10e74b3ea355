//! Where nothing more can be written, what is on record is whole. A limit on the size of files
//! (`ulimit -f`) stands for a full disk: it needs no disk of its own.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::fixture::{Project, stderr};

/// A run that may write files of so many blocks: 512 bytes each, or 1024 as some shells have it.
fn limited(project: &Project, blocks: u64) -> Output {
    let whole = project.command(&["run", "x.yaml", "--quiet", "--no-report"]);
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "ulimit -f \"$1\"; shift; exec \"$@\"", "sh"])
        .arg(blocks.to_string())
        .arg(whole.get_program())
        .args(whole.get_args())
        .current_dir(project.root())
        .envs(
            whole
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
    shell.output().unwrap()
}

fn run(project: &Project, results: &str) -> PathBuf {
    let output = project.bench_run(&[
        "run",
        "x.yaml",
        "--quiet",
        "--no-report",
        "--results",
        results,
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    let mut entries = fs::read_dir(project.root().join(results)).unwrap();
    let record = entries.next().unwrap().unwrap().path();
    assert!(
        entries.next().is_none(),
        "a resumed run makes no second record"
    );
    record
}

#[test]
fn what_a_program_printed_until_nothing_more_fitted_is_no_row() {
    let project = Project::new();
    // It takes no notice: a smaller number than it means to print stands at the end.
    let long = "trap '' XFSZ; head -c 500000 /dev/zero | tr '\\0' ' '; trap 'exit 0' EXIT";
    let (base, main) = (
        project.commit_with(1000, "fast", long),
        project.commit_with(970, "fast", long),
    );
    project.experiment(&base, &main, "rounds: 3\n");
    assert!(project.bench_run(&["plan", "x.yaml"]).status.success());
    let output = limited(&project, 200);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(74), "{said}");
    assert!(said.contains(".out has reached the limit of "), "{said}");
    let record = project.records().remove(0);
    assert_eq!(project.rows(&record), Vec::<String>::new());
    assert_eq!(run(&project, "results"), record);
    assert_eq!(project.rows(&record), project.rows(&run(&project, "whole")));
}

#[test]
fn a_row_that_does_not_fit_any_more_is_cut_away_and_measured_again() {
    let project = Project::new();
    let (base, main) = (project.commit(1000), project.commit(970));
    project.experiment(&base, &main, "rounds: 12\n");
    let whole = run(&project, "whole");
    let bytes = fs::metadata(whole.join("attempts.jsonl")).unwrap().len();
    let plan = fs::metadata(whole.join("plan.json")).unwrap().len();
    let blocks = bytes * 3 / 4 / 1024;
    assert!(blocks * 512 > plan, "the plan must fit: {plan} of {bytes}");
    let output = limited(&project, blocks);
    assert_eq!(output.status.signal(), Some(25), "{}", stderr(&output));
    let record = project.records().remove(0);
    assert_eq!(run(&project, "results"), record);
    assert!(record.join("attempts.cut-1").is_file());
    assert_eq!(project.rows(&record), project.rows(&whole));
}
