//! Threads that live as long as the engine and run one job at a time.
//!
//! A step of decoding has about a hundred parallel parts of some ten
//! microseconds, so a part must start and end in about one: waiting spins
//! first. It spins only briefly and then sleeps, because a spinning barrier
//! with as many threads as cores collapses as soon as another program wants a
//! core. The split is static and every kernel computes each result in an order
//! that does not depend on it, so results are the same for any thread count.

#![expect(
    unsafe_code,
    reason = "a job borrowed from the caller crosses to threads that outlive it"
)]

use std::any::Any;
use std::cell::UnsafeCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;

/// How often a waiting thread looks before it sleeps: some 30 µs, longer than
/// the serial gaps between the parts of a step.
const SPINS_BEFORE_SLEEP: usize = 2000;

/// The rows, blocks or tokens of `0..total` that belong to `worker`.
///
/// Contiguous, in order, and differing by at most one between workers.
#[must_use]
pub fn share(total: usize, worker: usize, workers: usize) -> Range<usize> {
    total * worker / workers..total * (worker + 1) / workers
}

/// A fixed set of threads; the thread that calls [`Pool::run`] is worker 0.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    running: Mutex<()>,
}

/// A borrowed closure without its lifetime and type.
#[derive(Clone, Copy)]
struct Job {
    data: *const (),
    call: unsafe fn(*const (), usize, usize),
}

struct Shared {
    workers: usize,
    /// Counts jobs; a change is the signal to start. Also changed to stop.
    epoch: AtomicUsize,
    /// Written by the caller only while no worker is between start and end.
    job: UnsafeCell<Option<Job>>,
    unfinished: AtomicUsize,
    stop: AtomicBool,
    sleepers: AtomicUsize,
    caller_sleeps: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    sleep: Mutex<()>,
    start: Condvar,
    end: Condvar,
}

