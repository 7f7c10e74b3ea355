#!/usr/bin/env python3
"""Makes engine/tests/fixtures/tokenizers: two small tokenizers and the ids of mixed texts.

    python3 -m venv /tmp/v && /tmp/v/bin/pip install tokenizers sentencepiece tiktoken
    /tmp/v/bin/python scripts/make_tokenizer_fixtures.py

`bytelevel` has the shape of SmolLM2's tokenizer (digits apart, then GPT-2's byte-level BPE),
`sentencepiece` that of Gemma's (BPE over pieces with byte fallback, no pre-tokenizer). Both are
trained here, on the documents of this repository, so they carry nobody's vocabulary.

The ids do not come from the library under test: tiktoken and sentencepiece, which share no code
with it, encode the texts. Where they disagree with the Python build of `tokenizers`, the script
stops.
"""

import json
import random
import tempfile
from pathlib import Path

import regex
import sentencepiece
import tiktoken
from sentencepiece import sentencepiece_model_pb2 as model_pb2
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "engine/tests/fixtures/tokenizers"
VOCABULARY = 512

# The pattern of GPT-2's tokenizer (Radford et al. 2019).
GPT2_PATTERN = (
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
)

SENTENCES = [
    "The road leaves the harbour along the sea wall and climbs slowly past the boat sheds.",
    "Don't worry: it's 3.14159, they'll say, and we've 1 000 000 reasons.",
    "Der Müller öffnet früh die Tür; süße Äpfel, größer als üblich.",
    "L'été dernier, nous étions à Sète, où l'on goûte des huîtres.",
    "El niño comió piñas en la montaña. ¿Cuántas? ¡Muchísimas!",
    "Łódź, źdźbło i żółta gęś; Příliš žluťoučký kůň.",
    "Съешь ещё этих мягких французских булок, да выпей чаю.",
    "Η γρήγορη καφέ αλεπού πηδάει πάνω από το σκυλί.",
    "色は匂へど散りぬるを、我が世誰ぞ常ならむ。",
    "道可道,非常道。名可名,非常名。",
    "키스의 고유조건은 입술끼리 만나야 한다.",
    "نص حكيم له سر قاطع وذو شأن عظيم",
    "דג סקרן שט בים מאוכזב ולפתע מצא חברה",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा",
    "👩‍👩‍👧‍👦 🇫🇷 👍🏽 ❤️ 🤷🏻‍♀️ 🎉🎉",
    "e\u0301 is not é, ﬁ is a ligature, ½ a fraction, Ⅷ a number, ① too",
    "fn main() {\n    println!(\"{}\", 1 << 10);\n}\n",
    "def f(x):\n\treturn [i**2 for i in range(x) if i % 2 == 0]  # squares\n",
    "{\"a\": [1, 2.5e-3, null], \"b\": \"\\u00e9\"}",
    "https://example.org/a/b?c=d&e=%20f#g user@example.org",
    "\x00\x01\x7f\u200b\u00a0\ufeff\u2028 control",
    "$E = mc^2$, ∑ᵢ xᵢ² ≤ ∞, α→β, ∀x∈ℝ",
    "AAAAAAAAAAAAAAAAAAAAAAAAA----------------====????!!!!",
    "CamelCaseWords snake_case_words kebab-case-words SCREAMING_CASE",
]

WHITESPACE = ["", " ", "  ", "   ", "\n", "\n\n", "\t", " \n ", "\r\n", "\u00a0", "\u3000"]


def corpus():
    texts = list(SENTENCES)
    for path in sorted((ROOT / "docs").glob("*.md")):
        texts.extend(line for line in path.read_text().splitlines() if line.strip())
    return texts


def mixed_texts():
    """A few hundred texts: sentences, mixtures of them, whitespace, numbers, any characters."""
    rng = random.Random(7)
    texts = list(WHITESPACE) + list(SENTENCES)
    for _ in range(120):
        parts = []
        for sentence in rng.sample(SENTENCES, 3):
            start = rng.randrange(len(sentence))
            parts.append(sentence[start : start + rng.randrange(1, 24)])
        texts.append(rng.choice(WHITESPACE).join(parts))
    for _ in range(60):
        words = [str(rng.randrange(10 ** rng.randrange(1, 9))) for _ in range(4)]
        texts.append(rng.choice([" ", ",", ".", "  ", "-"]).join(words))
    for _ in range(60):
        texts.append("".join(rng.choice(WHITESPACE + ["a", "Z", "9", "é", "."]) for _ in range(12)))
    for _ in range(60):
        points = (rng.randrange(0x20, 0x2FFFF) for _ in range(8))
        texts.append("".join(chr(p) for p in points if not 0xD800 <= p < 0xE000))
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


def bytes_of_characters():
    """GPT-2's map from printable characters to bytes, turned round."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(byte): byte for byte in plain}
    others = [byte for byte in range(256) if byte not in plain]
    table.update({chr(256 + index): byte for index, byte in enumerate(others)})
    return table


def bytelevel_reference(tokenizer):
    """An encoder by tiktoken that knows only the ranks."""
    table = bytes_of_characters()
    data = json.loads(tokenizer.to_str())["model"]
    as_bytes = lambda token: bytes(table[character] for character in token)
    ranks, id_of_rank = {}, []
    for byte in range(256):
        ranks[bytes([byte])] = byte
    vocabulary = {as_bytes(t): i for t, i in data["vocab"].items() if not t.startswith("<|")}
    for left, right in data["merges"]:
        ranks[as_bytes(left) + as_bytes(right)] = len(ranks)
    id_of_rank = {rank: vocabulary[token] for token, rank in ranks.items()}
    encoding = tiktoken.Encoding(
        "reference", pat_str=GPT2_PATTERN, mergeable_ranks=ranks, special_tokens={}
    )

    def encode(text):
        ids = []
        for piece in regex.split(r"(\p{N})", text):
            ids.extend(id_of_rank[rank] for rank in encoding.encode_ordinary(piece))
        return ids

    return encode


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
    reference = bytelevel_reference(bytelevel)
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
