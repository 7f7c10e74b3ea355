#!/usr/bin/env python3
"""Prefill and decode speed of mlx-lm, batch 1, for scripts/peer_bench.py.

    scripts/mlx_lm_bench.py MODEL-FOLDER PROMPT-TOKENS DECODED-TOKENS

Needs the packages mlx-lm and mlx with its back end for the GPU (`mlx[cuda13]`); docs/performance.md says
which versions were measured. The same work runs twice in one process: the first time compiles kernels and
is not counted. The last line of standard output is `{"prefill_tok_s": …, "decode_tok_s": …, "versions": …}`:
prefill is the time to the first token; decode counts the tokens behind it, each read by the host.
"""

import json
import random
import sys
import time
from importlib.metadata import version
from pathlib import Path

import mlx.core as mx
from mlx_lm.generate import generate_step
from mlx_lm.utils import load_model


# Every model's vocabulary is larger; configurations need not say how large.
IDS = 32000


def times_of_tokens(model, prompt, count):
    """Seconds from the prompt to each of `count` tokens."""
    begin = time.perf_counter()
    return [
        time.perf_counter() - begin
        for _ in generate_step(prompt, model, max_tokens=count)
    ]


def main():
    if len(sys.argv) != 4 or not all(word.isdigit() and int(word) for word in sys.argv[2:]):
        sys.exit(f"{Path(__file__).name}: expected MODEL-FOLDER PROMPT-TOKENS DECODED-TOKENS")
    folder, prompt_tokens, decoded = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    model, _ = load_model(folder)
    ids = random.Random(1)
    prompt = mx.array([ids.randrange(IDS) for _ in range(prompt_tokens)])
    times_of_tokens(model, prompt, decoded + 1)
    times = times_of_tokens(model, prompt, decoded + 1)
    if len(times) != decoded + 1:
        sys.exit(f"{Path(__file__).name}: expected {decoded + 1} tokens, got {len(times)}")
    measured = {
        "prefill_tok_s": prompt_tokens / times[0],
        "decode_tok_s": decoded / (times[-1] - times[0]),
        "versions": {name: version(name) for name in ("mlx", "mlx-lm")},
    }
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
