//! The findings as text for a terminal: what it is, what is wrong, then the tables.

use std::fmt;

use super::cache::CacheReport;
use super::report::{InspectReport, TokenizerReport};

impl fmt::Display for InspectReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.model)?;
        line(f, "Loads", &verdict(self))?;
        for problem in &self.problems {
            line(f, problem.part.name(), &problem.problem)?;
        }
        line(f, "Family", &family(self))?;
        line(f, "Shape", &shape(self))?;
        let shards = self.shards.len();
        let tensors: usize = self.shards.iter().map(|shard| shard.tensors).sum();
        let weights = format!(
            "{} in {shards} {}, {tensors} tensors, {:.2} bits a parameter",
            size(self.total_bytes),
            if shards == 1 { "file" } else { "files" },
            self.bits_per_parameter
        );
        line(f, "Weights", &weights)?;
        if let Some(cache) = &self.cache {
            line(f, "Cache", &cache_line(cache))?;
        }
        line(f, "Tokenizer", &tokenizer_line(self.tokenizer.as_ref()))?;
        for group in &self.unused {
            let text = format!("{} tensors of `{}`", group.tensors, group.prefix);
            line(f, "Unused", &text)?;
        }
        tables(self, f)
    }
}

fn line(f: &mut fmt::Formatter<'_>, label: &str, text: &str) -> fmt::Result {
    writeln!(f, "  {:<11}{text}", format!("{label}:"))
}

fn verdict(report: &InspectReport) -> String {
    match report.problems.len() {
        0 => "yes".to_owned(),
        1 => "no, 1 problem".to_owned(),
        count => format!("no, {count} problems"),
    }
}

fn family(report: &InspectReport) -> String {
    let model_type = report.model_type.as_deref().unwrap_or("no model_type");
    let synthetic = if report.synthetic { ", synthetic" } else { "" };
    match &report.family {
        Some(family) => format!("{family} ({model_type}){synthetic}"),
        None => format!("none for {model_type}{synthetic}"),
    }
}

fn shape(report: &InspectReport) -> String {
    let number = |number: Option<u64>| number.map_or("?".to_owned(), |number| number.to_string());
    format!(
        "{} layers, width {}, vocabulary {}, {:.1} M parameters, context {}",
        number(report.layers),
        number(report.hidden_size),
        number(report.vocab_size),
        report.parameters as f64 / 1e6,
        number(report.max_position_tokens)
    )
}

fn cache_line(cache: &CacheReport) -> String {
    let mut text = format!(
        "{} per 1k tokens ({} full layers, f16)",
        size(cache.bytes_per_1k_tokens),
        cache.full_layers
    );
    if cache.window_layers > 0 {
        text.push_str(&format!(
            ", {} for {} windows of {} tokens",
            size(cache.window_bytes),
            cache.window_layers,
            cache.window_tokens.unwrap_or(0)
        ));
    }
    if cache.estimated {
        text.push_str("; estimated from the usual keys");
    }
    text
}

fn tokenizer_line(tokenizer: Option<&TokenizerReport>) -> String {
    let Some(tokenizer) = tokenizer else {
        return "none: text needs a tokenizer.json".to_owned();
    };
    let start = match tokenizer.start_tokens.as_slice() {
        [] => "texts start as they are".to_owned(),
        ids => format!("texts start with {ids:?}"),
    };
    let chat = if tokenizer.chat_template { "a" } else { "no" };
    format!("{} tokens, {start}, {chat} chat template", tokenizer.tokens)
}

fn tables(report: &InspectReport, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let width = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0).max(6);
    let formats = width(&mut report.modules.iter().map(|m| m.format.chars().count()));
    writeln!(
        f,
        "\n  {:<formats$} {:>8} {:>11}",
        "Format", "modules", "bytes"
    )?;
    for share in &report.formats {
        let executed = match &share.executed_as {
            Some(format) => format!("  executed as {format}"),
            None => String::new(),
        };
        writeln!(
            f,
            "  {:<formats$} {:>8} {:>11}{executed}",
            share.format,
            share.modules,
            size(share.bytes)
        )?;
    }
    let paths = width(&mut report.modules.iter().map(|m| m.path.chars().count()));
    writeln!(
        f,
        "\n  {:<paths$} {:<formats$} {:>5} {:>11}  layers",
        "Module", "format", "count", "bytes"
    )?;
    for group in &report.modules {
        let line = format!(
            "  {:<paths$} {:<formats$} {:>5} {:>11}  {}",
            group.path,
            group.format,
            group.count,
            size(group.bytes),
            group.layers
        );
        writeln!(f, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Bytes with three or four digits, in decimal units.
fn size(bytes: u64) -> String {
    let bytes = bytes as f64;
    match bytes {
        b if b >= 1e9 => format!("{:.2} GB", b / 1e9),
        b if b >= 1e6 => format!("{:.2} MB", b / 1e6),
        b if b >= 1e3 => format!("{:.1} kB", b / 1e3),
        b => format!("{b} B"),
    }
}
