//! `--version`: the receipt, as a line or as JSON.

use std::io::Write;

use crate::version::receipt;

/// Prints the receipt of this build.
///
/// # Errors
/// When standard output cannot be written.
pub fn print(program: &str, json: bool) -> anyhow::Result<()> {
    let receipt = receipt();
    let line = if json {
        let mut value = serde_json::to_value(&receipt)?;
        if let Some(fields) = value.as_object_mut() {
            fields.insert("program".into(), program.into());
        }
        value.to_string()
    } else {
        receipt.line(program)
    };
    writeln!(std::io::stdout(), "{line}")?;
    Ok(())
}
