//! The `--json` line: unrounded, units in the names, every number finite.

use serde_json::{Map, Value, json};

use super::arguments::{Arguments, PROGRAM};
use super::measure::Measurement;
use crate::decode::StopReason;
use crate::version::Receipt;

/// The report as one JSON object, fields in a fixed order.
pub fn render(measurement: &Measurement, arguments: &Arguments, receipt: &Receipt) -> Value {
    let mut fields = Map::new();
    for group in groups(measurement, arguments, receipt) {
        if let Value::Object(group) = group {
            fields.extend(group);
        }
    }
    Value::Object(fields)
}

fn groups(measurement: &Measurement, arguments: &Arguments, receipt: &Receipt) -> [Value; 10] {
    [
        build(receipt),
        model(measurement, arguments),
        engine(measurement),
        request(measurement, arguments),
        speed(measurement),
        output(measurement),
        path(measurement),
        routes(measurement),
        memory(measurement),
        bandwidth(measurement),
    ]
}

fn build(receipt: &Receipt) -> Value {
    json!({
        "program": PROGRAM,
        "version": receipt.version,
        "commit": receipt.commit,
        "dirty": receipt.dirty,
        "features": receipt.features,
        "target": receipt.target,
        "profile": receipt.profile,
    })
}

fn model(m: &Measurement, arguments: &Arguments) -> Value {
    json!({
        "model": arguments.model,
        "synthetic": m.model.synthetic,
        "model_hash": m.model.model_hash,
        "family": m.model.family,
        "layers": m.model.layers,
        "vocab_size": m.model.vocab_size,
        "window_tokens": m.model.window_tokens,
        "quantisation": m.model.quantisation,
        "tokenizer": m.tokenizer,
        "chat_template": m.chat_template,
    })
}

fn engine(m: &Measurement) -> Value {
    let kernels: Map<String, Value> = m
        .kernels
        .by_role
        .iter()
        .map(|(role, kernel)| (role.clone(), json!(kernel)))
        .collect();
    json!({
        "backend": m.device.backend,
        "device": m.device.name,
        "architecture": m.device.architecture,
        "threads": m.device.units,
        "arithmetic": m.arithmetic,
        "kernels": kernels,
        "kv_dtype": m.kernels.kv_dtype,
    })
}

fn request(m: &Measurement, arguments: &Arguments) -> Value {
    json!({
        "prompt_tokens": m.prompt_tokens,
        "requested_tokens": arguments.decode_tokens(),
        "warmup_tokens": arguments.warmup_tokens(),
        "prefill_chunk_tokens": arguments.load_options().prefill_chunk_tokens,
        "ignore_eos": arguments.ignore_eos,
        "temperature": f64::from(arguments.temperature),
        "top_p": f64::from(arguments.top_p),
        "seed": arguments.seed,
    })
}

fn speed(m: &Measurement) -> Value {
    let pass = &m.pass;
    json!({
        "load_ms": milliseconds(m.load_ns),
        "prefill_ms": milliseconds(pass.prefill_ns),
        "prefill_tok_s": pass.prefill_tokens_per_second(),
        "ttft_ms": milliseconds(pass.first_token_ns),
        "decode_ms": milliseconds(pass.decode_ns),
        "decode_tok_s": pass.decode_tokens_per_second(),
        "inter_token_p50_ms": milliseconds(pass.latency.p50_ns),
        "inter_token_p99_ms": milliseconds(pass.latency.p99_ns),
    })
}

fn output(m: &Measurement) -> Value {
    let stopped = m.pass.stopped.map(StopReason::name);
    json!({
        "generated_tokens": m.pass.decoded_tokens(),
        "stopped": stopped,
        "distinct_tokens": m.pass.distinct_tokens(),
        "token_sha256": m.pass.token_sha256(),
        "logits_sha256": m.logits.as_ref().map(|logits| &logits.sha256),
        "logits_finite": m.logits.as_ref().map(|logits| logits.finite),
    })
}

fn path(m: &Measurement) -> Value {
    let statistics = &m.pass.statistics;
    json!({
        "decode_path": statistics.decode_path,
        "lookahead_steps": statistics.lookahead_steps,
        "undo_rows_recorded": statistics.undo_rows_recorded,
        "undo_rows_copied": statistics.undo_rows_copied,
        "undo_launches": statistics.undo_launches,
        "rewinds": statistics.rewinds,
        "appends_rewound": statistics.appends_rewound,
        "dropped_steps": statistics.dropped_steps,
        "wrapped": statistics.wrapped,
        "forced_sync": statistics.forced_sync,
        "undo_policy": statistics.undo_policy,
        "sync_reason": statistics.sync_reason,
    })
}

