#!/usr/bin/env bash
# What is true of the ROCm routes, as far as this machine can tell:
#
#   scripts/verify_rocm.sh engine|overlay...
#
# engine: builds with the feature, the cache of dequantised weights, the decode paths.
# overlay: the choice of routes, and the device code behind it.
# Every part is listed. Exit code 0: all ran and passed; 1: one failed; 77: none failed,
# but some did not run (0 with ALLOW_NOT_RUN=1); 2: the arguments were not understood. Make ends
# with 2 whatever a recipe ends with, and prints that as "Error 1" or "Error 77".
# MODEL=DIR adds a model to the decode paths.
set -uo pipefail
CDPATH='' cd -- "$(dirname -- "$0")/.." || exit 1
# A snapshot that differs must fail, whatever the caller's own tests do with one.
export INSTA_UPDATE=no INSTA_FORCE_PASS=0

failed=0
not_run=0

# part NAME COMMAND...: runs it, with its output only if it fails.
part() {
    local name=$1 log
    shift
    log=$(mktemp)
    if "$@" >"$log" 2>&1; then
        printf 'passed   %s\n' "$name"
        grep -h '^device: ' "$log" | sort -u | sed 's/^/         /' || true
    else
        failed=$((failed + 1))
        printf 'FAILED   %s: %s\n' "$name" "$*"
        cat "$log"
    fi
    rm -f "$log"
}

skip() {
    not_run=$((not_run + 1))
    printf 'not run  %s: %s\n' "$1" "$2"
}

has_rocm_device() {
    [[ -d ${ROCM_KFD_TOPOLOGY:-/sys/class/kfd/kfd/topology/nodes} ]]
}

engine() {
    local parity=(cargo run --release --locked --quiet --features rocm -p mlxcel-engine
        --bin mlxcel-engine-parity -- --route-profile gfx1151 --expect-identical -m)
    part "builds with the feature rocm" \
        cargo build --release --locked --features rocm -p mlxcel-engine --bins
    part "the cache of dequantised weights and its routes" \
        cargo test --release --locked --features rocm -p mlxcel-engine \
        --test rocm_qmm_dequant_cache -- --test-threads=1 --nocapture
    part "decode paths agree on synthetic:gemma3-270m under the routes of gfx1151" \
        "${parity[@]}" synthetic:gemma3-270m
    if [[ -n ${MODEL:-} ]]; then
        part "decode paths agree on $MODEL" "${parity[@]}" "$MODEL"
    else
        skip "decode paths agree on a real model" "MODEL is not set"
    fi
    on_device "the same on an AMD GPU"
}

overlay() {
    part "the route table is the reviewed one" \
        cargo test --release --locked --features rocm -p mlxcel-engine --test route_table
    part "every route against dequantise-then-multiply, on the processor" \
        cargo test --release --locked --features rocm -p mlxcel-engine --test qmm_routes
    on_device "the routes' device code on an AMD GPU"
}

on_device() {
    if has_rocm_device; then
        skip "$1" "this build has no ROCm kernels yet"
    else
        skip "$1" "no AMD GPU here"
    fi
}

usage() {
    echo "usage: scripts/verify_rocm.sh engine|overlay..." >&2
    exit 2
}

if (($# == 0)); then
    usage
fi
for half in "$@"; do
    [[ $half == engine || $half == overlay ]] || usage
done
for half in "$@"; do
    "$half"
done

printf '%s failed, %s not run\n' "$failed" "$not_run"
if ((failed)); then
    exit 1
fi
if ((not_run)) && [[ ${ALLOW_NOT_RUN:-0} != 1 ]]; then
    exit 77
fi
