#!/usr/bin/env bash
# One stay on a machine with a GPU, in one go: what the kernels compute, what compute-sanitizer finds, and
# an experiment's bundle as far as the time goes. Ends with one line a check; 1 when one failed.
# Usage: scripts/gpu_session.sh PROGRAMS OUT [MINUTES BUNDLE...]
#   PROGRAMS  folder with mlxcel, mlxcel-engine-parity, and the engine's unit tests as `unit-tests`
#             (cargo test -p mlxcel-engine --features cuda --lib --no-run says where they are)
#   OUT       folder for the output of each check
#   MINUTES   for all bundles together (bench-run bundle); each is gone on with where it stopped
set -uo pipefail
mkdir -p "$2"
programs=$(realpath "$1") out=$(realpath "$2") minutes=${3:-0}
shift "$(($# < 3 ? $# : 3))"
bundles=()
(($# == 0)) || mapfile -t bundles < <(realpath "$@")
cd "$(dirname "$0")/.." || exit
start=$SECONDS
failed=0

# check NAME COMMAND...: its output to OUT/NAME, its verdict here.
check() {
    local name=$1 code=0
    shift
    timeout 300 "$@" >"$out/$name" 2>&1 || code=$?
    printf '%4d s  %-34s %s\n' $((SECONDS - start)) "$name" "$([[ $code == 0 ]] && echo passed || echo "FAILED ($code)")"
    ((code == 0)) || failed=1
}

"$programs/mlxcel" --version
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
for model in llama qwen3 gemma3_text; do
    check "check-$model" "$programs/mlxcel" check "engine/tests/fixtures/$model" --backend cuda
done
for model in llama qwen3 gemma3; do
    parity=("$programs/mlxcel-engine-parity" -m "synthetic:tiny-$model" --backend cuda --expect-identical)
    check "parity-$model-float32" "${parity[@]}" --arithmetic float32
    for undo in slack in_append own_copies; do
        check "parity-$model-$undo" env "MLXCEL_UNDO=$undo" "${parity[@]}" --arithmetic fast
    done
done
# Real shapes and the text that is timed: prefill gives one token more than the 128 of a measurement.
for model in gemma3-4b llama-3.1-8b; do
    check "twin-$model" "$programs/mlxcel-engine-parity" -m "synthetic:$model" --backend cuda --prompt-tokens 2048 -n 129 \
        --expect-identical --twin
done
check unit-tests "$programs/unit-tests" cuda::tests --test-threads 1
if command -v compute-sanitizer >/dev/null; then
    for tool in racecheck memcheck; do
        # A whole model's steps, prompt and draws, its window crossed.
        check "$tool-whole-model" compute-sanitizer --tool "$tool" --error-exitcode 9 "$programs/mlxcel-engine-parity" \
            -m synthetic:tiny-gemma3 --backend cuda --prompt-tokens 24 -n 16
    done
    for tool in racecheck synccheck memcheck initcheck; do
        for test in a_few_small_products decode_attention_of_few_rows a_few_draws; do
            check "$tool-$test" compute-sanitizer --tool "$tool" --error-exitcode 9 "$programs/unit-tests" "cuda::tests::$test"
        done
    done
else
    echo "no compute-sanitizer on this machine: nothing was checked for races" >&2
fi
for bundle in "${bundles[@]}"; do
    left=$((minutes - (SECONDS - start) / 60))
    ((left > 0)) || { echo "no time left for $bundle" >&2; failed=1; break; }
    "$bundle/bench-run" bundle run "$bundle" --minutes "$left" >"$out/$(basename "$bundle")" 2>&1
    # 75: rounds are left, and the same call goes on.
    printf '%4d s  %-34s exit %d\n' $((SECONDS - start)) "$(basename "$bundle")" $?
done
exit $failed
