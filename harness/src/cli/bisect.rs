//! `bench-run bisect`: the commit between two pins with which an effect began.
//!
//! Every step is a run of its own, of the good commit against one other, with null arms,
//! guard and record: killed at any moment, the same command goes on with the same step.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, ValueEnum};

use super::arguments::RunArgs;
use super::dispatch::print;
use super::progress::Progress;
use super::{project, report_files, run};
use crate::analysis::bisection::{
    Commit, Measured, Next, likeliest, misfits, next, posterior, strongest,
};
use crate::analysis::from_record::analyse;
use crate::exit_code;
use crate::experiment::expand::expand_env;
use crate::experiment::load;
use crate::experiment::model::Experiment;
use crate::record::reader::{self, Record};
use crate::record::store;
use crate::report::bisection::{Candidate, Finding, Run, short};
use crate::session::bisect::step;
use crate::session::error::SessionError;
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
    /// Look for an effect in this direction only [default: for the clearest one]
    #[arg(long, value_name = "DIRECTION")]
    pub direction: Option<Wanted>,
    /// Stop as soon as one commit is the first with this probability
    #[arg(long, value_name = "P", default_value_t = 0.95)]
    pub confidence: f64,
    /// Most runs; those on record count, and are used even where they are more
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_runs: u32,
    /// Name of this machine [default: made from the processor]
    #[arg(long, value_name = "LABEL")]
    pub host: Option<String>,
    /// Folder of the report [default: docs/benchmark_results in the project]
    #[arg(long, value_name = "DIR")]
    pub reports: Option<PathBuf>,
    /// No progress; warnings and errors only
    #[arg(long, short)]
    pub quiet: bool,
}

/// Which effect is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Wanted {
    /// A loss.
    Slower,
    /// A gain.
    Faster,
}

impl Wanted {
    fn direction(self) -> Direction {
        match self {
            Wanted::Slower => Direction::Slower,
            Wanted::Faster => Direction::Faster,
        }
    }

    fn that_is(self) -> &'static str {
        match self {
            Wanted::Slower => " that is slower",
            Wanted::Faster => " that is faster",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Wanted::Slower => "slower",
            Wanted::Faster => "faster",
        }
    }
}

/// Says why the commit of a step cannot be measured.
const UNUSABLE_FILE: &str = "unusable.txt";

/// A probability that no commit reaches: the search as it goes on as long as it can.
const NEVER: f64 = f64::INFINITY;

/// What became of one run.
struct Step {
    at: usize,
    measured: Option<Measured>,
    /// `None` where the commit does not build.
    record: Option<Record>,
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
    steps: Vec<Step>,
    root: PathBuf,
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
    let whole = search.whole()?;
    let found = search.until_found(&whole)?;
    search.progress.finish();
    let finding = search.finding(&whole, &found);
    print(&finding.text())?;
    search.report(&finding)?;
    Ok(match finding.answer.is_empty() {
        true => exit_code::TRY_AGAIN,
        false => exit_code::OK,
    })
}

impl<'a> Search<'a> {
    fn new(arguments: &'a BisectArgs) -> anyhow::Result<Self> {
        let experiment = load::load(&arguments.file)?.experiment;
        let root = project::root_of(&arguments.file);
        let source = match &experiment.source {
            Some(source) => {
                let repo = expand_env(&source.repo, &|name| std::env::var(name).ok())
                    .map_err(|error| SessionError::Usage(format!("source.repo: {error}")))?;
                Some(root.join(repo))
            }
            None => None,
        };
        let repository = source.filter(|path| path.is_dir()).ok_or_else(|| {
            SessionError::Usage("source.repo: expected a folder of this machine to bisect".into())
        })?;
        let (good, commits) = between(&repository, &arguments.good, &arguments.bad)
            .map_err(|error| SessionError::Usage(error.to_string()))?;
        let last = commits.last().map_or("", |commit| commit.id.as_str());
        let direction = arguments
            .direction
            .map(|wanted| format!("-{}", wanted.word()));
        let name = format!(
            "bisect-{}-{}-{}{}",
            experiment.name,
            short(&good),
            short(last),
            direction.unwrap_or_default()
        );
        Ok(Search {
            arguments,
            good,
            folder: root.join("results").join(name),
            line: vec![Commit::default(); commits.len()],
            commits,
            experiment,
            subject: None,
            steps: Vec::new(),
            root,
            progress: Progress::new(arguments.quiet),
        })
    }