// SAFETY: `job` is the only field that is not `Sync`; the protocol on `epoch`
// and `unfinished` orders every access to it.
unsafe impl Sync for Shared {}
// SAFETY: as above; the pointers in `job` are only used while `run` waits.
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
            epoch: AtomicUsize::new(0),
            job: UnsafeCell::new(None),
            unfinished: AtomicUsize::new(0),
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
                .spawn(move || shared.work(worker))?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// How many workers a job is split over, the caller included.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.shared.workers
    }

    /// Runs `job(worker, workers)` once for each worker and returns when all
    /// are done. A panic in any of them is raised again here.
    ///
    /// A call from inside a job, or while another thread's job runs, is done
    /// by the caller alone as `job(0, 1)`: jobs may not depend on the count.
    pub fn run<F: Fn(usize, usize) + Sync>(&self, job: F) {
        let guard = match self.running.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return job(0, 1),
        };
        if self.shared.workers == 1 {
            drop(guard);
            return job(0, 1);
        }
        self.shared.begin(Job {
            data: (&raw const job).cast(),
            call: call::<F>,
        });
        let own = catch_unwind(AssertUnwindSafe(|| job(0, self.shared.workers)));
        // The closure is borrowed by the workers: wait even when unwinding.
        self.shared.wait_for_end();
        drop(guard);
        let theirs = lock(&self.shared.panic).take();
        match (own, theirs) {
            (Err(payload), _) | (Ok(()), Some(payload)) => resume_unwind(payload),
            (Ok(()), None) => {}
        }
    }

    /// Cuts `data` into chunks of `chunk` elements (the last may be shorter)
    /// and calls `each` with every chunk's number and elements, the chunks
    /// split over the workers.
    ///
    /// # Panics
    /// When `chunk` is 0.
    pub fn for_chunks<T, F>(&self, data: &mut [T], chunk: usize, each: F)
    where
        T: Send,
        F: Fn(usize, &mut [T]) + Sync,
    {
        let len = data.len();
        let chunks = len.div_ceil(chunk);
        let data = Disjoint::new(data);
        self.run(|worker, workers| {
            for index in share(chunks, worker, workers) {
                let range = index * chunk..len.min((index + 1) * chunk);
                // SAFETY: every chunk belongs to one worker, and `run` returns
                // before the borrow of `data` ends.
                each(index, unsafe { data.part(range) });
            }
        });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.signal_start();
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
unsafe fn call<F: Fn(usize, usize) + Sync>(data: *const (), worker: usize, workers: usize) {
    // SAFETY: the caller's contract.
    let job = unsafe { &*data.cast::<F>() };
    job(worker, workers);
}

/// The guarded data never has a broken invariant, so poison is ignored.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn begin(&self, job: Job) {
        // SAFETY: the previous job has ended (`wait_for_end`), so no worker
        // reads `job` until `signal_start` below publishes it.
        unsafe { *self.job.get() = Some(job) };
        self.unfinished.store(self.workers - 1, Ordering::SeqCst);
        self.signal_start();
    }

    fn signal_start(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        // A worker counts itself as a sleeper before it looks at `epoch` for
        // the last time, so either it sees the new epoch or it is seen here.
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            let _guard = lock(&self.sleep);
            self.start.notify_all();
        }
    }

    fn wait_for_end(&self) {
        for _ in 0..SPINS_BEFORE_SLEEP {
            if self.unfinished.load(Ordering::SeqCst) == 0 {
                return;
            }
            std::hint::spin_loop();
        }
        let mut guard = lock(&self.sleep);
        self.caller_sleeps.store(true, Ordering::SeqCst);
        while self.unfinished.load(Ordering::SeqCst) != 0 {
            guard = self.end.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.caller_sleeps.store(false, Ordering::SeqCst);
    }

    fn wait_for_start(&self, seen: usize) -> usize {
        for _ in 0..SPINS_BEFORE_SLEEP {
            let epoch = self.epoch.load(Ordering::SeqCst);
            if epoch != seen {
                return epoch;
            }
            std::hint::spin_loop();
        }
        let mut guard = lock(&self.sleep);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let epoch = loop {
            let epoch = self.epoch.load(Ordering::SeqCst);
            if epoch != seen {
                break epoch;
            }
            guard = self
                .start
                .wait(guard)
                .unwrap_or_else(PoisonError::into_inner);
        };
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        epoch
    }

    fn work(&self, worker: usize) {
        let mut seen = 0;
        loop {
            seen = self.wait_for_start(seen);
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            // SAFETY: `epoch` was changed after `job` was written, and the
            // caller writes it again only after this worker has finished.
            if let Some(job) = unsafe { *self.job.get() } {
                let result = catch_unwind(AssertUnwindSafe(|| {
                    // SAFETY: `run` keeps the closure alive until all finish.
                    unsafe { (job.call)(job.data, worker, self.workers) }
                }));
                if let Err(payload) = result {
                    *lock(&self.panic) = Some(payload);
                }
            }
            if self.unfinished.fetch_sub(1, Ordering::SeqCst) == 1
                && self.caller_sleeps.load(Ordering::SeqCst)
            {
                let _guard = lock(&self.sleep);
                self.end.notify_all();
            }
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
            for workers in 1..9 {
                let mut next = 0;
                for worker in 0..workers {
                    let range = share(total, worker, workers);
                    assert_eq!(range.start, next);
                    assert!(range.len().abs_diff(total / workers) <= 1);
                    next = range.end;
                }
                assert_eq!(next, total);
            }
        }
    }

    #[test]
    fn every_worker_runs_once_per_job_over_many_jobs() {
        for threads in [0, 1, 2, 5] {
            let pool = Pool::new(threads).unwrap();
            let counts: Vec<AtomicUsize> =
                (0..pool.workers()).map(|_| AtomicUsize::new(0)).collect();
            for _ in 0..500 {
                pool.run(|worker, workers| {
                    assert_eq!(workers, counts.len());
                    counts[worker].fetch_add(1, Ordering::Relaxed);
                });
            }
            assert!(
                counts
                    .iter()
                    .all(|count| count.load(Ordering::Relaxed) == 500)
            );
        }
    }

    #[test]
    fn a_job_started_after_the_workers_fell_asleep_still_runs() {
        let pool = Pool::new(3).unwrap();
        let count = AtomicUsize::new(0);
        for _ in 0..3 {
            std::thread::sleep(std::time::Duration::from_millis(20));
            pool.run(|_, _| {
                std::thread::sleep(std::time::Duration::from_millis(2));
                count.fetch_add(1, Ordering::Relaxed);
            });
        }
        assert_eq!(count.load(Ordering::Relaxed), 9);
    }

    #[test]
    fn a_nested_job_is_done_by_its_caller_alone() {
        let pool = Pool::new(2).unwrap();
        let inner = AtomicUsize::new(0);
        pool.run(|_, _| {
            pool.run(|worker, workers| {
                assert_eq!((worker, workers), (0, 1));
                inner.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(inner.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_panic_in_a_worker_reaches_the_caller_and_the_pool_survives() {
        let pool = Pool::new(3).unwrap();
        let result = catch_unwind(AssertUnwindSafe(|| {
            pool.run(|worker, _| assert!(worker != 2, "planted"));
        }));
        assert!(result.is_err());
        let count = AtomicUsize::new(0);
        pool.run(|_, _| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.load(Ordering::Relaxed), 3);
    }
}
