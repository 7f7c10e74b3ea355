//! Who is foreign, when a machine is quiet, and which attempts count: the policy on
//! made-up process tables, and on the stories of published guard logs.

use std::time::Duration;

use bench_run::execute::process_table::Process;
use bench_run::guard::cpu::Compilers;
use bench_run::guard::gpu::Slowdown;
use bench_run::guard::policy::{
    Contention, Counters, IdleStreak, Limits, Observation, Own, Streak, judge, look,
};
use proptest::prelude::*;
use serde_json::Value;

const LIMITS: Limits = Limits {
    max_foreign_cpu_pct: 20.0,
    ticks_per_second: 100.0,
    cpus: 2,
};
const HARNESS: u32 = 100;
const MEASURED: u32 = 200;
const OWN: Own = Own {
    harness: HARNESS,
    outer_guard: None,
    measured_session: Some(MEASURED),
    measuring: true,
};

fn process(pid: u32, parent: u32, session: u32, comm: &str) -> Process {
    Process {
        pid,
        parent,
        group: session,
        session,
        state: 'S',
        kernel: false,
        cpu_ticks: 0,
        waited_cpu_ticks: 0,
        started_ticks: u64::from(pid),
        comm: comm.to_owned(),
    }
}

/// init, a shell, `cargo run`, the harness below it and the measured command.
fn quiet() -> Vec<Process> {
    vec![
        process(1, 0, 1, "init"),
        process(50, 1, 50, "bash"),
        process(90, 50, 50, "cargo"),
        process(HARNESS, 90, 50, "bench-run"),
        process(MEASURED, HARNESS, MEASURED, "bench"),
    ]
}

fn observed(seconds: u64, mut processes: Vec<Process>, holders: &[u32]) -> Observation {
    processes.sort_by_key(|process| process.pid);
    Observation {
        at: Duration::from_secs(seconds),
        busy_ticks: processes.iter().map(|process| process.cpu_ticks).sum(),
        processes,
        holders: holders.to_vec(),
        ..Observation::default()
    }
}

fn seen(earlier: Option<&Observation>, now: &Observation) -> Contention {
    let compilers = Compilers::default();
    look(earlier, now, OWN, &LIMITS, &|comm| {
        compilers.is_compiler(comm)
    })
}

fn with(process: Process) -> Vec<Process> {
    let mut processes = quiet();
    processes.push(process);
    processes
}

#[test]
fn the_harnesss_ancestors_are_not_foreign_but_what_else_they_started_is() {
    assert!(seen(None, &observed(0, quiet(), &[])).is_clean());
    let other = observed(0, with(process(300, 90, 50, "rustc")), &[]);
    assert_eq!(
        seen(None, &other).to_string(),
        "foreign_gpu=[] compilers=[300:rustc]"
    );
}

#[test]
fn compilers_that_the_measured_command_starts_are_its_own() {
    let below = observed(0, with(process(300, MEASURED, MEASURED, "rustc")), &[]);
    assert!(seen(None, &below).is_clean());
}

#[test]
fn a_daemon_in_its_own_session_is_own_once_the_harness_adopted_it() {
    let adopted = observed(0, with(process(300, HARNESS, 300, "server")), &[300]);
    assert!(seen(None, &adopted).is_clean());
    // Even below another subreaper its session tells where it came from.
    let elsewhere = observed(0, with(process(300, 1, MEASURED, "server")), &[300]);
    assert!(seen(None, &elsewhere).is_clean());
    let stranger = observed(0, with(process(300, 1, 300, "server")), &[300]);
    assert!(!seen(None, &stranger).is_clean());
}

#[test]
fn inside_an_outer_guard_its_whole_tree_is_own() {
    let server = observed(0, with(process(300, 90, 90, "server")), &[300]);
    let own = Own {
        outer_guard: Some(90),
        ..OWN
    };
    assert!(look(None, &server, own, &LIMITS, &|_| false).is_clean());
    assert!(!look(None, &server, OWN, &LIMITS, &|_| false).is_clean());
}

