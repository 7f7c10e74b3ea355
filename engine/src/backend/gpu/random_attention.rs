//! Decode attention of random shapes, by every kernel that takes them, against plain loops in float64:
//! real sizes of heads and caches, which the fixtures do not have.

use std::sync::Arc;

use half::bf16;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use crate::backend::gpu::args::{DecodeAttentionArgs, KindState, LayerCache, StepState};
use crate::backend::gpu::attention_cut::{AttentionCut, rows_of_block};
use crate::backend::gpu::buffer::{Buffer, as_bytes, read_floats};
use crate::backend::gpu::machine::{CLUSTER_BLOCKS, Machine};
use crate::backend::gpu::random_module::Random;
use crate::backend::gpu::random_products::failing;
use crate::backend::gpu::step::LOG2_E;
use crate::backend::interface::HeadShape;
use crate::error::BackendError;

const EPS: f32 = 1e-5;

/// Of a result, absolute and relative: float32 sums, and bf16 weights where blocks form clusters.
const TOLERANCE: f64 = 2e-4;
const CLUSTER_TOLERANCE: f64 = 3e-3;

/// Of [`CLUSTER_BLOCKS`].
const SMALLEST: usize = CLUSTER_BLOCKS.len() - 1;

/// Which clusters a case may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InClusters {
    /// None: the other kernel.
    Never,
    /// The largest that run.
    Largest,
    /// The smallest, whose blocks have most rows.
    Smallest,
}

#[derive(Debug, Clone, Copy)]
struct Case {
    shape: HeadShape,
    /// Of the cache, the new one included.
    rows: usize,
    /// Slots that the ring has beyond them, and the one of the oldest row before it is wrapped.
    slack: usize,
    oldest: usize,
    normed: bool,
    saves: bool,
    in_clusters: InClusters,
    /// Multiprocessors that the cut into blocks goes by.
    units: usize,
    seed: u64,
}

impl Case {
    fn slots(self) -> usize {
        self.rows + self.slack
    }

    /// Where the new row goes.
    fn slot(self) -> usize {
        (self.oldest + self.rows - 1) % self.slots()
    }

    fn state(self, layers: u64, angles: u64) -> StepState {
        let mut state = StepState {
            layers,
            ..StepState::default()
        };
        state.ropes[2] = angles;
        state.kinds[1] = KindState {
            slot: self.slot() as i32,
            rows: self.rows as i32,
            ring_slots: self.slots() as i32,
            oldest_slot: self.oldest as i32,
            save_entry: if self.saves { 0 } else { -1 },
            padding: 0,
        };
        state
    }
}

fn cases(most_rows: usize) -> impl Strategy<Value = Case> {
    let shape = (
        1..=8usize,
        1..=4usize,
        prop::sample::select(vec![32, 64, 96, 128, 128, 256]),
    );
    let cache = (1..=most_rows, 0..5usize, 0..most_rows, any::<bool>());
    let rest = (
        any::<bool>(),
        prop::sample::select(vec![
            InClusters::Largest,
            InClusters::Smallest,
            InClusters::Never,
        ]),
        prop::sample::select(vec![1, 132]),
        any::<u64>(),
    );
    (shape, cache, rest).prop_map(
        |(
            (group, kv_heads, head_dim),
            (rows, slack, oldest, saves),
            (normed, in_clusters, units, seed),
        )| Case {
            shape: HeadShape {
                heads: group * kv_heads,
                kv_heads,
                head_dim,
            },
            rows,
            slack,
            oldest: oldest % (rows + slack),
            normed,
            saves,
            in_clusters,
            units,
            seed,
        },
    )
}

