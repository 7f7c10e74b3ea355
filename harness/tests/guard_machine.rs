//! The whole guard on a made-up machine: its procfs and sysfs are directories of the test.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bench_run::execute::signal::Interrupt;
use bench_run::experiment::model::{Guard as Settings, GuardKind};
use bench_run::guard::cpu::Compilers;
use bench_run::guard::gpu::{Gpu, GpuReading, Slowdown};
use bench_run::guard::interface::{Guard, GuardError};
use bench_run::guard::open::{Options, open};

const HARNESS: u32 = 100;
const MEASURED: u32 = 200;

struct Machine {
    place: tempfile::TempDir,
}

impl Machine {
    /// init, a shell, the harness; a CPU counter.
    fn new() -> Self {
        let machine = Machine {
            place: tempfile::tempdir().expect("a temporary directory"),
        };
        machine.process(1, 0, 1, "init", 0);
        machine.process(50, 1, 50, "bash", 0);
        machine.process(HARNESS, 50, 50, "bench-run", 0);
        machine.busy(1000, 0);
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path, text).expect("a file");
    }

    fn process(&self, pid: u32, parent: u32, session: u32, comm: &str, ticks: u32) {
        let text = format!(
            "{pid} ({comm}) S {parent} {session} {session} 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 {pid} 0 0"
        );
        self.write(&format!("proc/{pid}/stat"), &text);
    }

    fn gone(&self, pid: u32) {
        std::fs::remove_dir_all(self.path(&format!("proc/{pid}"))).expect("it was there");
    }

    fn busy(&self, ticks: u32, steal: u32) {
        let text = format!("cpu  {ticks} 0 0 0 0 0 0 {steal} 0 0\ncpu0 0\ncpu1 0\n");
        self.write("proc/stat", &text);
    }

    fn holder(&self, pid: u32) {
        self.write(&format!("kfd/{pid}/queues"), "");
    }

    fn options(&self) -> Options {
        Options {
            proc: self.path("proc"),
            sys: self.path("sys"),
            kfd: None,
            nvidia: files_of_a_gpu,
            compilers: Compilers::Known,
            lock: self.path("lock"),
            lock_held: None,
            command: "bench-run run a.yaml".to_owned(),
            harness: HARNESS,
            interrupt: Interrupt::never(),
            together: false,
            tick: Duration::from_millis(5),
        }
    }

    fn guard(&self, kind: GuardKind) -> Box<dyn Guard> {
        open(&settings(kind), &self.options(), &mut |_| {}).expect("it works here")
    }
}

/// A GPU whose driver is a folder beside procfs: holders are files, the rest are numbers.
#[derive(Debug)]
struct FileGpu(PathBuf);

impl FileGpu {
    fn number(&self, name: &str) -> Option<f64> {
        let text = std::fs::read_to_string(self.0.join(name)).ok()?;
        text.trim().parse().ok()
    }
}

impl Gpu for FileGpu {
    fn holders(&self) -> Vec<u32> {
        let entries = std::fs::read_dir(self.0.join("holders"))
            .into_iter()
            .flatten();
        let names = entries.flatten().map(|entry| entry.file_name());
        let mut pids: Vec<u32> = names
            .filter_map(|name| name.to_str()?.parse().ok())
            .collect();
        pids.sort_unstable();
        pids
    }

    fn holders_may_hide(&self) -> bool {
        true
    }

    fn reading(&self) -> GpuReading {
        let hot = self.number("hot").map(|_| Slowdown::Heat);
        GpuReading {
            clock_mhz: self.number("clock"),
            temperature_c: self.number("degrees"),
            power_w: self.number("watts"),
            busy_pct: self.number("busy"),
            slowdowns: hot.into_iter().collect(),
            ..GpuReading::default()
        }
    }
}

fn files_of_a_gpu(proc: &Path) -> Result<Box<dyn Gpu>, String> {
    let folder = proc.with_file_name("nvidia");
    if folder.is_dir() {
        Ok(Box::new(FileGpu(folder)))
    } else {
        Err("no NVIDIA driver".to_owned())
    }
}

