#!/bin/sh
# Runs a command on a quiet AMD GPU, again until one attempt was undisturbed:
#
#   scripts/rocm_gpu_guard.sh [--idle-secs N] [--max-attempts N] [--max-wait SECS]
#                             [--log FILE] [--status-file FILE] -- COMMAND...
#
# A thin front of `bench-run guard`, which holds the rules and the documentation
# (`bench-run guard --help`). On a machine without an AMD GPU it guards the CPU and
# says so. ROCM_GPU_GUARD_KFD_DIR names another directory of GPU holders;
# BENCH_RUN names another bench-run.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)

if [ -n "${BENCH_RUN:-}" ]; then
    guard=$BENCH_RUN
elif [ -x "$root/target/release/bench-run" ]; then
    guard=$root/target/release/bench-run
elif command -v bench-run >/dev/null 2>&1; then
    guard=bench-run
else
    echo "rocm_gpu_guard.sh: building bench-run first" >&2
    guard=$("$root/scripts/build_program.sh" bench-run)
fi

if [ -z "${ROCM_GPU_GUARD_KFD_DIR:-}" ] && [ ! -d /sys/class/kfd/kfd/proc ]; then
    echo "rocm_gpu_guard.sh: no AMD GPU here: guarding the CPU" >&2
    exec "$guard" guard --kind cpu "$@"
fi
exec "$guard" guard --kind rocm "$@"