#[test]
fn a_holder_whose_process_is_gone_or_dead_is_ignored() {
    assert!(seen(None, &observed(0, quiet(), &[999])).is_clean());
    let mut zombie = process(300, 1, 300, "server");
    zombie.state = 'Z';
    assert!(seen(None, &observed(0, with(zombie), &[300])).is_clean());
}

/// The machine as a process sees it that has a pid namespace of its own.
fn in_a_container(holders: &[u32]) -> Observation {
    Observation {
        holders_may_hide: true,
        ..observed(0, quiet(), holders)
    }
}

#[test]
fn a_hidden_holder_is_foreign_but_while_the_measured_command_runs() {
    let idle = Own {
        measuring: false,
        ..OWN
    };
    let seen = |own, now: &Observation| look(None, now, own, &LIMITS, &|_| false);
    let hidden = in_a_container(&[98_765]);
    let contention = seen(idle, &hidden);
    assert!(!contention.is_clean());
    let text = contention.to_string();
    assert!(text.contains("98765:(of another pid namespace)"), "{text}");
    assert!(seen(OWN, &hidden).is_clean(), "it may be the command");
    assert!(
        seen(idle, &in_a_container(&[MEASURED])).is_clean(),
        "known and ours"
    );
    assert!(
        seen(idle, &observed(0, quiet(), &[98_765])).is_clean(),
        "gone"
    );
}

#[test]
fn work_of_a_gpu_that_nobody_is_listed_for_is_a_strangers_where_pids_hide() {
    let idle = Own {
        measuring: false,
        ..OWN
    };
    let busy = |pct, holders: &[u32]| {
        let mut now = in_a_container(holders);
        now.gpu.busy_pct = Some(pct);
        now
    };
    let seen = |own, now: &Observation| look(None, now, own, &LIMITS, &|_| false);
    let text = seen(idle, &busy(97.0, &[])).to_string();
    assert!(
        text.contains("gpu_work=97% [of another pid namespace]"),
        "{text}"
    );
    assert!(seen(idle, &busy(5.0, &[])).is_clean());
    assert!(
        seen(OWN, &busy(97.0, &[])).is_clean(),
        "it is the command's"
    );
    assert!(
        seen(idle, &busy(97.0, &[MEASURED])).is_clean(),
        "somebody is listed"
    );
    let mut outside = busy(97.0, &[]);
    outside.holders_may_hide = false;
    assert!(seen(idle, &outside).is_clean(), "everybody would be listed");
}

#[test]
fn a_slowed_down_gpu_disturbs_and_one_at_its_power_limit_does_not() {
    let with = |slowdown| {
        let mut now = observed(0, quiet(), &[]);
        now.gpu.slowdowns.insert(slowdown);
        seen(None, &now)
    };
    for slowdown in [
        Slowdown::Heat,
        Slowdown::PowerBrake,
        Slowdown::Hardware,
        Slowdown::SyncBoost,
    ] {
        let contention = with(slowdown);
        assert!(!contention.is_clean(), "{slowdown:?}");
        let expected = format!("gpu_slowed_by=[{}]", slowdown.word());
        assert!(contention.to_string().contains(&expected));
    }
    assert!(with(Slowdown::PowerCap).is_clean());
}

#[test]
fn a_gpu_that_was_held_down_between_two_samples_is_told_by_its_counter() {
    let before = Counters {
        gpu_held_down_ns: Some(5_000_000),
        ..Counters::default()
    };
    let mut after = counters(1.0, 100, 1.0);
    let judged = |after: &Counters| judge(&before, after, None, &LIMITS);
    assert_eq!(judged(&after).rejected, None, "the driver stopped telling");
    after.gpu_held_down_ns = Some(5_000_000);
    assert_eq!(judged(&after).rejected, None);
    after.gpu_held_down_ns = Some(17_500_000);
    let judgement = judged(&after);
    assert!(judgement.throttled);
    assert!(
        judgement
            .rejected
            .unwrap()
            .contains("held the GPU down for 12.5 ms")
    );
}

