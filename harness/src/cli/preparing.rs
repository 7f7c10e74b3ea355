//! What a signal does before anything is measured.
//!
//! A build looks at a flag and ends. All else that can take long (a fetch, a checkout, a
//! lock that another run holds) cannot be told to stop, so the process ends without it:
//! everything before the first attempt is made aside and survives a kill.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::execute::signal::Interrupt;
use crate::session::error::SessionError;

/// Time between asking a build to stop and ending without it.
const GRACE: Duration = Duration::from_secs(2);

/// Follows the signals while a plan is prepared.
pub(super) struct Preparing {
    interrupt: Interrupt,
    stop: Arc<AtomicBool>,
    /// Whoever sets it decides how the preparation ends: the caller or the watch.
    over: Arc<AtomicBool>,
}

impl Preparing {
    /// Watches until [`Preparing::end`].
    pub(super) fn watch(interrupt: Interrupt) -> Self {
        let preparing = Preparing {
            interrupt,
            stop: Arc::new(AtomicBool::new(false)),
            over: Arc::new(AtomicBool::new(false)),
        };
        let (stop, over) = (Arc::clone(&preparing.stop), Arc::clone(&preparing.over));
        std::thread::spawn(move || {
            while !interrupt.sleep(Duration::from_secs(3600)) {}
            stop.store(true, Ordering::Relaxed);
            std::thread::sleep(GRACE);
            if !over.swap(true, Ordering::SeqCst) {
                let signal = interrupt.interrupted().unwrap_or_default();
                super::dispatch::abandon(&SessionError::InterruptedEarly { signal }.into());
            }
        });
        preparing
    }

    /// Becomes true when a signal asks to stop.
    pub(super) fn stop(&self) -> &AtomicBool {
        &self.stop
    }

    /// The end of the preparation, with its result.
    ///
    /// # Errors
    /// The result's own; [`SessionError::InterruptedEarly`] when a signal came.
    pub(super) fn end<T>(&self, result: Result<T, SessionError>) -> Result<T, SessionError> {
        if self.over.swap(true, Ordering::SeqCst) {
            // The watch is ending the process.
            loop {
                std::thread::park();
            }
        }
        match self.interrupt.interrupted() {
            Some(signal) => Err(SessionError::InterruptedEarly { signal }),
            None => result,
        }
    }
}
