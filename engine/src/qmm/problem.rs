//! What a product with quantised weights looks like, as plain data.

/// How floating-point numbers are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Float {
    /// bfloat16.
    Bf16,
    /// IEEE half.
    F16,
    /// IEEE single.
    F32,
}

impl Float {
    /// Bytes of one number.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::Bf16 | Self::F16 => 2,
            Self::F32 => 4,
        }
    }
}

/// How codes become weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// `scale · code + bias`, by group.
    Affine,
    /// Microscaling: e2m1 codes, one power of two for each 32 of them (OCP MX v1.0). For back ends
    /// that read such codes; ours get them as affine ones, which is then what is asked.
    Mxfp4,
}

/// One product `y[M, N] = x[M, K] · W`, with `W` `[N, K]` when it is used transposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Problem {
    /// Rows of `x`: tokens.
    pub m: usize,
    /// Columns of `y`: outputs.
    pub n: usize,
    /// Columns of `x`: inputs.
    pub k: usize,
    /// Matrices stacked in front of `x`; 1 for one alone.
    pub x_batches: usize,
    /// Matrices stacked in front of `W`; 1 for one alone.
    pub weight_batches: usize,
    /// Whether `W` is stored `[N, K]`, as linear modules are.
    pub transpose: bool,
    /// How codes become weights.
    pub mode: Mode,
    /// What the model computes in: the type of `x`.
    pub x: Float,
    /// Type of the scales.
    pub scales: Float,
    /// Type of the biases.
    pub biases: Float,
    /// Columns that share a scale.
    pub group: usize,
    /// Bits of a code.
    pub bits: usize,
}

impl Problem {
    /// A linear module's product: affine, transposed, one matrix, all floats of one type.
    #[must_use]
    pub fn linear(
        (m, n, k): (usize, usize, usize),
        float: Float,
        bits: usize,
        group: usize,
    ) -> Self {
        Self {
            m,
            n,
            k,
            x_batches: 1,
            weight_batches: 1,
            transpose: true,
            mode: Mode::Affine,
            x: float,
            scales: float,
            biases: float,
            group,
            bits,
        }
    }

    /// Whether all batch counts are 1.
    #[must_use]
    pub fn is_single(&self) -> bool {
        self.x_batches == 1 && self.weight_batches == 1
    }

    /// Whether the weights are affine.
    #[must_use]
    pub fn is_affine(&self) -> bool {
        self.mode == Mode::Affine
    }

    /// Whether activations, scales and biases all have the type `float`.
    #[must_use]
    pub fn is_all(&self, float: Float) -> bool {
        [self.x, self.scales, self.biases] == [float; 3]
    }
}
