//! The device's queue: one thread runs steps in the order of submission, the host reads results.
//!
//! A step that fails stops its sequence: what was queued behind it fails with the same error. A
//! panic in a stage stops the device.

use std::any::Any;
use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use super::mode::Mode;
use super::routed::RoutedProducts;
use crate::backend::interface::{
    Backend, KernelReport, LayerCacheShape, SequenceId, Step, StepOutput, StepProgram, Ticket,
    TokenSource, UndoWork,
};
use crate::device_profile::DeviceProfile;
use crate::error::BackendError;
use crate::kv_cache::CacheUndo;
use crate::qmm::QmmReport;

/// Tokens of past steps that later steps may refer to; loops look one or two steps back.
const REMEMBERED_TOKENS: usize = 64;

type StepResult = Result<StepOutput, BackendError>;

/// Of the sequences that have run a step.
type SharedUndoWork = Arc<Mutex<HashMap<SequenceId, UndoWork>>>;

enum Command {
    Create(SequenceId, Vec<LayerCacheShape>),
    Drop(SequenceId),
    Run(Ticket, Box<Step>),
    Rewind(SequenceId, Vec<CacheUndo>),
    Mark(u64),
}

/// The last mark that the thread came past: a rendezvous that takes no memory of its own, so that
/// it does not disturb the account that it is for.
#[derive(Debug, Default)]
struct Marks {
    reached: Mutex<Option<u64>>,
    moved: Condvar,
}

/// The host's end of the queue.
#[derive(Debug)]
pub(super) struct CpuBackend {
    profile: DeviceProfile,
    kernels: KernelReport,
    /// Where products choose their route; `None` in the reference arithmetic.
    products: Option<Arc<RoutedProducts>>,
    vocab_size: usize,
    memory_bytes: Arc<AtomicU64>,
    undo_work: SharedUndoWork,
    next_id: AtomicU64,
    /// `None` only while dropping: hanging up is what ends the thread.
    commands: Option<Sender<Command>>,
    marks: Arc<Marks>,
    results: Mutex<Results>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Results {
    incoming: Receiver<(Ticket, StepResult)>,
    outstanding: HashSet<Ticket>,
    ready: HashMap<Ticket, StepResult>,
}

impl CpuBackend {
    /// Starts the thread.
    pub(super) fn start(
        mode: Box<dyn Mode>,
        program: Box<dyn StepProgram>,
        vocab_size: usize,
        profile: DeviceProfile,
        kernels: KernelReport,
    ) -> std::io::Result<Self> {
        let (commands, command_receiver) = channel();
        let (result_sender, incoming) = channel();
        let memory_bytes = Arc::new(AtomicU64::new(mode.memory_bytes()));
        let undo_work = SharedUndoWork::default();
        let marks = Arc::new(Marks::default());
        let mut worker = Worker {
            marks: Arc::clone(&marks),
            undo_work: Arc::clone(&undo_work),
            mode,
            program,
            results: result_sender,
            memory_bytes: Arc::clone(&memory_bytes),
            recent_tokens: VecDeque::with_capacity(REMEMBERED_TOKENS),
            failed: HashMap::new(),
            stopped: None,
        };
        let thread = std::thread::Builder::new()
            .name("cpu-queue".to_owned())
            .spawn(move || worker.work(&command_receiver))?;
        Ok(Self {
            profile,
            kernels,
            products: None,
            vocab_size,
            memory_bytes,
            undo_work,
            next_id: AtomicU64::new(0),
            commands: Some(commands),
            marks,
            results: Mutex::new(Results {
                incoming,
                outstanding: HashSet::new(),
                ready: HashMap::new(),
            }),
            thread: Some(thread),
        })
    }

    /// The same, with products that choose their route.
    pub(super) fn with_products(mut self, products: Arc<RoutedProducts>) -> Self {
        self.products = Some(products);
        self
    }

