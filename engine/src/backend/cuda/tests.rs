//! The kernels one by one on the GPU of this machine, where there is one.

use std::sync::Arc;

use crate::backend::cuda::driver::CudaMachine;
use crate::backend::cuda::open::require;
use crate::backend::gpu::{
    Machine, Most, check_random_attention, check_random_draws, check_random_products,
    check_random_tiles, check_spare_tiles,
};

/// `None` where there is no GPU, which is then said.
fn machine() -> Option<Arc<dyn Machine>> {
    let opened = require().map_err(|error| error.to_string());
    match opened.and_then(|()| CudaMachine::open().map_err(|error| error.to_string())) {
        Ok(machine) => Some(Arc::new(machine)),
        Err(error) => {
            assert!(error.contains("not available"), "{error}");
            eprintln!("skipped: {error}");
            None
        }
    }
}

fn check(most: Most) {
    if let Some(machine) = machine() {
        check_random_products(&machine, most);
    }
}

#[test]
fn products_of_random_shapes_are_those_of_the_dequantiser() {
    check(Most {
        cases: 200,
        rows: 420,
        groups: 6,
        tokens: 200,
    });
}

#[test]
fn tiles_made_on_the_device_are_those_that_the_host_makes() {
    if let Some(machine) = machine() {
        check_random_tiles(&machine, 120);
    }
}

#[test]
fn decode_attention_of_random_shapes_is_that_of_plain_loops() {
    if let Some(machine) = machine() {
        check_random_attention(&machine, 150, 2500);
    }
}

#[test]
fn draws_are_those_of_the_host() {
    if let Some(machine) = machine() {
        check_random_draws(&machine, 300, 1 << 20);
    }
}

/// For `compute-sanitizer`, which is a hundred times slower.
#[test]
fn a_few_small_products() {
    check(Most {
        cases: 12,
        rows: 300,
        groups: 3,
        tokens: 170,
    });
}

/// The same of attention.
#[test]
fn decode_attention_of_few_rows() {
    if let Some(machine) = machine() {
        check_random_attention(&machine, 8, 300);
        check_spare_tiles(&machine);
    }
}

/// The same of draws.
#[test]
fn a_few_draws() {
    if let Some(machine) = machine() {
        check_random_draws(&machine, 12, 20_000);
    }
}
