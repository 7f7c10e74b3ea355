//! What an input must not bring about: a panic, or more memory than its size warrants.

use std::cell::RefCell;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use mlxcel_engine::memory;

/// What any input may use, in bytes: the caches and packed weights of the tiny model that an input
/// can make us load, the tables of a tokenizer, the fuel of a chat template.
pub const BASE_BYTES: u64 = 64 << 20;

/// What each byte of an input may use besides, in bytes. `[0,0,…` is the densest JSON: two bytes
/// become a value of 72, and a list that grows holds three times its elements while it moves. A
/// count that is believed before it is checked needs far more than this.
pub const BYTES_PER_INPUT_BYTE: u64 = 128;

/// Most bytes that an input of `input_bytes` may have in use at once.
pub fn limit_bytes(input_bytes: usize) -> u64 {
    BASE_BYTES + BYTES_PER_INPUT_BYTE * input_bytes as u64
}

/// A folder for the files of one input after the other. The program must have installed
/// [`memory::CountingAllocator`], and nothing else may allocate meanwhile.
#[derive(Debug)]
pub struct Guard {
    scratch: tempfile::TempDir,
}

thread_local! {
    static OF_PROCESS: RefCell<Option<&'static Guard>> = const { RefCell::new(None) };
}

static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

/// Panics that the engine contains are no findings: the default hook of a fuzzer would end the
/// process at each. What they say is kept for one that is not contained.
pub fn keep_panics_quiet() {
    std::panic::set_hook(Box::new(|panic| {
        *LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner) = panic.to_string();
    }));
}

impl Guard {
    /// One with a folder of its own, removed with it.
    ///
    /// # Panics
    /// When there is no room for a folder.
    pub fn new() -> Self {
        let scratch = tempfile::tempdir().expect("a temporary folder");
        Self { scratch }
    }

    /// The fuzzer's only one, kept to the end of the process.
    pub fn of_process() -> &'static Self {
        OF_PROCESS.with_borrow_mut(|guard| *guard.get_or_insert_with(|| Box::leak(Box::default())))
    }

    /// Gives `input` to `target`.
    ///
    /// # Panics
    /// When the target does, or when the input used more memory than its size warrants.
    pub fn run(&self, target: fn(&Path, &[u8]), input: &[u8]) {
        let before = memory::now().active_bytes;
        memory::start_phase();
        let call = || target(self.scratch.path(), input);
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err() {
            let panic = LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner);
            panic!("the target panicked: {panic}");
        }
        let used = memory::now().phase_peak_bytes.saturating_sub(before);
        let limit = limit_bytes(input.len());
        assert!(
            used <= limit,
            "an input of {} bytes used {used} bytes, expected at most {limit}",
            input.len()
        );
    }
}

impl Default for Guard {
    fn default() -> Self {
        Self::new()
    }
}
