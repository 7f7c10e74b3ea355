//! The facts about this machine that a reader of a measurement needs.

use std::path::Path;

use indexmap::IndexMap;

use super::findings::{Finding, State, findings};
use super::reader::Reader;
use super::{label, snapshot};
use crate::record::format::{Host, SCHEMA};
use crate::unit;

/// Describes this machine; `label` replaces the label made from the processor.
#[must_use]
pub fn describe(label: Option<&str>) -> Host {
    describe_below(Path::new("/"), label)
}

/// Describes the machine whose `proc`, `sys` and `etc` lie below `root`.
#[must_use]
pub fn describe_below(root: &Path, label: Option<&str>) -> Host {
    let reader = Reader::new(root);
    let cpus = online_cpus(&reader);
    let label = label
        .and_then(label::from_user)
        .unwrap_or_else(|| label::from_processor(&processor(&reader).unwrap_or_default(), cpus));
    Host {
        schema: SCHEMA,
        label,
        facts: facts(&reader, cpus),
        warnings: warnings(&reader),
    }
}

/// What will be seen in the numbers, each with what to do about it.
fn warnings(reader: &Reader) -> Vec<String> {
    let all = findings(&snapshot::read(reader));
    let noisy = all.iter().filter(|finding| finding.state == State::Noisy);
    noisy.map(Finding::sentence).collect()
}

fn facts(reader: &Reader, cpus: usize) -> IndexMap<String, String> {
    let found = [
        ("processor", processor(reader)),
        ("architecture", Some(std::env::consts::ARCH.to_owned())),
        ("logical processors", Some(cpus.to_string())),
        ("threads per core", threads_per_core(reader)),
        ("NUMA nodes", numa_nodes(reader)),
        (
            "L3 cache",
            reader.line("sys/devices/system/cpu/cpu0/cache/index3/size"),
        ),
        ("vector extensions", vector_extensions(reader)),
        (
            "governor",
            joined(&reader.of_all_processors("cpufreq/scaling_governor")),
        ),
        (
            "frequency driver",
            reader.line("sys/devices/system/cpu/cpu0/cpufreq/scaling_driver"),
        ),
        ("highest clock", highest_clock(reader)),
        ("boost", snapshot::boost(reader).map(on_off)),
        ("microcode", reader.field("proc/cpuinfo", "microcode", ':')),
        ("memory", size(reader.memory_bytes("MemTotal"))),
        ("swap", size(reader.memory_bytes("SwapTotal"))),
        (
            "transparent huge pages",
            reader.chosen("sys/kernel/mm/transparent_hugepage/enabled"),
        ),
        (
            "operating system",
            reader.field("etc/os-release", "PRETTY_NAME", '='),
        ),
        ("kernel", reader.line("proc/sys/kernel/osrelease")),
        ("virtual machine", snapshot::is_virtual(reader).map(yes_no)),
        ("mitigations", mitigations(reader)),
        (
            "address randomisation",
            reader.line("proc/sys/kernel/randomize_va_space"),
        ),
        ("GPU", gpus(reader)),
        ("GPU driver", gpu_driver(reader)),
    ];
    found
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

/// The processor's name; on machines that only print numbers, those.
fn processor(reader: &Reader) -> Option<String> {
    let field = |name| reader.field("proc/cpuinfo", name, ':');
    field("model name").or_else(|| field("Model")).or_else(|| {
        let implementer = field("CPU implementer")?;
        let part = field("CPU part")?;
        Some(format!("Arm {implementer} {part}"))
    })
}

/// Processors that are online: the lines of /proc/cpuinfo, which follow hot plugging.
fn online_cpus(reader: &Reader) -> usize {
    let text = reader.text("proc/cpuinfo").unwrap_or_default();
    let lines = text.lines();
    let count = lines
        .filter(|line| line.split(':').next().map(str::trim) == Some("processor"))
        .count();
    count.max(1)
}

fn threads_per_core(reader: &Reader) -> Option<String> {
    let list = reader.line("sys/devices/system/cpu/cpu0/topology/thread_siblings_list")?;
    let mut count = 0_u32;
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        count += last.checked_sub(first)? + 1;
    }
    Some(count.to_string())
}

fn numa_nodes(reader: &Reader) -> Option<String> {
    let nodes = reader.names("sys/devices/system/node");
    let is_node = |name: &&String| {
        name.strip_prefix("node")
            .is_some_and(|digits| digits.parse::<u32>().is_ok())
    };
    let count = nodes.iter().filter(is_node).count();
    (count > 0).then(|| count.to_string())
}

