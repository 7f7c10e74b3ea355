//! model.safetensors beside a fixed config.json.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mlxcel_engine::memory::CountingAllocator;
use mlxcel_engine_fuzz::{Guard, targets};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fuzz_target!(
    init: mlxcel_engine_fuzz::keep_panics_quiet(),
    |data: &[u8]| Guard::of_process().run(targets::safetensors, data)
);
