//! Steps in the order of submission on the machine's one stream.
//!
//! Queuing is cheap, so it happens in the caller's thread: a step's token stays on the device until
//! it is read, and a step whose input it is need not wait for that.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::backend::gpu::attention_cut::AttentionCut;
use crate::backend::gpu::buffer::{Buffer, as_bytes, read_floats};
use crate::backend::gpu::cache::SequenceCaches;
use crate::backend::gpu::context::Model;
use crate::backend::gpu::draw::{DrawBuffer, DrawPlace};
use crate::backend::gpu::machine::{HostWords, MARKS};
use crate::backend::gpu::probe;
use crate::backend::gpu::rope::RopeTable;
use crate::backend::gpu::rows::{RowBuffers, RowStages, element_bytes};
use crate::backend::gpu::step::{self, NewStep, StepBuffers, StepGraph};
use crate::backend::interface::{
    Arithmetic, Backend, HeadRequest, KernelReport, LayerCacheShape, SequenceId, Step, StepOutput,
    StepProgram, StepShape, Ticket, TokenSource, UndoWork,
};
use crate::backend::sample::Draw;
use crate::device_profile::DeviceProfile;
use crate::error::BackendError;
use crate::kv_cache::{CacheUndo, KeyView};
use crate::qmm::QmmReport;

/// A model on a GPU.
#[derive(Debug)]
pub(crate) struct GpuBackend {
    profile: DeviceProfile,
    kernels: KernelReport,
    shape: StepShape,
    queue: Mutex<Queue>,
}

/// Everything that submitting and reading change.
struct Queue {
    model: Model,
    program: Box<dyn StepProgram>,
    shape: StepShape,
    cut: AttentionCut,
    ropes: Vec<RopeTable>,
    sequences: HashMap<SequenceId, SequenceCaches>,
    rows: RowBuffers,
    step: StepBuffers,
    draws: DrawBuffer,
    graph: Option<StepGraph>,
    /// Products in it.
    graph_products: u64,
    /// Ids of a chunk.
    input: Buffer,
    /// Chosen tokens by slot, on the device and for the host.
    tokens: Buffer,
    host_tokens: HostWords,
    next_id: u64,
    /// Steps that chose a token and the slots of their tokens, newest last.
    recent: VecDeque<(Ticket, usize)>,
    /// Steps that nobody has read.
    outstanding: HashMap<Ticket, Outstanding>,
    stopped: Option<BackendError>,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue")
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

/// A step that nobody has read.
#[derive(Debug)]
struct Outstanding {
    submitted: Instant,
    slot: usize,
    has_token: bool,
    /// What is known already; the token comes with the slot unless it is here.
    output: StepOutput,
}

impl GpuBackend {
    /// Takes over a loaded model.
    pub(crate) fn new(
        model: Model,
        ropes: Vec<RopeTable>,
        program: Box<dyn StepProgram>,
        shape: StepShape,
        cut: AttentionCut,
        kernels: KernelReport,
    ) -> Result<Self, BackendError> {
        let machine = &model.machine;
        let queue = Queue {
            rows: RowBuffers::new(&model)?,
            step: StepBuffers::new(&model, shape, cut)?,
            draws: DrawBuffer::new(&model)?,
            input: Buffer::zeroed(machine, 4 * shape.chunk_tokens)?,
            tokens: Buffer::zeroed(machine, 4 * MARKS)?,
            host_tokens: machine.host_words(MARKS)?,
            program,
            shape,
            cut,
            ropes,
            sequences: HashMap::new(),
            graph: None,
            graph_products: 0,
            next_id: 0,
            recent: VecDeque::with_capacity(MARKS),
            outstanding: HashMap::new(),
            stopped: None,
            model,
        };
        Ok(Self {
            profile: queue.model.machine.profile(),
            kernels,
            shape,
            queue: Mutex::new(queue),
        })
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, step: &Step) -> Result<(), BackendError> {
        let TokenSource::Host(ids) = &step.input else {
            return Ok(());
        };
        if ids.is_empty() {
            return Err(BackendError::EmptyStep);
        }
        let vocab_size = self.shape.vocab_size;
        match ids.iter().find(|&&id| id as usize >= vocab_size) {
            Some(&token) => Err(BackendError::TokenOutOfRange { token, vocab_size }),
            None => Ok(()),
        }
    }
}

impl Backend for GpuBackend {
    fn device(&self) -> &DeviceProfile {
        &self.profile
    }

    fn kernels(&self) -> &KernelReport {
        &self.kernels
    }

    fn memory_bytes(&self) -> u64 {
        self.queue().model.machine.allocated_bytes()
    }

