//! Every committed input of the fuzz targets: no panic, no memory that its size does not warrant.

#![expect(
    dead_code,
    unreachable_pub,
    reason = "the modules are those of the fuzz targets' own crate"
)]

use std::path::Path;

use mlxcel_engine::memory::CountingAllocator;

#[path = "../fuzz/src/guard.rs"]
mod guard;
#[path = "../fuzz/src/targets.rs"]
mod targets;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// One test, because the account of memory is the process's.
#[test]
fn committed_inputs_are_harmless() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let guard = guard::Guard::new();
    for (name, target) in targets::ALL {
        let mut inputs = 0;
        for entry in std::fs::read_dir(corpus.join(name)).unwrap() {
            let path = entry.unwrap().path();
            let input = std::fs::read(&path).unwrap();
            let run = || guard.run(target, &input);
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
            assert!(outcome.is_ok(), "{} is not harmless", path.display());
            inputs += 1;
        }
        assert!(inputs > 2, "{name} has {inputs} inputs");
    }
}
