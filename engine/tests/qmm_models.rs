//! Whole models under another device's routes: what the cache holds, and that it changes no bit.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use mlxcel_engine::backend::interface::{HeadRequest, TokenSource};
use mlxcel_engine::engine::StepRequest;
use mlxcel_engine::qmm::{DequantStats, Profile, QmmOptions, QmmReport, QmmSetup};
use mlxcel_engine::weights::synthetic::write_folder;
use mlxcel_engine::{Engine, LoadOptions};

/// Rows above every threshold of gfx1151.
const PROMPT_TOKENS: u32 = 200;

/// Products of a layer: q|k|v, o, gate, up, down.
const PRODUCTS_PER_LAYER: u64 = 5;

fn model(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_folder(name, folder.path(), &mut |_| {}).unwrap();
    folder
}

/// Logits after a prompt, and what products did.
fn prefill(folder: &Path, profile: Option<&str>, options: QmmOptions) -> (Vec<f32>, QmmReport) {
    let load = LoadOptions {
        threads: 2,
        qmm: QmmSetup {
            route_profile: profile.map(|name| Profile::find(name).unwrap()),
            options,
        },
        ..LoadOptions::default()
    };
    let engine = Engine::load(folder, &load, &mut |_| {}).unwrap();
    let mut sequence = engine.new_sequence().unwrap();
    let request = StepRequest {
        head: HeadRequest::TokenAndLogits,
        ..StepRequest::greedy()
    };
    let ids = (0..PROMPT_TOKENS).collect();
    let ticket = sequence.submit(TokenSource::Host(ids), request).unwrap();
    let logits = engine.read(ticket).unwrap().logits;
    (logits, engine.qmm_report())
}

#[test]
fn an_f16_model_fills_the_cache_and_no_size_of_it_changes_a_bit() {
    let folder = model("tiny-gemma3-f16");
    let gfx1151 = |entries| {
        let options = QmmOptions {
            dequant_cache_entries: entries,
            ..QmmOptions::default()
        };
        prefill(folder.path(), Some("gfx1151"), options)
    };
    let (logits, report) = gfx1151(8);
    let products = 6 * PRODUCTS_PER_LAYER;
    assert_eq!(report.routes["dequant_gemm"], products);
    let cache = report.dequant_cache;
    assert_eq!(
        (cache.hits, cache.misses, cache.inserts),
        (0, products, products)
    );
    assert_eq!(
        (cache.entries, cache.evictions, cache.bypasses),
        (8, products - 8, 0)
    );
    for entries in [0, 1, 100] {
        assert_eq!(gfx1151(entries).0, logits, "{entries} entries");
    }
}

#[test]
fn the_processors_own_routes_leave_the_cache_alone() {
    let folder = model("tiny-gemma3");
    let (_, report) = prefill(folder.path(), None, QmmOptions::default());
    assert!(!report.foreign && report.dequant_cache.misses == 0);
    // The last layer computes the one row that is asked for, and so does the head.
    let expected = [("qmv".to_owned(), 5), ("tiled".to_owned(), 26)];
    assert_eq!(report.routes, expected.into());
}

#[test]
fn a_bf16_prefill_above_the_ceiling_leaves_the_cache_empty() {
    let folder = model("tiny-gemma3");
    let (logits, report) = prefill(folder.path(), Some("gfx1151"), QmmOptions::default());
    let products = 6 * PRODUCTS_PER_LAYER;
    let expected = [
        ("dequant_gemm_above_wmma_ceiling".to_owned(), products),
        ("qmv".to_owned(), 1),
    ];
    assert_eq!(report.routes, expected.into());
    let bypassed = DequantStats {
        bypasses: products,
        ..DequantStats::default()
    };
    assert_eq!(report.dequant_cache, bypassed);
    let off = QmmOptions {
        dequant_cache_max_bytes: 0,
        ..QmmOptions::default()
    };
    assert_eq!(prefill(folder.path(), Some("gfx1151"), off).0, logits);
}
