//! `bench-run check`: the file and its pins, before anything is started.

use super::arguments::FileArgs;
use super::progress::Progress;
use super::surroundings::Surroundings;
use crate::experiment::matrix;
use crate::session::pins::Origin;
use crate::session::prepare;

/// Checks a file and says what it found.
///
/// # Errors
/// Every fault of the file, or every pin that cannot be resolved.
pub fn run(arguments: &FileArgs) -> anyhow::Result<i32> {
    let mut progress = Progress::new(false);
    let surroundings = Surroundings::new(&arguments.file)?;
    let (loaded, pinned) = prepare::check(&surroundings.request(None, None), &mut progress)?;
    progress.finish();
    let mut out = String::new();
    for (name, origin) in loaded.experiment.arms.keys().zip(&pinned.origins) {
        let what = match origin {
            Origin::Pin { pin, .. } if pin.dirty => {
                format!("{} with uncommitted changes", pin.commit)
            }
            Origin::Pin { pin, .. } => pin.commit.clone(),
            Origin::Binary(_) => "prebuilt".to_owned(),
        };
        out += &format!("{name:16} {what}\n");
    }
    let cells = matrix::cells(&loaded.experiment).len();
    let skipped = match matrix::skipped(&loaded.experiment).len() {
        0 => String::new(),
        skipped => format!(", {skipped} skipped"),
    };
    out += &format!(
        "{}: in order, {cells} cells{skipped}\n",
        surroundings.experiment_path
    );
    super::dispatch::print(&out)
}
