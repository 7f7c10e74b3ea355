//! Which tensor of the file becomes which of the folder, checked before anything is written.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::error::ConvertError;
use super::keys::Keys;
use super::{gemma3, llama};
use crate::weights::gguf::{GgufFile, GgufTensor};

/// Architectures that are converted.
const SUPPORTED: &str = "`gemma3` or `llama`";

/// The order in which rows are taken from the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowOrder {
    /// As they are.
    Same,
    /// Undoes the order of llama.cpp's q and k in Llama files: there, elements that a rotation
    /// pairs are neighbours; in an MLX folder element i is paired with i + half a head.
    PairsApart {
        /// Rows of a head.
        head_dim: usize,
    },
}

impl RowOrder {
    /// The row of the file that becomes row `row` of the folder.
    pub(super) fn source(self, row: usize) -> usize {
        match self {
            Self::Same => row,
            Self::PairsApart { head_dim } => {
                let (head, at) = (row / head_dim, row % head_dim);
                let half = head_dim / 2;
                head * head_dim + 2 * (at % half) + at / half
            }
        }
    }
}

/// What a tensor is to the model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Role {
    /// `[out, in]`, quantised where the file has it so; the target is a module path.
    Matrix(RowOrder),
    /// One axis, written as float32; the target is a tensor name.
    Vector {
        /// Added to each element.
        plus: f32,
        /// Order of the elements.
        order: RowOrder,
    },
}

/// One tensor of the file.
#[derive(Debug)]
pub(super) struct Step<'a> {
    pub(super) source: GgufTensor<'a>,
    pub(super) target: String,
    pub(super) role: Role,
}

/// All that is known of a model before its weights are touched.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    /// config.json, without `quantization`.
    pub(super) config: Map<String, Value>,
    /// In the order in which they are written.
    pub(super) steps: Vec<Step<'a>>,
}

/// Reads the keys and finds all tensors.
pub(super) fn plan(file: &GgufFile) -> Result<Plan<'_>, ConvertError> {
    let architecture = Keys::new(file, "").text("general.architecture")?;
    let keys = Keys::new(file, architecture);
    match architecture {
        "llama" => llama::plan(&keys),
        "gemma3" => gemma3::plan(&keys),
        _ => {
            let key = "general.architecture";
            Err(keys.wrong(key, SUPPORTED, file.value(key)))
        }
    }
}

/// Collects steps; every tensor of the file must be asked for by the end.
#[derive(Debug)]
pub(super) struct Collector<'a> {
    file: &'a GgufFile,
    steps: Vec<Step<'a>>,
    seen: BTreeSet<String>,
}

impl<'a> Collector<'a> {
    pub(super) fn new(file: &'a GgufFile) -> Self {
        Self {
            file,
            steps: Vec::new(),
            seen: BTreeSet::new(),
        }
    }

    /// Marks a tensor as understood without writing it.
    pub(super) fn consume(&mut self, source: &str) {
        self.seen.insert(source.to_owned());
    }

    /// A matrix `[out, in]`; true when the file has it.
    pub(super) fn optional_matrix(
        &mut self,
        source: &str,
        target: &str,
        shape: [usize; 2],
        order: RowOrder,
    ) -> Result<bool, ConvertError> {
        self.add(source, target.to_owned(), &shape, Role::Matrix(order))
    }

    pub(super) fn matrix(
        &mut self,
        source: &str,
        target: &str,
        shape: [usize; 2],
        order: RowOrder,
    ) -> Result<(), ConvertError> {
        let found = self.optional_matrix(source, target, shape, order)?;
        self.need(found, source, &shape)
    }

    /// A linear module: `<source>.weight` and, where there is one, `<source>.bias`.
    pub(super) fn linear(
        &mut self,
        source: &str,
        target: &str,
        shape: [usize; 2],
        order: RowOrder,
    ) -> Result<(), ConvertError> {
        self.matrix(&format!("{source}.weight"), target, shape, order)?;
        let role = Role::Vector { plus: 0.0, order };
        let bias = format!("{target}.bias");
        self.add(&format!("{source}.bias"), bias, &shape[..1], role)?;
        Ok(())
    }

    /// A norm's weight, `<source>.weight`.
    pub(super) fn norm(
        &mut self,
        source: &str,
        target: &str,
        width: usize,
        plus: f32,
    ) -> Result<(), ConvertError> {
        let source = format!("{source}.weight");
        let role = Role::Vector {
            plus,
            order: RowOrder::Same,
        };
        let found = self.add(&source, format!("{target}.weight"), &[width], role)?;
        self.need(found, &source, &[width])
    }

    fn need(&self, found: bool, source: &str, shape: &[usize]) -> Result<(), ConvertError> {
        if found {
            return Ok(());
        }
        let (expected, got) = (format!("shape {shape:?}"), "no such tensor".to_owned());
        Err(ConvertError::tensor(
            self.file.path(),
            source,
            expected,
            got,
        ))
    }

    fn add(
        &mut self,
        source: &str,
        target: String,
        shape: &[usize],
        role: Role,
    ) -> Result<bool, ConvertError> {
        let Some(tensor) = self.file.tensor(source) else {
            return Ok(false);
        };
        if tensor.shape != shape {
            let (expected, got) = (format!("shape {shape:?}"), format!("{:?}", tensor.shape));
            return Err(ConvertError::tensor(
                self.file.path(),
                source,
                expected,
                got,
            ));
        }
        self.seen.insert(source.to_owned());
        self.steps.push(Step {
            source: tensor,
            target,
            role,
        });
        Ok(true)
    }

    /// All steps.
    ///
    /// # Errors
    /// When the file has a tensor that nothing asked for: dropping it could change the model.
    pub(super) fn finish(self) -> Result<Vec<Step<'a>>, ConvertError> {
        if let Some(name) = self.file.names().find(|name| !self.seen.contains(*name)) {
            let expected = "only tensors that this architecture is known to have".to_owned();
            let got = "one that has no place in an MLX folder".to_owned();
            return Err(ConvertError::tensor(self.file.path(), name, expected, got));
        }
        Ok(self.steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_apart_undoes_pairs_together() {
        // The order that llama.cpp's converter makes: [half, pair] from [pair, half].
        let head_dim = 8;
        let together = |row: usize| {
            let (head, at) = (row / head_dim, row % head_dim);
            head * head_dim + at % 2 * (head_dim / 2) + at / 2
        };
        let order = RowOrder::PairsApart { head_dim };
        for row in 0..3 * head_dim {
            assert_eq!(together(order.source(row)), row);
        }
        assert_eq!([0, 1, 4].map(|row| order.source(row)), [0, 2, 1]);
    }
}
