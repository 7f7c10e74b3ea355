//! Threads that live as long as the engine and run one job at a time.
//!
//! A step of decoding has about a hundred parallel parts of some ten
//! microseconds, so a part must start and end in about one: waiting spins
//! first. It spins only briefly and then sleeps, because a spinning barrier
//! with as many threads as cores collapses as soon as another program wants a
//! core. For the same reason nobody waits for a thread to *start*: a job is
//! cut into tasks in a fixed way, whoever is awake takes the next one, and a
//! thread that wakes up too late finds the job closed. What a task computes
//! never depends on who runs it, so results are the same for any number of
//! threads.

#![expect(
    unsafe_code,
    reason = "a job borrowed from the caller crosses to threads that outlive it"
)]

use std::any::Any;
use std::cell::UnsafeCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;

/// How often a waiting thread looks before it sleeps: some 30 µs, longer than
/// the serial gaps between the parts of a step.
const SPINS_BEFORE_SLEEP: usize = 2000;

/// The rows, blocks or tokens of `0..total` that belong to share `index` of `shares`.
///
/// Contiguous, in order, and differing by at most one between shares.
#[must_use]
pub fn share(total: usize, index: usize, shares: usize) -> Range<usize> {
    total * index / shares..total * (index + 1) / shares
}

/// A fixed set of threads, the caller of a job included.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    running: Mutex<()>,
}

/// A borrowed closure without its lifetime and type, and its number of tasks.
#[derive(Clone, Copy)]
struct Job {
    data: *const (),
    call: unsafe fn(*const (), usize),
    tasks: usize,
}

/// Alone on its cache lines: written by all threads at every task.
#[repr(align(128))]
struct Alone<T>(T);

/// The state's lowest bits count the threads that are in the job.
const MEMBERS: u64 = (1 << 31) - 1;
/// Set while threads may still enter the job.
const OPEN: u64 = 1 << 31;
/// The bits above count jobs.
const EPOCH: u64 = 1 << 32;

struct Shared {
    workers: usize,
    /// Epoch, open flag and members of the current job.
    state: Alone<AtomicU64>,
    /// The next task to take.
    next: Alone<AtomicUsize>,
    /// Written by the caller only while the job is closed and has no members.
    job: UnsafeCell<Option<Job>>,
    stop: AtomicBool,
    sleepers: AtomicUsize,
    caller_sleeps: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    sleep: Mutex<()>,
    start: Condvar,
    end: Condvar,
}

// SAFETY: `job` is the only field that is not `Sync`; the protocol on `state`
// orders every access to it.
unsafe impl Sync for Shared {}
// SAFETY: as above; the pointers in `job` are only used while `run_tasks` waits.
unsafe impl Send for Shared {}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

impl Pool {
    /// Starts `threads − 1` threads; 0 is taken as 1.
    ///
    /// # Errors
    /// The operating system's, when it refuses a thread.
    pub fn new(threads: usize) -> std::io::Result<Pool> {
        let workers = threads.max(1);
        let shared = Arc::new(Shared {
            workers,
            state: Alone(AtomicU64::new(0)),
            next: Alone(AtomicUsize::new(0)),
            job: UnsafeCell::new(None),
            stop: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            caller_sleeps: AtomicBool::new(false),
            panic: Mutex::new(None),
            sleep: Mutex::new(()),
            start: Condvar::new(),
            end: Condvar::new(),
        });
        let mut pool = Pool {
            shared,
            threads: Vec::new(),
            running: Mutex::new(()),
        };
        for worker in 1..workers {
            let shared = Arc::clone(&pool.shared);
            let thread = std::thread::Builder::new()
                .name(format!("kernel-{worker}"))
                .spawn(move || shared.work())?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// How many threads run a job, the caller included.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.shared.workers
    }

    /// Calls `task` once for each of `0..tasks`, in any order and on any of
    /// the threads, and returns when all are done. A panic in a task is raised
    /// again here.
    ///
    /// A call from inside a task, or while another thread's job runs, is done
    /// by the caller alone.
    pub fn run_tasks<F: Fn(usize) + Sync>(&self, tasks: usize, task: F) {
        let guard = match self.running.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return (0..tasks).for_each(task),
        };
        if self.shared.workers == 1 || tasks <= 1 {
            drop(guard);
            return (0..tasks).for_each(task);
        }
        let job = Job {
            data: (&raw const task).cast(),
            call: call::<F>,
            tasks,
        };
        self.shared.open(job);
        let own = catch_unwind(AssertUnwindSafe(|| self.shared.take_tasks(job)));
        // The closure is borrowed by the members: wait even when unwinding.
        self.shared.close();
        drop(guard);
        let theirs = lock(&self.shared.panic).take();
        match (own, theirs) {
            (Err(payload), _) | (Ok(()), Some(payload)) => resume_unwind(payload),
            (Ok(()), None) => {}
        }
    }