#[test]
fn a_compiler_counts_while_it_works_and_not_while_it_sleeps() {
    let cargo = process(300, 1, 300, "cargo");
    let first = observed(0, with(cargo.clone()), &[]);
    assert!(!seen(None, &first).is_clean(), "unknown yet");
    let asleep = observed(1, with(cargo.clone()), &[]);
    assert!(seen(Some(&first), &asleep).is_clean());
    let mut working = cargo.clone();
    working.cpu_ticks = 2;
    assert!(!seen(Some(&first), &observed(1, with(working), &[])).is_clean());
    let mut later_with_the_same_pid = cargo;
    later_with_the_same_pid.started_ticks += 1;
    let reused = observed(1, with(later_with_the_same_pid), &[]);
    assert!(!seen(Some(&first), &reused).is_clean());
}

#[test]
fn a_busy_foreign_process_is_named_and_a_busy_own_one_is_not() {
    let first = observed(0, with(process(300, 1, 300, "ffmpeg")), &[]);
    let mut busy = process(300, 1, 300, "ffmpeg");
    busy.cpu_ticks = 60;
    let contention = seen(Some(&first), &observed(1, with(busy), &[]));
    let text = contention.to_string();
    assert!(text.contains("300:ffmpeg 60%"), "{text}");
    let mut own = quiet();
    own[4].cpu_ticks = 200;
    let first = observed(0, quiet(), &[]);
    assert!(seen(Some(&first), &observed(1, own, &[])).is_clean());
}

#[test]
fn processes_too_short_for_any_reading_are_seen_in_the_total() {
    let first = observed(0, quiet(), &[]);
    let mut now = observed(1, quiet(), &[]);
    now.busy_ticks += 80;
    assert!(!seen(Some(&first), &now).is_clean());
    now.busy_ticks = first.busy_ticks + 20;
    assert!(seen(Some(&first), &now).is_clean());
}

fn counters(seconds: f64, busy_ticks: u64, own_seconds: f64) -> Counters {
    Counters {
        at: Duration::from_secs_f64(seconds),
        busy_ticks,
        own_cpu: Duration::from_secs_f64(own_seconds),
        ..Counters::default()
    }
}

fn rejected(after: &Counters) -> Option<String> {
    judge(&Counters::default(), after, None, &LIMITS).rejected
}

#[test]
fn an_attempt_whose_cpu_time_is_all_its_own_is_clean() {
    assert_eq!(rejected(&counters(2.0, 400, 4.0)), None);
}

#[test]
fn foreign_cpu_time_is_what_the_counters_hold_beyond_ours() {
    let judgement = judge(
        &Counters::default(),
        &counters(2.0, 400, 3.0),
        None,
        &LIMITS,
    );
    assert!((judgement.foreign_cpu_pct - 50.0).abs() < 1e-9);
    assert!(judgement.rejected.is_some_and(|why| why.contains("50 %")));
}

#[test]
fn what_ticks_cannot_resolve_is_not_held_against_a_short_attempt() {
    // 30 ms, in which the tick counter reads three ticks more than the program used.
    assert_eq!(rejected(&counters(0.03, 6, 0.03)), None);
    // Ten ticks too many cannot be an error of counting.
    assert!(rejected(&counters(0.03, 13, 0.03)).is_some());
}

#[test]
fn steal_and_throttling_reject_whoever_is_to_blame() {
    let mut after = counters(1.0, 100, 1.0);
    after.steal_ticks = 15;
    assert!(rejected(&after).is_some_and(|why| why.contains("hypervisor")));
    after.steal_ticks = 5;
    assert_eq!(rejected(&after), None);
    after.throttle_events = 2;
    assert!(rejected(&after).is_some_and(|why| why.contains("throttled (2 events)")));
}

#[test]
fn pressure_alone_is_the_programs_own_and_with_foreign_work_a_collision() {
    let pressed = |busy_ticks| {
        let before = Counters {
            cpu_pressure_us: Some(1_000_000),
            ..Counters::default()
        };
        let mut after = counters(1.0, busy_ticks, 1.0);
        after.cpu_pressure_us = Some(1_300_000);
        judge(&before, &after, None, &LIMITS).rejected
    };
    assert_eq!(pressed(100), None);
    assert!(pressed(115).is_some_and(|why| why.contains("waited for a CPU 30 %")));
    assert_eq!(rejected(&counters(1.0, 115, 1.0)), None);
}

