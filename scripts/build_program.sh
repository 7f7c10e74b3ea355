#!/bin/sh
# Builds one of the programs where it is not up to date, and prints where cargo put it:
#
#   scripts/build_program.sh bench-run|mlxcel|mlxcel-bench-decode|mlxcel-engine-parity
#
# CARGO_TARGET_DIR and cargo's configuration move that place; what lies in target/ then is older
# than its sources. So cargo is asked.
set -eu

if [ $# -ne 1 ]; then
    echo "usage: scripts/build_program.sh PROGRAM" >&2
    exit 2
fi
case $1 in
bench-run) package=bench-run ;;
*) package=mlxcel-engine ;;
esac
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
messages=$(cargo build --release --locked --quiet --manifest-path "$root/Cargo.toml" \
    --package "$package" --bin "$1" --message-format=json-render-diagnostics)
program=$(printf '%s\n' "$messages" | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
if [ ! -x "$program" ]; then
    echo "build_program.sh: cargo named no program for $1" >&2
    exit 1
fi
printf '%s\n' "$program"
