//! What large products leave in the cache of dequantised weights, on ROCm's routes.
//!
//!     cargo test --release --features rocm --test rocm_qmm_dequant_cache -- --test-threads=1
//!
//! Each case runs in a process of its own with its own environment, as a program would. There are no
//! ROCm kernels in this crate yet, so the processor computes under the routes of gfx1151, and every
//! case says so (`--nocapture` shows it).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "the device is part of the result")]

mod packed;

use std::process::Command;
use std::sync::Arc;

use mlxcel_engine::backend::cpu::kernel::{
    Activations, DequantisedMatrix, FloatKind, KernelChoice, Kernels, QuantisedMatrix,
    dense_product,
};
use mlxcel_engine::backend::cpu::routed::RoutedProducts;
use mlxcel_engine::qmm::{DequantStats, Problem, Profile, QmmOptions, Route, choose};
use packed::{Packed, activations};

const N: usize = 512;
const K: usize = 256;

/// One case of the published issue.
struct Case {
    name: &'static str,
    variable: Option<(&'static str, &'static str)>,
    kind: FloatKind,
    rows: usize,
    /// Counters after one product, and after a second with the same weights.
    expected: [DequantStats; 2],
    /// Whether it holds only because of the ceiling's own route.
    needs_ceiling: bool,
}

const NOTHING: DequantStats = DequantStats {
    hits: 0,
    misses: 0,
    inserts: 0,
    evictions: 0,
    bypasses: 0,
    entries: 0,
    bytes: 0,
};

const fn bypasses(bypasses: u64) -> DequantStats {
    DequantStats {
        bypasses,
        ..NOTHING
    }
}

const INSERTED: DequantStats = DequantStats {
    misses: 1,
    inserts: 1,
    entries: 1,
    bytes: (N * K * 2) as u64,
    ..NOTHING
};

const CASES: [Case; 4] = [
    Case {
        name: "bf16_above_the_ceiling",
        variable: None,
        kind: FloatKind::Bf16,
        rows: 256,
        expected: [bypasses(1), bypasses(2)],
        needs_ceiling: true,
    },
    Case {
        name: "bf16_above_a_lowered_ceiling",
        variable: Some(("MLX_ROCM_WMMA_QMM_MAX_M", "32")),
        kind: FloatKind::Bf16,
        rows: 64,
        expected: [bypasses(1), bypasses(2)],
        needs_ceiling: true,
    },
    Case {
        name: "bf16_with_the_fused_kernel_forced",
        variable: Some(("MLX_ROCM_WMMA_QMM", "1")),
        kind: FloatKind::Bf16,
        rows: 256,
        expected: [NOTHING, NOTHING],
        needs_ceiling: false,
    },
    Case {
        name: "f16_is_kept",
        variable: None,
        kind: FloatKind::F16,
        rows: 128,
        expected: [
            INSERTED,
            DequantStats {
                hits: 1,
                ..INSERTED
            },
        ],
        needs_ceiling: false,
    },
];

/// Set in a child: the case, and which table it runs on.
const CASE: &str = "QMM_TEST_CASE";
const TABLE: &str = "QMM_TEST_TABLE";
const REVERTED: &str = "reverted";

/// The change taken back: products above the ceiling go to the cached route.
fn reverted(problem: &Problem, profile: &Profile, options: &QmmOptions) -> Route {
    match choose(problem, profile, options) {
        Route::DequantGemmAboveWmmaCeiling => Route::DequantGemm,
        other => other,
    }
}

/// Runs a case in a process of its own; returns whether it passed, and what it printed.
fn in_child(case: &Case, table: &str) -> (bool, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("MLX_ROCM_") {
            command.env_remove(name);
        }
    }
    command
        .args(["--exact", "child", "--ignored", "--nocapture"])
        .env(CASE, case.name)
        .env(TABLE, table)
        .envs(case.variable);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(
        text.contains("device: "),
        "{} did not run: {text}",
        case.name
    );
    (output.status.success(), text)
}

#[test]
#[ignore = "runs in the process that another test starts"]
fn child() {
    let (name, table) = (std::env::var(CASE).unwrap(), std::env::var(TABLE).unwrap());
    let case = CASES.iter().find(|case| case.name == name).unwrap();
    let (options, warnings) = QmmOptions::from_variables(|name| std::env::var_os(name));
    assert_eq!(warnings, []);
    let kernels = Kernels::new(KernelChoice::Best, 2).unwrap();
    println!(
        "device: cpu ({}) under the routes of gfx1151",
        kernels.isa()
    );

    let packed = Packed::random((N, K), 4, 64, case.kind);
    let matrix = Arc::new(QuantisedMatrix::repack(&kernels, &[packed.source()]).unwrap());
    let x = activations(case.rows * K, 1);
    let gfx1151 = Some(Profile::find("gfx1151").unwrap());
    let choose = if table == REVERTED { reverted } else { choose };
    let products = RoutedProducts::with_table(choose, kernels.isa(), gfx1151, options);
    let mut dense = vec![0.0; case.rows * N];
    dense_product(
        &kernels,
        &DequantisedMatrix::new(&kernels, &matrix),
        &x,
        &mut dense,
    );
    for expected in case.expected {
        let mut y = vec![f32::NAN; case.rows * N];
        products.product(&kernels, &matrix, &mut Activations::new(), &x, &mut y);
        let report = products.report();
        assert_eq!(report.dequant_cache, expected, "{name}");
        let dequantised = !report.routes.contains_key("wmma_dense");
        assert_eq!(y == dense, dequantised, "bits of dequantise-then-multiply");
    }
}

fn passes(name: &str) {
    let case = CASES.iter().find(|case| case.name == name).unwrap();
    let (passed, text) = in_child(case, "own");
    let device = text.lines().find(|line| line.starts_with("device: "));
    println!("{}", device.unwrap_or_default());
    assert!(passed, "{text}");
}

#[test]
fn bf16_products_above_the_ceiling_leave_the_cache_empty() {
    passes("bf16_above_the_ceiling");
}

#[test]
fn bf16_products_above_a_lowered_ceiling_leave_the_cache_empty() {
    passes("bf16_above_a_lowered_ceiling");
}

#[test]
fn the_fused_kernel_when_forced_moves_no_counter() {
    passes("bf16_with_the_fused_kernel_forced");
}

#[test]
fn f16_weights_are_kept_and_found() {
    passes("f16_is_kept");
}

// The cases must be able to fail: with the branch taken back, those that are about it do.
#[test]
fn reverting_the_ceiling_branch_fails_exactly_the_cases_about_it() {
    for case in &CASES {
        let (passed, text) = in_child(case, REVERTED);
        assert_eq!(passed, !case.needs_ceiling, "{}: {text}", case.name);
        if case.needs_ceiling {
            assert!(
                text.contains("inserts: 1"),
                "failed for another reason: {text}"
            );
        }
    }
}