    fn create_sequence(&self, layers: &[LayerCacheShape]) -> Result<SequenceId, BackendError> {
        let mut queue = self.queue();
        queue.alive()?;
        let bytes = element_bytes(queue.model.arithmetic);
        let caches = SequenceCaches::new(&queue.model.machine, layers, bytes)?;
        let id = SequenceId(queue.new_id());
        queue.sequences.insert(id, caches);
        Ok(id)
    }

    fn drop_sequence(&self, sequence: SequenceId) {
        self.queue().sequences.remove(&sequence);
    }

    fn submit(&self, step: Step) -> Result<Ticket, BackendError> {
        self.check(&step)?;
        self.queue().submit(&step)
    }

    fn read(&self, ticket: Ticket) -> Result<StepOutput, BackendError> {
        self.queue().read(ticket)
    }

    fn discard(&self, ticket: Ticket) {
        self.queue().outstanding.remove(&ticket);
    }

    fn rewind(&self, sequence: SequenceId, undo: Vec<CacheUndo>) -> Result<(), BackendError> {
        self.queue().rewind(sequence, &undo)
    }

    fn wait_idle(&self) -> Result<(), BackendError> {
        let queue = self.queue();
        queue.alive()?;
        // A read waits for everything that was queued before it.
        read_floats(queue.model.machine.as_ref(), queue.tokens.address(), 1).map(|_| ())
    }

    fn read_bandwidth(&self) -> Result<Option<Vec<f64>>, BackendError> {
        let queue = self.queue();
        queue.alive()?;
        probe::read_bandwidth(&queue.model).map(Some)
    }

    fn qmm_report(&self) -> QmmReport {
        self.queue().model.routes.report()
    }

    fn undo_work(&self, sequence: SequenceId) -> UndoWork {
        let queue = self.queue();
        let caches = queue.sequences.get(&sequence);
        caches.map(SequenceCaches::undo_work).unwrap_or_default()
    }
}

impl Queue {
    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn alive(&self) -> Result<(), BackendError> {
        self.stopped.clone().map_or(Ok(()), Err)
    }

    fn submit(&mut self, step: &Step) -> Result<Ticket, BackendError> {
        self.alive()?;
        let sequence = step.sequence;
        let unknown = BackendError::UnknownSequence {
            sequence: sequence.0,
        };
        let token = self.input_address(&step.input)?;
        let mut caches = self.sequences.remove(&sequence).ok_or(unknown)?;
        let ticket = Ticket(self.new_id());
        let done = self.run(step, token, &mut caches, ticket);
        self.sequences.insert(sequence, caches);
        if let Err(error) = &done {
            // Nothing tells how far the device came.
            self.stopped = Some(error.clone());
        }
        done.map(|()| ticket)
    }

    /// Where an earlier step's token is; the host's ids are still to be copied.
    fn input_address(&mut self, input: &TokenSource) -> Result<u64, BackendError> {
        let earlier = match input {
            TokenSource::Device(earlier) => earlier,
            TokenSource::Host(ids) => {
                self.input.reserve(size_of_val(ids.as_slice()))?;
                return Ok(self.input.address());
            }
        };
        let mut newest_first = self.recent.iter().rev();
        let found = newest_first.find(|(ticket, _)| ticket == earlier);
        let slot = found.map(|(_, slot)| 4 * *slot as u64);
        slot.map(|at| self.tokens.address() + at)
            .ok_or(BackendError::StaleTicket { ticket: earlier.0 })
    }

    fn run(
        &mut self,
        step: &Step,
        token: u64,
        caches: &mut SequenceCaches,
        ticket: Ticket,
    ) -> Result<(), BackendError> {
        let submitted = Instant::now();
        let tokens = match &step.input {
            TokenSource::Host(ids) => {
                self.model.machine.write(token, as_bytes(ids))?;
                ids.len()
            }
            TokenSource::Device(_) => 1,
        };
        let slot = self.free_slot(ticket)?;
        caches.prepare(&step.caches)?;
        let fused = tokens == 1
            && self.model.arithmetic == Arithmetic::Fast
            && !step.capture_hidden
            && step
                .caches
                .iter()
                .all(|plan| matches!(plan.view, KeyView::Ring { .. }));
        let (logits, hidden) = match fused {
            true => self.run_fused(step, token, slot, caches)?,
            false => self.run_rows(step, (tokens, token), slot, caches)?,
        };
        let mut output = StepOutput {
            hidden,
            ..StepOutput::default()
        };
        self.choose_and_copy(step, logits, slot, &mut output)?;
        self.model.machine.set_mark(slot)?;
        let has_token = step.head != HeadRequest::Skip;
        if has_token {
            self.recent.push_back((ticket, slot));
        }
        self.outstanding.insert(
            ticket,
            Outstanding {
                submitted,
                slot,
                has_token,
                output,
            },
        );
        Ok(())
    }