fn settings(kind: GuardKind) -> Settings {
    Settings {
        kind,
        idle_secs: 0,
        max_wait_secs: 1,
        max_foreign_cpu_pct: 20.0,
    }
}

fn unavailable(machine: &Machine, kind: GuardKind, kfd: Option<&Path>) -> String {
    let mut options = machine.options();
    options.kfd = kfd.map(Path::to_owned);
    match open(&settings(kind), &options, &mut |_| {}) {
        Err(GuardError::Unavailable { reason, .. }) => reason,
        Err(other) => panic!("{other}"),
        Ok(guard) => panic!("{} works", guard.kind()),
    }
}

#[test]
fn an_attempt_with_nobody_else_there_is_clean() {
    let machine = Machine::new();
    let mut guard = machine.guard(GuardKind::Cpu);
    guard.wait_idle(&mut |_| {}).unwrap();
    assert_eq!(guard.begin(), None);
    machine.process(MEASURED, HARNESS, MEASURED, "bench", 5);
    guard.measured_group(MEASURED);
    assert_eq!(guard.sample(), None);
    machine.gone(MEASURED);
    let verdict = guard.end();
    assert_eq!(verdict.rejected, None);
    assert_eq!(verdict.summary.samples, 1);
    assert_eq!(verdict.summary.kind, "cpu");
}

#[test]
fn a_compiler_in_the_middle_rejects_that_attempt_and_not_the_next() {
    let machine = Machine::new();
    let mut guard = machine.guard(GuardKind::Cpu);
    guard.wait_idle(&mut |_| {}).unwrap();
    assert_eq!(guard.begin(), None);
    guard.measured_group(MEASURED);
    machine.process(300, 1, 300, "rustc", 1);
    let who = guard.sample().unwrap();
    assert!(who.contains("300:rustc"), "{who}");
    machine.gone(300);
    // It has gone before the end, and the attempt stays rejected.
    assert!(guard.end().rejected.unwrap().contains("300:rustc"));
    guard.wait_idle(&mut |_| {}).unwrap();
    assert_eq!(guard.begin(), None);
    assert_eq!(guard.end().rejected, None);
}

#[test]
fn an_attempt_too_short_for_a_sample_is_judged_by_the_counters() {
    let machine = Machine::new();
    let mut guard = machine.guard(GuardKind::Cpu);
    guard.begin();
    // A hundred seconds of CPU time that were not ours.
    machine.busy(11_000, 0);
    let verdict = guard.end();
    assert_eq!(verdict.summary.samples, 0);
    assert!(verdict.rejected.unwrap().contains("foreign CPU time"));
    guard.begin();
    machine.busy(11_000, 900);
    assert!(guard.end().rejected.unwrap().contains("hypervisor"));
}

#[test]
fn a_compiler_that_comes_between_two_attempts_is_seen_before_or_after_the_second() {
    let machine = Machine::new();
    let mut guard = machine.guard(GuardKind::Cpu);
    guard.begin();
    assert_eq!(guard.end().rejected, None);
    machine.process(300, 1, 300, "rustc", 1);
    // At once, the look at the end of the first attempt may still serve.
    let at_start = guard.begin();
    assert!(at_start.is_some() || guard.end().rejected.unwrap().contains("300:rustc"));
    machine.gone(300);
    guard.wait_idle(&mut |_| {}).unwrap();
    guard.begin();
    assert_eq!(guard.end().rejected, None);
    machine.process(301, 1, 301, "cc1", 1);
    std::thread::sleep(Duration::from_millis(60));
    assert!(guard.begin().unwrap().contains("301:cc1"));
}

#[test]
fn somebody_who_is_there_at_the_start_is_reported_before_anything_runs() {
    let machine = Machine::new();
    let mut guard = machine.guard(GuardKind::Cpu);
    guard.wait_idle(&mut |_| {}).unwrap();
    machine.process(300, 1, 300, "cargo", 1);
    assert!(guard.begin().unwrap().contains("300:cargo"));
    assert!(guard.end().rejected.is_some());
}

