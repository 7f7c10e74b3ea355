"""Texts that tokenizers stumble over: scripts, whitespace, digits, code, emoji, rare characters.

Every text is the same in each run: the fixtures that are made of them can be made again.
"""

import random

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


# What these vocabularies have tokens of their own for, and what looks like it.
MARKED = [
    "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n",
    "<|endoftext|>a<|endoftext|><|endoftext|>",
    " <|im_end|> <|im_end |><|im_end|",
    "<repo_name>x<file_sep>y<issue_start>z<empty_output>",
    "<bos><start_of_turn>user\nHello<end_of_turn>\n<start_of_turn>model\n",
    "<eos><pad><unk><mask><unused0><unused42><unused99999>",
    "[multimodal]<start_of_image><end_of_image>",
    "<table><tr><td>1</td></tr></table><h1>A</h1><p>b<br></p><code>c</code>",
    "<0x0A><0xE2> \u2581\u2581 a\u2581b",
]

CODE = [
    "for (int i = 0; i < n; ++i) {\n\tsum += a[i] * b[i];\n}\n",
    "SELECT name, COUNT(*) FROM users WHERE age >= 18 GROUP BY name;",
    "impl<'a, T: Clone + 'static> Iterator for Foo<'a, T> where T: Send {",
    "#!/bin/sh\nset -eu\nfind . -name '*.rs' -print0 | xargs -0 wc -l\n",
    "<!DOCTYPE html>\n<html lang=\"en\">\n  <body class='x y'>&nbsp;</body>\n</html>",
    "x = lambda *a, **k: {**k, 'n': len(a)}  # noqa: E731",
    "\\begin{align}\n  \\int_0^1 f(x)\\,dx &= \\frac{1}{2}\n\\end{align}",
    "0xDEADBEEF 0b1010 1_000_000 3.14e-10 -0.0 1e309 NaN",
]

SCRIPTS = [
    "Tiếng Việt có nhiều dấu thanh; Ñandú, çağrı, ő, ű.",
    "ภาษาไทยไม่มีช่องว่างระหว่างคำ",
    "தமிழ் மொழி, తెలుగు భాష, ಕನ್ನಡ, മലയാളം",
    "ქართული ენა, Հայերեն, ᏣᎳᎩ, አማርኛ",
    "ᠮᠣᠩᠭᠣᠯ བོད་སྐད ភាសាខ្មែរ မြန်မာ",
    "𠀀𠀁𪚥 㐀 ㄅㄆㄇ ｆｕｌｌｗｉｄｔｈ ﾊﾝｶｸ",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟘𝟙𝟚 ⅕ ٣٤٥ १२३ 一二三 ᛁᛅ",
    "עִבְרִית עם נִקּוּד; العَرَبِيَّةُ بالتشكيل",
    "👨🏿‍🚀👩🏻‍❤️‍💋‍👨🏽 🏴󠁧󠁢󠁳󠁣󠁴󠁿 ☺︎☺️ #️⃣ 🫠",
    "a\u0308o\u0308u\u0308 Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034f",
    "\u202eright to left\u202c \u200fx\u200e \u2066y\u2069 \ufffd \ufeff",
]

# Stops before what a text cannot hold: surrogates.
LAST_BEFORE_SURROGATES = 0xD7FF


def texts_for_real_vocabularies():
    """More texts, for vocabularies that know most of the world's words."""
    rng = random.Random(11)
    texts = MARKED + CODE + SCRIPTS
    for unit in [" ", "\n", "\t", "\u00a0", "a", "=", "-", "é", "中", "0", "\r\n", " \n"]:
        texts.extend(unit * count for count in (2, 3, 7, 16, 31, 33, 64))
    texts.extend(f"a{chr(point)}b {chr(point)}{chr(point)}" for point in range(0x00, 0xA1))
    for _ in range(80):
        pieces = rng.sample(MARKED + CODE + SCRIPTS + SENTENCES, 3)
        cuts = [piece[: rng.randrange(1, len(piece) + 1)] for piece in pieces]
        texts.append(rng.choice(WHITESPACE).join(cuts))
    for _ in range(40):
        points = [rng.randrange(1, LAST_BEFORE_SURROGATES) for _ in range(6)]
        texts.append(" ".join(chr(point) * rng.randrange(1, 3) for point in points))
    return texts
