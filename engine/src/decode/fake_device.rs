//! A device without arithmetic, for tests: rows hold (position, token), a token is a hash of what
//! its step sees, and steps fail on command, also half way through the layers.
//!
//! [`oracle`] is the same model on a plain list of tokens: any append that is lost, doubled or
//! wrongly taken back changes the tokens.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::backend::interface::{
    Backend, HeadRequest, KernelReport, LayerCacheShape, Sampling, SequenceId, Step, StepOutput,
    Ticket, TokenSource, UndoWork,
};
use crate::decode::Sampler;
use crate::device_profile::DeviceProfile;
use crate::engine::Engine;
use crate::error::BackendError;
use crate::kv_cache::mask::visible_rows;
use crate::kv_cache::{CachePlan, CacheUndo, Compaction, RowUndo, SaveMethod};
use crate::model::family::CacheKind;

/// Window of the second and third layer; the first keeps everything.
pub(super) const WINDOW: usize = 4;

const LAYER_KINDS: [usize; 3] = [0, 1, 1];
const VOCABULARY: u64 = 40;

/// Faults to inject, counted over the steps of one token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The n-th submit is refused.
    Submit(usize),
    /// The n-th step fails after so many layers have written their rows.
    Step(usize, usize),
}

type Row = (usize, u32);

#[derive(Debug, Default)]
struct Layer {
    rows: Vec<Row>,
    saved: HashMap<usize, Row>,
    offset_tokens: usize,
}

#[derive(Debug, Default)]
struct State {
    layers: Vec<Layer>,
    /// What the sequence has been fed, without what was taken back.
    fed: Vec<u32>,
    failed: Option<(usize, BackendError)>,
    results: HashMap<Ticket, Result<StepOutput, BackendError>>,
    tokens: HashMap<Ticket, u32>,
    next_ticket: u64,
    submits: usize,
    steps: usize,
    work: UndoWork,
}

/// The device; it has one sequence at a time.
#[derive(Debug)]
pub(super) struct FakeDevice {
    faults: Vec<Fault>,
    profile: DeviceProfile,
    kernels: KernelReport,
    state: Mutex<State>,
}

/// An engine on such a device.
pub(super) fn engine(faults: &[Fault], max_context_tokens: usize) -> Engine {
    let device = FakeDevice {
        faults: faults.to_vec(),
        profile: DeviceProfile {
            backend: "fake".to_owned(),
            name: "fake".to_owned(),
            architecture: "none".to_owned(),
            units: 1,
            memory_bytes: None,
            bandwidth_bytes_per_second: None,
        },
        kernels: KernelReport::default(),
        state: Mutex::default(),
    };
    let kinds = vec![
        CacheKind::Full,
        CacheKind::Rotating {
            window_tokens: WINDOW,
        },
    ];
    let shape = |cache_kind| LayerCacheShape {
        cache_kind,
        kv_heads: 1,
        head_dim: 1,
    };
    let shapes = LAYER_KINDS.map(shape).to_vec();
    Engine::on_device(Box::new(device), kinds, shapes, max_context_tokens)
}

/// The first `count` tokens after `prompt`, from the definition alone.
pub(super) fn oracle(prompt: &[u32], count: usize, mut sampler: Sampler) -> Vec<u32> {
    let mut fed = prompt.to_vec();
    for _ in 0..count {
        let newest = fed.len() - 1;
        let seen = LAYER_KINDS.map(|kind| {
            let oldest = match kind {
                0 => 0,
                _ => (newest + 1).saturating_sub(WINDOW),
            };
            (oldest..=newest).map(|at| (at, fed[at])).collect()
        });
        fed.push(choose(&seen, sampler.next_sampling()));
    }
    fed.split_off(prompt.len())
}

/// A token that depends on every row seen and on the draw.
fn choose(seen: &[Vec<Row>], sampling: Sampling) -> u32 {
    let mut hash = match sampling {
        Sampling::Greedy => 1,
        Sampling::TopP { uniform, .. } => u64::from(uniform.to_bits()),
    };
    let mut mix = |value: u64| {
        hash = (hash ^ value).wrapping_mul(0x0100_0000_01B3);
        hash ^= hash >> 29;
    };
    for rows in seen {
        for (position, token) in rows {
            mix(*position as u64);
            mix(u64::from(*token));
        }
    }
    (hash % VOCABULARY) as u32
}

impl Layer {
    fn compact(&mut self, compaction: Compaction) {
        let mut kept = self.rows[compaction.head.0..compaction.head.1].to_vec();
        kept.extend_from_slice(&self.rows[compaction.tail.0..compaction.tail.1]);
        self.rows = kept;
    }

    fn write(&mut self, plan: &CachePlan, first_position: usize, tokens: &[u32]) {
        assert_eq!(
            self.offset_tokens, first_position,
            "an append was lost or doubled"
        );
        if let Some(compaction) = plan.compact {
            self.compact(compaction);
        }
        if let Some(save) = plan.save {
            self.saved.insert(save.entry, self.rows[save.slot]);
        }
        self.rows.resize(plan.physical_rows, (usize::MAX, u32::MAX));
        for (index, &token) in tokens.iter().enumerate() {
            self.rows[plan.first_slot + index] = (first_position + index, token);
        }
        self.offset_tokens = plan.offset_tokens;
    }

