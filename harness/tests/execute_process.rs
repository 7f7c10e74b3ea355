//! How the real executor treats programs that behave badly.

use std::ffi::OsString;
use std::path::Path;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use bench_run::execute::interface::{Ended, Executor, ProcessSpec};
use bench_run::execute::process::ProcessExecutor;
use bench_run::execute::signal::Interrupt;
use bench_run::record::format::Usage;

/// An orphan in a session of its own can be assigned only while one attempt runs: the
/// tests about those take the lock alone.
static ALONE: RwLock<()> = RwLock::new(());

fn shared() -> RwLockReadGuard<'static, ()> {
    ALONE.read().unwrap_or_else(PoisonError::into_inner)
}

fn spec(directory: &Path, words: &[&str]) -> ProcessSpec {
    ProcessSpec {
        argv: words.iter().map(OsString::from).collect(),
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        directory: directory.to_owned(),
        timeout: Duration::from_secs(20),
        stdout: directory.join("stdout"),
        stderr: directory.join("stderr"),
        max_output_bytes: 1 << 20,
    }
}

fn run(spec: &ProcessSpec) -> Ended {
    ProcessExecutor::new(Interrupt::never())
        .and_then(|mut executor| executor.run(spec, &mut |_| {}, &mut || None))
        .expect("the harness's own side works")
}

fn exited(ended: Ended) -> Usage {
    match ended {
        Ended::Exited(usage) => usage,
        other => panic!("expected an exit, got {other:?}"),
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).expect("the output file exists")
}

fn alive(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

#[test]
fn output_and_status_arrive_and_the_environment_is_exactly_the_given_one() {
    let _shared = shared();
    let place = tempfile::tempdir().unwrap();
    let mut spec = spec(place.path(), &["/usr/bin/env"]);
    spec.env = vec![("B".into(), "2 two".into()), ("A".into(), "1".into())];
    let usage = exited(run(&spec));
    assert_eq!(usage.exit_status, Some(0));
    let text = read(&spec.stdout);
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["A=1", "B=2 two"]);
}

#[test]
fn standard_input_is_empty_and_no_descriptor_leaks_in() {
    const NAME: &str = "standard_input_is_empty_and_no_descriptor_leaks_in";
    let _shared = shared();
    if std::env::var_os("DESCRIPTOR_7_IS_OPEN").is_none() {
        // Once more, below a shell that leaves a descriptor open as careless callers do.
        let status = std::process::Command::new("sh")
            .args(["-c", "exec 7</dev/null; exec \"$0\" --exact \"$1\""])
            .arg(std::env::current_exe().unwrap())
            .arg(NAME)
            .env("DESCRIPTOR_7_IS_OPEN", "1")
            .status()
            .unwrap();
        assert!(status.success());
        return;
    }
    assert!(Path::new("/proc/self/fd/7").exists());
    let place = tempfile::tempdir().unwrap();
    let spec = spec(place.path(), &["sh", "-c", "cat; ls /proc/self/fd"]);
    assert_eq!(exited(run(&spec)).exit_status, Some(0));
    // 0, 1, 2 and the directory that ls itself reads.
    assert_eq!(read(&spec.stdout).lines().count(), 4);
}

#[test]
fn a_program_that_is_missing_or_not_executable_never_started() {
    let _shared = shared();
    for (words, expected) in [
        (["no-such-program-here"], "command not found"),
        (["./plain"], "not executable"),
        (["./orphan"], "interpreter"),
    ] {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("plain"), "text").unwrap();
        let orphan = place.path().join("orphan");
        std::fs::write(&orphan, "#!/no/such/interpreter\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&orphan, mode).unwrap();
        match run(&spec(place.path(), &words)) {
            Ended::NotStarted(reason) => {
                assert!(reason.contains(expected), "{reason}");
                let path = place.path().to_str().unwrap();
                assert!(!reason.contains(path), "{reason}");
            }
            other => panic!("{words:?}: {other:?}"),
        }
    }
}

#[test]
fn a_missing_working_directory_is_named_as_the_cause() {
    let _shared = shared();
    let place = tempfile::tempdir().unwrap();
    let mut spec = spec(place.path(), &["true"]);
    spec.directory = place.path().join("gone");
    let Ended::NotStarted(reason) = run(&spec) else {
        panic!("it started");
    };
    assert!(reason.contains("working directory"), "{reason}");
}

#[test]
fn a_death_by_signal_is_told_from_an_exit_status() {
    let _shared = shared();
    let place = tempfile::tempdir().unwrap();
    let crash = spec(place.path(), &["sh", "-c", "kill -SEGV $$"]);
    let usage = exited(run(&crash));
    assert_eq!((usage.exit_status, usage.signal), (None, Some(11)));
    let place = tempfile::tempdir().unwrap();
    let usage = exited(run(&spec(place.path(), &["sh", "-c", "exit 139"])));
    assert_eq!((usage.exit_status, usage.signal), (Some(139), None));
}

