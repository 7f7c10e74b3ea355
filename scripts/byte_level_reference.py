"""Byte-level BPE as SmolLM2 has it (digits apart, then GPT-2's), by tiktoken."""

import regex
import tiktoken

# The pattern of GPT-2's tokenizer (Radford et al. 2019).
GPT2_PATTERN = (
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
)


def bytes_of_characters():
    """GPT-2's map from printable characters to bytes, turned round."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(byte): byte for byte in plain}
    others = [byte for byte in range(256) if byte not in plain]
    table.update({chr(256 + index): byte for index, byte in enumerate(others)})
    return table


def byte_level_reference(vocabulary, merges):
    """An encoder that knows only `vocabulary` (piece → id, without special tokens) and `merges`
    (pairs of pieces, in their order). Bytes that the vocabulary lacks are left out: SmolLM2's
    has no tokens for some control characters."""
    table = bytes_of_characters()
    as_bytes = lambda piece: bytes(table[character] for character in piece)
    ids = {as_bytes(piece): id for piece, id in vocabulary.items()}
    ranks = {bytes([byte]): byte for byte in range(256)}
    for left, right in merges:
        ranks[as_bytes(left) + as_bytes(right)] = len(ranks)
    id_of_rank = {rank: ids[piece] for piece, rank in ranks.items() if piece in ids}
    encoding = tiktoken.Encoding(
        "reference", pat_str=GPT2_PATTERN, mergeable_ranks=ranks, special_tokens={}
    )

    def encode(text):
        found = []
        for piece in regex.split(r"(\p{N})", text):
            ranks_found = encoding.encode_ordinary(piece)
            found.extend(id_of_rank[rank] for rank in ranks_found if rank in id_of_rank)
        return found

    return encode
