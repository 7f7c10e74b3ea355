//! `bench-run bisect`: the commit between two pins with which an effect began.
//!
//! Every step is a run of its own, of the good commit against one other, with null arms,
//! guard and record: killed at any moment, the same command goes on with the same step.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;

use super::arguments::RunArgs;
use super::dispatch::print;
use super::progress::Progress;
use super::{project, run};
use crate::analysis::bisection::{Commit, Effect, Next, groups, next, posterior};
use crate::analysis::from_record::analyse;
use crate::exit_code;
use crate::experiment::claim::Claims;
use crate::experiment::load;
use crate::experiment::model::{Experiment, Identical, Nulls};
use crate::record::{reader, store};
use crate::session::error::SessionError;
use crate::session::observer::Observer as _;
use crate::source::line::{LineCommit, between};
use crate::unit;
use crate::verdict::change::own_pct;
use crate::verdict::rule::{Direction, Judgement, Verdict};

/// `bench-run bisect`.
#[derive(Debug, Clone, Args)]
pub struct BisectArgs {
    /// The experiment: its base arm is run at every commit, everything else stays
    pub file: PathBuf,
    /// A commit without the effect
    #[arg(long, value_name = "SHA")]
    pub good: String,
    /// A later commit with it
    #[arg(long, value_name = "SHA")]
    pub bad: String,
    /// Stop as soon as one commit is the first with this probability
    #[arg(long, value_name = "P", default_value_t = 0.95)]
    pub confidence: f64,
    /// Most runs
    #[arg(long, value_name = "N", default_value_t = 60)]
    pub max_runs: u32,
    /// Name of this machine [default: made from the processor]
    #[arg(long, value_name = "LABEL")]
    pub host: Option<String>,
    /// No progress; warnings and errors only
    #[arg(long, short)]
    pub quiet: bool,
}

/// One comparison of a run: the effect of its head against the good commit.
struct Measured {
    judgement: Judgement,
    effect: Effect,
}

/// A search: the definition of its runs, where they lie, and what is known so far.
struct Search<'a> {
    arguments: &'a BisectArgs,
    experiment: Experiment,
    good: String,
    folder: PathBuf,
    commits: Vec<LineCommit>,
    line: Vec<Commit>,
    /// Cell and metric that show the whole effect most clearly.
    subject: Option<(String, String)>,
    runs: u32,
    progress: Progress,
}

/// Searches until a commit is found, and prints every candidate with its probability.
///
/// # Errors
/// No line between the commits, no effect of the bad one, whatever ends a run.
pub fn run(arguments: &BisectArgs) -> anyhow::Result<i32> {
    if !(0.5..1.0).contains(&arguments.confidence) {
        let got = arguments.confidence;
        let text = format!("--confidence: expected a probability from 0.5 to below 1, got {got}");
        return Err(SessionError::Usage(text).into());
    }
    let mut search = Search::new(arguments)?;
    let last = search.commits.len() - 1;
    let whole = search.measure(last)?.with_context(|| {
        let bad = &search.commits[last].id;
        format!(
            "nothing of the bad commit {bad} could be measured: see {}",
            search.folder.display()
        )
    })?;
    if whole.judgement.direction == Direction::Undetermined {
        return Err(SessionError::Usage(format!(
            "--bad: expected an effect that the experiment can see, got none ({}); more rounds \
             or a larger workload may show it",
            whole.judgement.sentence
        ))
        .into());
    }
    let shown = (whole.judgement.cell.clone(), whole.judgement.metric.clone());
    search.subject = Some(shown);
    let found = search.until_found(&whole)?;
    search.progress.finish();
    print(&search.describe(&whole, &found))?;
    Ok(exit_code::OK)
}

impl<'a> Search<'a> {
    fn new(arguments: &'a BisectArgs) -> anyhow::Result<Self> {
        let experiment = load::load(&arguments.file)?.experiment;
        let root = project::root_of(&arguments.file);
        let source = experiment
            .source
            .as_ref()
            .map(|source| root.join(&source.repo));
        let repository = source.filter(|path| path.is_dir()).ok_or_else(|| {
            SessionError::Usage("source.repo: expected a folder of this machine to bisect".into())
        })?;
        let (good, commits) = between(&repository, &arguments.good, &arguments.bad)
            .map_err(|error| SessionError::Usage(error.to_string()))?;
        let last = commits.last().map_or("", |commit| commit.id.as_str());
        let name = format!(
            "bisect-{}-{}-{}",
            experiment.name,
            short(&good),
            short(last)
        );
        Ok(Search {
            arguments,
            good,
            folder: root.join("results").join(name),
            line: vec![Commit::default(); commits.len()],
            commits,
            experiment,
            subject: None,
            runs: 0,
            progress: Progress::new(arguments.quiet),
        })
    }

