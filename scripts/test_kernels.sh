#!/usr/bin/env bash
# Tests the GPU kernels without a GPU: on fibers of the processor in both fragment layouts, and
# compiled for every target, the PTX by ptxas too where it is found (PTXAS names it).
# Usage: scripts/test_kernels.sh [run|compile|all]
set -euo pipefail
CDPATH='' cd -- "$(dirname -- "$0")/../engine/kernels"
what=${1:-all}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

if [[ $what != compile ]]; then
    for layout in NV RDNA3; do
        "${CXX:-c++}" -std=c++17 -O1 -Wno-unknown-pragmas "-DKPORT_LAYOUT_$layout" tests.cpp -o "$out/$layout"
        printf '%s: ' "$layout"
        "$out/$layout"
    done
fi
[[ $what == run ]] && exit

clang=${MLXCEL_CLANG:-clang++-19}
common=(--cuda-device-only -O3 -std=c++17)
for target in sm_80 sm_90 sm_90a; do
    features=()
    [[ $target == sm_90a ]] && features=(--cuda-feature=+ptx80)
    "$clang" -x cuda "--cuda-gpu-arch=$target" "${features[@]}" "${common[@]}" -nocudalib -nocudainc -S \
        -o "$out/$target.ptx" kernels.cu
    # clang passes inline PTX on as it is; only the assembler reads it.
    if [[ -n ${PTXAS:-} ]]; then
        "$PTXAS" "-arch=$target" -v "$out/$target.ptx" -o "$out/$target.cubin" 2>"$out/$target.log" ||
            { cat "$out/$target.log"; exit 1; }
        spills=$(grep -c 'bytes spill stores' "$out/$target.log" || true)
        clean=$(grep -c ' 0 bytes spill stores' "$out/$target.log" || true)
        echo "$target: assembled, $((spills - clean)) of $spills kernels spill"
        # Two blocks of 384 threads must not fit on a multiprocessor with 65536 registers (docs/adr/0036).
        registers=$(sed -n "/'queued_beside_4'/,/Used/s/.*Used \([0-9]*\) registers.*/\1/p" "$out/$target.log")
        ((${registers:-0} >= 88)) || { echo "queued_beside_4 has ${registers:-no} registers a thread, expected 88 or more" >&2; exit 1; }
    else
        echo "$target: compiled; set PTXAS to have it assembled"
    fi
done
for target in gfx1100 gfx1151; do
    "$clang" -x hip "--offload-arch=$target" "${common[@]}" --no-gpu-bundle-output -nogpulib -nogpuinc \
        -o "$out/$target.co" kernels.cu
    echo "$target: compiled"
done
