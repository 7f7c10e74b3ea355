//! What goes wrong in real sessions: one clear error, the right exit code, nothing lost.

use std::fs;

use crate::fixture::{Project, stderr, stdout};

/// Commits a good base and a main with `extra`, runs it with `more` keys, and returns the
/// gate's exit code with everything printed.
fn outcome(extra: &str, more: &str) -> (Option<i32>, String) {
    let project = Project::new();
    let (base, main) = (
        project.commit(1000),
        project.commit_with(1000, "fast", extra),
    );
    project.experiment(&base, &main, more);
    let output = project.bench_run(&["x.yaml", "--gate", "--no-report"]);
    (output.status.code(), stdout(&output) + &stderr(&output))
}

#[test]
fn an_unknown_key_names_the_line_and_the_nearest_key() {
    let project = Project::new();
    let base = project.commit(1000);
    project.experiment(&base, &base, "roundz: 5\n");
    let output = project.bench_run(&["check", "x.yaml"]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(
        text.contains("x.yaml:") && text.contains("roundz") && text.contains("rounds"),
        "{text}"
    );
}

#[test]
fn every_unknown_revision_is_named_before_anything_is_built() {
    let project = Project::new();
    project.commit(1000);
    project.experiment("nonsuch", "0123456789012345678901234567890123456789", "");
    let file = project.root().join("x.yaml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(
        &file,
        text.replace("rev: 0123", "rev: '0123")
            .replace("6789 }", "6789' }"),
    )
    .unwrap();
    let output = project.bench_run(&["run", "x.yaml"]);
    assert_eq!(output.status.code(), Some(69), "{}", stderr(&output));
    let text = stderr(&output);
    assert!(
        text.contains("arm `base`") && text.contains("nonsuch") && text.contains("arm `main`"),
        "{text}"
    );
}

#[test]
fn a_missing_repository_and_an_unset_variable_say_so() {
    for (repo, expected) in [
        ("/no/such/repo", "/no/such/repo"),
        ("${NO_SUCH_VARIABLE}", "NO_SUCH_VARIABLE"),
    ] {
        let project = Project::new();
        let base = project.commit(1000);
        let file = project.experiment(&base, "HEAD", "");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace("repo: .", &format!("repo: '{repo}'"))).unwrap();
        let output = project.bench_run(&["run", "x.yaml"]);
        assert_eq!(output.status.code(), Some(69), "{}", stderr(&output));
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
}

#[test]
fn an_arm_that_does_not_build_is_out_with_its_log_and_the_others_go_on() {
    let project = Project::new();
    let base = project.commit(1000);
    let good = project.commit(990);
    fs::remove_file(project.root().join("prog.sh")).unwrap();
    let broken = project.commit_all("no program");
    let file = project.experiment(&base, &good, "");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(
        &file,
        text.replace("nulls:", &format!("  broken: {{ rev: {broken} }}\nnulls:")),
    )
    .unwrap();
    let output = project.bench_run(&["x.yaml", "--gate"]);
    let text = stdout(&output) + &stderr(&output);
    assert_eq!(output.status.code(), Some(12), "{text}");
    assert!(
        text.contains("prog.sh"),
        "the end of the build's log is shown: {text}"
    );
    let rows = project.rows(&project.records()[0]);
    assert!(
        rows.iter()
            .filter(|row| row.contains("\"arm\":\"main\""))
            .count()
            >= 5,
        "main was measured"
    );
    assert!(!rows.iter().any(|row| row.contains("\"arm\":\"broken\"")));
}

#[test]
fn a_base_that_does_not_build_ends_the_run() {
    let project = Project::new();
    fs::write(project.root().join("x"), "").unwrap();
    let broken = project.commit_all("no program");
    let main = project.commit(1000);
    project.experiment(&broken, &main, "");
    let output = project.bench_run(&["run", "x.yaml"]);
    assert_eq!(output.status.code(), Some(69), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("base arm `base` did not build"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn an_artifact_that_the_build_does_not_leave_is_named() {
    let project = Project::new();
    let (base, main) = (project.commit(1000), project.commit(990));
    let file = project.experiment(&base, &main, "");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(
        &file,
        text.replace("artifacts: [out/prog]", "artifacts: [out/grop]"),
    )
    .unwrap();
    let output = project.bench_run(&["run", "x.yaml"]);
    assert_eq!(output.status.code(), Some(69), "{}", stderr(&output));
    assert!(stderr(&output).contains("out/grop"), "{}", stderr(&output));
}

#[test]
fn a_crash_a_hang_and_garbage_are_outcomes_of_that_arm() {
    for (extra, more, expected) in [
        ("kill -SEGV $$", "", "signal 11"),
        ("exit 3", "", "exit status 0, got 3"),
        (
            "echo loading >&2; echo no tensor wq >&2; exit 3",
            "",
            ".err ends: no tensor wq",
        ),
        ("sleep 60", "timeout_secs: 1\nretries: 1\n", "1 s"),
        ("echo nonsense; exit 0", "", "JSON"),
        ("echo '{\"rate_tok_s\": NaN}'; exit 0", "", "JSON"),
        ("echo '{\"rate_tok_s\": 1e999}'; exit 0", "", "rate_tok_s"),
        ("sleep 30 & :", "", "left running, got 1"),
    ] {
        let (code, text) = outcome(extra, more);
        assert_eq!(code, Some(12), "{extra}: {text}");
        assert!(
            text.contains(expected),
            "{extra}: no `{expected}` in {text}"
        );
    }
}

#[test]
fn a_command_that_is_not_there_is_said_in_one_line() {
    let project = Project::new();
    let (base, main) = (project.commit(1000), project.commit(990));
    let file = project.experiment(&base, &main, "");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(
        &file,
        text.replace(
            "command: '{artifact}'",
            "command: 'no-such-program {artifact}'",
        ),
    )
    .unwrap();
    let output = project.bench_run(&["x.yaml", "--gate", "--no-report"]);
    let text = stdout(&output) + &stderr(&output);
    assert_eq!(output.status.code(), Some(12), "{text}");
    assert!(text.contains("no-such-program"), "{text}");
}

#[test]
fn a_record_of_a_newer_schema_is_refused() {
    let project = Project::new();
    let (base, main) = (project.commit(1000), project.commit(990));
    project.experiment(&base, &main, "");
    assert!(
        project
            .bench_run(&["run", "x.yaml", "--quiet", "--no-report"])
            .status
            .success()
    );
    let record = project.records().remove(0);
    let file = record.join("attempts.jsonl");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replacen("\"schema\":1", "\"schema\":9", 1)).unwrap();
    let output = project.bench_run(&["gate", record.to_str().unwrap()]);
    assert_eq!(
        output.status.code(),
        Some(2),
        "never a gate's code: {}",
        stderr(&output)
    );
    assert!(stderr(&output).contains("schema"), "{}", stderr(&output));
}

#[test]
fn a_full_disk_is_an_error_of_its_own_and_leaves_the_record_readable() {
    let project = Project::new();
    let (base, main) = (project.commit(1000), project.commit(990));
    project.experiment(&base, &main, "");
    assert!(project.bench_run(&["plan", "x.yaml"]).status.success());
    // A limit on the size of files is what a full disk looks like to a program.
    let program = env!("CARGO_BIN_EXE_bench-run");
    let line = format!("ulimit -f 6; trap '' XFSZ; exec {program} run x.yaml --quiet --no-report");
    let output = std::process::Command::new("bash")
        .args(["-c", &line])
        .current_dir(project.root())
        .env("BENCH_RUN_CACHE", project.root().join("cache"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(74), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("attempts.jsonl"),
        "{}",
        stderr(&output)
    );
    let again = project.bench_run(&["run", "x.yaml", "--quiet", "--no-report"]);
    assert!(again.status.success(), "{}", stderr(&again));
    assert_eq!(project.records().len(), 1, "the same record goes on");
}

#[test]
fn a_program_that_is_built_anew_during_the_run_ends_it() {
    let project = Project::new();
    let base = project.commit(1000);
    let file = project.experiment(&base, &base, "env: { NAP: '0.1' }\n");
    let text = fs::read_to_string(&file).unwrap();
    let program = project.root().join("cache/prog");
    let built = |rate: &str| {
        let script = fs::read_to_string(project.root().join("prog.sh")).unwrap();
        fs::write(&program, script.replace("rate=1000", rate)).unwrap();
    };
    built("rate=980");
    std::process::Command::new("chmod")
        .args(["+x", "cache/prog"])
        .current_dir(project.root())
        .status()
        .unwrap();
    let main = format!("main: {{ rev: {base} }}");
    fs::write(&file, text.replace(&main, "main: { binary: cache/prog }")).unwrap();
    let mut child = project.command(&["x.yaml", "--gate", "--no-report", "--quiet"]);
    let child = child.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let rows = || {
        let record = project.records().into_iter().next();
        record.and_then(|record| fs::read_to_string(record.join("attempts.jsonl")).ok())
    };
    while rows().is_none_or(|rows| rows.lines().count() < 4) {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    built("rate=2000");
    let output = child.wait_with_output().unwrap();
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(69), "{text}");
    assert!(text.contains("prog has changed"), "{text}");
    assert!(!rows().unwrap().contains("\"rate_tok_s\":2000"));
}

#[test]
fn a_program_that_deletes_itself_is_that_arms_failure() {
    // By its own place, which is the copy in the harness's cache.
    let (code, text) = outcome("rm -f \"$0\"", "retries: 1\n");
    assert_eq!(code, Some(12), "{text}");
    assert!(
        text.contains("its program was ruined while it ran: artifact out/prog is gone"),
        "{text}"
    );
}

#[test]
fn a_results_folder_that_cannot_be_written_is_found_before_anything_is_built() {
    let project = Project::new();
    let (base, main) = (project.commit(1000), project.commit(990));
    project.experiment(&base, &main, "");
    fs::write(project.root().join("results"), "a file").unwrap();
    let output = project.bench_run(&["x.yaml", "--quiet"]);
    assert_eq!(output.status.code(), Some(74), "{}", stderr(&output));
    assert!(stderr(&output).contains("results"), "{}", stderr(&output));
    assert!(!project.root().join("cache/builds").exists());
}

#[test]
fn a_null_arm_runs_the_very_line_of_its_arm() {
    let project = Project::new();
    let extra = "[ \"$1\" = base ] || [ \"$1\" = main ] || exit 9";
    let base = project.commit_with(1000, "fast", extra);
    let main = project.commit_with(990, "fast", extra);
    let file = project.experiment(&base, &main, "rounds: 3\n");
    let text = fs::read_to_string(&file).unwrap();
    let with_arm = text.replace("command: '{artifact}'", "command: '{artifact} {arm}'");
    fs::write(&file, with_arm).unwrap();
    let output = project.bench_run(&["x.yaml", "--quiet", "--no-report", "--gate"]);
    assert_ne!(output.status.code(), Some(12), "{}", stderr(&output));
}

#[test]
fn a_report_that_cannot_be_written_does_not_hide_where_the_record_is() {
    let project = Project::new();
    let (base, main) = (project.commit(1000), project.commit(990));
    project.experiment(&base, &main, "");
    fs::write(project.root().join("docs"), "a file").unwrap();
    let output = project.bench_run(&["x.yaml", "--quiet"]);
    assert_eq!(output.status.code(), Some(74), "{}", stderr(&output));
    let record = project.records()[0].file_name().unwrap().to_owned();
    let text = stderr(&output);
    assert!(
        text.contains(&format!("results/{}", record.to_string_lossy())),
        "{text}"
    );
}

/// `HOME` is private, and the fixture's projects lie below it here.
fn report_of(project: &Project, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = project.command(arguments);
    let output = command.env("HOME", project.root()).output().unwrap();
    let folder = fs::read_dir(project.root().join("docs/benchmark_results"));
    let report = folder.ok().and_then(|entries| {
        let mut paths = entries.map(|entry| entry.unwrap().path());
        paths.find(|path| path.extension().is_some_and(|extension| extension == "md"))
    });
    let text = report.map_or_else(String::new, |path| fs::read_to_string(path).unwrap());
    (
        output.status.code(),
        stdout(&output) + &stderr(&output),
        text,
    )
}

#[test]
fn paths_in_what_a_build_and_a_program_print_are_symbols_in_the_report() {
    let project = Project::new();
    let print = "echo \"{\\\"ids\\\": \\\"$0\\\"}\"; exit 0";
    let (base, main) = (
        project.commit(1000),
        project.commit_with(1000, "fast", print),
    );
    let file = project.experiment(&base, &main, "expect: { json: { ids: cafe } }\n");
    let text = fs::read_to_string(&file).unwrap();
    let broken = format!("broken: {{ rev: {main}, build_command: 'echo in $PWD; pwd; false' }}");
    fs::write(
        &file,
        text.replace("nulls:", &format!("  {broken}\nnulls:")),
    )
    .unwrap();
    let (code, told, report) = report_of(&project, &["x.yaml", "--gate"]);
    assert_eq!(code, Some(12), "{told}");
    assert!(
        report.contains("{cache}/src") && report.contains("{cache}/builds"),
        "{told}\n{report}"
    );
    let folder = project.root().to_str().unwrap().to_owned();
    for name in ["plan.json", "attempts.jsonl"] {
        let stored = fs::read_to_string(project.records()[0].join(name)).unwrap();
        assert!(!stored.contains(&folder), "{name}: {stored}");
    }
}

#[test]
fn a_record_that_must_not_be_published_keeps_its_verdict() {
    let project = Project::new();
    let (base, main) = (project.commit(1000), project.commit(900));
    let more = format!("env: {{ LIB: '{}/lib' }}\n", project.root().display());
    project.experiment(&base, &main, &more);
    let (code, told, report) = report_of(&project, &["x.yaml", "--gate"]);
    assert_eq!(code, Some(10), "{told}");
    assert!(told.contains("there is no report file: "), "{told}");
    assert!(report.is_empty(), "{report}");
}

#[test]
fn a_record_does_not_say_where_a_prebuilt_program_lies() {
    use std::os::unix::fs::PermissionsExt as _;
    let project = Project::new();
    let base = project.commit(1000);
    let file = project.experiment(&base, &base, "retries: 1\n");
    let elsewhere = tempfile::tempdir().unwrap();
    let program = elsewhere.path().join("tool");
    let script = "#!/bin/sh\n[ \"$1\" = --version ] && { echo \"$0 1.0\"; exit; }\n\
                  echo \"$0: no model\" >&2; exit 3\n";
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let text = fs::read_to_string(&file).unwrap();
    let text = text.replace("receipt: none", "receipt: optional");
    let (main, binary) = (
        format!("main: {{ rev: {base} }}"),
        "main: { binary: '${TOOL}' }",
    );
    fs::write(&file, text.replace(&main, binary)).unwrap();
    let mut run = project.command(&["run", "x.yaml", "--quiet", "--no-report"]);
    let output = run.env("TOOL", &program).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let record = project.records().remove(0);
    let [plan, rows] =
        ["plan.json", "attempts.jsonl"].map(|name| fs::read_to_string(record.join(name)).unwrap());
    assert!(
        plan.contains("\"receipt\": \"{prebuilt}/tool 1.0\""),
        "{plan}"
    );
    assert!(
        rows.contains(".err ends: {prebuilt}/tool: no model"),
        "{rows}"
    );
    let place = elsewhere.path().to_str().unwrap();
    assert!(!plan.contains(place) && !rows.contains(place));
}