    /// A slot for the step's token; whoever had it before is read first.
    fn free_slot(&mut self, ticket: Ticket) -> Result<usize, BackendError> {
        let slot = (ticket.0 % MARKS as u64) as usize;
        self.recent.retain(|(_, taken)| *taken != slot);
        let machine = &self.model.machine;
        for earlier in self
            .outstanding
            .values_mut()
            .filter(|earlier| earlier.slot == slot)
        {
            machine.wait_mark(slot)?;
            if earlier.has_token && earlier.output.token.is_none() {
                earlier.output.token = Some(machine.word(self.host_tokens, slot));
            }
        }
        Ok(slot)
    }

    fn rope_tables(&mut self, positions: usize) -> Result<Vec<u64>, BackendError> {
        let machine = &self.model.machine;
        let tables = self.ropes.iter_mut();
        tables
            .map(|table| table.address(machine, positions))
            .collect()
    }

    /// One token by the graph; returns where its logits are and how many.
    fn run_fused(
        &mut self,
        step: &Step,
        token: u64,
        token_slot: usize,
        caches: &mut SequenceCaches,
    ) -> Result<Left, BackendError> {
        let ropes = self.rope_tables(step.first_position + 1)?;
        let graph = match self.graph {
            Some(graph) => {
                self.model.routes.count_of_one_row(self.graph_products);
                graph
            }
            None => {
                let tokens = (self.tokens.address(), self.host_tokens);
                let program = self.program.as_ref();
                let before = self.model.routes.of_one_row();
                let graph = step::capture(&self.model, &self.step, program, tokens)?;
                // What was recorded runs now, and at every replay.
                self.graph_products = self.model.routes.of_one_row() - before;
                *self.graph.insert(graph)
            }
        };
        let new = NewStep {
            plans: &step.caches,
            position: step.first_position,
            layers: caches.table()?,
            ropes,
            token,
            token_slot,
        };
        step::run(&self.model, &self.step, graph, new)?;
        Ok((
            (self.step.logits.address(), self.shape.vocab_size),
            Vec::new(),
        ))
    }

    /// Any number of tokens, stage by stage; returns where its logits are and how many.
    fn run_rows(
        &mut self,
        step: &Step,
        tokens: (usize, u64),
        slot: usize,
        caches: &SequenceCaches,
    ) -> Result<Left, BackendError> {
        let ropes = self.rope_tables(step.first_position + tokens.0)?;
        let mut stages = RowStages {
            model: &self.model,
            buffers: &mut self.rows,
            caches,
            cut: self.cut,
            step,
            tokens,
            ropes,
            chosen: (self.tokens.address(), self.host_tokens.device, slot),
            rows: tokens.0,
            hidden_size: self.shape.hidden_size,
            pending: None,
            logits: 0,
            captured: Vec::new(),
        };
        self.program.forward(&mut stages)?;
        let (logits, captured) = (stages.logits, stages.captured);
        Ok(((self.rows.logits.address(), logits), captured))
    }

    /// The draw, and logits that the host asked for, which wait for the device.
    fn choose_and_copy(
        &mut self,
        step: &Step,
        (logits, count): (u64, usize),
        slot: usize,
        output: &mut StepOutput,
    ) -> Result<(), BackendError> {
        if step.head == HeadRequest::Skip {
            return Ok(());
        }
        if let Some(draw) = Draw::of(step.sampling) {
            let vocab_size = self.shape.vocab_size;
            let place = DrawPlace {
                logits: (logits + 4 * (count - vocab_size) as u64, vocab_size),
                tokens: self.tokens.address(),
                host_tokens: self.host_tokens,
                slot,
            };
            self.draws.queue(&self.model, draw, place)?;
        }
        if step.head != HeadRequest::Token {
            output.logits = read_floats(self.model.machine.as_ref(), logits, count)?;
        }
        Ok(())
    }

    fn read(&mut self, ticket: Ticket) -> Result<StepOutput, BackendError> {
        let step = self.outstanding.remove(&ticket);
        let step = step.ok_or(BackendError::StaleTicket { ticket: ticket.0 })?;
        let mut output = step.output;
        if output.token.is_none() {
            self.alive()?;
            let machine = &self.model.machine;
            machine.wait_mark(step.slot)?;
            output.token = step
                .has_token
                .then(|| machine.word(self.host_tokens, step.slot));
        }
        let elapsed = step.submitted.elapsed().as_nanos();
        output.elapsed_ns = u64::try_from(elapsed).unwrap_or(u64::MAX);
        Ok(output)
    }

    fn rewind(&mut self, sequence: SequenceId, undo: &[CacheUndo]) -> Result<(), BackendError> {
        self.alive()?;
        match self.sequences.get_mut(&sequence) {
            Some(caches) => caches.rewind(undo),
            None => Ok(()),
        }
    }
}

/// Address and number of the logits that a step left, and residual streams.
type Left = ((u64, usize), Vec<Vec<f32>>);
