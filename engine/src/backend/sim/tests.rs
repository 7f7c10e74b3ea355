//! The kernels one by one on fibers, in both fragment layouts and several schedules, against float64.

use std::sync::Arc;

use crate::backend::gpu::{
    Layout, Machine, Most, check_random_attention, check_random_draws, check_random_products,
    check_random_tiles, check_spare_tiles,
};
use crate::backend::sim::machine::{SimMachine, args_bytes};

#[test]
fn both_sides_agree_on_the_size_of_every_argument() {
    use crate::backend::gpu::args_sizes;
    for (kernel, bytes) in args_sizes() {
        assert_eq!(args_bytes(kernel), bytes, "{kernel}");
    }
}

#[test]
fn products_of_random_shapes_are_those_of_the_dequantiser() {
    for (layout, order) in [(Layout::Nvidia, 3), (Layout::Rdna3, 4)] {
        let machine: Arc<dyn Machine> = Arc::new(SimMachine::new(layout, order));
        let most = Most {
            cases: 40,
            rows: 70,
            groups: 3,
            tokens: 40,
        };
        check_random_products(&machine, most);
    }
}

#[test]
fn tiles_made_on_the_device_are_those_that_the_host_makes() {
    for (layout, order) in [(Layout::Nvidia, 2), (Layout::Rdna3, 1)] {
        let machine: Arc<dyn Machine> = Arc::new(SimMachine::new(layout, order));
        check_random_tiles(&machine, 120);
    }
}

#[test]
fn decode_attention_of_random_shapes_is_that_of_plain_loops() {
    for (layout, order) in [(Layout::Nvidia, 3), (Layout::Rdna3, 4)] {
        let machine: Arc<dyn Machine> = Arc::new(SimMachine::new(layout, order));
        check_random_attention(&machine, 60, 200);
        check_spare_tiles(&machine);
    }
}

#[test]
fn draws_are_those_of_the_host() {
    for (layout, order) in [(Layout::Nvidia, 3), (Layout::Rdna3, 4)] {
        let machine: Arc<dyn Machine> = Arc::new(SimMachine::new(layout, order));
        check_random_draws(&machine, 60, 3000);
    }
}