    /// Measures what halves the probability, until it is found or the runs are spent.
    fn until_found(&mut self, whole: &Measured) -> anyhow::Result<Next> {
        loop {
            let shares = posterior(&self.line, whole.effect);
            match next(&self.line, &shares, self.arguments.confidence) {
                Next::Measure(at) if self.runs < self.arguments.max_runs => {
                    self.measure(at)?;
                }
                next => return Ok(next),
            }
        }
    }

    /// One more run at a commit; `None` when it cannot be measured.
    fn measure(&mut self, at: usize) -> anyhow::Result<Option<Measured>> {
        self.runs += 1;
        let commit = &self.commits[at];
        let folder = self
            .folder
            .join(format!("{:02}-{}", self.runs, short(&commit.id)));
        let measured = self.step(&folder, at)?;
        let said = measured
            .as_ref()
            .map_or("cannot be measured".to_owned(), |one| {
                change(&one.judgement)
            });
        if !self.arguments.quiet {
            let line = format!("run {}: {} {said}", self.runs, short(&commit.id));
            self.progress.waiting(&line);
        }
        match &measured {
            Some(one) => self.line[at].seen.push(one.effect),
            None => self.line[at].broken = true,
        }
        Ok(measured)
    }

    /// Runs a step or reads what it left when it was run before.
    fn step(&self, folder: &Path, at: usize) -> anyhow::Result<Option<Measured>> {
        let unusable = folder.join("unusable.txt");
        if unusable.is_file() {
            return Ok(None);
        }
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        let file = folder.join("experiment.yaml");
        let text = serde_yaml::to_string(&self.step_experiment(at))
            .context("cannot write the step's experiment")?;
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        let records = folder.join("records");
        if latest(&records).is_none_or(|record| !is_finished(&record)) {
            let result = run::run(&RunArgs {
                file,
                rounds: None,
                results: Some(records.clone()),
                reports: None,
                host: self.arguments.host.clone(),
                fresh: false,
                gate: false,
                no_report: true,
                quiet: true,
            });
            match result {
                Ok(_) => {}
                Err(error) if is_the_commits_own(&error) => {
                    fs::write(&unusable, format!("{error:#}\n"))
                        .with_context(|| format!("cannot write {}", unusable.display()))?;
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
        }
        let record = latest(&records).context("a run left no record")?;
        let record = reader::read(&record)?;
        let analysis = analyse(&record.plan, &record.attempts).map_err(SessionError::OutOfStep)?;
        Ok(strongest(analysis.judgements, self.subject.as_ref()))
    }

    /// The good commit against the commit at `at`, in the base's environment.
    fn step_experiment(&self, at: usize) -> Experiment {
        let mut step = self.experiment.clone();
        let base = step.arms.get(&step.base).cloned().unwrap_or_default();
        let arm = |rev: &str, label: &str| {
            let mut arm = base.clone();
            arm.rev = Some(rev.to_owned());
            arm.label = Some(label.to_owned());
            arm
        };
        let commit = &self.commits[at];
        step.arms.clear();
        step.arms.insert("good".into(), arm(&self.good, "good"));
        step.arms
            .insert("head".into(), arm(&commit.id, &commit.summary));
        step.base = "good".into();
        step.nulls = Nulls::Some(vec!["good".into()]);
        step.identical = Identical::AsNull;
        step.claim = Claims::default();
        step.control = None;
        // A step is one look: what stays open is measured again.
        step.rounds = step.looks.last().copied().unwrap_or(step.rounds);
        step.looks = Vec::new();
        step.confirm = false;
        // Every run at a commit is one of its own, also in order.
        step.seed = step.seed.wrapping_add(u64::from(self.runs));
        step
    }

    /// Every candidate with its probability.
    fn describe(&self, whole: &Measured, found: &Next) -> String {
        let shares = posterior(&self.line, whole.effect);
        let mut out = String::new();
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(
            out,
            "{} of {}: {} at {}, {} commits, {} runs\n",
            whole.judgement.metric,
            whole.judgement.cell,
            change(&whole.judgement),
            short(&self.commits[self.commits.len() - 1].id),
            self.commits.len(),
            self.runs
        );
        for (at, commit) in self.commits.iter().enumerate() {
            let known = &self.line[at];
            let runs = match (known.broken, known.seen.len()) {
                (true, _) => "not measurable".to_owned(),
                (false, 0) => String::new(),
                (false, runs) => format!("{runs} × {}", mean(whole, known)),
            };
            let _ = writeln!(
                out,
                "{:>6.1} %  {}  {runs:24}  {}",
                100.0 * shares[at],
                short(&commit.id),
                commit.summary
            );
        }
        let _ = writeln!(out, "\n{}", self.answer(found, &shares));
        out
    }

    fn answer(&self, found: &Next, shares: &[f64]) -> String {
        match found {
            Next::Found(group, probability) => {
                let ids: Vec<&str> = self.commits[group.clone()]
                    .iter()
                    .map(|commit| commit.id.as_str())
                    .collect();
                let one = if ids.len() == 1 {
                    "first commit with the effect"
                } else {
                    "first commit with the effect, among those that nothing can tell apart"
                };
                format!("{one} ({:.1} %): {}", 100.0 * probability, ids.join(" "))
            }
            Next::Measure(_) => {
                let share = |group: &std::ops::RangeInclusive<usize>| -> f64 {
                    shares[group.clone()].iter().sum()
                };
                let best = groups(&self.line).iter().map(share).fold(0.0, f64::max);
                format!(
                    "not found within {} runs; the likeliest has {:.1} %",
                    self.runs,
                    100.0 * best
                )
            }
        }
    }
}

/// The newest record in a step's folder.
fn latest(records: &Path) -> Option<PathBuf> {
    store::record_directories(records).ok()?.into_iter().next()
}

fn is_finished(record: &Path) -> bool {
    use crate::analysis::looks;
    use crate::record::rounds::Next as Step;
    reader::read(record)
        .is_ok_and(|record| matches!(looks::next(&record.plan, &record.attempts), Ok(Step::Done)))
}

/// Whether a run failed for a reason that belongs to the commit alone.
fn is_the_commits_own(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref::<SessionError>(),
        Some(SessionError::NothingToCompare(_))
    )
}

/// The comparison of `subject`, else the gated one that shows an effect most clearly; equal
/// code has none.
fn strongest(judgements: Vec<Judgement>, subject: Option<&(String, String)>) -> Option<Measured> {
    let is_it = |one: &Judgement| {
        subject.is_none_or(|(cell, metric)| (&one.cell, &one.metric) == (cell, metric))
    };
    let gated = judgements.into_iter().filter(|one| one.gated && is_it(one));
    let measured = gated.filter_map(|judgement| {
        let effect = match (judgement.verdict, judgement.estimate) {
            (Verdict::Identical, _) => Effect {
                delta: 0.0,
                error: 0.0,
                df: 1e6,
            },
            (_, Some(estimate)) => Effect {
                delta: estimate.delta,
                error: estimate.standard_error,
                df: estimate.degrees_of_freedom,
            },
            (_, None) => return None,
        };
        Some(Measured { judgement, effect })
    });
    measured.max_by(|a, b| {
        let size = |one: &Measured| one.effect.delta.abs() / one.effect.error.max(1e-9);
        size(a).total_cmp(&size(b))
    })
}

fn change(judgement: &Judgement) -> String {
    judgement.estimate.map_or_else(
        || "the very program of the good commit".to_owned(),
        |estimate| unit::signed_pct(own_pct(judgement.better, estimate.delta)),
    )
}

fn mean(whole: &Measured, commit: &Commit) -> String {
    let sum: f64 = commit.seen.iter().map(|seen| seen.delta).sum();
    #[expect(clippy::cast_precision_loss, reason = "a handful of runs")]
    let runs = commit.seen.len() as f64;
    unit::signed_pct(own_pct(whole.judgement.better, sum / runs))
}

fn short(id: &str) -> &str {
    id.get(..10).unwrap_or(id)
}