/// The vector extensions that decide which kernels a program takes.
fn vector_extensions(reader: &Reader) -> Option<String> {
    const TELLING: [&str; 11] = [
        "avx",
        "avx2",
        "fma",
        "f16c",
        "avx512f",
        "avx512bw",
        "avx512_vnni",
        "avx512_bf16",
        "avx_vnni",
        "amx_tile",
        "amx_int8",
    ];
    const TELLING_ARM: [&str; 6] = ["asimd", "asimddp", "i8mm", "bf16", "sve", "sve2"];
    let flags = reader
        .field("proc/cpuinfo", "flags", ':')
        .or_else(|| reader.field("proc/cpuinfo", "Features", ':'))?;
    let flags: Vec<&str> = flags.split_ascii_whitespace().collect();
    let found: Vec<String> = TELLING
        .iter()
        .chain(&TELLING_ARM)
        .filter(|flag| flags.contains(flag))
        .map(|flag| (*flag).to_owned())
        .collect();
    joined(&found)
}

fn highest_clock(reader: &Reader) -> Option<String> {
    let kilohertz = reader.number("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")?;
    Some(format!("{} MHz", kilohertz / 1000))
}

/// Which mitigations are in force; those that do not concern this processor are left out.
fn mitigations(reader: &Reader) -> Option<String> {
    let directory = "sys/devices/system/cpu/vulnerabilities";
    let names = reader.names(directory);
    if names.is_empty() {
        return None;
    }
    let active: Vec<String> = names
        .iter()
        .filter_map(|name| {
            let state = reader.line(&format!("{directory}/{name}"))?;
            let state = state.split([';', ',']).next()?.trim().to_owned();
            (state != "Not affected").then(|| format!("{name}: {state}"))
        })
        .collect();
    Some(joined(&active).unwrap_or_else(|| "none needed".to_owned()))
}

/// GPUs that the AMD and NVIDIA drivers list.
fn gpus(reader: &Reader) -> Option<String> {
    let nodes = "sys/class/kfd/kfd/topology/nodes";
    let mut found: Vec<String> = reader
        .names(nodes)
        .iter()
        .filter_map(|node| {
            let properties = format!("{nodes}/{node}/properties");
            let version = reader.field(&properties, "gfx_target_version", ' ')?;
            // Processors are nodes too, with version 0.
            let version: u32 = version.parse().ok().filter(|&version| version > 0)?;
            let name = reader.line(&format!("{nodes}/{node}/name"));
            let target = gfx_target(version);
            Some(name.map_or(target.clone(), |name| format!("{name} ({target})")))
        })
        .collect();
    let nvidia = "proc/driver/nvidia/gpus";
    found.extend(reader.names(nvidia).iter().filter_map(|device| {
        reader.field(&format!("{nvidia}/{device}/information"), "Model", ':')
    }));
    joined(&found)
}

/// 110501 is gfx1151: two digits each of major, minor and stepping; the last is hexadecimal.
fn gfx_target(version: u32) -> String {
    let (major, minor, stepping) = (version / 10_000, version / 100 % 100, version % 100);
    format!("gfx{major}{minor}{stepping:x}")
}

fn gpu_driver(reader: &Reader) -> Option<String> {
    if let Some(text) = reader.text("proc/driver/nvidia/version") {
        let line = text.lines().next()?;
        let version = line.split_ascii_whitespace().find(|word| {
            word.contains('.') && word.bytes().all(|b| b.is_ascii_digit() || b == b'.')
        })?;
        return Some(format!("NVIDIA {version}"));
    }
    if !reader.exists("sys/class/kfd/kfd") {
        return None;
    }
    let version = reader.line("sys/module/amdgpu/version");
    Some(version.map_or_else(
        || "amdgpu of the kernel".to_owned(),
        |version| format!("amdgpu {version}"),
    ))
}

fn joined(values: &[String]) -> Option<String> {
    (!values.is_empty()).then(|| values.join(", "))
}

#[expect(clippy::cast_precision_loss, reason = "for readers, four digits")]
fn size(bytes: Option<u64>) -> Option<String> {
    bytes.map(|bytes| unit::bytes(bytes as f64))
}

fn on_off(on: bool) -> String {
    if on { "on" } else { "off" }.to_owned()
}

fn yes_no(yes: bool) -> String {
    if yes { "yes" } else { "no" }.to_owned()
}
