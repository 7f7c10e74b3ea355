//! The text output. Other tools parse it: lines and labels keep their shape,
//! and what is new comes after them.

use std::fmt::Write;

use super::measure::Measurement;
use crate::memory::MemoryUse;
use crate::qmm::QmmReport;

/// Renders the report, with a newline at the end.
pub fn render(measurement: &Measurement) -> String {
    let mut text = String::new();
    // Writing into a String cannot fail.
    let _ = write_report(&mut text, measurement);
    text
}

fn write_report(text: &mut String, m: &Measurement) -> std::fmt::Result {
    let pass = &m.pass;
    writeln!(
        text,
        "[Load] wall: {:.3} s  MLX peak: {}",
        m.load_ns as f64 / 1e9,
        gigabytes(m.after_load.phase_peak_bytes)
    )?;
    memory_line(text, "after load", m.after_load)?;
    memory_line(
        text,
        "after warmup (prefill + warmup tokens)",
        m.after_warmup,
    )?;
    memory_line(text, "after measured pass", m.after_pass)?;
    writeln!(text, "[Profile Results]")?;
    writeln!(text, "  Prompt tokens:    {}", m.prompt_tokens)?;
    writeln!(text, "  Generated tokens: {}", pass.decoded_tokens())?;
    let timed = |ns: u64, rate: f64| format!("{:.2} ms ({rate:.2} tok/s)", ns as f64 / 1e6);
    let prefill = timed(pass.prefill_ns, pass.prefill_tokens_per_second());
    let decode = timed(pass.decode_ns, pass.decode_tokens_per_second());
    writeln!(text, "  Prefill:          {prefill}")?;
    writeln!(text, "  Decode:           {decode}")?;
    writeln!(text, "  Decode path:      {}", pass.statistics.decode_path)?;
    writeln!(text, "  MLX peak memory:  {}", gigabytes(m.peak_bytes()))?;
    write_details(text, m)
}

/// What the shape above has no place for.
fn write_details(text: &mut String, m: &Measurement) -> std::fmt::Result {
    let synthetic = if m.model.synthetic { "synthetic " } else { "" };
    let (model, device) = (&m.model, &m.device);
    writeln!(
        text,
        "[Model] {synthetic}{}, {} layers, {}, tokenizer {}",
        model.family, model.layers, model.quantisation, m.tokenizer
    )?;
    let kernels: Vec<String> = m
        .kernels
        .by_role
        .iter()
        .map(|(role, kernel)| format!("{role}: {kernel}"))
        .collect();
    writeln!(
        text,
        "[Kernels] {} on {}, {} {}, caches {}; {}",
        device.backend,
        device.name,
        device.units,
        match device.backend.as_str() {
            "cpu" => "threads",
            _ => "multiprocessors",
        },
        m.kernels.kv_dtype,
        kernels.join(", ")
    )?;
    let latency = m.pass.latency;
    writeln!(
        text,
        "[Latency] first token {:.2} ms, between tokens p50 {:.3} ms, p99 {:.3} ms",
        m.pass.first_token_ns as f64 / 1e6,
        latency.p50_ns as f64 / 1e6,
        latency.p99_ns as f64 / 1e6
    )?;
    writeln!(
        text,
        "[Bandwidth] decode reads {:.2} GB/s of {:.2} GB/s ({:.0} %)",
        m.decode_bytes_per_second() / 1e9,
        m.bandwidth.median / 1e9,
        m.bandwidth_share() * 100.0
    )?;
    memory_line(text, "after prefill", m.pass.after_prefill)?;
    memory_line(text, "after decode", m.pass.after_decode)?;
    routes(text, &m.qmm)
}

fn routes(text: &mut String, qmm: &QmmReport) -> std::fmt::Result {
    let routes: Vec<String> = qmm
        .routes
        .iter()
        .map(|(route, count)| format!("{route} {count}"))
        .collect();
    let whose = if qmm.foreign { "of " } else { "" };
    let cache = &qmm.dequant_cache;
    writeln!(
        text,
        "[Routes] {whose}{}: {}; dequant cache hits {}, misses {}, bypasses {}, {} entries of {} bytes",
        qmm.profile,
        routes.join(", "),
        cache.hits,
        cache.misses,
        cache.bypasses,
        cache.entries,
        cache.bytes
    )
}

fn memory_line(text: &mut String, phase: &str, memory: MemoryUse) -> std::fmt::Result {
    writeln!(
        text,
        "[Memory] {phase}: active {}, cache {}, active+cache {}, phase peak {}",
        gigabytes(memory.active_bytes),
        gigabytes(memory.cache_bytes),
        gigabytes(memory.active_bytes + memory.cache_bytes),
        gigabytes(memory.phase_peak_bytes)
    )
}

/// Decimal gigabytes, two places.
fn gigabytes(bytes: u64) -> String {
    format!("{:.2} GB", bytes as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    const GOLDEN: &str = "\
[Load] wall: 1.234 s  MLX peak: 2.34 GB
[Memory] after load: active 1.00 GB, cache 0.00 GB, active+cache 1.00 GB, phase peak 2.34 GB
[Memory] after warmup (prefill + warmup tokens): active 1.10 GB, cache 0.00 GB, active+cache 1.10 GB, phase peak 4.52 GB
[Memory] after measured pass: active 1.10 GB, cache 0.00 GB, active+cache 1.10 GB, phase peak 4.50 GB
[Profile Results]
  Prompt tokens:    2048
  Generated tokens: 128
  Prefill:          712.34 ms (2875.03 tok/s)
  Decode:           2042.86 ms (62.66 tok/s)
  Decode path:      engine
  MLX peak memory:  4.52 GB
[Model] synthetic gemma3, 6 layers, affine 4-bit g64, tokenizer bytes
[Kernels] cpu on A CPU, 2 threads, caches f16; matvec 4-bit g64: avx512vnni
[Latency] first token 712.35 ms, between tokens p50 15.900 ms, p99 17.100 ms
[Bandwidth] decode reads 10.03 GB/s of 32.00 GB/s (31 %)
[Memory] after prefill: active 1.10 GB, cache 0.00 GB, active+cache 1.10 GB, phase peak 4.50 GB
[Memory] after decode: active 1.15 GB, cache 0.00 GB, active+cache 1.15 GB, phase peak 1.20 GB
[Routes] of gfx1151: dequant_gemm 340, qmv 2080; dequant cache hits 0, misses 340, bypasses 0, 6 entries of 241172480 bytes
";

    #[test]
    fn the_text_has_the_shape_that_other_tools_parse() {
        assert_eq!(render(&example::measurement()), GOLDEN);
    }
}
