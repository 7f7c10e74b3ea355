//! From the file's revisions to full commits: every arm's pin, or every reason why not.

use std::collections::HashMap;
use std::path::Path;

use crate::experiment::expand::expand_env;
use crate::experiment::model::{Arm, Experiment};
use crate::source::mirror::Mirror;
use crate::source::patch;
use crate::source::pin::{self, Pin};
use crate::source::progress::SourceProgress;
use crate::source::repository::RepoRef;

use super::error::SessionError;
use super::observer::Observer;
use super::prepare::Request;

/// Where an arm's program comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A commit of a repository, by the mirror's place in [`Pinned::mirrors`].
    Pin {
        /// Index into the mirrors.
        mirror: usize,
        /// What to check out.
        pin: Pin,
    },
    /// A prebuilt program.
    Binary(std::path::PathBuf),
}

/// Every arm's origin.
pub struct Pinned {
    /// One mirror per repository.
    pub mirrors: Vec<Mirror>,
    /// One origin per arm, in the file's order.
    pub origins: Vec<Origin>,
}

/// Resolves every arm. All faults are collected before giving up.
///
/// # Errors
/// [`SessionError::Pins`] with one line per arm that cannot be resolved.
pub fn resolve(
    experiment: &Experiment,
    request: &Request<'_>,
    observer: &mut dyn Observer,
) -> Result<Pinned, SessionError> {
    let mut pinned = Pinned {
        mirrors: Vec::new(),
        origins: Vec::new(),
    };
    let mut known: HashMap<String, Result<usize, String>> = HashMap::new();
    let mut faults: Vec<String> = Vec::new();
    for (name, arm) in &experiment.arms {
        match origin(
            experiment,
            (name, arm),
            &mut pinned.mirrors,
            &mut known,
            request,
            observer,
        ) {
            Ok(origin) => pinned.origins.push(origin),
            Err(fault) => {
                let line = format!("arm `{name}`: {fault}");
                let text = fault.as_str();
                // One missing repository is one fault, however many arms need it.
                if !faults.iter().any(|known| known.ends_with(text)) {
                    faults.push(line);
                }
            }
        }
    }
    if faults.is_empty() {
        Ok(pinned)
    } else {
        Err(SessionError::Pins(faults))
    }
}

fn origin(
    experiment: &Experiment,
    (name, arm): (&str, &Arm),
    mirrors: &mut Vec<Mirror>,
    known: &mut HashMap<String, Result<usize, String>>,
    request: &Request<'_>,
    observer: &mut dyn Observer,
) -> Result<Origin, String> {
    let text =
        |name: &str| (request.variable)(name).map(|value| value.to_string_lossy().into_owned());
    if let Some(binary) = &arm.binary {
        let expanded = expand_env(binary, &text).map_err(|error| error.to_string())?;
        let path = request.root.join(expanded);
        return if path.is_file() {
            Ok(Origin::Binary(path))
        } else {
            Err(format!(
                "expected a program at {}, found none",
                path.display()
            ))
        };
    }
    let repo = arm.repo.as_deref().or_else(|| {
        experiment
            .source
            .as_ref()
            .map(|source| source.repo.as_str())
    });
    let (Some(repo), Some(rev)) = (repo, arm.rev.as_deref()) else {
        return Err("expected `rev` and a source repository, or `binary`".into());
    };
    let repo = expand_env(repo, &text).map_err(|error| error.to_string())?;
    observer.preparing(name, &format!("opening {repo}"));
    let mirror = known
        .entry(repo.clone())
        .or_insert_with(|| {
            let mirror = Mirror::open(request.cache, &RepoRef::parse(&repo, request.root))
                .map_err(|error| error.to_string())?;
            mirrors.push(mirror);
            Ok(mirrors.len() - 1)
        })
        .clone()?;
    let mut tell = |step: SourceProgress| observer.preparing(name, &step.to_string());
    let mut pin =
        pin::resolve(&mirrors[mirror], rev, &mut tell).map_err(|error| error.to_string())?;
    if let Some(file) = &arm.patch {
        let file = request.file.parent().unwrap_or(Path::new(".")).join(file);
        pin = patch::apply(&mirrors[mirror], &pin, &file).map_err(|error| error.to_string())?;
    }
    Ok(Origin::Pin { mirror, pin })
}
