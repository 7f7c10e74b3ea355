//! From built arms to planned arms: treatments, identity, null arms. Pure.
//!
//! A treatment is a build with an environment and arguments (docs/adr/0007). Equal code that the
//! file did not ask for is most likely a stale build, the fault that published
//! numbers have come from; it is refused before any time is spent.

use indexmap::IndexMap;

use crate::build::identity;
use crate::experiment::model::{Arm, Experiment, Identical};
use crate::experiment::nulls::null_arms;
use crate::record::format::{PlannedArm, PlannedBuild};

/// What became of building one arm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuiltArm {
    /// Index into the plan's builds.
    Build(usize),
    /// The end of the build's log.
    Failed(String),
}

/// Two arms that cannot both be measured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// Different revisions, equal code.
    #[error(
        "arms `{first}` and `{second}` were built from different sources, but their code is equal \
         (code hash {code}): a stale build, or a change that does not reach the artifact; \
         expected different code, or `identical: as-null` in the experiment"
    )]
    EqualCode {
        /// The earlier arm.
        first: String,
        /// The later arm.
        second: String,
        /// First digits of the code hash.
        code: String,
    },
    /// The same build, environment and arguments under two names.
    #[error(
        "arms `{first}` and `{second}` have the same build, environment and arguments; \
         expected them to differ, or `nulls: [{first}]` to repeat an arm"
    )]
    SameTreatment {
        /// The earlier arm.
        first: String,
        /// The later arm.
        second: String,
    },
}

/// The planned arms and what a reader must know about them.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrangement {
    /// Arms in the file's order, then null arms.
    pub arms: Vec<PlannedArm>,
    /// Such as an arm that turned out to be a null arm.
    pub warnings: Vec<String>,
}

/// Numbers treatments, refuses or re-labels equal code, and appends the null arms.
///
/// `built` has one entry per arm of the experiment, in its order.
///
/// # Errors
/// [`IdentityError`] when two arms are the same thing and the file does not say so.
pub fn arrange(
    experiment: &Experiment,
    built: &[BuiltArm],
    builds: &[PlannedBuild],
) -> Result<Arrangement, IdentityError> {
    let mut arms: Vec<PlannedArm> = Vec::new();
    let mut warnings = Vec::new();
    for ((name, arm), outcome) in experiment.arms.iter().zip(built) {
        let mut planned = planned_arm(name, arm, &experiment.env, outcome);
        let twins = || {
            let earlier = arms.iter().enumerate();
            earlier.filter(|(_, arm)| same_code(arm, &planned, builds))
        };
        // The same treatment tells most; then the same code from another source.
        let twin = twins()
            .find(|(_, arm)| same_surroundings(arm, &planned))
            .or_else(|| twins().find(|(_, arm)| arm.build != planned.build))
            .map(|(index, _)| index);
        if let Some(twin) = twin {
            let same_surroundings = same_surroundings(&arms[twin], &planned);
            let same_build = arms[twin].build == planned.build;
            if experiment.identical == Identical::Refuse {
                return Err(refusal(&arms[twin], &planned, same_build, builds));
            }
            if same_surroundings {
                warnings.push(join(&mut arms, twin, &mut planned, &experiment.base));
            }
        }
        planned.treatment = treatment_of(&arms, &planned, builds);
        arms.push(planned);
    }
    append_nulls(experiment, &mut arms);
    Ok(Arrangement { arms, warnings })
}

/// Makes one of two equal arms a null arm of the other, the base never; says which.
fn join(arms: &mut [PlannedArm], twin: usize, planned: &mut PlannedArm, base: &str) -> String {
    let root = arms[twin].null_of.as_ref().unwrap_or(&arms[twin].name);
    let (null, of) = if planned.name == base {
        (root.clone(), planned.name.clone())
    } else {
        (planned.name.clone(), root.clone())
    };
    if planned.name == base {
        for arm in arms.iter_mut() {
            if arm.name == null || arm.null_of.as_deref() == Some(&null) {
                arm.null_of = Some(of.clone());
            }
        }
    } else {
        planned.null_of = Some(of.clone());
    }
    format!("arm `{null}` has the code and the environment of `{of}`: it is measured as a null arm")
}

