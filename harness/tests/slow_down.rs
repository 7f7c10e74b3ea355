//! The brake of the positive control on real programs. CPU time does not depend on what
//! else runs here, and a busy machine makes wall-clock times longer only: what is asserted
//! holds on any machine. How exact the slow-down is stands in docs/adr/0017.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::ffi::OsString;
use std::time::Duration;

use bench_run::execute::interface::{Ended, Executor, ProcessSpec};
use bench_run::execute::process::ProcessExecutor;
use bench_run::execute::signal::Interrupt;
use bench_run::record::format::{SlowDown, Usage};

/// Works for some 0.3 s, then prints what that took: nanoseconds by its own clock, and
/// nanoseconds of CPU time of the shell.
const WORK: &str = "began=$(date +%s%N); i=0; while [ $i -lt 150000 ]; do i=$((i+1)); done; \
                    ended=$(date +%s%N); read cpu rest < /proc/$$/schedstat; \
                    echo $((ended - began)) $cpu";

const NOWHERE: SlowDown = SlowDown {
    pct: 50.0,
    inside: false,
    wall: false,
    cpu: false,
};

struct Seen {
    usage: Usage,
    /// Seconds by the program's own clock.
    inside: f64,
    /// CPU seconds of the program without the brake.
    own_cpu: f64,
}

fn run(slow_down: SlowDown, script: &str) -> (Ended, String) {
    let place = tempfile::tempdir().unwrap();
    let words = slow_down.words();
    let argv = [env!("CARGO_BIN_EXE_bench-run")]
        .into_iter()
        .chain(words.iter().map(String::as_str))
        .chain(["sh", "-c", script]);
    let spec = ProcessSpec {
        argv: argv.map(OsString::from).collect(),
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        directory: place.path().to_owned(),
        timeout: Duration::from_secs(60),
        stdout: place.path().join("stdout"),
        stderr: place.path().join("stderr"),
        max_output_bytes: 1 << 20,
    };
    let mut executor = ProcessExecutor::new(Interrupt::never()).unwrap();
    let ended = executor.run(&spec, &mut |_| {}, &mut || None).unwrap();
    (ended, std::fs::read_to_string(spec.stdout).unwrap())
}

fn work(slow_down: SlowDown) -> Seen {
    let (ended, output) = run(slow_down, WORK);
    let Ended::Exited(usage) = ended else {
        panic!("{ended:?}");
    };
    assert_eq!(usage.exit_status, Some(0));
    let numbers = output.split_ascii_whitespace();
    let seconds: Vec<f64> = numbers
        .map(|word| word.parse::<f64>().unwrap() / 1e9)
        .collect();
    Seen {
        usage,
        inside: seconds[0],
        own_cpu: seconds[1],
    }
}

fn cpu_seconds(usage: &Usage) -> f64 {
    Duration::from_nanos(usage.user_ns + usage.system_ns).as_secs_f64()
}

#[test]
fn cpu_time_grows_by_the_share_that_was_asked_for() {
    let seen = work(SlowDown {
        cpu: true,
        ..NOWHERE
    });
    let grown = cpu_seconds(&seen.usage) / seen.own_cpu;
    // The two runs of `date` are not in the shell's own time.
    assert!((1.4..1.65).contains(&grown), "{grown}");
}

#[test]
fn the_programs_own_clock_sees_the_stops() {
    let seen = work(SlowDown {
        inside: true,
        ..NOWHERE
    });
    let grown = seen.inside / seen.own_cpu;
    assert!(grown > 1.4, "{grown}");
    // Spun meanwhile, so that CPU time grows too.
    assert!(cpu_seconds(&seen.usage) > 1.3 * seen.own_cpu);
}

#[test]
fn wall_clock_time_grows_by_the_share() {
    let seen = work(SlowDown {
        wall: true,
        ..NOWHERE
    });
    let wall = Duration::from_nanos(seen.usage.wall_ns).as_secs_f64();
    assert!(wall > 1.45 * seen.own_cpu, "{wall} {}", seen.own_cpu);
    // Nothing happened inside the program, so its own clock and its CPU time agree as ever;
    // what was spun is the brake's.
    assert!(cpu_seconds(&seen.usage) > 1.3 * seen.own_cpu);
}

#[test]
fn the_status_is_the_commands() {
    let inside = SlowDown {
        inside: true,
        ..NOWHERE
    };
    let status = |script: &str| match run(inside, script).0 {
        Ended::Exited(usage) => (usage.exit_status, usage.signal),
        other => panic!("{other:?}"),
    };
    assert_eq!(status("exit 7"), (Some(7), None));
    assert_eq!(status("kill -s KILL $$"), (None, Some(9)));
    assert_eq!(status("sleep 0.05"), (Some(0), None));
}

#[test]
fn a_command_that_cannot_start_is_named() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_bench-run"))
        .args([
            "slow-down",
            "--pct",
            "5",
            "--inside",
            "--",
            "./no-such-program",
        ])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(74));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("cannot start ./no-such-program"), "{text}");
}

#[test]
fn a_brake_that_is_killed_takes_its_command_along() {
    let place = tempfile::tempdir().unwrap();
    let pid_file = place.path().join("pid");
    let script = format!("echo $$ > {}; sleep 60", pid_file.display());
    let mut brake = std::process::Command::new(env!("CARGO_BIN_EXE_bench-run"))
        .args([
            "slow-down",
            "--pct",
            "100",
            "--inside",
            "--",
            "sh",
            "-c",
            &script,
        ])
        .spawn()
        .unwrap();
    let pid = loop {
        match std::fs::read_to_string(&pid_file) {
            Ok(pid) if pid.ends_with('\n') => break pid.trim().to_owned(),
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    brake.kill().unwrap();
    brake.wait().unwrap();
    let alive = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    };
    while alive() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_command_that_is_shorter_than_the_brake_is_refused_and_not_slowed_down_too_much() {
    let little = SlowDown {
        pct: 1.0,
        cpu: true,
        ..NOWHERE
    };
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_bench-run"))
        .args(little.words())
        .arg("true")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(74));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("the command is too short"), "{text}");
}
