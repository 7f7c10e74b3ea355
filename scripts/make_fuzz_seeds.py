#!/usr/bin/env python3
"""Makes the first inputs of the fuzz targets, engine/fuzz/corpus, from the tests' fixtures.

    python3 scripts/make_fuzz_seeds.py

Small and valid, so that a change of a byte is a change of meaning: the fixtures' configurations
and tokenizers cut down to a model of one layer, and weights to match. Inputs that once broke
something lie beside them and are left alone. An input of several files has a zero byte between
them (engine/fuzz/src/targets.rs).
"""

import json
import struct
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "engine/tests/fixtures"
CORPUS = ROOT / "engine/fuzz/corpus"

HIDDEN, FEED_FORWARD, HEADS, KV_HEADS, HEAD_DIM, VOCABULARY = 32, 64, 2, 1, 32, 32
GROUP, BITS = 32, 4

COUNTS = {
    "hidden_size": HIDDEN,
    "intermediate_size": FEED_FORWARD,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "num_hidden_layers": 1,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 64,
}

# Of a layer: name in GGUF files, name in MLX folders, rows, columns.
MATRICES = [
    ("attn_q", "self_attn.q_proj", HEADS * HEAD_DIM, HIDDEN),
    ("attn_k", "self_attn.k_proj", KV_HEADS * HEAD_DIM, HIDDEN),
    ("attn_v", "self_attn.v_proj", KV_HEADS * HEAD_DIM, HIDDEN),
    ("attn_output", "self_attn.o_proj", HIDDEN, HEADS * HEAD_DIM),
    ("ffn_gate", "mlp.gate_proj", FEED_FORWARD, HIDDEN),
    ("ffn_up", "mlp.up_proj", FEED_FORWARD, HIDDEN),
    ("ffn_down", "mlp.down_proj", HIDDEN, FEED_FORWARD),
]

NORMS = {
    "input_layernorm": HIDDEN,
    "post_attention_layernorm": HIDDEN,
    "pre_feedforward_layernorm": HIDDEN,
    "post_feedforward_layernorm": HIDDEN,
    "self_attn.q_norm": HEAD_DIM,
    "self_attn.k_norm": HEAD_DIM,
}

LLAMA_NORMS = ["input_layernorm", "post_attention_layernorm"]

GGUF_NORMS = {
    "llama": {"attn_norm": HIDDEN, "ffn_norm": HIDDEN},
    "gemma3": {
        "attn_norm": HIDDEN,
        "post_attention_norm": HIDDEN,
        "ffn_norm": HIDDEN,
        "post_ffw_norm": HIDDEN,
        "attn_q_norm": HEAD_DIM,
        "attn_k_norm": HEAD_DIM,
    },
}

PIECES = ["<unk>", "<s>", "</s>", "<|im_end|>", "▁", "a", "b", "ab", "▁ab", "<0x0A>", "  "]
KINDS = [2, 3, 3, 3, 1, 1, 1, 1, 1, 6, 4]
SCORES = [0.0, 0.0, 0.0, 0.0, -9.0, -9.0, -9.0, -1.0, -2.0, 0.0, 0.0]


