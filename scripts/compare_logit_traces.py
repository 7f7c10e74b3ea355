#!/usr/bin/env python3
"""Compare two traces of `mlxcel logit-trace`, position by position.

    scripts/compare_logit_traces.py A B [--decided 2.0] [--identical]

A is the reference. A position is decided where A's likeliest token leads the second by at least
the margin of --decided, in logits: there, another choice in B is a difference and not a coin toss.

Exit code 0: no decided position differs (with --identical: the files are equal to the byte);
1: one does; 2: the traces cannot be compared, or the command line was not understood.
Needs nothing but Python's standard library.
"""

import argparse
import json
import math
import sys

FORMAT = 1


class NotComparable(Exception):
    """Why two traces cannot be compared."""


class Row:
    """One position of a trace."""

    def __init__(self, path, number, line):
        try:
            fields = json.loads(line)
            self.place = (fields["chunk"], fields["pos"], fields["target"])
            self.nll = float(fields["nll"])
            ids, logits = fields["ids"], fields["logits"]
            if len(ids) != len(logits) or len(ids) < 2:
                raise ValueError(f"{len(ids)} ids and {len(logits)} logits, expected two or more")
            self.logits = dict(zip(ids, map(float, logits)))
            self.best = ids[0]
            self.gap = float(logits[0]) - float(logits[1])
        except (ValueError, KeyError, TypeError) as problem:
            raise NotComparable(f"{path}:{number}: not a row of a logit trace: {problem!r}") from None
        if not all(map(math.isfinite, [self.nll, *self.logits.values()])):
            raise NotComparable(f"{path}:{number}: a number that is not finite")


def read(path):
    """The first line and the rows of a trace."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise NotComparable(f"{path}: cannot be read: {problem}") from None
    try:
        header = json.loads(lines[0])
        version = header["logit_trace"]
    except (IndexError, ValueError, KeyError, TypeError):
        raise NotComparable(f"{path}: not a logit trace") from None
    if version != FORMAT:
        raise NotComparable(f"{path}: expected trace format {FORMAT}, got {version}")
    rows = [Row(path, number, line) for number, line in enumerate(lines[1:], start=2)]
    if not rows:
        raise NotComparable(f"{path}: no positions")
    return header, rows


def quantile(ordered, share):
    """The nearest-rank quantile of numbers in ascending order."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def perplexity(rows):
    return math.exp(sum(row.nll for row in rows) / len(rows))


def share(count, total):
    return f"{count} of {total}" + (f" ({100 * count / total:.2f} %)" if total else "")


def compare(reference, other, margin):
    """Prints the comparison; returns how many decided positions differ."""
    (header, left), (other_header, right) = reference, other
    for key in ("model_hash", "tokens", "chunk_tokens"):
        if header.get(key) != other_header.get(key):
            raise NotComparable(f"{key}: {header.get(key)} and {other_header.get(key)}")
    places = [[row.place for row in rows] for rows in (left, right)]
    if places[0] != places[1]:
        raise NotComparable("the traces hold other positions or targets")
    pairs = list(zip(left, right))
    decided = [pair for pair in pairs if pair[0].gap >= margin]
    differ = sum(a.best != b.best for a, b in pairs)
    decided_differ = sum(a.best != b.best for a, b in decided)
    deltas = sorted(
        abs(logit - b.logits[token])
        for a, b in pairs
        for token, logit in a.logits.items()
        if token in b.logits
    )
    print(f"positions             {len(pairs)}")
    print(f"another best token    {share(differ, len(pairs))}")
    print(f"  where decided       {share(decided_differ, len(decided))}, by at least {margin:g}")
    if deltas:
        ranks = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)]
        shown = ", ".join(f"{name} {quantile(deltas, rank):.4g}" for name, rank in ranks)
        print(f"|logit difference|    {shown}")
    else:
        print("|logit difference|    no token in both lists")
    print(f"perplexity            {perplexity(left):.6f} and {perplexity(right):.6f}")
    return decided_differ


def identical(a, b):
    with open(a, "rb") as left, open(b, "rb") as right:
        return left.read() == right.read()


def margin(text):
    value = float(text)
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError("expected a finite number of at least 0")
    return value


def main():
    parser = argparse.ArgumentParser(description="compare two traces of mlxcel logit-trace")
    parser.add_argument("a", metavar="A", help="the reference")
    parser.add_argument("b", metavar="B", help="what is compared with it")
    parser.add_argument("--decided", type=margin, default=2.0, metavar="MARGIN",
                        help="lead from which a choice counts, in logits (default 2.0)")
    parser.add_argument("--identical", action="store_true",
                        help="only equal bytes are good enough")
    arguments = parser.parse_args()
    try:
        differ = compare(read(arguments.a), read(arguments.b), arguments.decided)
    except NotComparable as problem:
        print(f"compare_logit_traces.py: not comparable: {problem}", file=sys.stderr)
        return 2
    if arguments.identical:
        same = identical(arguments.a, arguments.b)
        print(f"files                 {'identical' if same else 'differ'}")
        return 0 if same else 1
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
