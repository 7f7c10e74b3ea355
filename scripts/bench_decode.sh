#!/bin/sh
# Prefill of 2048 tokens and 128 decoded ones with one model, as one measured pass:
#
#   scripts/bench_decode.sh MODEL [OPTIONS of mlxcel-bench-decode...]
#
# MODEL is a folder, synthetic:NAME or hf:ORG/NAME. Options come after the defaults and
# win over them. BENCH_DECODE names another mlxcel-bench-decode. On a machine that others
# use, put scripts/rocm_gpu_guard.sh in front.
set -eu

usage="usage: scripts/bench_decode.sh MODEL [OPTIONS...]"
case ${1:-} in
-h | --help)
    echo "$usage"
    exit 0
    ;;
'' | -*)
    echo "$usage" >&2
    exit 2
    ;;
esac
model=$1
shift

if [ -n "${BENCH_DECODE:-}" ]; then
    program=$BENCH_DECODE
    if ! command -v "$program" >/dev/null 2>&1; then
        echo "bench_decode.sh: BENCH_DECODE: no program $program" >&2
        exit 2
    fi
else
    root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
    program=$("$root/scripts/build_program.sh" mlxcel-bench-decode)
fi
exec "$program" --model "$model" --prompt-tokens 2048 --max-tokens 128 "$@"
