//! A progress bar for work that takes long, silent for work that does not.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work that ends sooner shows nothing.
const DELAY: Duration = Duration::from_secs(2);

/// Shows bytes (or tokens) done of those to do on standard error, when that is
/// a terminal and the work has lasted for two seconds.
pub struct ByteProgress {
    what: String,
    counts: &'static str,
    started: Instant,
    bar: Option<ProgressBar>,
    enabled: bool,
}

impl ByteProgress {
    /// Starts the clock; nothing is drawn yet.
    pub fn new(what: impl Into<String>) -> Self {
        Self::counting(what, "{bytes} of {total_bytes}")
    }

    /// The same for work that is counted in tokens.
    pub fn tokens(what: impl Into<String>) -> Self {
        Self::counting(what, "{pos} of {len} tokens")
    }

    fn counting(what: impl Into<String>, counts: &'static str) -> Self {
        Self {
            what: what.into(),
            counts,
            started: Instant::now(),
            bar: None,
            enabled: std::io::stderr().is_terminal(),
        }
    }

    /// Notes how far the work has come.
    pub fn update(&mut self, done: u64, total: u64) {
        if !self.enabled || (self.bar.is_none() && self.started.elapsed() < DELAY) {
            return;
        }
        let (what, counts) = (&self.what, self.counts);
        let bar = self.bar.get_or_insert_with(|| bar(what, counts, total));
        bar.set_position(done);
    }
}

impl Drop for ByteProgress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar(what: &str, counts: &str, total: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    let template = format!("{{msg}} [{{bar:30}}] {counts} ({{eta}} left)");
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style);
    }
    bar.set_message(what.to_owned());
    bar
}
