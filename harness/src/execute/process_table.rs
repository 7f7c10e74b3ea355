//! Who runs on this machine: one reading of `/proc/<pid>/stat` for every process.
//!
//! The root is a parameter so that tests bring a machine of their own. Reading is
//! kept cheap (one open and read per process, one buffer) because it happens while
//! something is being measured.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// One process at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Parent's id; 0 for the first process and kernel threads' root.
    pub parent: u32,
    /// Process group.
    pub group: u32,
    /// Session.
    pub session: u32,
    /// Kernel's state letter: `R`, `S`, `D`, `T`, `Z`, ….
    pub state: char,
    /// True for a kernel thread.
    pub kernel: bool,
    /// CPU ticks of its own threads, user and system.
    pub cpu_ticks: u64,
    /// CPU ticks of children that it has waited for.
    pub waited_cpu_ticks: u64,
    /// Start in ticks after boot: tells a process from a later one with the same id.
    pub started_ticks: u64,
    /// Short name, at most 15 characters.
    pub comm: String,
}

impl Process {
    /// True when it has ended and only waits to be collected.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// Kernel flag in /proc/<pid>/stat: a kernel thread (`PF_KTHREAD`).
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Reads every process under `proc`, in order of pid. Processes that end while
/// reading are left out.
#[must_use]
pub fn read(proc: &Path) -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir(proc) else {
        return Vec::new();
    };
    let mut buffer = Vec::with_capacity(1024);
    let mut processes: Vec<Process> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter_map(|pid| read_into(proc, pid, &mut buffer))
        .collect();
    processes.sort_unstable_by_key(|process| process.pid);
    processes
}

/// Reads one process; `None` when it is gone.
#[must_use]
pub fn read_one(proc: &Path, pid: u32) -> Option<Process> {
    read_into(proc, pid, &mut Vec::with_capacity(1024))
}

fn read_into(proc: &Path, pid: u32, buffer: &mut Vec<u8>) -> Option<Process> {
    buffer.clear();
    File::open(proc.join(pid.to_string()).join("stat"))
        .and_then(|mut file| file.read_to_end(buffer))
        .ok()?;
    parse(&String::from_utf8_lossy(buffer))
}

/// Reads one line of `/proc/<pid>/stat`. The name may hold spaces and parentheses,
/// so the fields are counted from its last closing one.
fn parse(line: &str) -> Option<Process> {
    let open = line.find('(')?;
    let close = line.rfind(')')?;
    let pid = line.get(..open)?.trim().parse().ok()?;
    let comm = line.get(open + 1..close)?.to_owned();
    let fields: Vec<&str> = line.get(close + 1..)?.split_ascii_whitespace().collect();
    // Numbers as in proc(5), where the state is field 3.
    let number = |field: usize| fields.get(field - 3)?.parse::<i64>().ok();
    let unsigned = |field: usize| Some(number(field)?.max(0).cast_unsigned());
    let id = |field: usize| u32::try_from(number(field)?.max(0)).ok();
    Some(Process {
        pid,
        parent: id(4)?,
        group: id(5)?,
        session: id(6)?,
        state: fields.first()?.chars().next()?,
        kernel: unsigned(9)? & KERNEL_THREAD != 0,
        cpu_ticks: unsigned(14)? + unsigned(15)?,
        waited_cpu_ticks: unsigned(16)? + unsigned(17)?,
        started_ticks: unsigned(22)?,
        comm,
    })
}

/// The process with this id in a table that [`read`] returned.
#[must_use]
pub fn find(processes: &[Process], pid: u32) -> Option<&Process> {
    processes
        .binary_search_by_key(&pid, |process| process.pid)
        .ok()
        .and_then(|index| processes.get(index))
}

/// The ids of a process's ancestors, nearest first, up to the first process.
#[must_use]
pub fn ancestors(processes: &[Process], pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let mut current = pid;
    while let Some(process) = find(processes, current) {
        // A table read while processes come and go may hold a loop.
        if process.parent == 0 || found.contains(&process.parent) {
            break;
        }
        current = process.parent;
        found.push(current);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "42 (a (b) c) S 7 42 40 0 -1 4194304 103 0 0 0 11 5 3 1 20 0 1 0 \
                        105699 3133440 417 18446744073709551615 1 1";

    #[test]
    fn a_name_with_spaces_and_parentheses_shifts_no_field() {
        let process = parse(LINE).unwrap();
        assert_eq!(process.comm, "a (b) c");
        assert_eq!((process.pid, process.parent), (42, 7));
        assert_eq!((process.group, process.session), (42, 40));
        assert_eq!((process.cpu_ticks, process.waited_cpu_ticks), (16, 4));
        assert_eq!(process.started_ticks, 105_699);
        assert!(!process.kernel && !process.is_dead());
    }

    #[test]
    fn a_line_cut_short_is_no_process() {
        assert_eq!(parse("42 (x) S 7"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn this_process_is_in_the_table_below_its_ancestors() {
        let table = read(Path::new("/proc"));
        let own = find(&table, std::process::id()).unwrap();
        assert!(own.started_ticks > 0);
        assert!(!ancestors(&table, own.pid).contains(&own.pid));
    }
}
