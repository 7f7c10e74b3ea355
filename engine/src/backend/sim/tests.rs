//! The kernels one by one on fibers, in both fragment layouts and several schedules, against float64.

use crate::backend::sim::machine::args_bytes;

#[test]
fn both_sides_agree_on_the_size_of_every_argument() {
    use crate::backend::gpu::args_sizes;
    for (kernel, bytes) in args_sizes() {
        assert_eq!(args_bytes(kernel), bytes, "{kernel}");
    }
}