fn routes(m: &Measurement) -> Value {
    let cache = m.qmm.dequant_cache;
    json!({
        "route_profile": m.qmm.profile,
        "route_profile_foreign": m.qmm.foreign,
        "route_counts": m.qmm.routes,
        "qmm_options": m.qmm.options,
        "dequant_cache_hits": cache.hits,
        "dequant_cache_misses": cache.misses,
        "dequant_cache_inserts": cache.inserts,
        "dequant_cache_evictions": cache.evictions,
        "dequant_cache_bypasses": cache.bypasses,
        "dequant_cache_entries": cache.entries,
        "dequant_cache_bytes": cache.bytes,
    })
}

fn memory(m: &Measurement) -> Value {
    let phases = [
        ("after_load", m.after_load),
        ("after_warmup", m.after_warmup),
        ("after_prefill", m.pass.after_prefill),
        ("after_decode", m.pass.after_decode),
        ("after_measured_pass", m.after_pass),
    ];
    let phases: Map<String, Value> = phases
        .into_iter()
        .map(|(name, memory)| (name.to_owned(), json!(memory)))
        .collect();
    json!({
        "active_bytes": m.after_pass.active_bytes,
        "cache_bytes": m.after_pass.cache_bytes,
        "peak_bytes": m.peak_bytes(),
        "peak_resident_bytes": m.peak_resident_bytes,
        "memory": phases,
    })
}

fn bandwidth(m: &Measurement) -> Value {
    json!({
        "weight_bytes_per_token": m.model.bytes_per_token,
        "kv_bytes_per_token": m.cache_bytes_per_token,
        "decode_bytes_s": m.decode_bytes_per_second(),
        "read_bandwidth_bytes_s": m.bandwidth.median,
        "read_bandwidth_best_bytes_s": m.bandwidth.best,
        "bandwidth_share": m.bandwidth_share(),
    })
}

fn milliseconds(ns: u64) -> f64 {
    ns as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::example;
    use super::*;
    use crate::version::receipt;

    fn arguments() -> Arguments {
        Arguments::try_parse_from([PROGRAM, "-m", "synthetic:tiny-gemma3", "-n", "128"]).unwrap()
    }

    #[test]
    fn it_is_one_line_and_no_two_groups_use_the_same_name() {
        let (measurement, arguments) = (example::measurement(), arguments());
        let report = render(&measurement, &arguments, &receipt());
        let groups = groups(&measurement, &arguments, &receipt());
        let names: usize = groups
            .iter()
            .map(|group| group.as_object().unwrap().len())
            .sum();
        assert_eq!(report.as_object().unwrap().len(), names);
        assert_eq!(report.to_string().lines().count(), 1);
    }

    #[test]
    fn the_numbers_are_those_of_the_measurement_unrounded() {
        let report = render(&example::measurement(), &arguments(), &receipt());
        assert_eq!(report["prefill_ms"], 712.34);
        assert_eq!(report["decode_ms"], 2042.86);
        assert_eq!(report["generated_tokens"], 128);
        assert_eq!(report["peak_bytes"], 4_520_000_000u64);
        assert_eq!(
            report["memory"]["after_load"]["active_bytes"],
            1_000_000_000u64
        );
        let peaks = ["after_prefill", "after_decode", "after_measured_pass"]
            .map(|phase| report["memory"][phase]["phase_peak_bytes"].as_u64());
        assert_eq!(
            peaks,
            [4_500_000_000, 1_200_000_000, 4_500_000_000].map(Some)
        );
        assert_eq!(report["dequant_cache_bytes"], 241_172_480u64);
        assert_eq!(report["route_counts"]["qmv"], 2080);
        assert_eq!(report["route_profile"], "gfx1151");
        assert_eq!(report["kernels"]["matvec 4-bit g64"], "avx512vnni");
        assert_eq!(report["arithmetic"], "fast");
        assert_eq!(report["wrapped"], true);
        let share = report["bandwidth_share"].as_f64().unwrap();
        assert!(
            (share - 160e6 * 128.0 / 2.04286 / 32e9).abs() < 1e-9,
            "{share}"
        );
    }
}
