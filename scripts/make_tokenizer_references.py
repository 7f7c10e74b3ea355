#!/usr/bin/env python3
"""Makes engine/tests/fixtures/tokenizers/real: ids of mixed texts by two real tokenizers.

    scripts/fetch_smollm2.sh && scripts/fetch_gemma3_270m.sh
    python3 -m venv /tmp/v
    /tmp/v/bin/pip install llama-cpp-python==0.3.36 gguf sentencepiece protobuf tiktoken regex
    /tmp/v/bin/python scripts/make_tokenizer_references.py

Two programs that share no code with the engine or the `tokenizers` crate encode every text:
llama.cpp, and tiktoken (SmolLM2) or sentencepiece (Gemma 3), which are given the vocabulary of the
same GGUF file. Only ids on which both agree are references: where they differ the row has null,
and the script says what each found.

Also writes what SmolLM2's tokenizer consists of (Apache-2.0), so that a test can run without the
model. Gemma's vocabulary is not written, as its terms ask: only ids, facts about a text.
"""

import hashlib
import json
import os
import re
from importlib.metadata import version
from pathlib import Path

import llama_cpp
import sentencepiece
from byte_level_reference import byte_level_reference
from gguf import GGUFReader
from mixed_texts import mixed_texts, texts_for_real_vocabularies
from sentencepiece import sentencepiece_model_pb2 as model_pb2

ROOT = Path(__file__).resolve().parent.parent
MODELS = Path(os.environ.get("MODELS", ROOT / "models"))
OUT = ROOT / "engine/tests/fixtures/tokenizers/real"

# Token types of GGUF files.
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4


class Vocabulary:
    """The tokenizer keys of a GGUF file."""

    def __init__(self, path):
        fields = GGUFReader(path).fields
        get = lambda key: fields[f"tokenizer.ggml.{key}"].contents()
        self.pieces = get("tokens")
        self.types = get("token_type")
        self.scores = get("scores") if "tokenizer.ggml.scores" in fields else None
        self.merges = get("merges") if "tokenizer.ggml.merges" in fields else None

    def of_type(self, kind):
        rows = zip(self.pieces, self.types)
        return {piece: id for id, (piece, type) in enumerate(rows) if type == kind}


def by_llama_cpp(path):
    model = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    return lambda text: model.tokenize(text.encode(), add_bos=False, special=True)


def around_control_tokens(control, encode):
    """`encode` for the text between control tokens, which it would not see."""
    longest_first = sorted(control, key=len, reverse=True)
    pattern = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")

    def encode_all(text):
        ids = []
        for part in pattern.split(text):
            ids.extend([control[part]] if part in control else encode(part))
        return ids

    return encode_all


def by_tiktoken(vocabulary):
    merges = [merge.split(" ") for merge in vocabulary.merges]
    encode = byte_level_reference(vocabulary.of_type(NORMAL), merges)
    return around_control_tokens(vocabulary.of_type(CONTROL), encode)


def by_sentencepiece(vocabulary):
    proto = model_pb2.ModelProto()
    for piece, score, type in zip(vocabulary.pieces, vocabulary.scores, vocabulary.types):
        # GGUF has user-defined pieces with blanks, sentencepiece with what it makes of them.
        text = piece.replace(" ", "▁") if type == USER_DEFINED else piece
        proto.pieces.add(piece=text, score=score, type=type)
    proto.trainer_spec.model_type = model_pb2.TrainerSpec.BPE
    proto.trainer_spec.byte_fallback = True
    proto.normalizer_spec.name = "identity"
    proto.normalizer_spec.add_dummy_prefix = False
    proto.normalizer_spec.remove_extra_whitespaces = False
    processor = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
    return around_control_tokens(vocabulary.of_type(CONTROL), processor.encode)


def write_smollm2(vocabulary):
    """The pieces before the merged ones, by id, and the merges; the rest follows from these."""
    merged = [merge.replace(" ", "") for merge in vocabulary.merges]
    first = vocabulary.pieces[: -len(merged)]
    assert vocabulary.pieces == first + merged
    (OUT / "smollm2_pieces.txt").write_text("\n".join(first) + "\n")
    (OUT / "smollm2_merges.txt").write_text("\n".join(vocabulary.merges) + "\n")


def release(package):
    return f"{package} {version(package)}"


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main():
    OUT.mkdir(exist_ok=True)
    texts = mixed_texts() + texts_for_real_vocabularies()
    columns, about = {}, {}
    for name, file, second, package in [
        ("smollm2", "smollm2-135m-instruct", by_tiktoken, "tiktoken"),
        ("gemma3", "gemma-3-270m", by_sentencepiece, "sentencepiece"),
    ]:
        path = MODELS / f"gguf/{file}.gguf"
        vocabulary = Vocabulary(path)
        if name == "smollm2":
            write_smollm2(vocabulary)
        one, other = by_llama_cpp(path), second(vocabulary)
        agreed = [(one(text), other(text)) for text in texts]
        columns[name] = [ids if ids == same else None for ids, same in agreed]
        about[name] = {
            "gguf_sha256": sha256(path),
            "references": [release("llama-cpp-python"), release(package)],
            "disagreements": columns[name].count(None),
        }
        for text, (ids, same) in zip(texts, agreed):
            if ids != same:
                print(f"{name}: {text!r}\n  {ids}\n  {same}")
    rows = [{"about": about}]
    for index, text in enumerate(texts):
        rows.append({"text": text} | {name: ids[index] for name, ids in columns.items()})
    dump = lambda row: json.dumps(row, ensure_ascii=True, separators=(",", ":"))
    (OUT / "texts.jsonl").write_text("".join(dump(row) + "\n" for row in rows))
    print(f"{len(texts)} texts in {OUT}: {about}")


if __name__ == "__main__":
    main()
