//! Products of random shapes and formats, by every kernel that takes them, against the reference
//! dequantiser and float64. Results are full of NaN before, and so is whatever lies beside them.

use std::sync::Arc;

use half::bf16;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use crate::backend::gpu::args::RowInput;
use crate::backend::gpu::arrange::Staging;
use crate::backend::gpu::buffer::{Buffer, read_floats};
use crate::backend::gpu::context::{Model, Output, padded};
use crate::backend::gpu::machine::Machine;
use crate::backend::gpu::random_matrix::{Format, HostMatrix, PLAIN, Sum, gated};
use crate::backend::gpu::random_module::Random;
use crate::backend::gpu::routes::Routes;
use crate::backend::gpu::tiles::{Layout, TILE_COLUMNS};
use crate::backend::gpu::vector_cut::Neighbours;
use crate::backend::gpu::weights::Linear;
use crate::backend::interface::{Activation, Arithmetic};
use crate::weights::Dtype;

/// Each may have a kernel of its own.
const NEIGHBOURS: [Neighbours; 3] = [
    Neighbours::Attention,
    Neighbours::BehindClusters { shared_bytes: 0 },
    Neighbours::Products,
];

/// Floats behind a row of the results that must stay as they are.
const GAP: usize = 3;

/// How large cases are at most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Most {
    /// Cases.
    pub(crate) cases: u32,
    /// Rows of a matrix.
    pub(crate) rows: usize,
    /// Groups of a row.
    pub(crate) groups: usize,
    /// Tokens.
    pub(crate) tokens: usize,
}

#[derive(Debug, Clone, Copy)]
struct Case {
    format: Format,
    tokens: usize,
    gate: Option<Activation>,
    /// Multiprocessors that the cut into blocks goes by.
    units: usize,
    seed: u64,
}

fn cases(most: Most) -> impl Strategy<Value = Case> {
    // Four bits have more kernels than the others.
    let format = (
        prop::sample::select(vec![4, 4, 4, 4, 2, 3, 5, 6, 8, PLAIN]),
        prop::sample::select(vec![32, 64, 64, 128]),
        1..=most.groups,
        prop::sample::select(vec![Dtype::Bf16, Dtype::Bf16, Dtype::F16, Dtype::F32]),
    );
    let shape = (
        1..=most.rows,
        prop_oneof![1 => Just(1), 4 => 2..=most.tokens],
        prop::sample::select(vec![
            None,
            Some(Activation::Silu),
            Some(Activation::GeluTanh),
        ]),
        any::<bool>(),
        // Few of them make blocks wide.
        prop::sample::select(vec![1, 3, 132]),
        any::<u64>(),
    );
    let decoded = prop::bool::weighted(0.25);
    (format, shape, decoded).prop_map(
        |((bits, group, groups, scales), (rows, tokens, gate, bias, units, seed), decoded)| {
            let case = Case {
                format: Format {
                    bits,
                    group,
                    columns: group * groups,
                    scales,
                    rows,
                    bias,
                },
                tokens,
                gate,
                units,
                seed,
            };
            if decoded { as_decoded(case) } else { case }
        },
    )
}

/// One row times the usual format, in whole units: what a decode step's kernels are made for, and what chance
/// alone hardly brings.
fn as_decoded(case: Case) -> Case {
    let format = case.format;
    Case {
        format: Format {
            bits: 4,
            group: format.group.max(TILE_COLUMNS),
            columns: format.columns.next_multiple_of(4 * TILE_COLUMNS),
            scales: Dtype::Bf16,
            ..format
        },
        tokens: 1,
        ..case
    }
}

