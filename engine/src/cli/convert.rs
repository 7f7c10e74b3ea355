//! `mlxcel convert MODEL.gguf DIR`: a GGUF file as an MLX folder.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;

use super::exit_code::SUCCESS;
use super::progress::ByteProgress;
use crate::convert::folder::TypeReport;
use crate::convert::{Conversion, ConvertOptions, convert};
use crate::quant::AffineFormat;

/// Convert a GGUF file (llama, gemma3) to an MLX model folder
///
/// Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K and Q5_K keep every weight; Q6_K has no affine form and is
/// quantised anew with 8 bits; F32, F16 and BF16 stay as they are unless --bits is given.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The GGUF file
    pub model: PathBuf,
    /// Folder to write; absent or empty
    pub folder: PathBuf,
    /// Quantise matrices that have no codes yet: bits of a code
    #[arg(long, value_name = "BITS")]
    pub bits: Option<u64>,
    /// With --bits: weights that share a scale
    #[arg(long, value_name = "N", default_value_t = 64, requires = "bits")]
    pub group_size: u64,
}

/// Converts, and says which weights did not keep their values.
///
/// # Errors
/// A file that cannot be read or converted, a folder that is in use, a failed write.
pub fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let bits = arguments.bits;
    let options = ConvertOptions {
        quantise_plain: bits
            .map(|bits| AffineFormat::new(bits, arguments.group_size))
            .transpose()?,
    };
    let source = arguments.model.display();
    let mut bar = ByteProgress::new(format!("converting {source}"));
    let mut progress = |done, total| bar.update(done, total);
    let converted = convert(&arguments.model, &arguments.folder, options, &mut progress);
    drop(bar);
    let conversion = converted.with_context(|| format!("failed to convert {source}"))?;
    notes(&conversion)?;
    writeln!(
        std::io::stdout(),
        "wrote {} ({} bytes of weights, from sha256 {})",
        arguments.folder.display(),
        conversion.weight_bytes,
        conversion.source_sha256
    )?;
    Ok(SUCCESS)
}

fn notes(conversion: &Conversion) -> std::io::Result<()> {
    let mut err = std::io::stderr();
    for report in &conversion.types {
        writeln!(err, "{}", note(report))?;
    }
    Ok(())
}

fn note(report: &TypeReport) -> String {
    let (from, to) = (report.from, report.to);
    let what = if report.tensors == 1 {
        format!("1 matrix of {from}")
    } else {
        format!("{} matrices of {from}", report.tensors)
    };
    if report.is_exact() {
        return format!("{what} as {to}, every weight kept");
    }
    let percent = 100.0 * report.relative_rms;
    format!("warning: {what} quantised anew as {to}: weights change by {percent:.2} % (rms)")
}
