#!/bin/sh
# Fuzzes one of the engine's readers:
#
#   scripts/fuzz.sh safetensors|gguf|config|tokenizer [SECONDS]
#
# Needs cargo-fuzz (`cargo install cargo-fuzz`). Any compiler will do: coverage is switched on by
# RUSTC_BOOTSTRAP, and there is no sanitizer, since what can go wrong here is a panic or memory
# (engine/fuzz/src/guard.rs). What is found stays in target/fuzz; docs/FUZZING.md says what to do
# with it. TMPDIR should be in memory: every input is written to files.
set -eu

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    echo "usage: $0 safetensors|gguf|config|tokenizer [SECONDS]" >&2
    exit 2
fi
target=$1
seconds=${2:-600}

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
work=$root/target/fuzz
mkdir -p "$work/corpus/$target" "$work/artifacts/$target"

if [ -z "${TMPDIR:-}" ] && [ -d /dev/shm ]; then
    export TMPDIR=/dev/shm
fi
RUSTC_BOOTSTRAP=1 exec cargo fuzz run --fuzz-dir "$root/engine/fuzz" --sanitizer none \
    --target-dir "$work/build" "$target" "$work/corpus/$target" "$root/engine/fuzz/corpus/$target" -- \
    -artifact_prefix="$work/artifacts/$target/" -max_total_time="$seconds" -max_len=65536 \
    -timeout=10 -rss_limit_mb=4096 -print_final_stats=1
