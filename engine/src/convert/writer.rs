//! model.safetensors, streamed: the header is known from the plan, then one matrix after another.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use serde_json::{Map, Value, json};

use super::error::ConvertError;
use super::matrix::{AffineRow, Encoding, ScaleType, repack_row, requantise_row};
use super::plan::{Role, RowOrder, Step};
use crate::quant::AffineFormat;
use crate::weights::Dtype;
use crate::weights::gguf::dequantize_row;

/// Called with bytes of the source done, after each row or so.
pub(super) type Progress<'a> = dyn FnMut(u64) + 'a;

/// What became of a matrix: squares of what quantising anew changed, and of the weights.
pub(super) type Squares = [f64; 2];

/// Writes all steps; `encodings` says how each matrix among them is written, in the same order.
pub(super) fn write(
    path: &Path,
    source: &Path,
    steps: &[Step<'_>],
    encodings: &[Encoding],
    progress: &mut Progress<'_>,
) -> Result<(u64, Vec<Squares>), ConvertError> {
    let file = File::create(path).map_err(ConvertError::io("create", path))?;
    let mut sink = Sink {
        path,
        out: BufWriter::with_capacity(1 << 20, file),
        bytes: 0,
    };
    sink.put(&header(steps, encodings))?;
    let mut squares = Vec::with_capacity(steps.len());
    let mut done = 0;
    for (step, &encoding) in steps.iter().zip(encodings) {
        let before = done;
        let mut rows_done = |bytes: u64| progress(before + bytes);
        let written = match step.role {
            Role::Vector { plus, order } => sink.vector(step, plus, order),
            Role::Matrix(order) => sink.matrix(step, encoding, order, &mut rows_done),
        };
        squares.push(written.map_err(|fault| match fault {
            Fault::Io(error) => error,
            Fault::Values(got) => {
                let expected = "finite weights".to_owned();
                ConvertError::tensor(source, step.source.name, expected, got)
            }
        })?);
        done += step.source.bytes.len() as u64;
        progress(done);
    }
    let file = sink.out.into_inner().map_err(|error| error.into_error());
    let synced = file.and_then(|file| file.sync_all());
    synced.map_err(ConvertError::io("write", path))?;
    Ok((sink.bytes, squares))
}

/// Length, JSON, and blanks up to a multiple of eight, so that the data is aligned.
fn header(steps: &[Step<'_>], encodings: &[Encoding]) -> Vec<u8> {
    let mut entries = Map::new();
    entries.insert("__metadata__".to_owned(), json!({ "format": "mlx" }));
    let mut at = 0usize;
    let mut put = |name: String, dtype: Dtype, shape: &[usize]| {
        let end = at + shape.iter().product::<usize>() * dtype.size_bytes();
        let entry = json!({
            "dtype": format!("{dtype:?}").to_uppercase(),
            "shape": shape,
            "data_offsets": [at, end],
        });
        entries.insert(name, entry);
        at = end;
    };
    for (step, encoding) in steps.iter().zip(encodings) {
        let shape = step.source.shape;
        let target = &step.target;
        match (step.role, encoding) {
            (Role::Vector { .. }, _) => put(target.clone(), Dtype::F32, shape),
            (Role::Matrix(_), Encoding::Plain(kind)) => {
                put(format!("{target}.weight"), kind.dtype(), shape);
            }
            (
                Role::Matrix(_),
                Encoding::Repacked(format, kind) | Encoding::Requantised(format, kind),
            ) => {
                let (rows, columns) = (shape[0], step.source.row_elements());
                let groups = [rows, format.groups_per_row(columns)];
                let words = [rows, format.words_per_row(columns)];
                put(format!("{target}.weight"), Dtype::U32, &words);
                put(format!("{target}.scales"), kind.dtype(), &groups);
                put(format!("{target}.biases"), kind.dtype(), &groups);
            }
        }
    }
    let mut text = Value::Object(entries).to_string();
    while !text.len().is_multiple_of(8) {
        text.push(' ');
    }
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend(text.into_bytes());
    bytes
}

enum Fault {
    Io(ConvertError),
    Values(String),
}

impl From<ConvertError> for Fault {
    fn from(error: ConvertError) -> Self {
        Self::Io(error)
    }
}

struct Sink<'a> {
    path: &'a Path,
    out: BufWriter<File>,
    bytes: u64,
}

impl Sink<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), ConvertError> {
        self.bytes += bytes.len() as u64;
        let written = self.out.write_all(bytes);
        written.map_err(ConvertError::io("write", self.path))
    }

    fn vector(&mut self, step: &Step<'_>, plus: f32, order: RowOrder) -> Result<Squares, Fault> {
        let mut values = vec![0.0; step.source.row_elements()];
        dequantize_row(step.source.kind, step.source.bytes, &mut values);
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            return Err(Fault::Values(format!("{} at {at}", values[at])));
        }
        let ordered: Vec<f32> = (0..values.len())
            .map(|row| values[order.source(row)] + plus)
            .collect();
        let mut bytes = Vec::with_capacity(4 * ordered.len());
        ScaleType::F32.write(&ordered, &mut bytes);
        self.put(&bytes)?;
        Ok([0.0; 2])
    }

    fn matrix(
        &mut self,
        step: &Step<'_>,
        encoding: Encoding,
        order: RowOrder,
        progress: &mut Progress<'_>,
    ) -> Result<Squares, Fault> {
        let kind = step.source.kind;
        match encoding {
            Encoding::Plain(_) => {
                for blocks in rows(step, order) {
                    self.put(blocks)?;
                }
                Ok([0.0; 2])
            }
            Encoding::Repacked(format, scales) => {
                let row = |blocks: &[u8]| Ok(repack_row(kind, format, blocks));
                self.affine(step, order, (format, scales), row, progress)
            }
            Encoding::Requantised(format, scales) => {
                let row = |blocks: &[u8]| requantise_row(kind, format, scales, blocks);
                self.affine(step, order, (format, scales), row, progress)
            }
        }
    }

    /// Codes row by row, then all scales, then all biases.
    fn affine(
        &mut self,
        step: &Step<'_>,
        order: RowOrder,
        (format, kind): (AffineFormat, ScaleType),
        rewrite: impl Fn(&[u8]) -> Result<AffineRow, String>,
        progress: &mut Progress<'_>,
    ) -> Result<Squares, Fault> {
        let mut squares = [0.0; 2];
        let (mut scales, mut biases) = (Vec::new(), Vec::new());
        let mut codes = Vec::with_capacity(format.bytes_per_row(step.source.row_elements()));
        let mut done = 0;
        for (index, blocks) in rows(step, order).enumerate() {
            let row = rewrite(blocks)
                .map_err(|fault| Fault::Values(format!("row {} {fault}", order.source(index))))?;
            codes.clear();
            codes.extend(row.words.iter().flat_map(|word| word.to_le_bytes()));
            self.put(&codes)?;
            kind.write(&row.scales, &mut scales);
            kind.write(&row.biases, &mut biases);
            squares[0] += row.squares[0];
            squares[1] += row.squares[1];
            done += blocks.len() as u64;
            progress(done);
        }
        self.put(&scales)?;
        self.put(&biases)?;
        Ok(squares)
    }
}

/// The rows of a matrix in the order of the folder.
fn rows<'a>(step: &Step<'a>, order: RowOrder) -> impl Iterator<Item = &'a [u8]> {
    let bytes = step.source.bytes;
    // The file was refused unless its rows are whole blocks and none is empty.
    let count = step.source.shape[0];
    let row_bytes = bytes.len() / count;
    (0..count).map(move |row| {
        let at = order.source(row) * row_bytes;
        &bytes[at..at + row_bytes]
    })
}
