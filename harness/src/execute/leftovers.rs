//! What an attempt left behind: processes that outlived their leader.
//!
//! The harness is a subreaper, so whatever loses its parent becomes a child of
//! the harness, even after leaving its process group and session. Children that the
//! harness had before the attempt, or started for other reasons, are never touched.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{process_table, sys};

/// How long a process that is ending anyway may take before it counts as left behind.
const ENDING: Duration = Duration::from_millis(20);
/// How long killed processes may take to vanish; only an uninterruptible wait takes longer.
const VANISHING: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(2);

/// Leaders of the attempts that run now. Held while one is started, so that a
/// sweep never meets a leader that is not on the list yet.
static LEADERS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// The running leaders, locked.
pub(super) fn leaders() -> MutexGuard<'static, BTreeSet<u32>> {
    LEADERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The harness's children at this moment.
pub(super) fn children_now() -> BTreeSet<u32> {
    children_of(std::process::id())
}

/// Kills and collects what is left of the attempt whose leader has ended but is not yet
/// collected. Returns how many processes were still alive.
///
/// `before` are the harness's children from before the attempt.
pub(super) fn sweep(leader: u32, before: &BTreeSet<u32>) -> u32 {
    let leaders = leaders();
    let find = || find(leader, before, &leaders);
    let mut left = find();
    let start = Instant::now();
    while !left.is_empty() && start.elapsed() < ENDING {
        std::thread::sleep(STEP);
        left = find();
    }
    let mut counted = left.clone();
    let start = Instant::now();
    while !left.is_empty() && start.elapsed() < VANISHING {
        for &pid in &left {
            sys::signal_process(pid, libc::SIGKILL);
        }
        std::thread::sleep(STEP);
        left = find();
        counted.extend(&left);
    }
    u32::try_from(counted.len()).unwrap_or(u32::MAX)
}

/// The living processes of the attempt, apart from its leader. Dead ones among the
/// harness's children are collected on the way.
fn find(leader: u32, before: &BTreeSet<u32>, leaders: &BTreeSet<u32>) -> BTreeSet<u32> {
    let own_session = sys::session_of(std::process::id());
    let mut found = BTreeSet::new();
    for pid in children_now() {
        if before.contains(&pid) || leaders.contains(&pid) {
            continue;
        }
        let session = sys::session_of(pid);
        // An attempt starts in a session of its own and can never come back into
        // the harness's. In a session that nobody knows, an orphan can be told only
        // while one attempt runs: the normal case.
        let ours = session == Some(leader)
            || (session != own_session
                && session.is_some_and(|session| !leaders.contains(&session))
                && leaders.len() == 1);
        if ours && !sys::reap_if_ended(pid) {
            found.insert(pid);
        }
    }
    let mut queue: Vec<u32> = found.iter().copied().collect();
    while let Some(pid) = queue.pop() {
        for child in children_of(pid) {
            let alive = process_table::read_one(Path::new("/proc"), child)
                .is_some_and(|process| !process.is_dead());
            if alive && found.insert(child) {
                queue.push(child);
            }
        }
    }
    found
}

/// The children of a process, from all its threads.
fn children_of(pid: u32) -> BTreeSet<u32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return BTreeSet::new();
    };
    let mut children = BTreeSet::new();
    for thread in threads.flatten() {
        let Ok(text) = std::fs::read_to_string(thread.path().join("children")) else {
            // The thread has ended, or the kernel lacks the file.
            if Path::new("/proc/thread-self/children").exists() {
                continue;
            }
            return children_by_parent(pid);
        };
        children.extend(
            text.split_ascii_whitespace()
                .filter_map(|word| word.parse::<u32>().ok()),
        );
    }
    children
}

fn children_by_parent(pid: u32) -> BTreeSet<u32> {
    process_table::read(Path::new("/proc"))
        .into_iter()
        .filter(|process| process.parent == pid)
        .map(|process| process.pid)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_find_children_agree() {
        let mut child = std::process::Command::new("sleep")
            .arg("30")
            .spawn()
            .unwrap();
        let own = std::process::id();
        assert!(children_of(own).contains(&child.id()));
        assert!(children_by_parent(own).contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