    fn send(&self, command: Command) -> Result<(), BackendError> {
        let sent = self.commands.as_ref().map(|sender| sender.send(command));
        match sent {
            Some(Ok(())) => Ok(()),
            _ => Err(hung_up()),
        }
    }

    fn results(&self) -> MutexGuard<'_, Results> {
        lock(&self.results)
    }

    fn check(&self, step: &Step) -> Result<(), BackendError> {
        let TokenSource::Host(ids) = &step.input else {
            return Ok(());
        };
        if ids.is_empty() {
            return Err(BackendError::EmptyStep);
        }
        match ids.iter().find(|&&id| id as usize >= self.vocab_size) {
            Some(&token) => Err(BackendError::TokenOutOfRange {
                token,
                vocab_size: self.vocab_size,
            }),
            None => Ok(()),
        }
    }
}

impl Backend for CpuBackend {
    fn device(&self) -> &DeviceProfile {
        &self.profile
    }

    fn kernels(&self) -> &KernelReport {
        &self.kernels
    }

    fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Ordering::Relaxed)
    }

    fn create_sequence(&self, layers: &[LayerCacheShape]) -> Result<SequenceId, BackendError> {
        let id = SequenceId(self.next_id.fetch_add(1, Ordering::Relaxed));
        self.send(Command::Create(id, layers.to_vec()))?;
        Ok(id)
    }

    fn drop_sequence(&self, sequence: SequenceId) {
        // A device that has stopped has freed everything already.
        let _ = self.send(Command::Drop(sequence));
    }

    fn submit(&self, step: Step) -> Result<Ticket, BackendError> {
        self.check(&step)?;
        let ticket = Ticket(self.next_id.fetch_add(1, Ordering::Relaxed));
        self.results().outstanding.insert(ticket);
        let sent = self.send(Command::Run(ticket, Box::new(step)));
        if sent.is_err() {
            self.discard(ticket);
        }
        sent.map(|()| ticket)
    }

    fn read(&self, ticket: Ticket) -> StepResult {
        let mut results = self.results();
        if !results.outstanding.remove(&ticket) {
            return Err(BackendError::StaleTicket { ticket: ticket.0 });
        }
        if let Some(result) = results.ready.remove(&ticket) {
            return result;
        }
        loop {
            let (done, result) = results.incoming.recv().map_err(|_| hung_up())?;
            if done == ticket {
                return result;
            }
            if results.outstanding.contains(&done) {
                results.ready.insert(done, result);
            }
        }
    }

    fn discard(&self, ticket: Ticket) {
        let mut results = self.results();
        results.outstanding.remove(&ticket);
        results.ready.remove(&ticket);
    }

    fn rewind(&self, sequence: SequenceId, undo: Vec<CacheUndo>) -> Result<(), BackendError> {
        self.send(Command::Rewind(sequence, undo))
    }

    fn undo_work(&self, sequence: SequenceId) -> UndoWork {
        let work = lock(&self.undo_work).get(&sequence).copied();
        work.unwrap_or_default()
    }

    fn wait_idle(&self) -> Result<(), BackendError> {
        let mark = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.send(Command::Mark(mark))?;
        let mut reached = lock(&self.marks.reached);
        while reached.is_none_or(|reached| reached < mark) {
            // The thread catches the stages' panics, so it always comes past.
            reached = self
                .marks
                .moved
                .wait(reached)
                .unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    fn qmm_report(&self) -> QmmReport {
        let products = self.products.as_ref();
        products.map_or_else(QmmReport::default, |products| products.report())
    }
}

impl Drop for CpuBackend {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            // The thread catches the stages' panics; there is nothing to pass on.
            let _ = thread.join();
        }
    }
}

/// Nothing here panics half way through a change, so poison means nothing.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn hung_up() -> BackendError {
    BackendError::Stopped {
        reason: "its thread has ended".to_owned(),
    }
}