    fn rewind(&mut self, undo: &CacheUndo) {
        for append in &undo.appends {
            if self.offset_tokens <= append.offset_before {
                if let Some(compaction) = append.compact
                    && self.offset_tokens == append.offset_before
                {
                    self.compact(compaction);
                }
                continue;
            }
            self.offset_tokens = append.offset_before;
            match append.row {
                RowUndo::Keep => {}
                RowUndo::Zero { slot } => self.rows[slot] = (usize::MAX, 0),
                RowUndo::Restore { slot, entry } => self.rows[slot] = self.saved[&entry],
            }
        }
        self.rows.truncate(undo.physical_rows);
    }
}

impl State {
    fn run(&mut self, step: &Step, fault: Option<usize>) -> Result<StepOutput, BackendError> {
        if let Some((_, error)) = &self.failed {
            return Err(error.clone());
        }
        let tokens = match &step.input {
            TokenSource::Host(ids) => ids.clone(),
            TokenSource::Device(earlier) => vec![self.tokens[earlier]],
        };
        let mut seen = Vec::new();
        for (index, layer) in self.layers.iter_mut().enumerate() {
            if fault == Some(index) {
                return Err(failure());
            }
            let plan = &step.caches[LAYER_KINDS[index]];
            layer.write(plan, step.first_position, &tokens);
            let position = step.first_position + tokens.len() - 1;
            let visible = visible_rows(plan.view, plan.physical_rows, position);
            seen.push(visible.map(|row| layer.rows[row]).collect());
            if let Some(save) = plan.save {
                self.work.rows_copied += 2;
                self.work.launches += 2 * u64::from(save.method == SaveMethod::OwnCopies);
            }
        }
        if fault.is_some() {
            return Err(failure());
        }
        let token = (step.head != HeadRequest::Skip).then(|| choose(&seen, step.sampling));
        Ok(StepOutput {
            token,
            ..StepOutput::default()
        })
    }
}

/// What an injected failure looks like.
pub(super) fn failure() -> BackendError {
    BackendError::Stopped {
        reason: "injected".to_owned(),
    }
}

impl FakeDevice {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl Backend for FakeDevice {
    fn device(&self) -> &DeviceProfile {
        &self.profile
    }

    fn kernels(&self) -> &KernelReport {
        &self.kernels
    }

    fn memory_bytes(&self) -> u64 {
        0
    }

    fn create_sequence(&self, layers: &[LayerCacheShape]) -> Result<SequenceId, BackendError> {
        self.state().layers = layers.iter().map(|_| Layer::default()).collect();
        Ok(SequenceId(0))
    }

    fn drop_sequence(&self, _: SequenceId) {}

    fn submit(&self, step: Step) -> Result<Ticket, BackendError> {
        let mut state = self.state();
        let single = !matches!(&step.input, TokenSource::Host(ids) if ids.len() > 1);
        let mut fault = None;
        if single {
            let submit = state.submits;
            state.submits += 1;
            if self.faults.contains(&Fault::Submit(submit)) {
                return Err(failure());
            }
            let index = state.steps;
            state.steps += 1;
            fault = self.faults.iter().find_map(|fault| match fault {
                Fault::Step(at, layers) if *at == index => Some(*layers),
                _ => None,
            });
        }
        let ticket = Ticket(state.next_ticket);
        state.next_ticket += 1;
        let result = state.run(&step, fault);
        match &result {
            Ok(output) => {
                let ids = match &step.input {
                    TokenSource::Host(ids) => ids.clone(),
                    TokenSource::Device(earlier) => vec![state.tokens[earlier]],
                };
                state.fed.extend(ids);
                state
                    .tokens
                    .extend(output.token.map(|token| (ticket, token)));
            }
            Err(error) => {
                state
                    .failed
                    .get_or_insert((step.first_position, error.clone()));
            }
        }
        state.results.insert(ticket, result);
        Ok(ticket)
    }

    fn read(&self, ticket: Ticket) -> Result<StepOutput, BackendError> {
        let stale = BackendError::StaleTicket { ticket: ticket.0 };
        self.state().results.remove(&ticket).ok_or(stale)?
    }

    fn discard(&self, ticket: Ticket) {
        self.state().results.remove(&ticket);
    }

    fn rewind(&self, _: SequenceId, undo: Vec<CacheUndo>) -> Result<(), BackendError> {
        let mut state = self.state();
        for (index, layer) in state.layers.iter_mut().enumerate() {
            layer.rewind(&undo[LAYER_KINDS[index]]);
        }
        let offset = state.layers[0].offset_tokens;
        state.fed.truncate(offset);
        if state.failed.as_ref().is_some_and(|(at, _)| offset <= *at) {
            state.failed = None;
        }
        Ok(())
    }

    fn undo_work(&self, _: SequenceId) -> UndoWork {
        self.state().work
    }
}