#[test]
fn a_machine_that_is_never_quiet_uses_up_the_waiting_time() {
    let machine = Machine::new();
    machine.write("kfd/.keep", "");
    machine.holder(300);
    machine.process(300, 1, 300, "server", 0);
    let mut options = machine.options();
    options.kfd = Some(machine.path("kfd"));
    let mut guard = open(&settings(GuardKind::Auto), &options, &mut |_| {}).unwrap();
    let mut lines = 0;
    let error = guard.wait_idle(&mut |_| lines += 1).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("foreign_gpu=[300:server]"), "{text}");
    assert!(matches!(
        error,
        GuardError::NeverIdle {
            waited_seconds: 1,
            ..
        }
    ));
    assert!(lines > 1);
}

#[test]
fn a_wait_goes_on_when_the_disturber_ends_and_says_who_broke_the_streak() {
    let machine = Machine::new();
    let mut settings = settings(GuardKind::Cpu);
    settings.idle_secs = 1;
    settings.max_wait_secs = 20;
    let mut guard = open(&settings, &machine.options(), &mut |_| {}).unwrap();
    let mut lines = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            machine.process(300, 1, 300, "ld", 0);
            std::thread::sleep(Duration::from_millis(300));
            machine.gone(300);
        });
        guard
            .wait_idle(&mut |line| lines.push(line.to_owned()))
            .unwrap();
    });
    assert!(lines[0].starts_with("idle streak reset"), "{lines:?}");
    assert!(lines[0].contains("300:ld"), "{lines:?}");
    // Waited time is told once, with the attempt after it. The first quiet time does not
    // count: one second after the linker was seen.
    guard.begin();
    assert!(guard.end().summary.waited_seconds >= 1.3);
    guard.begin();
    assert!(guard.end().summary.waited_seconds < 0.5);
}

#[test]
fn the_kind_follows_the_machine() {
    let machine = Machine::new();
    assert_eq!(machine.guard(GuardKind::Auto).kind(), "cpu");
    assert_eq!(machine.guard(GuardKind::None).kind(), "none");
    machine.write("nvidia/clock", "1980");
    assert_eq!(machine.guard(GuardKind::Auto).kind(), "cuda");
    machine.write("sys/class/kfd/kfd/proc/.keep", "");
    assert_eq!(machine.guard(GuardKind::Auto).kind(), "rocm");
    assert_eq!(machine.guard(GuardKind::Cpu).kind(), "cpu");
}

#[test]
fn a_guard_that_cannot_work_says_why() {
    let machine = Machine::new();
    let gone = machine.path("gone");
    for kind in [GuardKind::Rocm, GuardKind::Auto] {
        let reason = unavailable(&machine, kind, Some(&gone));
        assert!(reason.contains("ROCM_GPU_GUARD_KFD_DIR"), "{reason}");
    }
    assert!(unavailable(&machine, GuardKind::Rocm, None).contains("no AMD GPU"));
    assert!(unavailable(&machine, GuardKind::Cuda, None).contains("no NVIDIA driver"));
}

#[test]
fn an_nvidia_gpu_is_watched_around_and_during_an_attempt() {
    let machine = Machine::new();
    machine.write("nvidia/clock", "1980");
    machine.write("nvidia/degrees", "55");
    machine.write("nvidia/watts", "420.5");
    let mut guard = machine.guard(GuardKind::Cuda);
    guard.wait_idle(&mut |_| {}).unwrap();
    assert_eq!(guard.begin(), None);
    guard.measured_group(MEASURED);
    // The measured program, under the pid that it has outside.
    machine.write("nvidia/holders/98765", "");
    machine.write("nvidia/degrees", "61");
    assert_eq!(guard.sample(), None);
    std::fs::remove_file(machine.path("nvidia/holders/98765")).unwrap();
    // The share of work lags behind: it is still that of the attempt.
    machine.write("nvidia/busy", "88");
    let verdict = guard.end();
    assert_eq!(verdict.rejected, None);
    assert_eq!(guard.begin(), None, "the next one need not wait for it");
    let summary = verdict.summary;
    assert_eq!(summary.kind, "cuda");
    assert_eq!(summary.gpu_clock_mhz, Some(1980.0));
    assert_eq!(summary.gpu_temperature_c, Some(61.0));
    assert_eq!(summary.gpu_power_w, Some(420.5));
    assert!(!summary.throttled);
}