/// Runs `most.cases` cases on `machine`; the same ones at every call.
pub(crate) fn check(machine: &Arc<dyn Machine>, most: Most) {
    let config = Config {
        cases: most.cases,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = proptest::test_runner::TestRng::deterministic_rng(config.rng_algorithm);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let outcome = runner.run(&cases(most), |case| check_case(machine, case));
    assert!(outcome.is_ok(), "{}", outcome.unwrap_err());
}

fn check_case(machine: &Arc<dyn Machine>, case: Case) -> Result<(), TestCaseError> {
    let mut random = Random::new(case.seed);
    let matrix = HostMatrix::new(case.format, &mut random);
    let other = HostMatrix::new(case.format, &mut random);
    let x: Vec<f32> = (0..case.tokens * case.format.columns)
        .map(|_| bf16::from_f32(random.uniform()).to_f32())
        .collect();
    let mut staging = Staging::new(machine);
    for arithmetic in [Arithmetic::Fast, Arithmetic::Float32] {
        let model = Model {
            units: case.units,
            routes: Routes::new(&machine.profile(), arithmetic),
            machine: Arc::clone(machine),
            arithmetic,
            linears: Vec::new(),
            gated: Vec::new(),
            vectors: Vec::new(),
        };
        let product = Product {
            model: &model,
            case,
            x: &x,
        };
        let fast = arithmetic == Arithmetic::Fast;
        match (case.gate, fast) {
            (Some(gate), true) => {
                let linear =
                    Linear::gated(&mut staging, &matrix.linear("gate"), &other.linear("up"));
                product.check_gated(&failing(linear)?, gate, [&matrix, &other])?;
            }
            (None, true) => {
                let linear = failing(Linear::tiles(&mut staging, &[matrix.linear("w")]))?;
                product.check_stored(&linear, &matrix)?;
            }
            (_, false) => {
                let linear = failing(Linear::plain(machine, &[matrix.linear("w")]))?;
                product.check_stored(&linear, &matrix)?;
            }
        }
    }
    Ok(())
}

pub(super) fn failing<T, E: std::fmt::Display>(result: Result<T, E>) -> Result<T, TestCaseError> {
    result.map_err(|error| TestCaseError::fail(error.to_string()))
}

struct Product<'a> {
    model: &'a Model,
    case: Case,
    x: &'a [f32],
}