    /// Measures the bad commit, and settles by which comparison its effect is followed.
    fn whole(&mut self) -> anyhow::Result<Measured> {
        let last = self.commits.len() - 1;
        let measured = self.measure(last)?;
        let (wanted, folder) = (
            self.arguments.direction.map_or("", Wanted::that_is),
            project::relative(&self.folder, &self.root),
        );
        let whole = measured.ok_or_else(|| {
            SessionError::Usage(format!(
                "--bad: expected an effect{wanted}, got no such comparison of {}: see {folder}",
                self.commits[last].id
            ))
        })?;
        if whole.judgement.direction == Direction::Undetermined {
            return Err(SessionError::Usage(format!(
                "--bad: expected an effect{wanted}, got none that the experiment can see ({}); \
                 more rounds or a larger workload may show it",
                whole.judgement.sentence
            ))
            .into());
        }
        let shown = (whole.judgement.cell.clone(), whole.judgement.metric.clone());
        self.subject = Some(shown);
        Ok(whole)
    }

    /// Measures what halves the probability, until it is found or the runs are spent. What is
    /// measured already counts, however little is asked for now: a page does not get poorer.
    fn until_found(&mut self, whole: &Measured) -> anyhow::Result<Next> {
        loop {
            let shares = posterior(&self.line, whole.effect);
            if let Next::Measure(at) = next(&self.line, &shares, NEVER)
                && self.is_measured(at)
            {
                self.measure(at)?;
                continue;
            }
            match next(&self.line, &shares, self.arguments.confidence) {
                Next::Measure(at) if self.steps.len() < self.arguments.max_runs as usize => {
                    self.measure(at)?;
                }
                next => return Ok(next),
            }
        }
    }

    /// One more run at a commit; `None` when it cannot be measured.
    fn measure(&mut self, at: usize) -> anyhow::Result<Option<Measured>> {
        let number = self.steps.len() + 1;
        let commit = &self.commits[at];
        let step = self.step(&self.next_folder(at), at)?;
        let measured = step.measured.clone();
        let said = measured
            .as_ref()
            .map_or("cannot be measured".to_owned(), |one| {
                change(&one.judgement)
            });
        self.progress
            .line(&format!("run {number}: {} {said}", short(&commit.id)));
        match &measured {
            Some(one) => self.line[at].seen.push(one.effect),
            None => self.line[at].broken = true,
        }
        self.steps.push(step);
        Ok(measured)
    }

    /// Where the next step lies if it is one at this commit.
    fn next_folder(&self, at: usize) -> PathBuf {
        let number = self.steps.len() + 1;
        let commit = short(&self.commits[at].id);
        self.folder.join(format!("{number:02}-{commit}"))
    }

    /// Whether that step was run to its end before.
    fn is_measured(&self, at: usize) -> bool {
        let folder = self.next_folder(at);
        let record = || latest(&folder.join("records"));
        folder.join(UNUSABLE_FILE).is_file() || record().is_some_and(|record| is_finished(&record))
    }

