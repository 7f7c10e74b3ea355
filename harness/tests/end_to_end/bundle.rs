//! A bundle is packed here, moved, run in slices without repository and tools, and merged.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::Duration;

use crate::fixture::{Project, stderr, stdout};

/// Two cells, a fixture and a file of the project that attempts read.
fn project() -> Project {
    let project = Project::new();
    let read = "[ \"$(cat \"$2\")\" = made ] && [ \"$(cat words/a)\" = named ] || exit 3";
    let base = project.commit_with(1000, "fast", read);
    let main = project.commit_with(970, "fast", read);
    fs::create_dir(project.root().join("words")).unwrap();
    fs::write(project.root().join("words/a"), "named").unwrap();
    fs::write(project.root().join("words/made"), "made").unwrap();
    let more = "pass_env: [NAP]\ncells: { matrix: { n: [1, 2] } }\nrounds: 4\n\
                setup: { text: { command: 'cp words/made {out}/text' } }\n";
    let file = project.experiment(&base, &main, more);
    let text = fs::read_to_string(&file).unwrap();
    let command = "command: '{artifact} {n} {text}/text'";
    fs::write(&file, text.replace("command: '{artifact}'", command)).unwrap();
    project
}

/// Packs the project's experiment and moves the bundle to another folder.
fn packed(project: &Project) -> (tempfile::TempDir, PathBuf) {
    let output = project.bench_run(&["bundle", "x.yaml", "-o", "out/b", "--with", "words", "-q"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let elsewhere = tempfile::tempdir().unwrap();
    let place = elsewhere.path().join("there");
    copy(&project.root().join("out/b"), &place);
    (elsewhere, place)
}

/// As `cp -r`: every file is a new one.
fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-r").arg(from).arg(to).status();
    assert!(copied.unwrap().success());
}

/// The bundle's own program, where nothing but a shell's tools is to be found.
fn there(bundle: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(bundle.join("bench-run"));
    command
        .args(["bundle", "run"])
        .arg(bundle)
        .args(arguments)
        .env_clear()
        .env("NAP", "0.02")
        .current_dir("/");
    command
}

fn run_there(bundle: &Path, arguments: &[&str]) -> Output {
    there(bundle, arguments).output().unwrap()
}

/// The rows that measure, without those that prime.
fn measured(project: &Project, record: &Path) -> Vec<String> {
    let rows = project.rows(record).into_iter();
    rows.filter(|row| !row.contains("\"round\":0")).collect()
}

#[test]
fn a_bundle_that_was_moved_gives_a_record_that_is_merged_and_gated() {
    let project = project();
    let (_elsewhere, bundle) = packed(&project);
    let output = run_there(&bundle, &["--minutes", "5", "--host", "testbed"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(!stderr(&output).contains("--host"), "{}", stderr(&output));
    assert!(stdout(&output).contains("complete"), "{}", stdout(&output));
    let record = bundle.join("record");
    let mut files: Vec<_> = fs::read_dir(&record)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    let expected = [
        "attempts.jsonl",
        "host.json",
        "logs.tar",
        "plan.json",
        "plan.sha256",
        "sessions.jsonl",
    ];
    assert_eq!(files, expected);
    let bundle = bundle.to_str().unwrap();
    let record = record.to_str().unwrap();
    let merge = ["bundle", "merge", record, "--bundle", bundle];
    let output = project.bench_run(&merge);
    assert!(output.status.success(), "{}", stderr(&output));
    let merged = project.records().remove(0);
    let name = merged.file_name().unwrap().to_str().unwrap();
    assert!(name.ends_with("-testbed"), "{name}");
    let logs = fs::read_dir(merged.join("logs")).unwrap().count();
    assert_eq!(logs, 2 * project.rows(&merged).len());
    let gate = project.bench_run(&["gate", merged.to_str().unwrap()]);
    assert_eq!(gate.status.code(), Some(10), "{}", stdout(&gate));
    let again = project.bench_run(&merge);
    assert!(
        stdout(&again).contains("merged already"),
        "{}",
        stdout(&again)
    );
    assert_eq!(project.records().len(), 1);
    let report = project.bench_run(&["report", merged.to_str().unwrap()]);
    let text = stdout(&report);
    assert!(text.contains("in one session on one machine"), "{text}");
    assert!(
        !text.contains(bundle),
        "a path of that machine is in the report"
    );
    // What another stay on the same kind of machine adds is nothing: all is measured.
    let output = run_there(Path::new(bundle), &["--minutes", "1"]);
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn killed_and_cut_off_by_its_minutes_a_bundle_ends_with_the_same_rows() {
    let project = project();
    let (_elsewhere, bundle) = packed(&project);
    let slices = bundle.with_file_name("slices");
    let slices = slices.to_str().unwrap();
    let whole = run_there(&bundle, &["-q"]);
    assert!(whole.status.success(), "{}", stderr(&whole));
    let guessed = stderr(&whole).matches("`--host` names it").count();
    assert_eq!(guessed, 1, "{}", stderr(&whole));
    let later = run_there(&bundle, &["-q"]);
    assert!(!stderr(&later).contains("--host"), "{}", stderr(&later));
    // Slower attempts, so that slices end in the middle of the run.
    let slice = ["-q", "--minutes", "0.03", "--record", slices];
    let (mut kills, mut cut_off) = (0, 0);
    for step in 0..200_u64 {
        let mut child = there(&bundle, &slice)
            .env("NAP", "0.1")
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        if step % 2 == 0 {
            sleep(Duration::from_millis(250 + 37 * step));
            kills += i32::from(child.try_wait().unwrap().is_none());
            let _ = child.kill();
        }
        match child.wait().unwrap().code() {
            Some(0) => break,
            Some(75) => cut_off += 1,
            Some(other) => panic!("exit code {other}"),
            None => {}
        }
    }
    assert!(kills > 0 && cut_off > 0, "{kills} kills, {cut_off} cut off");
    let rows = |record: &Path| project.rows(record);
    // One stay, however often it was interrupted: not even the priming comes again.
    assert_eq!(rows(Path::new(slices)), rows(&bundle.join("record")));
}

#[test]
fn on_a_fresh_machine_the_record_goes_on_with_whole_rounds_and_is_primed_again() {
    let project = project();
    let (elsewhere, bundle) = packed(&project);
    let record = elsewhere.path().join("record");
    let record_argument = record.to_str().unwrap();
    let mut child = there(&bundle, &["-q", "--record", record_argument])
        .env("NAP", "0.3")
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let rows = || fs::read_to_string(record.join("attempts.jsonl")).unwrap_or_default();
    // Two priming attempts, a round of three, and one more.
    while rows().lines().count() < 6 {
        sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let other = elsewhere.path().join("other");
    copy(&bundle, &other);
    let output = run_there(&other, &["-q", "--record", record_argument]);
    assert!(output.status.success(), "{}", stderr(&output));
    let sessions = fs::read_to_string(record.join("sessions.jsonl")).unwrap();
    assert_eq!(sessions.lines().count(), 2);
    let primed = rows().matches("\"round\":0,").count();
    assert_eq!(primed, 2 * 2 + 2, "{}", rows());
    // The rounds that count are those of a run in one go, but for the try that was dropped.
    assert!(run_there(&bundle, &["-q"]).status.success());
    let tries = |rows: Vec<String>| -> Vec<String> {
        let bare = |row: String| {
            let mut row: serde_json::Value = serde_json::from_str(&row).unwrap();
            for key in ["session", "round_try", "env_padding_bytes", "metrics"] {
                row.as_object_mut().unwrap().remove(key);
            }
            row.to_string()
        };
        rows.into_iter().map(bare).collect()
    };
    let whole = tries(measured(&project, &bundle.join("record")));
    let slices = tries(measured(&project, &record));
    let last = slices.len() - whole.len();
    assert!(last > 0 && last < 3, "{last} attempts were dropped");
    assert_eq!(slices[..3], whole[..3]);
    assert_eq!(slices[3 + last..], whole[3..]);
}

#[test]
fn a_record_of_another_kind_of_machine_is_refused() {
    let project = project();
    let (_elsewhere, bundle) = packed(&project);
    assert!(run_there(&bundle, &["-q"]).status.success());
    let record = bundle.join("record");
    // As if the record had been begun elsewhere and not ended.
    let sessions = record.join("sessions.jsonl");
    let text = fs::read_to_string(&sessions).unwrap();
    let mut session: serde_json::Value = serde_json::from_str(&text).unwrap();
    session["facts"]["GPU"] = "NVIDIA H200".into();
    fs::write(&sessions, format!("{session}\n")).unwrap();
    let rows = record.join("attempts.jsonl");
    let text = fs::read_to_string(&rows).unwrap();
    let some: Vec<&str> = text.lines().take(5).collect();
    fs::write(&rows, some.join("\n") + "\n").unwrap();
    let output = run_there(&bundle, &["-q"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let expected = "another kind of machine: expected GPU `NVIDIA H200`, got `none`";
    assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    assert_eq!(fs::read_to_string(&rows).unwrap().lines().count(), 5);
}

/// Runs a bundle after `spoil`; gives the exit code and what was said.
fn spoiled(spoil: impl Fn(&Path)) -> (Option<i32>, String) {
    let project = project();
    let (_elsewhere, bundle) = packed(&project);
    spoil(&bundle);
    // The program itself may be what was spoiled.
    let output = project.bench_run(&["bundle", "run", bundle.to_str().unwrap(), "-q"]);
    assert!(!bundle.join("record").exists(), "something was measured");
    (output.status.code(), stderr(&output))
}

#[test]
fn whatever_was_packed_and_has_changed_is_named_before_anything_runs() {
    for file in [
        "artifacts/0/out/prog",
        "artifacts/1/out/prog",
        "fixtures/0/out/text",
        "root/words/a",
        "plan.json",
        "bench-run",
    ] {
        let (code, error) = spoiled(|bundle| {
            let path = bundle.join(file);
            let mut bytes = fs::read(&path).unwrap();
            bytes.push(b' ');
            fs::remove_file(&path).unwrap();
            fs::write(&path, bytes).unwrap();
        });
        assert_eq!(code, Some(2), "{file}: {error}");
        let named = ["has changed since", "was changed after it was sealed"];
        assert!(named.iter().any(|words| error.contains(words)), "{error}");
        let name = Path::new(file).components().next_back().unwrap();
        let name = name.as_os_str().to_str().unwrap();
        let folder = file.split('/').next().unwrap();
        assert!(error.contains(name) || error.contains(folder), "{error}");
    }
    let (code, error) =
        spoiled(|bundle| fs::remove_file(bundle.join("artifacts/0/out/prog")).unwrap());
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("artifact out/prog is gone"), "{error}");
    let (code, error) = spoiled(|bundle| fs::remove_file(bundle.join("bundle.json")).unwrap());
    assert_eq!(code, Some(2), "{error}");
    assert!(
        error.contains("is no bundle: expected bundle.json"),
        "{error}"
    );
}

/// Runs `bench-run` with these arguments, which must end with `code` and say `words`.
fn refused(project: &Project, arguments: &[&str], code: i32, words: &str) {
    let output = project.bench_run(arguments);
    let error = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{error}");
    assert!(error.contains(words), "{error}");
}

#[test]
fn what_cannot_be_packed_run_or_merged_is_said_in_one_line() {
    let project = project();
    let (_elsewhere, bundle) = packed(&project);
    let there = bundle.to_str().unwrap();
    let no_time = ["bundle", "run", there, "--minutes", "0"];
    let nowhere = ["bundle", "run", there, "--record", "/proc/no-folder/record"];
    let outside = ["bundle", "x.yaml", "-o", "new", "--with", "../x"];
    let nothing = ["bundle", "x.yaml", "-o", "new", "--with", "no"];
    for (arguments, code, words) in [
        (&no_time[..], 2, "minutes above 0"),
        (&["bundle", "run", "cache"], 2, "is no bundle"),
        (&["bundle", "x.yaml", "-o", there], 2, "not there yet"),
        (&outside, 2, "leads elsewhere"),
        (&nothing, 2, "got nothing"),
        (&["bundle", "merge", "no-such"], 2, "plan.json is missing"),
        (&["bundle"], 2, "required"),
        (&nowhere, 74, "cannot create"),
    ] {
        refused(&project, arguments, code, words);
    }
    assert!(!project.root().join("new").exists(), "half a bundle");
    assert!(!bundle.join("record").exists());
}

#[test]
fn a_record_of_another_plan_or_with_rows_about_other_code_is_refused() {
    let project = project();
    let (_elsewhere, bundle) = packed(&project);
    let there = bundle.to_str().unwrap();
    let other = bundle.with_file_name("foreign");
    let to = other.to_str().unwrap();
    let pack = ["bundle", "x.yaml", "-o", to, "--rounds", "3"];
    let output = project.bench_run(&[&pack[..], &["--with", "words", "-q"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(run_there(&other, &["-q"]).status.success());
    let record = other.join("record");
    let foreign = record.to_str().unwrap();
    let words = "record of another plan";
    let run = ["bundle", "run", there, "--record", foreign];
    refused(&project, &run, 2, words);
    let merge = ["bundle", "merge", foreign, "--bundle", there];
    refused(&project, &merge, 2, words);
    let rows = record.join("attempts.jsonl");
    let text = fs::read_to_string(&rows).unwrap();
    let line = text.lines().next().unwrap();
    let mut row: serde_json::Value = serde_json::from_str(line).unwrap();
    row["code_sha256"] = "0".repeat(64).into();
    fs::write(&rows, text.replacen(line, &row.to_string(), 1)).unwrap();
    let merge = ["bundle", "merge", foreign];
    refused(&project, &merge, 2, "attempts.jsonl:1: code of arm");
    assert!(project.records().is_empty());
}

#[test]
fn without_the_gpu_that_the_guard_watches_no_record_is_begun() {
    let project = project();
    let file = project.root().join("x.yaml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("kind: none", "kind: cuda")).unwrap();
    let (_elsewhere, bundle) = packed(&project);
    if Path::new("/proc/driver/nvidia/version").exists() {
        return;
    }
    let output = run_there(&bundle, &["-q"]);
    assert_eq!(output.status.code(), Some(69), "{}", stderr(&output));
    assert!(stderr(&output).contains("guard cuda cannot work here"));
    assert!(!bundle.join("record").exists());
}

#[test]
fn a_tar_file_holds_one_folder_with_everything() {
    let project = project();
    let output = project.bench_run(&["bundle", "x.yaml", "-o", "b.tar", "--with", "words", "-q"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let elsewhere = tempfile::tempdir().unwrap();
    let unpacked = Command::new("tar")
        .arg("xf")
        .arg(project.root().join("b.tar"))
        .arg("-C")
        .arg(elsewhere.path())
        .status();
    assert!(unpacked.unwrap().success());
    let output = run_there(&elsewhere.path().join("b"), &["-q"]);
    assert!(output.status.success(), "{}", stderr(&output));
}