/// The device's end of the queue.
struct Worker {
    marks: Arc<Marks>,
    mode: Box<dyn Mode>,
    program: Box<dyn StepProgram>,
    results: Sender<(Ticket, StepResult)>,
    memory_bytes: Arc<AtomicU64>,
    undo_work: SharedUndoWork,
    recent_tokens: VecDeque<(Ticket, Option<u32>)>,
    /// Sequences that stopped: the position of the first step that failed, and why it did.
    failed: HashMap<SequenceId, (usize, BackendError)>,
    stopped: Option<BackendError>,
}

impl Worker {
    fn work(&mut self, commands: &Receiver<Command>) {
        while let Ok(command) = commands.recv() {
            match command {
                Command::Create(id, layers) => self.mode.create_sequence(id, &layers),
                Command::Drop(id) => {
                    self.failed.remove(&id);
                    self.mode.drop_sequence(id);
                    lock(&self.undo_work).remove(&id);
                }
                Command::Rewind(id, undo) => {
                    self.mode.rewind(id, &undo);
                    self.forget_failure(id, &undo);
                    self.publish_undo_work(id);
                }
                Command::Mark(mark) => {
                    *lock(&self.marks.reached) = Some(mark);
                    self.marks.moved.notify_all();
                }
                Command::Run(ticket, step) => {
                    let result = self.run(ticket, &step);
                    self.publish_undo_work(step.sequence);
                    if self.results.send((ticket, result)).is_err() {
                        return;
                    }
                }
            }
            let bytes = self.mode.memory_bytes();
            self.memory_bytes.store(bytes, Ordering::Relaxed);
        }
    }

    fn publish_undo_work(&self, id: SequenceId) {
        lock(&self.undo_work).insert(id, self.mode.undo_work(id));
    }

    fn run(&mut self, ticket: Ticket, step: &Step) -> StepResult {
        let result = self.run_checked(step);
        if let Err(error) = &result {
            let first = (step.first_position, error.clone());
            self.failed.entry(step.sequence).or_insert(first);
        }
        if self.recent_tokens.len() == REMEMBERED_TOKENS {
            self.recent_tokens.pop_front();
        }
        let token = result.as_ref().ok().and_then(|output| output.token);
        self.recent_tokens.push_back((ticket, token));
        result
    }

    fn run_checked(&mut self, step: &Step) -> StepResult {
        let failed = self.failed.get(&step.sequence).map(|(_, error)| error);
        if let Some(error) = self.stopped.as_ref().or(failed) {
            return Err(error.clone());
        }
        let device_token;
        let tokens = match &step.input {
            TokenSource::Host(ids) => ids.as_slice(),
            TokenSource::Device(earlier) => {
                device_token = [self.token_of(*earlier)?];
                &device_token
            }
        };
        let start = Instant::now();
        let caught = catch_unwind(AssertUnwindSafe(|| {
            self.mode.run(self.program.as_ref(), step, tokens)
        }));
        let mut output = caught.unwrap_or_else(|payload| {
            let error = BackendError::Stopped {
                reason: format!("a stage panicked: {}", panic_text(payload.as_ref())),
            };
            self.stopped = Some(error.clone());
            Err(error)
        })?;
        output.elapsed_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Ok(output)
    }

    /// A sequence works again once the step that stopped it has been taken back.
    fn forget_failure(&mut self, id: SequenceId, undo: &[CacheUndo]) {
        let oldest = undo.iter().flat_map(|cache| &cache.appends).last();
        let taken_back = |position| oldest.is_some_and(|append| append.offset_before <= position);
        if let Some(&(position, _)) = self.failed.get(&id)
            && taken_back(position)
        {
            self.failed.remove(&id);
        }
    }

    fn token_of(&self, earlier: Ticket) -> Result<u32, BackendError> {
        let mut newest_first = self.recent_tokens.iter().rev();
        let found = newest_first.find(|(ticket, _)| *ticket == earlier);
        found
            .and_then(|(_, token)| *token)
            .ok_or(BackendError::StaleTicket { ticket: earlier.0 })
    }
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "no message".to_owned())
}