    /// Runs a step or reads what it left when it was run before.
    fn step(&self, folder: &Path, at: usize) -> anyhow::Result<Step> {
        let without_record = Step {
            at,
            measured: None,
            record: None,
        };
        let unusable = folder.join(UNUSABLE_FILE);
        let file = self.define(folder, at)?;
        if unusable.is_file() {
            return Ok(without_record);
        }
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
                    return Ok(without_record);
                }
                Err(error) => return Err(error),
            }
        }
        let record = latest(&records).context("a run left no record")?;
        let record = reader::read(&record)?;
        let analysis = analyse(&record.plan, &record.attempts).map_err(SessionError::OutOfStep)?;
        let wanted = self.arguments.direction.map(Wanted::direction);
        Ok(Step {
            at,
            measured: strongest(analysis.judgements, self.subject.as_ref(), wanted),
            record: Some(record),
        })
    }

    /// The step's experiment file. One that is there already must be the same: what was
    /// measured by another one is no part of this search.
    fn define(&self, folder: &Path, at: usize) -> anyhow::Result<PathBuf> {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        let file = folder.join("experiment.yaml");
        let commit = &self.commits[at];
        let head = (commit.id.as_str(), commit.summary.as_str());
        let step = step(&self.experiment, &self.good, head, self.steps.len() + 1);
        let text = serde_yaml::to_string(&step).context("cannot write the step's experiment")?;
        match fs::read_to_string(&file) {
            Ok(there) if there == text => return Ok(file),
            Ok(_) => {
                let there = project::relative(&file, &self.root);
                return Err(SessionError::Usage(format!(
                    "{there}: expected what {} asks for now, got a step of another version of it; \
                     move the folder of that search away",
                    self.arguments.file.display()
                ))
                .into());
            }
            Err(_) => {}
        }
        // Written aside and renamed: a kill leaves no half of it.
        let aside = folder.join("experiment.part");
        fs::write(&aside, text)
            .and_then(|()| fs::rename(&aside, &file))
            .with_context(|| format!("cannot write {}", file.display()))?;
        Ok(file)
    }

    /// What was found, as its page shows it.
    fn finding(&self, whole: &Measured, found: &Next) -> Finding {
        let shares = posterior(&self.line, whole.effect);
        let (answer, probability) = match found {
            Next::Found(group, probability) => (&self.commits[group.clone()], *probability),
            Next::Measure(_) => (&[][..], likeliest(&self.line, &shares)),
        };
        let commits = self.commits.iter().zip(&self.line).zip(shares);
        Finding {
            command: self.command(),
            experiment: self.experiment.name.clone(),
            good: self.good.clone(),
            cell: whole.judgement.cell.clone(),
            metric: whole.judgement.metric.clone(),
            better: whole.judgement.better,
            confidence: self.arguments.confidence,
            answer: answer.iter().map(|commit| commit.id.clone()).collect(),
            probability,
            misfits: misfits(&self.line, whole.effect)
                .into_iter()
                .map(|at| self.commits[at].id.clone())
                .collect(),
            commits: commits
                .map(|((commit, known), probability)| Candidate {
                    id: commit.id.clone(),
                    summary: commit.summary.clone(),
                    probability,
                    measurable: !known.broken,
                })
                .collect(),
            runs: (1..)
                .zip(&self.steps)
                .map(|(number, step)| self.told(number, step))
                .collect(),
        }
    }

    fn told(&self, number: u32, step: &Step) -> Run {
        let judgement = step.measured.as_ref().map(|one| &one.judgement);
        let sentence = match (judgement, &step.record) {
            (Some(judgement), _) => judgement.sentence.clone(),
            (None, Some(_)) => "no comparison could be judged".to_owned(),
            (None, None) => "it does not build".to_owned(),
        };
        Run {
            number,
            commit: self.commits[step.at].id.clone(),
            plan_sha256: step
                .record
                .as_ref()
                .map(|record| record.plan_sha256.clone()),
            estimate: judgement.and_then(|judgement| judgement.estimate),
            identical: judgement.is_some_and(|one| one.verdict == Verdict::Identical),
            sentence,
        }
    }

    /// The command that goes on with this search.
    fn command(&self) -> String {
        let file = project::relative(&self.arguments.file, &self.root);
        let bad = self.commits.last().map_or("", |commit| commit.id.as_str());
        let direction = self.arguments.direction;
        let direction = direction.map_or_else(String::new, |wanted| {
            format!(" --direction {}", wanted.word())
        });
        format!(
            "bench-run bisect {} --good {} --bad {bad}{direction} --confidence {}",
            shell_words::quote(&file),
            self.good,
            self.arguments.confidence
        )
    }

    /// Publishes the page with the records of all runs.
    fn report(&mut self, finding: &Finding) -> anyhow::Result<()> {
        let default = || report_files::default_folder(&self.root);
        let folder = self.arguments.reports.clone().unwrap_or_else(default);
        let name = self
            .folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        let steps = self.steps.iter().zip(&finding.runs);
        let records: Vec<(String, &Record)> = steps
            .filter_map(|(step, run)| {
                let folder = format!("{:02}-{}", run.number, short(&run.commit));
                Some((folder, step.record.as_ref()?))
            })
            .collect();
        let written = report_files::published(&mut self.progress, |with_record| {
            report_files::write_bisection(finding, &records, (&folder, &name), with_record)
        })?;
        let mut lines = format!("records {}\n", project::relative(&self.folder, &self.root));
        if let Some(path) = written {
            lines.push_str(&format!(
                "report  {}\n",
                project::relative(&path, &self.root)
            ));
        }
        print(&lines)?;
        Ok(())
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

fn change(judgement: &Judgement) -> String {
    judgement.estimate.map_or_else(
        || "the very program of the good commit".to_owned(),
        |estimate| unit::signed_pct(own_pct(judgement.better, estimate.delta)),
    )
}
