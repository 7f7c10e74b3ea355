#!/usr/bin/env python3
"""Makes engine/tests/fixtures/tokenizers: two small tokenizers and the ids of mixed texts.

    python3 -m venv /tmp/v && /tmp/v/bin/pip install tokenizers sentencepiece tiktoken regex
    /tmp/v/bin/python scripts/make_tokenizer_fixtures.py

`bytelevel` has the shape of SmolLM2's tokenizer (digits apart, then GPT-2's byte-level BPE),
`sentencepiece` that of Gemma's (BPE over pieces with byte fallback, no pre-tokenizer). Both are
trained here, on the documents of this repository, so they carry nobody's vocabulary.

The ids do not come from the library under test: tiktoken and sentencepiece, which share no code
with it, encode the texts. Where they disagree with the Python build of `tokenizers`, the script
stops.
"""

import json
import tempfile
from pathlib import Path

import sentencepiece
from byte_level_reference import byte_level_reference
from mixed_texts import SENTENCES, mixed_texts
from sentencepiece import sentencepiece_model_pb2 as model_pb2
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "engine/tests/fixtures/tokenizers"
VOCABULARY = 512


def corpus():
    texts = list(SENTENCES)
    for path in sorted((ROOT / "docs").glob("*.md")):
        texts.extend(line for line in path.read_text().splitlines() if line.strip())
    return texts


def train_bytelevel():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


def train_sentencepiece(folder):
    (Path(folder) / "corpus.txt").write_text("\n".join(corpus()))
    sentencepiece.SentencePieceTrainer.train(
        input=f"{folder}/corpus.txt",
        model_prefix=f"{folder}/m",
        model_type="bpe",
        vocab_size=VOCABULARY,
        byte_fallback=True,
        character_coverage=0.98,
        normalization_rule_name="identity",
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        split_digits=True,
        pad_id=0,
        eos_id=1,
        bos_id=2,
        unk_id=3,
        pad_piece="<pad>",
        eos_piece="<eos>",
        bos_piece="<bos>",
        unk_piece="<unk>",
        user_defined_symbols=["<start_of_turn>", "<end_of_turn>"],
        minloglevel=2,
    )
    processor = sentencepiece.SentencePieceProcessor(model_file=f"{folder}/m.model")
    proto = model_pb2.ModelProto()
    proto.ParseFromString((Path(folder) / "m.model").read_bytes())
    return processor, proto


def rebuilt(proto):
    """The sentencepiece model as tokenizer.json: merges are splits of a piece into known pieces."""
    vocabulary = {piece.piece: index for index, piece in enumerate(proto.pieces)}
    normal = [piece for piece in proto.pieces if piece.type == piece.NORMAL]
    merges = []
    for piece in sorted(normal, key=lambda piece: -piece.score):
        text = piece.piece
        splits = [(text[:i], text[i:]) for i in range(1, len(text))]
        known = [split for split in splits if all(part in vocabulary for part in split)]
        merges.extend(sorted(known, key=lambda s: (vocabulary[s[0]], vocabulary[s[1]])))
    specials = [
        {
            "id": index,
            "content": piece.piece,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for index, piece in enumerate(proto.pieces)
        if piece.type in (piece.CONTROL, piece.USER_DEFINED, piece.UNKNOWN)
    ]
    bos = {"id": "<bos>", "ids": [vocabulary["<bos>"]], "tokens": ["<bos>"]}
    start = {"SpecialToken": {"id": "<bos>", "type_id": 0}}
    text = lambda name, kind: {"Sequence": {"id": name, "type_id": kind}}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": specials,
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [start, text("A", 0)],
            "pair": [start, text("A", 0), start, text("B", 1)],
            "special_tokens": {"<bos>": bos},
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": merges,
        },
    }


CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\\nYou are a careful assistant.<|im_end|>\\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

TURNS = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set first = messages[0]['content'] + '\\n\\n' -%}
    {%- set rest = messages[1:] -%}
{%- else -%}
    {%- set first = '' -%}
    {%- set rest = messages -%}
{%- endif -%}
{%- for message in rest -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception('roles must alternate user/assistant') }}
    {%- endif -%}
    {{ '<start_of_turn>' + message['role'].replace('assistant', 'model') + '\\n'
       + (first if loop.first else '') + message['content'].strip() + '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}
"""


def write(name, tokenizer, settings):
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    dump = lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    (folder / "tokenizer.json").write_text(dump(tokenizer) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n")


def main():
    bytelevel = train_bytelevel()
    model = json.loads(bytelevel.to_str())["model"]
    plain = {t: i for t, i in model["vocab"].items() if not t.startswith("<|")}
    reference = byte_level_reference(plain, model["merges"])
    with tempfile.TemporaryDirectory() as folder:
        processor, proto = train_sentencepiece(folder)
    pieces = rebuilt(proto)
    pieces_tokenizer = Tokenizer.from_str(json.dumps(pieces))
    rows = []
    for text in mixed_texts():
        row = {"text": text, "bytelevel": reference(text), "sentencepiece": processor.encode(text)}
        for name, tokenizer in (("bytelevel", bytelevel), ("sentencepiece", pieces_tokenizer)):
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            assert ids == row[name], (name, text, ids, row[name])
        rows.append(row)
    write(
        "bytelevel",
        json.loads(bytelevel.to_str()),
        {
            "bos_token": "<|im_start|>",
            "eos_token": "<|im_end|>",
            "unk_token": "<|endoftext|>",
            "chat_template": CHATML,
        },
    )
    settings = {
        "add_bos_token": True,
        "bos_token": {"content": "<bos>", "special": True},
        "eos_token": {"content": "<eos>", "special": True},
    }
    write("sentencepiece", pieces, settings)
    (OUT / "sentencepiece/chat_template.jinja").write_text(TURNS)
    lines = (json.dumps(row, ensure_ascii=True, separators=(",", ":")) for row in rows)
    (OUT / "texts.jsonl").write_text("\n".join(lines) + "\n")
    print(f"{len(rows)} texts in {OUT}")


if __name__ == "__main__":
    main()