#[test]
fn a_hang_is_killed_with_its_whole_group_even_if_it_ignores_sigterm() {
    let _shared = shared();
    let place = tempfile::tempdir().unwrap();
    let script = "trap '' TERM; sleep 60 & echo $!; sleep 60";
    let mut spec = spec(place.path(), &["sh", "-c", script]);
    spec.timeout = Duration::from_millis(300);
    let start = Instant::now();
    let Ended::TimedOut(usage) = run(&spec) else {
        panic!("it should time out");
    };
    assert!(start.elapsed() < Duration::from_secs(5));
    assert!(usage.wall_ns >= 300_000_000);
    let child: u32 = read(&spec.stdout).trim().parse().unwrap();
    assert!(!alive(child));
}

#[test]
fn a_stopped_process_is_killed_at_the_time_limit() {
    let _shared = shared();
    let place = tempfile::tempdir().unwrap();
    let mut spec = spec(place.path(), &["sh", "-c", "kill -STOP $$"]);
    spec.timeout = Duration::from_millis(200);
    assert!(matches!(run(&spec), Ended::TimedOut(_)));
}

#[test]
fn grandchildren_that_outlive_their_leader_are_killed_and_counted() {
    let _shared = shared();
    let place = tempfile::tempdir().unwrap();
    let script = "sleep 60 & echo $!; (sleep 60 & echo $!) ; exit 0";
    let spec = spec(place.path(), &["sh", "-c", script]);
    let usage = exited(run(&spec));
    assert_eq!((usage.exit_status, usage.left_processes), (Some(0), 2));
    for line in read(&spec.stdout).lines() {
        assert!(!alive(line.parse().unwrap()));
    }
}

#[test]
fn a_daemon_in_a_session_of_its_own_does_not_escape() {
    let _alone = ALONE.write().unwrap_or_else(PoisonError::into_inner);
    let place = tempfile::tempdir().unwrap();
    let script = "setsid sh -c 'echo $$; sleep 60 & wait' >pids & sleep 0.2";
    let spec = spec(place.path(), &["sh", "-c", script]);
    let usage = exited(run(&spec));
    // The daemon's shell and its sleep.
    assert_eq!(usage.left_processes, 2);
    let daemon = read(&place.path().join("pids"));
    assert!(!alive(daemon.trim().parse().unwrap()));
}

#[test]
fn children_that_the_harness_had_before_are_left_alone() {
    let _alone = ALONE.write().unwrap_or_else(PoisonError::into_inner);
    let place = tempfile::tempdir().unwrap();
    let mut other = std::process::Command::new("setsid")
        .args(["sleep", "60"])
        .spawn()
        .unwrap();
    assert_eq!(
        exited(run(&spec(place.path(), &["true"]))).left_processes,
        0
    );
    assert!(other.try_wait().unwrap().is_none());
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn endless_output_is_stopped_and_only_its_beginning_kept() {
    let _shared = shared();
    let place = tempfile::tempdir().unwrap();
    let mut spec = spec(
        place.path(),
        &["sh", "-c", "yes | head -c 50000000; sleep 60"],
    );
    spec.max_output_bytes = 4096;
    let Ended::OutputTooLarge(_, size) = run(&spec) else {
        panic!("too much output must not pass");
    };
    assert!(size > 4096);
    assert_eq!(std::fs::metadata(&spec.stdout).unwrap().len(), 4096);
}

#[test]
fn too_much_output_from_a_program_that_ends_at_once_is_noticed() {
    let _shared = shared();
    let place = tempfile::tempdir().unwrap();
    let mut spec = spec(place.path(), &["head", "-c", "5000", "/dev/zero"]);
    spec.max_output_bytes = 4096;
    assert!(matches!(run(&spec), Ended::OutputTooLarge(_, 5000)));
}

#[test]
fn an_output_file_is_never_overwritten() {
    let _shared = shared();
    let place = tempfile::tempdir().unwrap();
    let spec = spec(place.path(), &["true"]);
    std::fs::write(&spec.stdout, "an earlier attempt").unwrap();
    let mut executor = ProcessExecutor::new(Interrupt::never()).unwrap();
    let error = executor
        .run(&spec, &mut |_| {}, &mut || None)
        .expect_err("the file exists");
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    assert_eq!(read(&spec.stdout), "an earlier attempt");
}

#[test]
fn a_watcher_is_asked_once_a_second_and_can_stop_the_attempt() {
    let _shared = shared();
    let place = tempfile::tempdir().unwrap();
    let spec = spec(place.path(), &["sleep", "60"]);
    let mut executor = ProcessExecutor::new(Interrupt::never()).unwrap();
    let mut group = 0;
    let mut asked = Vec::new();
    let start = Instant::now();
    let ended = executor
        .run(&spec, &mut |pid| group = pid, &mut || {
            asked.push(start.elapsed());
            (asked.len() == 2).then(|| "a compiler".to_owned())
        })
        .unwrap();
    assert!(matches!(ended, Ended::Stopped(_, reason) if reason == "a compiler"));
    assert!(asked[0] >= Duration::from_secs(1));
    assert!(asked[1] - asked[0] >= Duration::from_secs(1));
    assert!(group > 1 && !alive(group));
}

#[test]
fn the_account_covers_the_children_that_were_waited_for() {
    let _shared = shared();
    let place = tempfile::tempdir().unwrap();
    let script = "sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'; true";
    let usage = exited(run(&spec(place.path(), &["sh", "-c", script])));
    assert!(usage.user_ns > 5_000_000, "{usage:?}");
    assert!(usage.wall_ns >= usage.user_ns / 2);
    assert!(usage.peak_rss_bytes > 100_000);
}
