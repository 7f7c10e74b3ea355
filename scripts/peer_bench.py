#!/usr/bin/env python3
"""One measurement of this engine, of llama.cpp or of mlx-lm: the same work, and the same JSON for each.

    scripts/peer_bench.py engine    MLXCEL_BENCH_DECODE     MODEL TEST
    scripts/peer_bench.py llama_cpp LLAMA_BENCH             MODEL TEST
    scripts/peer_bench.py mlx_lm    scripts/mlx_lm_bench.py MODEL TEST

TEST is ppN (prefill of N tokens), tgN (N tokens decoded from an empty cache) or tgN@D (N tokens
decoded after D others, whose time does not count). MODEL is the name of a pair, of which mlx-lm, on a
GPU alone, reads the first as a folder models/mlx/MODEL (`mlxcel synth MODEL models/mlx/MODEL`):

    gemma-3-270m            synthetic:gemma3-270m, 4-bit g64     models/gguf/gemma-3-270m-q4_0.gguf
    gemma3-4b               synthetic:gemma3-4b                  models/gguf/gemma3-4b-q4_0.gguf
    llama-3.1-8b            synthetic:llama-3.1-8b               models/gguf/llama-3.1-8b-q4_0.gguf
    smollm2-135m-instruct   models/mlx/smollm2-135m-instruct     models/gguf/smollm2-135m-instruct.gguf

Speed does not depend on the values of weights: the synthetic pairs have the same shapes at about the
same bytes per token, the pair of SmolLM2 the very same weights. The last line of standard output is
`{"tok_s": …, "program": …}`: tokens of TEST by the wall time that the program itself measured,
after its own warm-up; of this engine also the read bandwidth that it found, and the share of it that
decoding used, and a hash of its tokens; of it and of mlx-lm both speeds of the same process. llama.cpp runs with flash
attention and without: which is faster depends on the machine, the model and the depth (2.5 times at
most, so far), and the faster of the two counts. THREADS (default 2) goes to this engine and
llama.cpp; BACKEND=cuda puts all on the GPU, with all layers.
Only the standard library is used.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

MODELS = Path(os.environ.get("MODELS", "models"))
BACKEND = os.environ.get("BACKEND", "cpu")
PAIRS = {
    "gemma-3-270m": ("synthetic:gemma3-270m", MODELS / "gguf/gemma-3-270m-q4_0.gguf"),
    "gemma3-4b": ("synthetic:gemma3-4b", MODELS / "gguf/gemma3-4b-q4_0.gguf"),
    "llama-3.1-8b": ("synthetic:llama-3.1-8b", MODELS / "gguf/llama-3.1-8b-q4_0.gguf"),
    "smollm2-135m-instruct": (
        str(MODELS / "mlx/smollm2-135m-instruct"),
        MODELS / "gguf/smollm2-135m-instruct.gguf",
    ),
}
TEST = re.compile(r"pp(?P<prompt>\d+)|tg(?P<decoded>\d+)(@(?P<depth>\d+))?")
# A prefill needs some decode behind it, and a decode some prompt before it.
FEW_TOKENS = 4


def fail(reason):
    sys.exit(f"{Path(__file__).name}: {reason}")


def output_of(command):
    """Standard output; a program that fails takes this one with it."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    except OSError as error:
        fail(f"{command[0]}: {error}")
    if done.returncode:
        fail(f"{command[0]} ended with {done.returncode}")
    return done.stdout


def both_speeds(measured, test):
    """What TEST asks for, and what else the same process measured."""
    both = {name: measured[name] for name in ("prefill_tok_s", "decode_tok_s")}
    return {"tok_s": both["prefill_tok_s" if test["prompt"] else "decode_tok_s"], **both}


def engine(program, model, test, threads):
    prompt = test["prompt"] or test["depth"] or FEW_TOKENS
    decoded = test["decoded"] or FEW_TOKENS
    out = json.loads(
        output_of(
            [program, "-m", model, "-p", "x", "--prompt-tokens", str(prompt), "-n", str(decoded)]
            + ["--threads", threads, "--backend", BACKEND, "--ignore-eos", "--json"]
        )
    )
    kept = ("read_bandwidth_bytes_s", "bandwidth_share", "token_sha256", "logits_finite")
    return both_speeds(out, test) | {key: out[key] for key in kept}


def llama_cpp(program, model, test, threads):
    if not model.is_file():
        fail(f"{model} is missing: see docs/performance.md for how it is made")
    rows = output_of(
        [program, "-m", str(model), "-p", test["prompt"] or "0", "-n", test["decoded"] or "0"]
        + ["-d", test["depth"] or "0", "-t", threads, "-r", "1", "-o", "jsonl"]
        + ["-fa", "0,1", "-ngl", "0" if BACKEND == "cpu" else "99"]
    )
    # The exact times, not the program's own means, which carry six digits.
    speeds = {
        row["flash_attn"]: (row["n_prompt"] + row["n_gen"]) * 1e9 / row["samples_ns"][0]
        for row in map(json.loads, rows.splitlines())
    }
    if len(speeds) != 2:
        fail(f"{program}: expected one row with flash attention and one without, got {speeds}")
    with_it = max(speeds, key=speeds.get)
    return {"tok_s": speeds[with_it], "flash_attention": bool(with_it)}


def mlx_lm(program, model, test, threads):
    if BACKEND == "cpu":
        fail("mlx_lm: expected BACKEND=cuda, got cpu")
    if not model.is_dir():
        fail(f"{model} is missing: mlxcel synth {model.name} {model}")
    prompt = test["prompt"] or test["depth"] or FEW_TOKENS
    decoded = test["decoded"] or FEW_TOKENS
    out = output_of([program, str(model), str(prompt), str(decoded)])
    measured = json.loads(out.splitlines()[-1])
    return both_speeds(measured, test) | {"versions": measured["versions"]}


def main():
    kinds = {"engine": engine, "llama_cpp": llama_cpp, "mlx_lm": mlx_lm}
    if len(sys.argv) != 5 or sys.argv[1] not in kinds or sys.argv[3] not in PAIRS:
        fail(f"expected {'|'.join(kinds)} PROGRAM {'|'.join(PAIRS)} TEST")
    kind, program, name, text = sys.argv[1:]
    test = TEST.fullmatch(text)
    if not test:
        fail(f"test {text!r}: expected ppN, tgN or tgN@D")
    own, gguf = PAIRS[name]
    model = {"engine": own, "llama_cpp": gguf, "mlx_lm": MODELS / "mlx" / name}[kind]
    measured = kinds[kind](program, model, test, os.environ.get("THREADS", "2"))
    print(json.dumps({**measured, "program": kind}))


if __name__ == "__main__":
    main()