/// Runs `count` cases on `machine`; the same ones at every call.
pub(crate) fn check(machine: &Arc<dyn Machine>, count: u32, most_rows: usize) {
    let config = Config {
        cases: count,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = proptest::test_runner::TestRng::deterministic_rng(config.rng_algorithm);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let outcome = runner.run(&cases(most_rows), |case| check_case(machine, case));
    assert!(outcome.is_ok(), "{}", outcome.unwrap_err());
}

/// Contexts that just need spare tiles, fill them, and exceed them, in clusters of the smallest size.
pub(crate) fn check_spare_tiles(machine: &Arc<dyn Machine>) {
    let head_dim = 256;
    let blocks = CLUSTER_BLOCKS[SMALLEST] as usize;
    let [held, with_spares] = rows_of_block(head_dim, machine.tuning().cluster_warps);
    for rows in [
        blocks * held + 1,
        blocks * with_spares,
        blocks * with_spares + 1,
    ] {
        let case = Case {
            shape: HeadShape {
                heads: 3,
                kv_heads: 1,
                head_dim,
            },
            rows,
            slack: 3,
            oldest: rows / 2,
            normed: true,
            saves: true,
            in_clusters: InClusters::Smallest,
            units: 1,
            seed: rows as u64,
        };
        let outcome = check_case(machine, case);
        assert!(outcome.is_ok(), "{rows} rows: {}", outcome.unwrap_err());
    }
}

/// What attention reads, on the host.
struct Inputs {
    qkv: Vec<f32>,
    q_norm: Vec<f32>,
    k_norm: Vec<f32>,
    /// Cosine and sine of each pair, of the one position that there is.
    angles: Vec<f32>,
    /// `[slot][kv_head][head_dim]`.
    keys: Vec<u16>,
    values: Vec<u16>,
}

impl Inputs {
    fn new(case: Case) -> Self {
        let mut random = Random::new(case.seed);
        let HeadShape {
            heads,
            kv_heads,
            head_dim,
        } = case.shape;
        let stored = case.slots() * kv_heads * head_dim;
        let mut floats = |count| -> Vec<f32> { (0..count).map(|_| random.uniform()).collect() };
        let rounded = |floats: Vec<f32>| -> Vec<u16> {
            let bits = floats.into_iter().map(|f| bf16::from_f32(f).to_bits());
            bits.collect()
        };
        let turns = floats(head_dim / 2);
        Self {
            qkv: floats((heads + 2 * kv_heads) * head_dim),
            q_norm: floats(head_dim),
            k_norm: floats(head_dim),
            angles: turns.iter().flat_map(|a| [a.cos(), a.sin()]).collect(),
            keys: rounded(floats(stored)),
            values: rounded(floats(stored)),
        }
    }

    /// Head `head` of q, k and v in a row, normed and turned.
    fn finished(&self, case: Case, head: usize, norm: &[f32]) -> Vec<f64> {
        let dim = case.shape.head_dim;
        let head = self.qkv[head * dim..][..dim].iter().map(|x| f64::from(*x));
        let mut head: Vec<f64> = head.collect();
        if case.normed {
            let squares: f64 = head.iter().map(|x| x * x).sum();
            let factor = 1.0 / (squares / dim as f64 + f64::from(EPS)).sqrt();
            for (x, weight) in head.iter_mut().zip(norm) {
                *x *= factor * f64::from(*weight);
            }
        }
        let half = dim / 2;
        for i in 0..half {
            let (cos, sin) = (
                f64::from(self.angles[2 * i]),
                f64::from(self.angles[2 * i + 1]),
            );
            let (a, b) = (head[i], head[i + half]);
            (head[i], head[i + half]) = (a * cos - b * sin, b * cos + a * sin);
        }
        head
    }

    /// The new row of a kv head as the cache will have it.
    fn new_row(&self, case: Case, kv_head: usize) -> [Vec<f64>; 2] {
        let HeadShape {
            heads,
            kv_heads,
            head_dim,
        } = case.shape;
        let round = |x: f64| bf16::from_f64(x).to_f64();
        let key = self.finished(case, heads + kv_head, &self.k_norm);
        let at = (heads + kv_heads + kv_head) * head_dim;
        let value = self.qkv[at..][..head_dim].iter().map(|x| f64::from(*x));
        [
            key.into_iter().map(round).collect(),
            value.map(round).collect(),
        ]
    }
}

/// softmax(scale q kᵀ) v of one query head.
fn attended(case: Case, inputs: &Inputs, head: usize, scale: f64) -> Vec<f64> {
    let HeadShape {
        heads,
        kv_heads,
        head_dim,
    } = case.shape;
    let kv_head = head / (heads / kv_heads);
    let query = inputs.finished(case, head, &inputs.q_norm);
    let new = inputs.new_row(case, kv_head);
    let stored = |from: &[u16], row: usize| -> Vec<f64> {
        let slot = (case.oldest + row) % case.slots();
        let at = (slot * kv_heads + kv_head) * head_dim;
        let elements = from[at..][..head_dim].iter();
        elements
            .map(|bits| bf16::from_bits(*bits).to_f64())
            .collect()
    };
    let row = |which: usize, row: usize| match (row + 1 == case.rows, which) {
        (true, which) => new[which].clone(),
        (false, 0) => stored(&inputs.keys, row),
        (false, _) => stored(&inputs.values, row),
    };
    let dot = |key: Vec<f64>| -> f64 { query.iter().zip(key).map(|(q, k)| q * k).sum() };
    let scores: Vec<f64> = (0..case.rows).map(|r| scale * dot(row(0, r))).collect();
    let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = scores.iter().map(|score| (score - top).exp()).sum();
    let mut out = vec![0.0; head_dim];
    for (r, score) in scores.iter().enumerate() {
        let weight = (score - top).exp() / sum;
        for (out, value) in out.iter_mut().zip(row(1, r)) {
            *out += weight * value;
        }
    }
    out
}

/// What the kernel left.
struct Outcome {
    out: Vec<f32>,
    /// Keys and values, each with the row that was kept.
    caches: [(Vec<u16>, Vec<u16>); 2],
    kernel: &'static str,
    in_clusters: bool,
}

fn check_case(machine: &Arc<dyn Machine>, case: Case) -> Result<(), TestCaseError> {
    let inputs = Inputs::new(case);
    let outcome = failing(attend(machine, case, &inputs))?;
    let scale = f64::from(scale(case));
    let tolerance = match outcome.in_clusters {
        true => CLUSTER_TOLERANCE,
        false => TOLERANCE,
    };
    let head_dim = case.shape.head_dim;
    for (head, got) in outcome.out.chunks(head_dim).enumerate() {
        let wanted = attended(case, &inputs, head, scale);
        for (i, (got, wanted)) in got.iter().zip(wanted).enumerate() {
            prop_assert!(
                (f64::from(*got) - wanted).abs() <= tolerance * (1.0 + wanted.abs()),
                "{}: element {i} of head {head}: got {got}, expected {wanted}",
                outcome.kernel
            );
        }
    }
    for (which, before) in [&inputs.keys, &inputs.values].into_iter().enumerate() {
        check_cache(case, &inputs, &outcome.caches[which], (which, before))?;
    }
    Ok(())
}

/// The new row is appended, what was in its place kept if that is wanted, and nothing else changed.
fn check_cache(
    case: Case,
    inputs: &Inputs,
    (rows, kept): &(Vec<u16>, Vec<u16>),
    (which, before): (usize, &[u16]),
) -> Result<(), TestCaseError> {
    let head_dim = case.shape.head_dim;
    let width = case.shape.kv_heads * head_dim;
    for (i, (got, before)) in rows.iter().zip(before).enumerate() {
        if i / width != case.slot() {
            prop_assert_eq!(got, before, "a row beside the new one");
            continue;
        }
        let column = i % width;
        let wanted = inputs.new_row(case, column / head_dim)[which][column % head_dim];
        // The device rounds what it computed in float32.
        let got = bf16::from_bits(*got).to_f64();
        prop_assert!(
            (got - wanted).abs() <= 8e-3 * wanted.abs() + 1e-6,
            "the row appended: got {got}, expected {wanted}"
        );
        if case.saves {
            prop_assert_eq!(kept[column], *before, "the row kept");
        }
    }
    Ok(())
}

fn scale(case: Case) -> f32 {
    1.5 / (case.shape.head_dim as f32).sqrt()
}

/// Runs the kernel on a device that holds `inputs`, its results poisoned.
#[expect(
    clippy::too_many_lines,
    reason = "one argument struct, and the buffers that it points to"
)]
fn attend(
    machine: &Arc<dyn Machine>,
    case: Case,
    inputs: &Inputs,
) -> Result<Outcome, BackendError> {
    let HeadShape {
        heads,
        kv_heads,
        head_dim,
    } = case.shape;
    let tuning = machine.tuning();
    let mut clusters = [0; CLUSTER_BLOCKS.len()];
    match case.in_clusters {
        InClusters::Never => {}
        InClusters::Largest => clusters = tuning.clusters,
        InClusters::Smallest => clusters[SMALLEST] = tuning.clusters[SMALLEST],
    }
    let cut = AttentionCut::of(case.shape, case.units, clusters);
    let cut = cut.ok_or_else(|| BackendError::Stopped {
        reason: "heads that no kernel takes".to_owned(),
    })?;
    let poisoned = |count: usize| Buffer::of(machine, &vec![f32::NAN; count]);
    let width = kv_heads * head_dim;
    let saved = Buffer::zeroed(machine, 2 * 2 * width)?;
    let cache = [
        Buffer::of(machine, &inputs.keys)?,
        Buffer::of(machine, &inputs.values)?,
    ];
    let layer = LayerCache {
        k: cache[0].address(),
        v: cache[1].address(),
        saved_k: saved.address(),
        saved_v: saved.address() + 2 * width as u64,
    };
    let layers = Buffer::of(machine, &[LayerCache::default(), layer])?;
    let angles = Buffer::of(machine, &inputs.angles)?;
    let state = Buffer::of(machine, &[case.state(layers.address(), angles.address())])?;
    let qkv = Buffer::of(machine, &inputs.qkv)?;
    let norms = [
        Buffer::of(machine, &inputs.q_norm)?,
        Buffer::of(machine, &inputs.k_norm)?,
    ];
    let norm = |at: usize| if case.normed { norms[at].address() } else { 0 };
    let out = poisoned(heads * head_dim)?;
    let partials = poisoned(heads * cut.splits * (head_dim + 2))?;
    let arrived = Buffer::zeroed(machine, 4 * cut.columns)?;
    let args = DecodeAttentionArgs {
        state: state.address(),
        qkv: qkv.address(),
        out: out.address(),
        partials: partials.address(),
        arrived: arrived.address(),
        q_norm: norm(0),
        k_norm: norm(1),
        q_eps: EPS,
        k_eps: EPS,
        scale: scale(case) * LOG2_E,
        layer: 1,
        kind: 1,
        rope: 2,
        heads: heads as i32,
        kv_heads: kv_heads as i32,
        head_dim: head_dim as i32,
        least_rows: tuning.split_rows as i32,
    };
    let (kernel, launch) = (cut.decode_kernel(), cut.decode_launch(tuning));
    machine.launch(kernel, launch, as_bytes(std::slice::from_ref(&args)))?;
    let read = |which: usize| -> Result<_, BackendError> {
        let kept = saved.address() + (2 * which * width) as u64;
        Ok((
            read_halves(machine, cache[which].address(), case.slots() * width)?,
            read_halves(machine, kept, width)?,
        ))
    };
    Ok(Outcome {
        out: read_floats(machine.as_ref(), out.address(), heads * head_dim)?,
        caches: [read(0)?, read(1)?],
        kernel,
        in_clusters: launch.cluster > 1,
    })
}

fn read_halves(
    machine: &Arc<dyn Machine>,
    from: u64,
    count: usize,
) -> Result<Vec<u16>, BackendError> {
    let mut bytes = vec![0u8; 2 * count];
    machine.read(from, &mut bytes)?;
    let pairs = bytes.as_chunks::<2>().0;
    Ok(pairs.iter().map(|pair| u16::from_le_bytes(*pair)).collect())
}