#[test]
fn a_contended_sample_rejects_even_when_the_counters_look_clean() {
    let after = counters(2.0, 200, 2.0);
    let judgement = judge(
        &Counters::default(),
        &after,
        Some("compilers=[7:ld]"),
        &LIMITS,
    );
    assert_eq!(judgement.rejected.as_deref(), Some("compilers=[7:ld]"));
}

proptest! {
    /// The slow twin: idle exactly when every reading of the last N seconds was quiet.
    #[test]
    fn a_streak_is_the_quiet_time_in_a_row(
        readings in prop::collection::vec((1_u64..4, any::<bool>()), 1..40),
        needed in 0_u64..12,
    ) {
        let mut streak = IdleStreak::new(Duration::from_secs(needed));
        let mut history: Vec<(u64, bool)> = Vec::new();
        let mut now = 0;
        for (step, quiet) in readings {
            now += step;
            history.push((now, quiet));
            let run: Vec<_> = history.iter().rev().take_while(|(_, quiet)| *quiet).collect();
            let long = run.last().is_some_and(|(first, _)| now - first >= needed);
            let state = streak.step(Duration::from_secs(now), quiet);
            prop_assert_eq!(state == Streak::Idle, quiet && long);
            prop_assert_eq!(matches!(state, Streak::Broken(_)),
                !quiet && history.iter().rev().nth(1).is_some_and(|(_, quiet)| *quiet));
        }
    }
}

fn events() -> Value {
    serde_json::from_str(include_str!("data/guard_events.json")).expect("valid JSON")
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a whole number")
}

/// Replays the samples of one attempt; returns how many are taken and who stopped it.
fn replay(samples: u64, disturbed: impl Fn(u64) -> Vec<Process>) -> (u64, Option<String>) {
    let mut earlier = observed(0, quiet(), &[]);
    for sample in 1..=samples {
        let mut processes = quiet();
        processes.extend(disturbed(sample));
        let now = observed(sample, processes, &[]);
        let contention = seen(Some(&earlier), &now);
        if !contention.is_clean() {
            return (sample, Some(contention.to_string()));
        }
        earlier = now;
    }
    (samples, None)
}

#[test]
fn the_first_contended_sample_ends_the_attempt_whose_value_was_published() {
    let story = &events()["gemma3_r1_new"];
    let mut allowed = Vec::new();
    for attempt in story["attempts"].as_array().expect("attempts") {
        let contended: Vec<u64> = attempt["contended_samples"]
            .as_array()
            .expect("a list")
            .iter()
            .map(number)
            .collect();
        let (taken, who) = replay(number(&attempt["samples"]), |sample| {
            if !contended.contains(&sample) {
                return Vec::new();
            }
            vec![
                process(300, 1, 300, "cargo"),
                process(301, 300, 300, "rustc"),
            ]
        });
        assert_eq!(who.is_some(), attempt["verdict"] == "REJECTED");
        match who {
            Some(_) => assert_eq!(Some(&taken), contended.first()),
            None => allowed.push(attempt["decode_tok_s"].as_f64()),
        }
    }
    assert_eq!(allowed, [story["value_the_guard_contract_allows"].as_f64()]);
    assert_ne!(allowed, [story["published_value"].as_f64()]);
}

#[test]
fn servers_started_in_a_command_substitution_do_not_disqualify_their_own_session() {
    let story = &events()["parity_floor0_session"];
    for samples in story["samples_per_attempt"].as_array().expect("a list") {
        let (taken, who) = replay(number(samples), |sample| {
            // The subshell has exited; the harness is the servers' parent now.
            let mut server = process(300, HARNESS, MEASURED, "mlxcel");
            server.cpu_ticks = 150 * sample;
            vec![server]
        });
        assert_eq!((taken, who), (number(samples), None));
    }
}

#[test]
fn an_attempt_disturbed_at_its_first_sample_takes_no_second_one() {
    let story = &events()["batched_decode_s3"];
    let (taken, who) = replay(146, |_| vec![process(300, 1, 300, "cargo")]);
    assert_eq!(taken, number(&story["first_contended_sample"]));
    assert_eq!(who.as_deref(), Some("foreign_gpu=[] compilers=[300:cargo]"));
}