    /// Calls `part(index, parts)` once for each of as many parts as there are
    /// threads: [`Self::run_tasks`] for work that is cut by [`share`].
    pub fn run<F: Fn(usize, usize) + Sync>(&self, part: F) {
        let parts = self.shared.workers;
        self.run_tasks(parts, |index| part(index, parts));
    }

    /// Cuts `data` into chunks of `chunk` elements (the last may be shorter)
    /// and calls `each` with every chunk's number and elements.
    ///
    /// # Panics
    /// When `chunk` is 0.
    pub fn for_chunks<T, F>(&self, data: &mut [T], chunk: usize, each: F)
    where
        T: Send,
        F: Fn(usize, &mut [T]) + Sync,
    {
        let len = data.len();
        let data = Disjoint::new(data);
        self.run_tasks(len.div_ceil(chunk), |index| {
            let range = index * chunk..len.min((index + 1) * chunk);
            // SAFETY: every chunk is one task's, and `run_tasks` returns
            // before the borrow of `data` ends.
            each(index, unsafe { data.part(range) });
        });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.state.0.fetch_add(EPOCH, Ordering::SeqCst);
        self.shared.wake_sleepers();
        for thread in self.threads.drain(..) {
            // A worker catches its panics, so joining cannot fail usefully.
            let _ = thread.join();
        }
    }
}

/// Calls the closure that a [`Job`] points to.
///
/// # Safety
/// `data` points to a live `F`.
unsafe fn call<F: Fn(usize) + Sync>(data: *const (), task: usize) {
    // SAFETY: the caller's contract.
    let closure = unsafe { &*data.cast::<F>() };
    closure(task);
}

/// The guarded data never has a broken invariant, so poison is ignored.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn open(&self, job: Job) {
        // SAFETY: the previous job is closed and without members (`close`),
        // so nobody reads `job` until `state` publishes it below.
        unsafe { *self.job.get() = Some(job) };
        self.next.0.store(0, Ordering::SeqCst);
        let epoch = self.state.0.load(Ordering::SeqCst) & !(EPOCH - 1);
        self.state.0.store((epoch + EPOCH) | OPEN, Ordering::SeqCst);
        self.wake_sleepers();
    }

    fn wake_sleepers(&self) {
        // A worker counts itself as a sleeper before it looks at `state` for
        // the last time, so either it sees the new epoch or it is seen here.
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            let _guard = lock(&self.sleep);
            self.start.notify_all();
        }
    }

    fn take_tasks(&self, job: Job) {
        loop {
            let task = self.next.0.fetch_add(1, Ordering::Relaxed);
            if task >= job.tasks {
                return;
            }
            // SAFETY: the closure lives until the job is closed and empty,
            // and this thread is a member or the caller itself.
            unsafe { (job.call)(job.data, task) };
        }
    }

    /// Lets nobody enter any more and waits for the members.
    fn close(&self) {
        self.state.0.fetch_and(!OPEN, Ordering::SeqCst);
        let members = || self.state.0.load(Ordering::SeqCst) & MEMBERS;
        for _ in 0..SPINS_BEFORE_SLEEP {
            if members() == 0 {
                return;
            }
            std::hint::spin_loop();
        }
        let mut guard = lock(&self.sleep);
        self.caller_sleeps.store(true, Ordering::SeqCst);
        while members() != 0 {
            guard = self.end.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.caller_sleeps.store(false, Ordering::SeqCst);
    }

    /// Waits for a state of another epoch than `seen` and returns it.
    fn wait_for_epoch(&self, seen: u64) -> u64 {
        let news =
            || Some(self.state.0.load(Ordering::SeqCst)).filter(|state| state / EPOCH != seen);
        for _ in 0..SPINS_BEFORE_SLEEP {
            if let Some(state) = news() {
                return state;
            }
            std::hint::spin_loop();
        }
        let mut guard = lock(&self.sleep);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let state = loop {
            if let Some(state) = news() {
                break state;
            }
            guard = self
                .start
                .wait(guard)
                .unwrap_or_else(PoisonError::into_inner);
        };
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        state
    }

    fn work(&self) {
        let mut seen = 0;
        loop {
            let mut state = self.wait_for_epoch(seen);
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            // Enter the job unless it is closed; it may be a still newer one.
            let entered = loop {
                seen = state / EPOCH;
                if state & OPEN == 0 {
                    break false;
                }
                let exchange = self.state.0.compare_exchange_weak(
                    state,
                    state + 1,
                    Ordering::SeqCst,
                    Ordering::SeqCst,
                );
                match exchange {
                    Ok(_) => break true,
                    Err(current) => state = current,
                }
            };
            if entered {
                self.take_part();
            }
        }
    }

    /// Runs tasks as a member of the job and leaves it.
    fn take_part(&self) {
        // SAFETY: `job` was written before the state that this thread entered,
        // and is written again only after it has left.
        if let Some(job) = unsafe { *self.job.get() } {
            let result = catch_unwind(AssertUnwindSafe(|| self.take_tasks(job)));
            if let Err(payload) = result {
                *lock(&self.panic) = Some(payload);
            }
        }
        let before = self.state.0.fetch_sub(1, Ordering::SeqCst);
        let last = before & (MEMBERS | OPEN) == 1;
        if last && self.caller_sleeps.load(Ordering::SeqCst) {
            let _guard = lock(&self.sleep);
            self.end.notify_all();
        }
    }
}