fn planned_arm(
    name: &str,
    arm: &Arm,
    shared_env: &IndexMap<String, String>,
    outcome: &BuiltArm,
) -> PlannedArm {
    let (build, build_failure) = match outcome {
        BuiltArm::Build(index) => (Some(*index), None),
        BuiltArm::Failed(log) => (None, Some(log.clone())),
    };
    let mut env = shared_env.clone();
    env.extend(arm.env.clone());
    PlannedArm {
        name: name.to_owned(),
        label: arm.label.clone().unwrap_or_else(|| name.to_owned()),
        null_of: None,
        build,
        build_failure,
        treatment: 0,
        args: arm.args.clone(),
        env,
        requires: arm.requires.clone(),
        slow_down: None,
    }
}

fn code<'a>(arm: &PlannedArm, builds: &'a [PlannedBuild]) -> Option<&'a str> {
    Some(builds.get(arm.build?)?.code_sha256.as_str())
}

fn same_code(first: &PlannedArm, second: &PlannedArm, builds: &[PlannedBuild]) -> bool {
    let build = |arm: &PlannedArm| builds.get(arm.build?);
    matches!((build(first), build(second)), (Some(one), Some(other)) if identity::same_code(one, other))
}

/// Whether two arms run in the same environment and with the same arguments.
fn same_surroundings(first: &PlannedArm, second: &PlannedArm) -> bool {
    first.env == second.env && first.args == second.args
}

fn refusal(
    first: &PlannedArm,
    second: &PlannedArm,
    same_build: bool,
    builds: &[PlannedBuild],
) -> IdentityError {
    let (first_name, second_name) = (first.name.clone(), second.name.clone());
    if same_build {
        IdentityError::SameTreatment {
            first: first_name,
            second: second_name,
        }
    } else {
        let code = code(first, builds)
            .unwrap_or_default()
            .chars()
            .take(16)
            .collect();
        IdentityError::EqualCode {
            first: first_name,
            second: second_name,
            code,
        }
    }
}

/// The number of the treatment that `arm` is a copy of, or the next free one.
fn treatment_of(arms: &[PlannedArm], arm: &PlannedArm, builds: &[PlannedBuild]) -> usize {
    arms.iter()
        .find(|earlier| same_code(earlier, arm, builds) && same_surroundings(earlier, arm))
        .map_or_else(
            || {
                arms.iter()
                    .map(|earlier| earlier.treatment + 1)
                    .max()
                    .unwrap_or(0)
            },
            |twin| twin.treatment,
        )
}

