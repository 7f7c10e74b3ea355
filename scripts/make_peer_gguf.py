#!/usr/bin/env python3
"""Writes a GGUF file with a real model's shapes and random Q4_0 weights, for peers to be timed on.

    python3 -m venv /tmp/v && /tmp/v/bin/pip install gguf numpy
    /tmp/v/bin/python scripts/make_peer_gguf.py gemma3-4b OUT.gguf

Speed does not depend on the values, so such a file stands beside `synthetic:NAME` of this engine:
the same shapes and vocabulary, and every matrix in 4.5 bits a weight (here blocks of 32 with one
f16 scale, there groups of 64 with a scale and a bias). Without a tokenizer: the ids mean nothing.
"""

import sys
from pathlib import Path

import gguf
import numpy

BLOCK = 32
# An f16 scale and 16 bytes of two codes each.
BLOCK_BYTES = 18

# From each model's published config.json.
SHAPES = {
    "gemma3-270m": dict(
        arch="gemma3", layers=18, width=640, inner=2048, heads=4, kv_heads=1, head=256,
        vocabulary=262144, window=512, base=1e6, context=32768, eps=1e-6,
    ),
    "gemma3-4b": dict(
        arch="gemma3", layers=34, width=2560, inner=10240, heads=8, kv_heads=4, head=256,
        vocabulary=262208, window=1024, base=1e6, context=131072, eps=1e-6, linear_scale=8.0,
    ),
    "llama-3.1-8b": dict(
        arch="llama", layers=32, width=4096, inner=14336, heads=32, kv_heads=8, head=128,
        vocabulary=128256, base=5e5, context=131072, eps=1e-5, own_head=True,
    ),
}  # fmt: skip


class Writer:
    """Tensors one by one, so that no more than the largest is in memory."""

    def __init__(self, path, shape):
        self.file = gguf.GGUFWriter(path, shape["arch"], use_temp_file=True)
        self.random = numpy.random.default_rng(1)

    def matrix(self, name, rows, columns):
        blocks = rows * columns // BLOCK
        data = self.random.integers(0, 256, (blocks, BLOCK_BYTES), dtype=numpy.uint8)
        # Uniform codes have a deviation of 4.6 scales: products then keep the size of their input.
        scale = numpy.float16(1 / (4.6 * columns**0.5))
        data[:, :2] = numpy.frombuffer(scale.tobytes(), numpy.uint8)
        data = data.reshape(rows, columns // BLOCK * BLOCK_BYTES)
        self.file.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType.Q4_0)

    def ones(self, name, width):
        self.file.add_tensor(name, numpy.ones(width, numpy.float32))

    def close(self):
        self.file.write_header_to_file()
        self.file.write_kv_data_to_file()
        self.file.write_tensors_to_file(progress=sys.stderr.isatty())
        self.file.close()


def write(path, shape):
    writer = Writer(path, shape)
    keys(writer.file, shape)
    width, head = shape["width"], shape["head"]
    query, key = shape["heads"] * head, shape["kv_heads"] * head
    writer.matrix("token_embd.weight", shape["vocabulary"], width)
    if shape.get("own_head"):
        writer.matrix("output.weight", shape["vocabulary"], width)
    writer.ones("output_norm.weight", width)
    for layer in range(shape["layers"]):
        name = f"blk.{layer}.{{}}.weight".format
        writer.matrix(name("attn_q"), query, width)
        writer.matrix(name("attn_k"), key, width)
        writer.matrix(name("attn_v"), key, width)
        writer.matrix(name("attn_output"), width, query)
        writer.matrix(name("ffn_gate"), shape["inner"], width)
        writer.matrix(name("ffn_up"), shape["inner"], width)
        writer.matrix(name("ffn_down"), width, shape["inner"])
        norms = ["attn_norm", "ffn_norm"]
        if shape["arch"] == "gemma3":
            norms += ["post_attention_norm", "post_ffw_norm"]
            writer.ones(name("attn_q_norm"), head)
            writer.ones(name("attn_k_norm"), head)
        for norm in norms:
            writer.ones(name(norm), width)
    writer.close()


def keys(file, shape):
    file.add_block_count(shape["layers"])
    file.add_context_length(shape["context"])
    file.add_embedding_length(shape["width"])
    file.add_feed_forward_length(shape["inner"])
    file.add_head_count(shape["heads"])
    file.add_head_count_kv(shape["kv_heads"])
    file.add_key_length(shape["head"])
    file.add_value_length(shape["head"])
    file.add_layer_norm_rms_eps(shape["eps"])
    file.add_rope_freq_base(shape["base"])
    file.add_vocab_size(shape["vocabulary"])
    file.add_tokenizer_model("no_vocab")
    if "window" in shape:
        file.add_sliding_window(shape["window"])
    if "linear_scale" in shape:
        file.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        file.add_rope_scaling_factor(shape["linear_scale"])


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in SHAPES:
        sys.exit(f"usage: {sys.argv[0]} {'|'.join(SHAPES)} OUT.gguf")
    out = Path(sys.argv[2])
    if out.exists():
        sys.exit(f"{out} is there already")
    # Beside the place, then renamed: a killed run leaves no half file under the name.
    part = out.with_name(out.name + ".part")
    write(part, SHAPES[sys.argv[1]])
    part.rename(out)


if __name__ == "__main__":
    main()
