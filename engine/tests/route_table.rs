//! Every table over a grid of problems: a changed route shows as a changed line of the snapshot.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write;

use mlxcel_engine::qmm::{Float, Mode, PROFILES, Problem, Profile, QmmOptions, Route, choose};

/// Rows of activations that the table looks at.
const MOST_ROWS: usize = 4096;

/// `route M` for the first number of rows from which each route holds.
fn ranges(problem: Problem, profile: &Profile, options: &QmmOptions) -> String {
    let mut text = String::new();
    let mut last: Option<Route> = None;
    for m in 1..=MOST_ROWS {
        let route = choose(&Problem { m, ..problem }, profile, options);
        if last != Some(route) {
            let comma = if last.is_some() { ", " } else { "" };
            write!(text, "{comma}{} from {m}", route.name()).unwrap();
            last = Some(route);
        }
    }
    text
}

fn problems() -> Vec<(String, Problem)> {
    let mut problems = Vec::new();
    for (name, float) in [
        ("bf16", Float::Bf16),
        ("f16", Float::F16),
        ("f32", Float::F32),
    ] {
        for bits in [2, 3, 4, 5, 6, 8] {
            let problem = Problem::linear((1, 2560, 2560), float, bits, 64);
            problems.push((format!("{name} {bits}-bit g64 2560x2560"), problem));
        }
    }
    let bf16 = Problem::linear((1, 2560, 2560), Float::Bf16, 4, 64);
    let others = [
        ("bf16 4-bit g32 2560x2560", Problem { group: 32, ..bf16 }),
        ("bf16 4-bit g128 2560x2560", Problem { group: 128, ..bf16 }),
        ("bf16 4-bit g64 1000x2560", Problem { n: 1000, ..bf16 }),
        ("bf16 4-bit g64 2560x96", Problem { k: 96, ..bf16 }),
        (
            "bf16 4-bit g64 64x64",
            Problem {
                n: 64,
                k: 64,
                ..bf16
            },
        ),
        (
            "bf16 4-bit g64, x in f32",
            Problem {
                x: Float::F32,
                ..bf16
            },
        ),
        (
            "bf16 4-bit g64, 4 batches",
            Problem {
                x_batches: 4,
                ..bf16
            },
        ),
        (
            "bf16 4-bit g64, W not transposed",
            Problem {
                transpose: false,
                ..bf16
            },
        ),
        (
            "bf16 mxfp4",
            Problem {
                mode: Mode::Mxfp4,
                group: 32,
                ..bf16
            },
        ),
    ];
    problems.extend(others.map(|(name, problem)| (name.to_owned(), problem)));
    problems
}

fn table(title: &str, profile: &Profile, options: &QmmOptions) -> String {
    let mut text = format!("{title}\n");
    for (name, problem) in problems() {
        writeln!(text, "  {name:34} {}", ranges(problem, profile, options)).unwrap();
    }
    text
}

#[test]
fn the_route_table_of_every_profile() {
    let options = QmmOptions::default();
    let tables = PROFILES.map(|profile| table(profile.name(), &profile, &options));
    insta::assert_snapshot!("profiles", tables.join("\n"));
}

#[test]
fn the_route_table_of_gfx1151_under_each_variable() {
    let gfx1151 = Profile::find("gfx1151").unwrap();
    let tables = [
        ("MLX_ROCM_WMMA_QMM", "0"),
        ("MLX_ROCM_WMMA_QMM", "1"),
        ("MLX_ROCM_WMMA_QMM_MAX_M", "32"),
        ("MLX_ROCM_QMM_DEQUANT_GEMM", "0"),
        ("MLX_ROCM_QMM_DEQUANT_M_THRESHOLD", "16"),
    ]
    .map(|(variable, value)| {
        let (options, warnings) =
            QmmOptions::from_variables(|name| (name == variable).then(|| value.into()));
        assert_eq!(warnings, []);
        table(&format!("{variable}={value}"), &gfx1151, &options)
    });
    insta::assert_snapshot!("gfx1151_variables", tables.join("\n"));
}
