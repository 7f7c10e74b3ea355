//! From the experiment's steps and cells to what has to be made. Pure.

use indexmap::IndexMap;

use crate::experiment::matrix::Cell;
use crate::experiment::model::{Experiment, SetupStep};
use crate::experiment::template::{self, OUT_NAME, TemplateError};

/// One thing to be made: a step, for the cells for which its command is the same.
#[derive(Debug, Clone, PartialEq)]
pub struct Demand<'a> {
    /// Name of the step: a placeholder of the measured command.
    pub name: &'a str,
    /// The step.
    pub step: &'a SetupStep,
    /// The cells' variables that the command uses, with their values.
    pub values: IndexMap<String, String>,
    /// Ids of the cells, in their order.
    pub cells: Vec<String>,
}

/// Everything that the experiment's steps have to make, steps in the file's order.
///
/// # Errors
/// A command that is no command; the loader has checked all of them before.
pub fn demands<'a>(
    experiment: &'a Experiment,
    cells: &[Cell],
) -> Result<Vec<Demand<'a>>, TemplateError> {
    let mut all: Vec<Demand<'a>> = Vec::new();
    for (name, step) in &experiment.setup {
        let used = template::placeholders(&step.command)?;
        for cell in cells {
            let values: IndexMap<String, String> = cell
                .values
                .iter()
                .filter(|(variable, _)| used.contains(*variable))
                .map(|(variable, value)| (variable.clone(), value.to_string()))
                .collect();
            let same = |demand: &&mut Demand<'_>| demand.name == name && demand.values == values;
            if let Some(known) = all.iter_mut().find(same) {
                known.cells.push(cell.id.clone());
                continue;
            }
            all.push(Demand {
                name,
                step,
                values,
                cells: vec![cell.id.clone()],
            });
        }
    }
    Ok(all)
}

impl Demand<'_> {
    /// Whether the command runs something that an arm's build left.
    #[must_use]
    pub fn runs_artifacts(&self) -> bool {
        template::placeholders(&self.step.command)
            .is_ok_and(|used| used.iter().any(|name| name.starts_with("artifact")))
    }

    /// The command's words, with the cells' values and `others` filled in.
    ///
    /// # Errors
    /// A placeholder that has no value.
    pub fn words(&self, others: &IndexMap<String, String>) -> Result<Vec<String>, TemplateError> {
        let mut all = self.values.clone();
        all.extend(others.clone());
        template::fill(&self.step.command, &all)
    }

    /// The command as a reader types it: the cells' values filled in, `{artifact}` and
    /// `{out}` left as they stand.
    ///
    /// # Errors
    /// As [`Demand::words`].
    pub fn shown(&self) -> Result<String, TemplateError> {
        let left = template::placeholders(&self.step.command)?
            .into_iter()
            .filter(|name| name == OUT_NAME || name.starts_with("artifact"))
            .map(|name| (name.clone(), format!("{{{name}}}")))
            .collect();
        let words = self.words(&left)?;
        let plain = |word: &str| left.values().any(|placeholder| placeholder == word);
        let quoted = words.iter().map(|word| match plain(word) {
            true => word.clone(),
            false => shell_words::quote(word).into_owned(),
        });
        Ok(quoted.collect::<Vec<_>>().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::matrix;

    fn experiment(setup: &str) -> Experiment {
        let text = format!(
            "schema: 1\nname: t\nquestion: q\ncommand: '{{artifact}} {{weights}}'\nnulls: all\n\
             arms: {{ base: {{ rev: a }} }}\n\
             metrics: {{ wall: {{ rusage: wall_seconds, better: lower }} }}\n\
             cells: {{ matrix: {{ model: ['hf:a/b', 'c d'], n: [1, 2] }} }}\nsetup:\n{setup}"
        );
        serde_yaml::from_str(&text).unwrap()
    }

    #[test]
    fn cells_for_which_the_command_is_the_same_share_what_it_makes() {
        let experiment = experiment("  weights: { command: 'fetch {model}', prints: path }\n");
        let cells = matrix::cells(&experiment);
        let demands = demands(&experiment, &cells).unwrap();
        let shared: Vec<Vec<String>> = demands.iter().map(|d| d.cells.clone()).collect();
        assert_eq!(shared, [["b.1", "b.2"], ["c-d.1", "c-d.2"]]);
    }

    #[test]
    fn a_step_without_variables_is_made_once_and_each_step_by_itself() {
        let experiment =
            experiment("  text: { command: 'make {out}' }\n  weights: { command: 'make {out}' }\n");
        let cells = matrix::cells(&experiment);
        let demands = demands(&experiment, &cells).unwrap();
        let names: Vec<&str> = demands.iter().map(|demand| demand.name).collect();
        assert_eq!(names, ["text", "weights"]);
        assert_eq!(demands[0].cells.len(), 4);
    }

    #[test]
    fn the_shown_command_names_no_place_and_can_be_typed() {
        let experiment =
            experiment("  weights: { command: '{artifact:fetch} {model} --to={out} {out}' }\n");
        let cells = matrix::cells(&experiment);
        let demands = demands(&experiment, &cells).unwrap();
        assert_eq!(
            demands[1].shown().unwrap(),
            "{artifact:fetch} 'c d' '--to={out}' {out}"
        );
    }
}
