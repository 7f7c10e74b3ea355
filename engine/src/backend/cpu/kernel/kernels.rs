//! The pool and the instruction set that the kernels run on.

use super::dispatch::{CpuFeatures, DispatchError, Isa, KernelChoice, choose};
use super::huge_pages::Arena;
use super::pool::Pool;

/// Why the kernels cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum KernelsError {
    /// A forced instruction set that this processor lacks.
    #[error(transparent)]
    Dispatch(#[from] DispatchError),
    /// The operating system refused a thread.
    #[error("failed to start {threads} kernel threads")]
    Threads {
        /// How many were asked.
        threads: usize,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// What every kernel is called with. Its `isa` is always one that this
/// processor has: that is what makes the kernels safe to call.
#[derive(Debug)]
pub struct Kernels {
    isa: Isa,
    pool: Pool,
    arena: Arena,
}

impl Kernels {
    /// Chooses the instruction set and starts the threads.
    ///
    /// # Errors
    /// When the choice is not available here or a thread cannot start.
    pub fn new(choice: KernelChoice, threads: usize) -> Result<Self, KernelsError> {
        let isa = choose(CpuFeatures::detect(), choice)?;
        let pool =
            Pool::new(threads).map_err(|source| KernelsError::Threads { threads, source })?;
        Ok(Kernels {
            isa,
            pool,
            arena: Arena::new(),
        })
    }

    /// The instruction set in use.
    #[must_use]
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Where repacked weights lie.
    #[must_use]
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// The threads.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }
}