impl Product<'_> {
    fn poisoned(&self, bytes: usize) -> Result<Buffer, TestCaseError> {
        let buffer = failing(Buffer::zeroed(&self.model.machine, bytes))?;
        failing(
            self.model
                .machine
                .write(buffer.address(), &vec![0xff; bytes]),
        )?;
        Ok(buffer)
    }

    /// What `matrix_product` reads.
    fn inputs(&self) -> Result<Buffer, TestCaseError> {
        let (tokens, columns) = (self.case.tokens, self.case.format.columns);
        let machine = &self.model.machine;
        if self.model.arithmetic == Arithmetic::Float32 {
            return failing(Buffer::of(machine, self.x));
        }
        let mut arranged = vec![0u16; tokens * padded(columns)];
        for (index, value) in self.x.iter().enumerate() {
            let at = input_index(machine.layout(), index / columns, index % columns, tokens);
            arranged[at] = bf16::from_f32(*value).to_bits();
        }
        failing(Buffer::of(machine, &arranged))
    }

    fn check_stored(&self, linear: &Linear, matrix: &HostMatrix) -> Result<(), TestCaseError> {
        let (rows, tokens) = (self.case.format.rows, self.case.tokens);
        let stride = rows + GAP;
        let rounded = self.model.arithmetic == Arithmetic::Fast;
        let wanted = matrix.times(self.x, rounded);
        let y = self.poisoned(4 * tokens * stride)?;
        let x = self.inputs()?;
        let output = (y.address(), stride);
        failing(
            self.model
                .matrix_product(linear, x.address(), output, tokens, Output::Store),
        )?;
        let got = self.floats(&y, tokens * stride)?;
        for token in 0..tokens {
            for row in 0..stride {
                let value = f64::from(got[token * stride + row]);
                if row >= rows {
                    prop_assert!(value.is_nan(), "written beyond row {rows} of token {token}");
                    continue;
                }
                let wanted = wanted[token * rows + row];
                wanted.expect(value, row, token)?;
            }
        }
        if tokens == 1 && rounded {
            self.check_vector(linear, &matrix.times(self.x, false))?;
        }
        Ok(())
    }

    fn check_vector(&self, linear: &Linear, wanted: &[Sum]) -> Result<(), TestCaseError> {
        for next_to in NEIGHBOURS {
            let y = self.poisoned(4 * (self.case.format.rows + GAP))?;
            self.vector_product(linear, &y, Output::Store, next_to)?;
            let got = self.floats(&y, self.case.format.rows + GAP)?;
            for (row, value) in got.iter().enumerate() {
                match wanted.get(row) {
                    Some(wanted) => wanted.of_vector().expect(f64::from(*value), row, 0)?,
                    None => prop_assert!(value.is_nan(), "written beyond the last row"),
                }
            }
        }
        Ok(())
    }

    fn vector_product(
        &self,
        linear: &Linear,
        y: &Buffer,
        output: Output,
        next_to: Neighbours,
    ) -> Result<(), TestCaseError> {
        let x = failing(Buffer::of(&self.model.machine, self.x))?;
        let input = RowInput {
            x: x.address(),
            ..RowInput::default()
        };
        let output = (y.address(), output);
        let done = self.model.vector_product(linear, input, output, next_to);
        failing(done).map(|_| ())
    }

    fn check_gated(
        &self,
        linear: &Linear,
        gate: Activation,
        [gates, ups]: [&HostMatrix; 2],
    ) -> Result<(), TestCaseError> {
        let (rows, tokens) = (self.case.format.rows, self.case.tokens);
        let layout = self.model.machine.layout();
        let halves = tokens * padded(rows);
        let y = self.poisoned(2 * halves)?;
        let x = self.inputs()?;
        let output = (y.address(), 0);
        failing(self.model.matrix_product(
            linear,
            x.address(),
            output,
            tokens,
            Output::Gated(gate),
        ))?;
        let mut bytes = vec![0u8; 2 * halves];
        failing(self.model.machine.read(y.address(), &mut bytes))?;
        let got: Vec<bf16> = bytes
            .as_chunks::<2>()
            .0
            .iter()
            .map(|b| bf16::from_le_bytes(*b))
            .collect();
        let (g, up) = (gates.times(self.x, true), ups.times(self.x, true));
        for token in 0..tokens {
            for row in 0..padded(rows) {
                let value = got[input_index(layout, token, row, tokens)].to_f64();
                if row >= rows {
                    // Padding may be left alone or be zero.
                    prop_assert!(value.is_nan() || value == 0.0, "row {row} of token {token}");
                    continue;
                }
                let at = token * rows + row;
                let wanted = gated(gate, g[at], up[at]);
                wanted.rounded().expect(value, row, token)?;
            }
        }
        for next_to in NEIGHBOURS.into_iter().filter(|_| tokens == 1) {
            let y = self.poisoned(4 * rows)?;
            self.vector_product(linear, &y, Output::Gated(gate), next_to)?;
            let got = self.floats(&y, rows)?;
            let (g, up) = (gates.times(self.x, false), ups.times(self.x, false));
            for (row, value) in got.iter().enumerate() {
                let wanted = gated(gate, g[row].of_vector(), up[row].of_vector());
                wanted.expect(f64::from(*value), row, 0)?;
            }
        }
        Ok(())
    }

    fn floats(&self, buffer: &Buffer, count: usize) -> Result<Vec<f32>, TestCaseError> {
        let machine = self.model.machine.as_ref();
        failing(read_floats(machine, buffer.address(), count))
    }
}

/// Where input `column` of `token` lies (`activations.h`), said in another way than there: the place in a
/// half of a tile is the one whose operand element is this column (`tiles.rs`).
fn input_index(layout: Layout, token: usize, column: usize, tokens: usize) -> usize {
    let (tile, inside) = (column / TILE_COLUMNS, column % TILE_COLUMNS);
    let place = match layout {
        Layout::Rdna3 => inside,
        Layout::Nvidia => {
            // Lane t holds the columns from 8 t on, four a step: two early and two late in the step.
            let (half, lane, step) = (inside / 32, inside % 32 / 8, inside % 8 / 4);
            let (late, odd) = (inside % 4 / 2, inside % 2);
            32 * half + 16 * step + 8 * late + 2 * lane + odd
        }
    };
    let piece = (place / 8) ^ (token % 8);
    (tile * tokens + token) * TILE_COLUMNS + 8 * piece + place % 8
}
