//! A progress bar for work that takes long, silent for work that does not.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work that ends sooner shows nothing.
const DELAY: Duration = Duration::from_secs(2);

/// Shows bytes done of bytes to do on standard error, when that is a terminal
/// and the work has lasted for two seconds.
pub struct ByteProgress {
    what: String,
    started: Instant,
    bar: Option<ProgressBar>,
    enabled: bool,
}

impl ByteProgress {
    /// Starts the clock; nothing is drawn yet.
    pub fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            started: Instant::now(),
            bar: None,
            enabled: std::io::stderr().is_terminal(),
        }
    }

    /// Notes how far the work has come.
    pub fn update(&mut self, done_bytes: u64, total_bytes: u64) {
        if !self.enabled || (self.bar.is_none() && self.started.elapsed() < DELAY) {
            return;
        }
        let what = &self.what;
        let bar = self.bar.get_or_insert_with(|| bar(what, total_bytes));
        bar.set_position(done_bytes);
    }
}

impl Drop for ByteProgress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar(what: &str, total_bytes: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total_bytes), ProgressDrawTarget::stderr());
    let template = "{msg} [{bar:30}] {bytes} of {total_bytes} ({eta} left)";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_message(what.to_owned());
    bar
}