fn append_nulls(experiment: &Experiment, arms: &mut Vec<PlannedArm>) {
    for null in null_arms(experiment) {
        let Some(repeated) = arms.iter().find(|arm| arm.name == null.of) else {
            continue;
        };
        let label = format!("{} (null)", repeated.label);
        arms.push(PlannedArm {
            name: null.name,
            label,
            null_of: Some(null.of),
            ..repeated.clone()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(nulls: &str, identical: &str) -> Experiment {
        let text = format!(
            "schema: 1\nname: t\nquestion: q\ncommand: x\nnulls: {nulls}\nidentical: {identical}\n\
             metrics: {{ wall: {{ rusage: wall_seconds, better: lower }} }}\n\
             arms:\n  base: {{ rev: a }}\n  main: {{ rev: b }}\n  sync: {{ rev: b, env: {{ S: '1' }} }}\n"
        );
        serde_yaml::from_str(&text).unwrap()
    }

    fn build(code: &str) -> PlannedBuild {
        PlannedBuild {
            commit: None,
            dirty: false,
            patch_sha256: None,
            key: String::new(),
            artifacts: Vec::new(),
            code_sha256: code.into(),
            receipt: None,
        }
    }

    fn indices(list: &[usize]) -> Vec<BuiltArm> {
        list.iter().map(|index| BuiltArm::Build(*index)).collect()
    }

    #[test]
    fn an_environment_makes_a_treatment_of_its_own() {
        let plan = arrange(
            &experiment("[base]", "refuse"),
            &indices(&[0, 1, 1]),
            &[build("a"), build("b")],
        )
        .unwrap();
        let names: Vec<&str> = plan.arms.iter().map(|arm| arm.name.as_str()).collect();
        assert_eq!(names, ["base", "main", "sync", "base-null"]);
        let treatments: Vec<usize> = plan.arms.iter().map(|arm| arm.treatment).collect();
        assert_eq!(treatments, [0, 1, 2, 0]);
        assert_eq!(plan.arms[3].null_of.as_deref(), Some("base"));
    }

    #[test]
    fn arguments_make_a_treatment_of_their_own() {
        let mut experiment = experiment("[base]", "refuse");
        experiment.arms["sync"].env.clear();
        experiment.arms["sync"].args = Some("--slow".into());
        let builds = [build("a"), build("b")];
        let plan = arrange(&experiment, &indices(&[0, 1, 1]), &builds).unwrap();
        let treatments: Vec<usize> = plan.arms.iter().map(|arm| arm.treatment).collect();
        assert_eq!(treatments, [0, 1, 2, 0]);
        experiment.arms["main"].args = Some("--slow".into());
        let error = arrange(&experiment, &indices(&[0, 1, 1]), &builds).unwrap_err();
        assert!(
            error.to_string().contains("environment and arguments"),
            "{error}"
        );
    }

    #[test]
    fn equal_code_of_two_revisions_is_refused() {
        let error = arrange(
            &experiment("[base]", "refuse"),
            &indices(&[0, 1, 1]),
            &[build("a"), build("a")],
        )
        .unwrap_err();
        assert!(matches!(error, IdentityError::EqualCode { .. }), "{error}");
        assert!(error.to_string().contains("`base` and `main`"), "{error}");
    }

    #[test]
    fn equal_code_becomes_a_null_arm_when_declared() {
        let plan = arrange(
            &experiment("[base]", "as-null"),
            &indices(&[0, 1, 1]),
            &[build("a"), build("a")],
        )
        .unwrap();
        assert_eq!(plan.arms[1].null_of.as_deref(), Some("base"));
        assert_eq!(plan.arms[1].treatment, plan.arms[0].treatment);
        assert_ne!(plan.arms[2].treatment, plan.arms[0].treatment);
        assert_eq!(plan.warnings.len(), 1);
    }

    #[test]
    fn the_base_never_becomes_a_null_arm_wherever_it_stands() {
        let mut experiment = experiment("[main]", "as-null");
        experiment.base = "main".into();
        let builds = [build("a"), build("a")];
        let plan = arrange(&experiment, &indices(&[0, 1, 1]), &builds).unwrap();
        let null_of = |index: usize| plan.arms[index].null_of.as_deref();
        assert_eq!((null_of(0), null_of(1)), (Some("main"), None));
        assert!(
            plan.warnings[0].starts_with("arm `base` has the code"),
            "{:?}",
            plan.warnings
        );
    }

    #[test]
    fn an_equal_treatment_is_found_behind_an_equal_build_with_another_environment() {
        let mut experiment = experiment("[base]", "refuse");
        let sync = experiment.arms["sync"].clone();
        experiment.arms.insert("again".into(), sync);
        let error = arrange(&experiment, &indices(&[0, 0, 0, 0]), &[build("a")]).unwrap_err();
        assert!(error.to_string().contains("`base` and `main`"), "{error}");
        experiment.arms.shift_remove("main");
        let error = arrange(&experiment, &indices(&[0, 0, 0]), &[build("a")]).unwrap_err();
        assert!(error.to_string().contains("`sync` and `again`"), "{error}");
    }

    #[test]
    fn the_same_build_and_environment_twice_is_refused() {
        let error = arrange(
            &experiment("[base]", "refuse"),
            &indices(&[0, 0, 1]),
            &[build("a"), build("b")],
        );
        assert!(matches!(error, Err(IdentityError::SameTreatment { .. })));
    }

    #[test]
    fn nulls_all_repeats_every_arm_and_names_stay_unique() {
        let builds = [build("a"), build("b")];
        let plan = arrange(&experiment("all", "refuse"), &indices(&[0, 1, 1]), &builds).unwrap();
        assert_eq!(plan.arms.len(), 6);
        let plan = arrange(
            &experiment("[base, base]", "refuse"),
            &indices(&[0, 1, 1]),
            &builds,
        )
        .unwrap();
        assert_eq!(plan.arms[4].name, "base-null-2");
    }

    #[test]
    fn a_failed_build_keeps_its_arm_and_its_log() {
        let built = [
            BuiltArm::Build(0),
            BuiltArm::Failed("no such header".into()),
            BuiltArm::Failed("same".into()),
        ];
        let plan = arrange(&experiment("[base]", "refuse"), &built, &[build("a")]).unwrap();
        assert_eq!(plan.arms[1].build, None);
        assert_eq!(
            plan.arms[1].build_failure.as_deref(),
            Some("no such header")
        );
        assert_ne!(plan.arms[1].treatment, plan.arms[2].treatment);
    }
}