def write(target, name, content):
    path = CORPUS / target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def dump(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def fixture(name):
    return json.loads((FIXTURES / name).read_bytes())


# ---- safetensors


def safetensors(tensors):
    """`tensors` are names with type, shape and bytes."""
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        offsets = [len(data), len(data) + len(content)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        data += content
    text = dump(header)
    return struct.pack("<Q", len(text)) + text + data


def bf16(values):
    return b"".join(struct.pack("<f", value)[2:] for value in values)


def affine(path, rows, columns):
    """A module of 4-bit codes that differ from each other."""
    codes = bytes((at * 37 + 11) % 256 for at in range(rows * columns * BITS // 8))
    groups = columns // GROUP
    scales = bf16([0.0625 if at % 2 else -0.0625 for at in range(rows * groups)])
    biases = bf16([-0.5 if at % 2 else 0.5 for at in range(rows * groups)])
    return {
        f"{path}.weight": ("U32", [rows, columns * BITS // 32], codes),
        f"{path}.scales": ("BF16", [rows, groups], scales),
        f"{path}.biases": ("BF16", [rows, groups], biases),
    }


def weights(norms):
    tensors = affine("model.embed_tokens", VOCABULARY, HIDDEN)
    tensors["model.norm.weight"] = ("BF16", [HIDDEN], bf16([1.0] * HIDDEN))
    for norm in norms:
        width = NORMS[norm]
        tensors[f"model.layers.0.{norm}.weight"] = ("BF16", [width], bf16([1.0] * width))
    for _, path, rows, columns in MATRICES:
        tensors |= affine(f"model.layers.0.{path}", rows, columns)
    return tensors


def plain(tensors):
    """The same model with float32 matrices of the first codes."""
    out = {}
    for name, (dtype, shape, content) in tensors.items():
        if name.endswith((".scales", ".biases")):
            continue
        if dtype == "U32":
            shape = [shape[0], shape[1] * 32 // BITS]
            values = ((at * 7) % 5 * 0.1 for at in range(shape[0] * shape[1]))
            dtype, content = "F32", b"".join(struct.pack("<f", value) for value in values)
        out[name] = (dtype, shape, content)
    return out


def write_safetensors():
    llama = weights(LLAMA_NORMS)
    write("safetensors", "llama", safetensors(llama))
    write("safetensors", "all_families", safetensors(weights(NORMS)))
    write("safetensors", "plain", safetensors(plain(llama)))
    small = {"a": ("F16", [2], bytes(4)), "b": ("I32", [0], b""), "c": ("I8", [3], bytes(3))}
    write("safetensors", "types", safetensors(small))


# ---- configurations


def config(name):
    config = fixture(f"{name}/config.json") | COUNTS
    config["quantization"] = {"group_size": GROUP, "bits": BITS}
    config.pop("quantization_config", None)
    return config


def write_configs():
    for name in ["llama", "qwen3", "gemma3_text"]:
        write("config", name.removesuffix("_text"), dump(config(name)))
    text = config("gemma3_text")
    outer = {"model_type": "gemma3", "quantization": text.pop("quantization")}
    write("config", "gemma3_multimodal", dump(outer | {"text_config": text}))
    override = {"model.layers.0.mlp.up_proj": {"group_size": 32, "bits": 4}}
    mixed = config("llama")
    mixed["quantization"] |= override | {"lm_head": False}
    generation = {"eos_token_id": [1, 2], "temperature": 0.6}
    names = weights(LLAMA_NORMS)
    index = {"weight_map": {name: "model.safetensors" for name in names}}
    write("config", "with_index", b"\0".join(map(dump, [mixed, generation, index])))


# ---- GGUF


def text_bytes(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def value_bytes(value):
    """Type and value as GGUF has them."""
    if isinstance(value, bool):
        return struct.pack("<IB", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + text_bytes(value)
    elements = [value_bytes(element) for element in value]
    kind = elements[0][:4]
    return struct.pack("<I", 9) + kind + struct.pack("<Q", len(value)) + b"".join(
        element[4:] for element in elements
    )


# Number of a type, elements and bytes of its blocks.
BLOCKS = {"F32": (0, 1, 4), "Q4_1": (3, 32, 20), "Q8_0": (8, 32, 34), "Q5_0": (6, 32, 22)}


def gguf(pairs, tensors):
    """`tensors` are names with type and shape, slowest axis first; the blocks hold small numbers."""
    file = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs))
    file += b"".join(text_bytes(key) + value_bytes(value) for key, value in pairs.items())
    data = b""
    for name, (kind, shape) in tensors.items():
        number, block_elements, block_bytes = BLOCKS[kind]
        file += text_bytes(name) + struct.pack("<I", len(shape))
        file += b"".join(struct.pack("<Q", extent) for extent in reversed(shape))
        data += bytes(-len(data) % 32)
        file += struct.pack("<IQ", number, len(data))
        elements = 1
        for extent in shape:
            elements *= extent
        # Half floats of this size are small; a float32 of them is too.
        data += b"\x12\x2c" * (elements // block_elements * block_bytes // 2)
    return file + bytes(-len(file) % 32) + data


def gguf_keys(architecture):
    keys = {
        "general.architecture": architecture,
        f"{architecture}.block_count": 1,
        f"{architecture}.context_length": 64,
        f"{architecture}.embedding_length": HIDDEN,
        f"{architecture}.feed_forward_length": FEED_FORWARD,
        f"{architecture}.attention.head_count": HEADS,
        f"{architecture}.attention.head_count_kv": KV_HEADS,
        f"{architecture}.attention.key_length": HEAD_DIM,
        f"{architecture}.rope.freq_base": 10000.0,
        f"{architecture}.attention.layer_norm_rms_epsilon": 1e-5,
    }
    if architecture == "gemma3":
        keys["gemma3.attention.sliding_window"] = 8
    return keys


def sentence_piece_keys():
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": PIECES,
        "tokenizer.ggml.token_type": KINDS,
        "tokenizer.ggml.scores": SCORES,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }


def byte_level_keys():
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": ["<|im_end|>", "a", "b", "Ġ", "ab", "Ġab"],
        "tokenizer.ggml.token_type": [3, 1, 1, 1, 1, 1],
        "tokenizer.ggml.merges": ["a b", "Ġ ab"],
        "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}",
    }


def write_gguf():
    for architecture, vocabulary, kind in [
        ("llama", sentence_piece_keys(), "Q4_1"),
        ("llama", byte_level_keys(), "Q8_0"),
        ("gemma3", sentence_piece_keys(), "Q5_0"),
    ]:
        tensors = {"token_embd.weight": (kind, [VOCABULARY, HIDDEN])}
        tensors["output_norm.weight"] = ("F32", [HIDDEN])
        for norm, width in GGUF_NORMS[architecture].items():
            tensors[f"blk.0.{norm}.weight"] = ("F32", [width])
        for name, _, rows, columns in MATRICES:
            tensors[f"blk.0.{name}.weight"] = (kind, [rows, columns])
        file = gguf(gguf_keys(architecture) | vocabulary, tensors)
        write("gguf", f"{architecture}_{kind.lower()}", file)
    write("gguf", "blocks", (FIXTURES / "gguf/blocks.gguf").read_bytes())


# ---- tokenizers


def write_tokenizers():
    for name in ["bytelevel", "sentencepiece"]:
        folder = f"tokenizers/{name}"
        tokenizer = fixture(f"{folder}/tokenizer.json")
        # The special tokens, the bytes and a few merges: enough for any text.
        merges = tokenizer["model"]["merges"][:8]
        pieces = {"".join(merge.split(" ") if isinstance(merge, str) else merge) for merge in merges}
        vocabulary = tokenizer["model"]["vocab"]
        special = {token["content"] for token in tokenizer["added_tokens"]}
        letters = {piece for piece in vocabulary if len(piece) == 1 and piece.isascii()}
        keep = pieces | special | letters | {"▁", "<0x0A>", "<0xF0>", "Ġ"}
        tokenizer["model"]["vocab"] = {p: i for p, i in vocabulary.items() if p in keep}
        tokenizer["model"]["merges"] = merges
        parts = [dump(tokenizer), dump(fixture(f"{folder}/tokenizer_config.json"))]
        template = FIXTURES / folder / "chat_template.jinja"
        if template.exists():
            parts.append(template.read_bytes())
        write("tokenizer", name, b"\0".join(parts))
    write("tokenizer", "templates", b"\0".join([dump(tokenizer), b"{}", TEMPLATE]))


# What templates of published models are made of.
TEMPLATE = b"""{%- macro turn(role, text) -%}<|{{ role }}|>{{ text | trim }}{%- endmacro -%}
{%- set ns = namespace(n=0) -%}
{%- for m in messages if m['role'] != 'tool' -%}
{%- set ns.n = ns.n + 1 -%}{{ turn(m.role, m.content.split('a')[-1].strip()) }}
{%- if loop.last and not loop.first %}{{ m | tojson(indent=2) }}{% else %}{{ 'x' * 3 }}{% endif -%}
{%- endfor -%}{{ range(3) | join(',') }}{{ messages[::-1] | length }}{{ tools is none }}
"""


def main():
    write_safetensors()
    write_configs()
    write_gguf()
    write_tokenizers()


if __name__ == "__main__":
    main()
