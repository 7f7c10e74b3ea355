//! `bench-run guard` and its script as a user calls them.
//!
//! The machine of the test need not be quiet: limits are out of reach, nothing counts as a
//! compiler, and the GPU's holders are a directory of the test.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(directory.path().join("kfd")).expect("a directory");
        Place { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.directory.path())
            .env("TMPDIR", self.directory.path())
            .env("ROCM_GPU_GUARD_LOCK", self.path("lock"))
            .env("ROCM_GPU_GUARD_KFD_DIR", self.path("kfd"))
            .env("ROCM_GPU_GUARD_COMPILER_RE", "^no compiler has this name$")
            .env_remove("ROCM_GPU_GUARD_LOCK_HELD")
            .stdin(Stdio::null());
        command
    }

    fn guard(&self) -> Command {
        let mut command = self.command(Path::new(env!("CARGO_BIN_EXE_bench-run")));
        command.args(["guard", "--max-foreign-cpu-pct", "100000"]);
        command
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect("the file is there")
    }
}

fn output(command: &mut Command) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("bench-run starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code().unwrap_or(-1), text(stdout), text(stderr))
}

/// A process that is no descendant of the guard; killed at the end.
struct Stranger(Child);

impl Stranger {
    fn new() -> Self {
        Stranger(
            Command::new("sleep")
                .arg("60")
                .spawn()
                .expect("sleep starts"),
        )
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn wrong_arguments_end_with_2_and_start_nothing() {
    let place = Place::new();
    for arguments in [
        &["--idle-secs", "5"][..],
        &["--idle-secs", "+5", "--", "touch", "started"],
        &["--max-attempts", "-1", "--", "touch", "started"],
        &["--max-wait", "1.5", "--", "touch", "started"],
        &["--no-such-option", "--", "touch", "started"],
    ] {
        let (code, ..) = output(place.guard().args(arguments));
        assert_eq!(code, 2, "{arguments:?}");
    }
    let missing = place.path("gone");
    let mut command = place.guard();
    command
        .env("ROCM_GPU_GUARD_KFD_DIR", &missing)
        .args(["--kind", "rocm", "--", "touch", "started"]);
    let (code, _, stderr) = output(&mut command);
    assert_eq!(code, 2);
    assert!(stderr.contains("ROCM_GPU_GUARD_KFD_DIR"), "{stderr}");
    assert!(!place.path("started").exists());
}

#[test]
fn the_commands_own_status_and_output_are_passed_on() {
    let place = Place::new();
    let script = "echo out; echo err >&2; exit 7";
    let arguments = [
        "--kind",
        "none",
        "--status-file",
        "status",
        "--",
        "sh",
        "-c",
    ];
    let (code, stdout, stderr) = output(place.guard().args(arguments).arg(script));
    assert_eq!((code, stdout.as_str()), (7, "out\n"));
    assert!(stderr.contains("err\n"), "{stderr}");
    assert_eq!(
        place.read("status").trim(),
        r#"{"outcome":"clean","attempt":1,"exit_status":7}"#
    );
    let killed = ["--kind", "none", "--", "sh", "-c", "kill -KILL $$"];
    assert_eq!(output(place.guard().args(killed)).0, 137);
    let missing = ["--kind", "none", "--", "no-such-program-here"];
    let (code, _, stderr) = output(place.guard().args(missing));
    assert_eq!(code, 127);
    assert!(stderr.contains("command not found"), "{stderr}");
}

#[test]
fn a_contended_attempt_is_stopped_and_only_the_clean_one_reaches_standard_output() {
    let place = Place::new();
    let stranger = Stranger::new();
    // The first attempt meets a stranger on the GPU, who leaves when the attempt is stopped.
    let script = "if [ -e seen ]; then echo 62.01; exit 3; fi
        touch seen; mkdir kfd/$0; trap 'rmdir kfd/$0; exit' TERM
        echo 61.93; sleep 30 & wait";
    let mut command = place.guard();
    command
        .args(["--kind", "rocm", "--idle-secs", "0", "--log", "log"])
        .args(["--", "sh", "-c", script])
        .arg(stranger.pid());
    let start = Instant::now();
    let (code, stdout, stderr) = output(&mut command);
    assert_eq!((code, stdout.as_str()), (3, "62.01\n"), "{stderr}");
    assert!(start.elapsed() < Duration::from_secs(25), "{stderr}");
    let log = place.read("log");
    let contended = format!("sample 1 CONTENDED foreign_gpu=[{}:sleep]", stranger.pid());
    for part in [
        "attempt 1/5 start",
        &contended,
        "attempt 1 REJECTED",
        "CLEAN",
    ] {
        assert!(log.contains(part), "{part}: {log}");
    }
    let kept = std::fs::read_dir(place.path("log.attempts"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let first = kept.path().join("attempt-1.stdout");
    assert_eq!(std::fs::read_to_string(first).unwrap(), "61.93\n");
}

#[test]
fn no_clean_attempt_ends_with_75_and_prints_no_number() {
    let place = Place::new();
    let stranger = Stranger::new();
    let mut command = place.guard();
    command
        .args(["--kind", "rocm", "--idle-secs", "0", "--max-attempts", "1"])
        .args(["--status-file", "status"])
        .args(["--", "sh", "-c", "mkdir kfd/$0; echo 61.93; sleep 30"])
        .arg(stranger.pid());
    let (code, stdout, stderr) = output(&mut command);
    assert_eq!((code, stdout.as_str()), (75, ""), "{stderr}");
    assert!(place.read("status").contains("never_clean"));
}

#[test]
fn a_machine_that_never_gets_quiet_ends_with_75_after_the_longest_wait() {
    let place = Place::new();
    let stranger = Stranger::new();
    std::fs::create_dir(place.path("kfd").join(stranger.pid())).unwrap();
    let mut command = place.guard();
    command
        .args([
            "--idle-secs",
            "0",
            "--max-wait",
            "1",
            "--status-file",
            "status",
        ])
        .args(["--", "touch", "started"]);
    let (code, _, stderr) = output(&mut command);
    assert_eq!(code, 75, "{stderr}");
    assert!(stderr.contains(&format!("{}:sleep", stranger.pid())));
    assert!(place.read("status").contains("budget_gone"));
    assert!(!place.path("started").exists());
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether this process was started with SIGINT ignored, as a shell starts what it puts into the
/// background: then the program ignores it too, as it should.
fn ignores_interrupts() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & (1 << (2 - 1)) != 0)
}

#[test]
fn a_signal_stops_the_command_with_its_children() {
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        if name == "INT" && ignores_interrupts() {
            continue;
        }
        let place = Place::new();
        let mut guard = place
            .guard()
            .args(["--kind", "none", "--", "sh", "-c"])
            .arg("sleep 60 & echo $! >child.new; mv child.new child; wait")
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        until("the command starts", || place.path("child").exists());
        let pid = guard.id().to_string();
        let killed = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(killed.unwrap().success());
        assert_eq!(guard.wait().unwrap().code(), Some(code));
        let child = place.read("child");
        assert!(!Path::new("/proc").join(child.trim()).exists());
    }
}

#[test]
fn a_signal_ends_the_wait_for_the_lock_too() {
    let place = Place::new();
    let lock = std::fs::File::create(place.path("lock")).unwrap();
    lock.lock().unwrap();
    let mut guard = place
        .guard()
        .args(["--kind", "cpu", "--log", "log", "--", "touch", "started"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("it waits", || {
        std::fs::read_to_string(place.path("log")).is_ok_and(|log| log.contains("waiting"))
    });
    let pid = guard.id().to_string();
    Command::new("kill")
        .args(["-s", "TERM", &pid])
        .status()
        .unwrap();
    assert_eq!(guard.wait().unwrap().code(), Some(143));
    assert!(!place.path("started").exists());
}

#[test]
fn a_guard_inside_a_guard_does_not_wait_for_its_own_lock() {
    let place = Place::new();
    let program = env!("CARGO_BIN_EXE_bench-run");
    let mut command = place.guard();
    command
        .args([
            "--kind",
            "cpu",
            "--idle-secs",
            "0",
            "--max-wait",
            "15",
            "--",
        ])
        .args([program, "guard", "--kind", "cpu", "--idle-secs", "0"])
        .args(["--max-wait", "5", "--max-foreign-cpu-pct", "100000"])
        .args(["--", "sh", "-c", "echo $ROCM_GPU_GUARD_LOCK_HELD"]);
    let guard = command.stdout(Stdio::piped()).spawn().unwrap();
    let pid = guard.id();
    let output = guard.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        pid.to_string()
    );
}

#[test]
fn the_script_keeps_the_old_interface() {
    let place = Place::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/rocm_gpu_guard.sh");
    let call = |kfd: Option<&Path>, arguments: &[&str]| {
        let mut command = place.command(&script);
        command.env("BENCH_RUN", env!("CARGO_BIN_EXE_bench-run"));
        command.env_remove("ROCM_GPU_GUARD_KFD_DIR");
        command.envs(kfd.map(|kfd| ("ROCM_GPU_GUARD_KFD_DIR", kfd)));
        output(command.args(arguments))
    };
    assert_eq!(call(Some(&place.path("gone")), &["--", "true"]).0, 2);
    assert_eq!(call(None, &[]).0, 2);
    let quiet = ["--idle-secs", "0", "--max-foreign-cpu-pct", "100000"];
    let (code, stdout, stderr) = call(
        Some(&place.path("kfd")),
        &[&quiet[..], &["--", "echo", "measured"]].concat(),
    );
    assert_eq!((code, stdout.as_str()), (0, "measured\n"), "{stderr}");
    if !Path::new("/sys/class/kfd/kfd/proc").is_dir() {
        let (code, stdout, stderr) = call(None, &[&quiet[..], &["--", "echo", "1"]].concat());
        assert_eq!((code, stdout.as_str()), (0, "1\n"), "{stderr}");
        assert!(stderr.contains("no AMD GPU here: guarding the CPU"));
    }
}
