//! The host's facts and warnings, read from made-up machines.

use std::path::Path;

use bench_run::host::info::{describe, describe_below};
use bench_run::host::snapshot::look;

fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
    let place = tempfile::tempdir().expect("a temporary directory");
    for (path, text) in files {
        let path = place.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path, text).expect("a file");
    }
    place
}

const LAPTOP: &[(&str, &str)] = &[
    (
        "proc/cpuinfo",
        "processor\t: 0\nmodel name\t: AMD Ryzen AI MAX+ 395 w/ Radeon 8060S\nmicrocode\t: 0xb700032\n\
         flags\t\t: fpu avx avx2 avx512f avx512_vnni\n\nprocessor\t: 1\nmodel name\t: x\n",
    ),
    (
        "proc/meminfo",
        "MemTotal:  131072 kB\nSwapTotal:  4096 kB\nSwapFree:  1024 kB\n",
    ),
    ("proc/loadavg", "1.50 1.00 0.50 1/95 21817\n"),
    (
        "proc/stat",
        "cpu  1000 0 1000 7900 0 0 0 100 0 0\ncpu0 1\ncpu1 1\n",
    ),
    ("proc/sys/kernel/osrelease", "6.17.0-5-generic\n"),
    (
        "etc/os-release",
        "NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n",
    ),
    (
        "sys/kernel/mm/transparent_hugepage/enabled",
        "always [madvise] never\n",
    ),
    (
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
        "performance\n",
    ),
    (
        "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor",
        "powersave\n",
    ),
    (
        "sys/devices/system/cpu/cpu0/topology/thread_siblings_list",
        "0-1\n",
    ),
    ("sys/devices/system/cpu/cpufreq/boost", "1\n"),
    ("sys/devices/system/cpu/smt/active", "1\n"),
    (
        "sys/devices/system/cpu/vulnerabilities/meltdown",
        "Not affected\n",
    ),
    (
        "sys/devices/system/cpu/vulnerabilities/spectre_v2",
        "Mitigation: Retpolines; STIBP\n",
    ),
    ("sys/class/power_supply/AC/type", "Mains\n"),
    ("sys/class/power_supply/AC/online", "0\n"),
    (
        "sys/class/kfd/kfd/topology/nodes/0/properties",
        "gfx_target_version 0\n",
    ),
    (
        "sys/class/kfd/kfd/topology/nodes/1/properties",
        "simd_count 80\ngfx_target_version 110501\n",
    ),
    ("sys/class/kfd/kfd/topology/nodes/1/name", "ip discovery\n"),
    ("sys/class/kfd/kfd/proc/77/name", ""),
    ("sys/class/kfd/kfd/proc/78/name", ""),
    ("proc/77/comm", "server\n"),
];

#[test]
fn the_facts_are_read_and_the_label_comes_from_the_processor() {
    let place = machine(LAPTOP);
    let host = describe_below(place.path(), None);
    assert_eq!(host.label, "ryzen-ai-max-2c");
    for (name, value) in [
        ("processor", "AMD Ryzen AI MAX+ 395 w/ Radeon 8060S"),
        ("logical processors", "2"),
        ("threads per core", "2"),
        ("vector extensions", "avx, avx2, avx512f, avx512_vnni"),
        ("governor", "performance, powersave"),
        ("boost", "on"),
        ("memory", "128.0 MiB"),
        ("transparent huge pages", "madvise"),
        ("operating system", "Debian GNU/Linux 12 (bookworm)"),
        ("kernel", "6.17.0-5-generic"),
        ("virtual machine", "no"),
        ("mitigations", "spectre_v2: Mitigation: Retpolines"),
        ("GPU", "ip discovery (gfx1151)"),
        ("GPU driver", "amdgpu of the kernel"),
    ] {
        assert_eq!(
            host.facts.get(name).map(String::as_str),
            Some(value),
            "{name}"
        );
    }
}

#[test]
fn every_source_of_noise_is_named_with_its_remedy() {
    let place = machine(LAPTOP);
    let warnings = describe_below(place.path(), None).warnings;
    for part in [
        "governor is powersave",
        "boost is on",
        "SMT is on",
        "load average is 1.50 on 2",
        "3.0 MiB of swap",
        "taken 1.0 %",
        "battery",
        "hold the AMD GPU: 1: ",
    ] {
        assert_eq!(
            warnings.iter().filter(|line| line.contains(part)).count(),
            1,
            "{part}: {warnings:?}"
        );
    }
    assert_eq!(warnings.len(), 8, "{warnings:?}");
}

#[test]
fn a_machine_that_tells_nothing_is_described_without_warnings() {
    let place = machine(&[]);
    let host = describe_below(place.path(), Some("lab 7"));
    assert_eq!(host.label, "lab-7");
    assert!(host.warnings.is_empty(), "{:?}", host.warnings);
    assert_eq!(
        host.facts.get("logical processors").map(String::as_str),
        Some("1")
    );
    assert!(!host.facts.contains_key("processor"));
}

#[test]
fn a_quota_of_the_control_group_is_seen() {
    let place = machine(&[
        ("proc/self/cgroup", "0::/user.slice/job\n"),
        ("sys/fs/cgroup/user.slice/job/cpu.max", "150000 100000\n"),
    ]);
    let warnings = describe_below(place.path(), None).warnings;
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].contains("allows 1.5 processors"),
        "{warnings:?}"
    );
}

#[test]
fn this_machines_description_names_nobody() {
    let host = describe(None);
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let text = format!("{:?} {:?}", host.facts, host.warnings);
    let names_host = name.trim().len() > 3 && text.contains(name.trim());
    assert!(!names_host, "{text}");
    let home = std::env::var("HOME").unwrap_or_default();
    assert!(home.len() < 2 || !text.contains(&home), "{text}");
    assert!(Path::new(&host.label).components().count() == 1);
}

#[test]
fn a_hot_processor_and_one_that_throttled_are_found() {
    let place = machine(&[
        ("sys/class/hwmon/hwmon0/name", "nvme\n"),
        ("sys/class/hwmon/hwmon0/temp1_input", "99000\n"),
        ("sys/class/hwmon/hwmon1/name", "coretemp\n"),
        ("sys/class/hwmon/hwmon1/temp1_input", "91000\n"),
        ("sys/class/hwmon/hwmon1/temp1_crit", "100000\n"),
        ("sys/class/hwmon/hwmon1/temp2_input", "80000\n"),
        (
            "sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count",
            "7\n",
        ),
        (
            "sys/devices/system/cpu/cpu1/thermal_throttle/package_throttle_count",
            "7\n",
        ),
        (
            "proc/pressure/cpu",
            "some avg10=5.27 avg60=17.77 avg300=3.45 total=37877957\n",
        ),
    ]);
    let seen = look(place.path());
    assert_eq!(seen.temperature_c, Some((91.0, Some(100.0))));
    assert_eq!(seen.throttle_events, Some(7));
    assert_eq!(seen.cpu_pressure_pct, Some(17.77));
    let warnings = describe_below(place.path(), None).warnings;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("at 91 °C of 100 °C"), "{warnings:?}");
}
