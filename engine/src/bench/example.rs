//! A measurement with round numbers, for the tests of the reports.

use super::bandwidth::ReadBandwidth;
use super::latency::Latency;
use super::measure::{LogitsDigest, Measurement, Pass};
use crate::backend::interface::{Arithmetic, KernelReport};
use crate::decode::{DecodeStatistics, StopReason};
use crate::device_profile::DeviceProfile;
use crate::engine::ModelInfo;
use crate::memory::MemoryUse;
use crate::qmm::{DequantStats, QmmReport};

pub(super) fn measurement() -> Measurement {
    Measurement {
        model: model(),
        device: DeviceProfile {
            backend: "cpu".into(),
            name: "A CPU".into(),
            architecture: "x86_64".into(),
            units: 2,
            memory_bytes: Some(1 << 34),
            bandwidth_bytes_per_second: None,
        },
        arithmetic: Arithmetic::Fast,
        kernels: KernelReport {
            by_role: vec![("matvec 4-bit g64".into(), "avx512vnni".into())],
            kv_dtype: "f16".into(),
        },
        tokenizer: "bytes",
        chat_template: false,
        prompt_tokens: 2048,
        load_ns: 1_234_000_000,
        after_load: memory(1_000_000_000, 2_340_000_000),
        after_warmup: memory(1_100_000_000, 4_520_000_000),
        after_pass: memory(1_100_000_000, 4_500_000_000),
        logits: Some(LogitsDigest {
            sha256: "cd".repeat(32),
            finite: true,
        }),
        pass: pass(),
        qmm: qmm(),
        cache_bytes_per_token: 10_000_000,
        bandwidth: ReadBandwidth {
            median: 32e9,
            best: 35e9,
        },
        peak_resident_bytes: Some(4_600_000_000),
    }
}

fn model() -> ModelInfo {
    ModelInfo {
        family: "gemma3".into(),
        layers: 6,
        vocab_size: 512,
        hidden_size: 128,
        window_tokens: Some(32),
        full_cache_layers: 2,
        window_cache_layers: 4,
        kv_row_elements: 128,
        max_position_tokens: Some(1024),
        quantisation: "affine 4-bit g64".into(),
        bytes_per_token: 150_000_000,
        model_hash: "ab".repeat(32),
        synthetic: true,
        end_tokens: vec![1, 106],
    }
}

fn pass() -> Pass {
    Pass {
        prompt_tokens: 2048,
        prefill_ns: 712_340_000,
        first_token_ns: 712_350_000,
        after_prefill: memory(1_100_000_000, 4_500_000_000),
        after_decode: memory(1_150_000_000, 1_200_000_000),
        decode_ns: 2_042_860_000,
        latency: Latency {
            p50_ns: 15_900_000,
            p99_ns: 17_100_000,
        },
        tokens: (0..129).map(|index| index % 100).collect(),
        statistics: DecodeStatistics {
            decode_path: "engine",
            lookahead_steps: 127,
            wrapped: true,
            ..DecodeStatistics::default()
        },
        stopped: Some(StopReason::MaxTokens),
    }
}

fn qmm() -> QmmReport {
    let routes = [("qmv", 2080), ("dequant_gemm", 340)];
    QmmReport {
        profile: "gfx1151".into(),
        foreign: true,
        routes: routes.map(|(route, count)| (route.into(), count)).into(),
        dequant_cache: DequantStats {
            misses: 340,
            inserts: 340,
            evictions: 334,
            entries: 6,
            bytes: 241_172_480,
            ..DequantStats::default()
        },
        ..QmmReport::default()
    }
}

fn memory(active_bytes: u64, phase_peak_bytes: u64) -> MemoryUse {
    MemoryUse {
        active_bytes,
        cache_bytes: 0,
        phase_peak_bytes,
    }
}
