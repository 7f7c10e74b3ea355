//! How long `bench-run report` takes for a record of ten thousand attempts.
//!
//!     cargo bench -p bench-run --bench report
//!
//! The records are grown from a committed one: the same arms and metrics, more cells or
//! rounds, values drawn around the real ones. docs/METHODOLOGY.md has the figures.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints its figures, and nobody depends on its errors"
)]

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bench_run::analysis::from_record::analyse;
use bench_run::analysis::looks::Looks;
use bench_run::plan::order;
use bench_run::record::format::Attempt;
use bench_run::record::reader;
use bench_run::record::rounds::{Place, Progress};
use bench_run::record::store::{self, SealedPlan};
use bench_run::report::markdown;
use bench_run::report::model::ReportModel;
use bench_run::report::plot::figure::figures;
use bench_run::stats::random::SplitMix64;

const SEED_RECORD: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../docs/benchmark_results/data/gemma3-pp2048-epyc-2c-2026-11-29-3"
);

/// Times the whole command is run.
const RUNS: usize = 9;

/// Cells, rounds, looks.
const SHAPES: [(usize, u32, &[u32]); 3] =
    [(2, 1000, &[]), (100, 20, &[]), (20, 100, &[25, 50, 100])];

fn main() {
    println!(
        "cells rounds looks attempts | bench-run report: median (least-most) | read analyse Markdown pictures"
    );
    for (cells, rounds, looks) in SHAPES {
        let root = tempfile::tempdir().unwrap();
        let (record, attempts) = grow(root.path(), cells, rounds, looks);
        let whole = times(|| report(&record, &root.path().join("reports")));
        println!(
            "{cells:5} {rounds:6} {:5} {attempts:8} | {} ms | {}",
            looks.len().max(1),
            whole,
            parts(&record)
        );
    }
}

/// A record with so many cells and rounds below `root`, and how many attempts it has.
fn grow(root: &Path, cells: usize, rounds: u32, looks: &[u32]) -> (PathBuf, usize) {
    let seed = reader::read(Path::new(SEED_RECORD)).unwrap();
    let mut plan = seed.plan;
    plan.experiment.rounds = rounds;
    plan.experiment.looks = looks.to_vec();
    plan.cells = (0..cells)
        .map(|number| {
            let mut cell = plan.cells[number % plan.cells.len()].clone();
            cell.id = format!("{}-{number}", cell.id);
            cell
        })
        .collect();
    let orders = (0..cells)
        .map(|cell| order::order(plan.arms.len(), rounds as usize, order::cell_seed(7, cell)));
    let (orders, balanced): (Vec<_>, Vec<bool>) = orders.unzip();
    (plan.order, plan.balanced) = (orders, balanced[0]);
    let sealed = store::seal(plan).unwrap();
    let directory = store::create(root, ("2026-01-01", "made-up"), &sealed, &seed.host);
    let directory = directory.unwrap();
    let rows = rows(&sealed, &seed.attempts);
    let lines: String = rows
        .iter()
        .map(|row| serde_json::to_string(row).unwrap() + "\n")
        .collect();
    std::fs::write(directory.attempts_path(), lines).unwrap();
    (directory.path().to_owned(), rows.len())
}

/// The rows of a run to its end: what was decided at a look is not run further.
fn rows(sealed: &SealedPlan, real: &[Attempt]) -> Vec<Attempt> {
    let plan = &sealed.plan;
    let mut random = SplitMix64::new(11);
    let mut rows = Vec::new();
    let (mut looks, mut progress) = (Looks::new(plan), Progress::new(plan));
    loop {
        progress.look(&rows, &mut |rows, cells, stage| {
            looks.judge(rows, cells, stage)
        });
        let Some(place) = progress.next().place() else {
            return rows;
        };
        let row = row(sealed, place, real, &mut random);
        progress.apply(&row).unwrap();
        rows.push(row);
    }
}

/// A row like the real one of its arm, with values around it; where there are looks, around the
/// base's and so far that hardly anything is decided before the last.
fn row(sealed: &SealedPlan, place: Place, real: &[Attempt], random: &mut SplitMix64) -> Attempt {
    let plan = &sealed.plan;
    let (arm, noise) = match plan.experiment.looks.is_empty() {
        true => (&plan.arms[place.arm].name, 0.02),
        false => (&plan.experiment.base, 0.5),
    };
    let like = |row: &&Attempt| row.arm == *arm && row.outcome.is_ok();
    let mut row = real.iter().find(like).unwrap().clone();
    row.arm.clone_from(&plan.arms[place.arm].name);
    sealed.tag().clone_into(&mut row.plan);
    row.cell.clone_from(&plan.cells[place.cell].id);
    (row.round, row.slot, row.round_try) = (place.round, place.slot, place.round_try);
    for value in row.metrics.values_mut() {
        *value *= (noise * random.normal()).exp();
    }
    row
}

fn report(record: &Path, to: &Path) {
    let status = Command::new(env!("CARGO_BIN_EXE_bench-run"))
        .arg("report")
        .arg(record)
        .arg("--to")
        .arg(to)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
}

/// Median and range in milliseconds.
fn times(work: impl Fn()) -> String {
    let mut taken: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            work();
            1e3 * start.elapsed().as_secs_f64()
        })
        .collect();
    taken.sort_by(f64::total_cmp);
    let (least, most) = (taken[0], taken[RUNS - 1]);
    format!("{:.0} ({least:.0}-{most:.0})", taken[RUNS / 2])
}

/// What the parts of it take, each once, inside this process.
fn parts(path: &Path) -> String {
    let (record, read) = timed(|| reader::read(path).unwrap());
    let (analysis, analysed) = timed(|| analyse(&record.plan, &record.attempts).unwrap());
    let (_, rendered) =
        timed(|| markdown::render(&ReportModel::new(&record, &analysis, "x")).unwrap());
    let (_, drawn) = timed(|| figures(&record, &analysis).unwrap());
    [read, analysed, rendered, drawn]
        .map(|time| format!("{} ms", time.as_millis()))
        .join(" ")
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let made = black_box(work());
    (made, start.elapsed())
}