#[test]
fn a_hidden_holder_that_outlives_the_attempt_was_never_ours() {
    let machine = Machine::new();
    machine.write("nvidia/clock", "1980");
    let mut guard = machine.guard(GuardKind::Auto);
    assert_eq!(guard.begin(), None);
    guard.measured_group(MEASURED);
    machine.write("nvidia/holders/98765", "");
    assert_eq!(guard.sample(), None);
    let rejected = guard.end().rejected.unwrap();
    assert!(rejected.contains("foreign_gpu=[98765:"), "{rejected}");
    assert!(guard.begin().is_some(), "and no attempt begins beside it");
}

#[test]
fn a_hot_gpu_stops_the_attempt_and_is_in_its_row() {
    let machine = Machine::new();
    machine.write("nvidia/clock", "1980");
    let mut guard = machine.guard(GuardKind::Cuda);
    assert_eq!(guard.begin(), None);
    guard.measured_group(MEASURED);
    machine.write("nvidia/hot", "1");
    let who = guard.sample().unwrap();
    assert!(who.contains("gpu_slowed_by=[heat]"), "{who}");
    let verdict = guard.end();
    assert!(verdict.rejected.is_some());
    assert!(verdict.summary.throttled);
    assert_eq!(verdict.summary.gpu_slowed_by, ["heat"]);
}

#[test]
fn the_machine_has_one_guard_at_a_time_unless_they_are_nested() {
    let machine = Machine::new();
    let outer = machine.guard(GuardKind::Cpu);
    let mut options = machine.options();
    let mut lines = Vec::new();
    let second = open(&settings(GuardKind::Cpu), &options, &mut |line| {
        lines.push(line.to_owned());
    });
    assert!(matches!(second, Err(GuardError::LockHeld { .. })));
    assert!(
        lines[0].contains("pid 100 (bench-run run a.yaml)"),
        "{lines:?}"
    );
    // A guard below the one that holds the lock; its command is own to both.
    machine.process(400, HARNESS, 400, "sh", 0);
    machine.process(401, 400, 400, "bench-run", 0);
    options.harness = 401;
    options.lock_held = Some(HARNESS.to_string());
    assert_eq!(options.held_variable().1, "100");
    assert!(open(&settings(GuardKind::Cpu), &options, &mut |_| {}).is_ok());
    // The variable of somebody who is no ancestor opens nothing.
    machine.process(77, 1, 77, "bench-run", 0);
    options.lock_held = Some("77".to_owned());
    assert!(open(&settings(GuardKind::Cpu), &options, &mut |_| {}).is_err());
    assert_eq!(options.held_variable().1, "401");
    drop(outer);
    assert!(open(&settings(GuardKind::Cpu), &options, &mut |_| {}).is_ok());
}

#[test]
fn a_budget_for_all_waits_together_is_used_up_across_them() {
    let machine = Machine::new();
    let mut options = machine.options();
    options.together = true;
    let mut settings = settings(GuardKind::Cpu);
    settings.idle_secs = 1;
    settings.max_wait_secs = 2;
    let mut guard = open(&settings, &options, &mut |_| {}).unwrap();
    assert!(guard.wait_idle(&mut |_| {}).is_ok());
    guard.begin();
    guard.end();
    machine.write(
        "proc/300/stat",
        "300 (ld) R 1 300 300 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 300 0 0",
    );
    let start = std::time::Instant::now();
    assert!(matches!(
        guard.wait_idle(&mut |_| {}),
        Err(GuardError::NeverIdle { .. })
    ));
    // Half of the two seconds was gone before.
    assert!(start.elapsed() < Duration::from_millis(1900));
}