/// A mutable slice that workers write disjoint parts of.
#[derive(Clone, Copy)]
pub(super) struct Disjoint<T> {
    start: *mut T,
    len: usize,
}

// SAFETY: the parts handed out are disjoint by `Disjoint::part`'s contract.
unsafe impl<T: Send> Sync for Disjoint<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Disjoint<T> {}

impl<T> Disjoint<T> {
    pub(super) fn new(slice: &mut [T]) -> Self {
        Disjoint {
            start: slice.as_mut_ptr(),
            len: slice.len(),
        }
    }

    /// The start, for kernels that write strided parts; the parts that
    /// different workers write must be disjoint.
    pub(super) fn as_ptr(&self) -> *mut T {
        self.start
    }

    /// The part `range` of the slice.
    ///
    /// # Safety
    /// While the returned slice lives, no other part overlaps it, and the
    /// slice given to `new` is still borrowed.
    #[expect(clippy::mut_from_ref, reason = "disjointness is the caller's contract")]
    pub(super) unsafe fn part(&self, range: Range<usize>) -> &mut [T] {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "part outside the slice"
        );
        // SAFETY: in bounds by the assertion, unaliased by contract.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_everything_once_and_evenly() {
        for total in [0, 1, 7, 40, 1001] {
            for shares in 1..9 {
                let mut next = 0;
                for index in 0..shares {
                    let range = share(total, index, shares);
                    assert_eq!(range.start, next);
                    assert!(range.len().abs_diff(total / shares) <= 1);
                    next = range.end;
                }
                assert_eq!(next, total);
            }
        }
    }

    #[test]
    fn every_task_runs_exactly_once_over_many_jobs() {
        for threads in [0, 1, 2, 5] {
            let pool = Pool::new(threads).unwrap();
            let counts: Vec<AtomicUsize> = (0..13).map(|_| AtomicUsize::new(0)).collect();
            for job in 0..500 {
                let tasks = job % 14;
                pool.run_tasks(tasks, |task| {
                    counts[task].fetch_add(1, Ordering::Relaxed);
                });
                for (task, count) in counts.iter().enumerate() {
                    assert_eq!(count.swap(0, Ordering::Relaxed), usize::from(task < tasks));
                }
            }
        }
    }

    #[test]
    fn work_cut_in_shares_gets_one_part_for_each_thread() {
        let pool = Pool::new(3).unwrap();
        let parts = Mutex::new(Vec::new());
        pool.run(|index, parts_in_all| parts.lock().unwrap().push((index, parts_in_all)));
        let mut parts = parts.into_inner().unwrap();
        parts.sort_unstable();
        assert_eq!(parts, [(0, 3), (1, 3), (2, 3)]);
    }

    #[test]
    fn sleeping_workers_are_woken_and_share_the_work() {
        let pool = Pool::new(3).unwrap();
        for _ in 0..3 {
            std::thread::sleep(std::time::Duration::from_millis(20));
            let threads = Mutex::new(std::collections::HashSet::new());
            pool.run_tasks(30, |_| {
                threads.lock().unwrap().insert(std::thread::current().id());
                std::thread::sleep(std::time::Duration::from_millis(2));
            });
            assert_eq!(threads.into_inner().unwrap().len(), 3);
        }
    }

    #[test]
    fn a_nested_job_is_done_by_its_caller_alone() {
        let pool = Pool::new(2).unwrap();
        let inner = AtomicUsize::new(0);
        pool.run_tasks(4, |_| {
            let outer = std::thread::current().id();
            pool.run_tasks(3, |_| {
                assert_eq!(std::thread::current().id(), outer);
                inner.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(inner.load(Ordering::Relaxed), 12);
    }

    #[test]
    fn a_panic_in_a_task_reaches_the_caller_and_the_pool_survives() {
        let pool = Pool::new(3).unwrap();
        for planted in [0, 5, 9] {
            let result = catch_unwind(AssertUnwindSafe(|| {
                pool.run_tasks(10, |task| {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                    assert!(task != planted, "planted");
                });
            }));
            assert!(result.is_err());
            let count = AtomicUsize::new(0);
            pool.run_tasks(7, |_| {
                count.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(count.load(Ordering::Relaxed), 7);
        }
    }
}
