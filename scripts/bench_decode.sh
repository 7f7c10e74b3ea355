#!/bin/sh
# Prefill of 2048 tokens and 128 decoded ones with one model, as one measured pass:
#
#   scripts/bench_decode.sh MODEL [OPTIONS of mlxcel-bench-decode...]
#
# MODEL is a folder, synthetic:NAME or hf:ORG/NAME. Options come after the defaults and
# win over them. BENCH_DECODE names another mlxcel-bench-decode. On a machine that others
# use, put scripts/rocm_gpu_guard.sh in front.
set -eu

if [ $# -lt 1 ]; then
    echo "usage: scripts/bench_decode.sh MODEL [OPTIONS...]" >&2
    exit 2
fi
model=$1
shift

root=$(cd "$(dirname "$0")/.." && pwd)
program=${BENCH_DECODE:-$root/target/release/mlxcel-bench-decode}
if [ ! -x "$program" ] || [ -z "${BENCH_DECODE:-}" ]; then
    # Standard output belongs to the report. An up-to-date program is not built again.
    cargo build --release --locked --quiet --manifest-path "$root/Cargo.toml" \
        --package mlxcel-engine --bin mlxcel-bench-decode >&2
fi
exec "$program" --model "$model" --prompt-tokens 2048 --max-tokens 128 "$@"
