#!/usr/bin/env python3
"""Compare two traces of `mlxcel logit-trace`, position by position.

    scripts/compare_logit_traces.py A B [--decided 2.0] [--identical]

A is the reference. A position is decided where A's likeliest token leads the second by at least
the margin of --decided, in logits: there, another choice in B is a difference and not a coin toss.

Exit code 0: no decided position differs (with --identical: the files are equal to the byte);
1: one does; 2: the traces cannot be compared, the command line was not understood, or the
comparison cannot be written.
Needs nothing but Python's standard library.
"""

import argparse
import json
import math
import sys

FORMAT = 1


class NotComparable(Exception):
    """Why two traces cannot be compared."""


def parse(text):
    """A JSON value; ValueError where there is none."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def integer(value):
    """A count, position or id."""
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r}, expected a whole number")
    return value


def number(value):
    """A finite number."""
    if value is None:
        raise ValueError("null, as which NaN and infinity are written, is no number")
    if type(value) not in (int, float):
        raise ValueError(f"{value!r}, expected a number")
    try:
        value = float(value)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise ValueError("a number that is not finite")
    return value


class Row:
    """One position of a trace."""

    def __init__(self, fields):
        self.place = (integer(fields["chunk"]), integer(fields["pos"]))
        self.target = integer(fields["target"])
        self.nll = number(fields["nll"])
        ids = [integer(id) for id in fields["ids"]]
        logits = [number(logit) for logit in fields["logits"]]
        if len(ids) != len(logits) or len(ids) < 2:
            raise ValueError(f"{len(ids)} ids and {len(logits)} logits, expected two or more")
        self.logits = dict(zip(ids, logits))
        if len(self.logits) < len(ids):
            raise ValueError("an id is named twice")
        if any(first < second for first, second in zip(logits, logits[1:])):
            raise ValueError("logits not in descending order")
        self.best = ids[0]
        self.gap = logits[0] - logits[1]


class Trace:
    """The first line and the rows of a trace."""

    def __init__(self, path):
        try:
            # Once: what a pipe gave is not there a second time.
            with open(path, "rb") as file:
                self.bytes = file.read()
            lines = self.bytes.decode("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as problem:
            raise NotComparable(f"{path}: cannot be read: {problem}") from None
        self.header = header(path, lines)
        self.rows = [row(path, at, line) for at, line in enumerate(lines[1:], start=2)]
        tokens, chunk_tokens = self.header["tokens"], self.header["chunk_tokens"]
        # The last token of a chunk predicts nothing.
        whole, rest = divmod(tokens, chunk_tokens)
        expected = whole * (chunk_tokens - 1) + max(rest - 1, 0)
        if len(self.rows) != expected:
            raise NotComparable(f"{path}: {len(self.rows)} positions, expected {expected}")
        for index, read in enumerate(self.rows):
            place = divmod(index, chunk_tokens - 1)
            if read.place != place:
                raise NotComparable(f"{path}:{index + 2}: chunk and pos {read.place}, expected {place}")


def header(path, lines):
    """The first line, checked."""
    try:
        fields = parse(lines[0])
        version = fields["logit_trace"]
    except (IndexError, ValueError, KeyError, TypeError):
        raise NotComparable(f"{path}: not a logit trace") from None
    if version != FORMAT:
        raise NotComparable(f"{path}: expected trace format {FORMAT}, got {version}")
    try:
        for key in ("tokens", "chunk_tokens"):
            if integer(fields[key]) < 2:
                raise ValueError(f"{key} below 2")
        if not isinstance(fields["model_hash"], str):
            raise ValueError("model_hash is no text")
    except KeyError as key:
        raise NotComparable(f"{path}:1: not the first line of a logit trace: no {key}") from None
    except ValueError as problem:
        raise NotComparable(f"{path}:1: not the first line of a logit trace: {problem}") from None
    return fields


def row(path, at, line):
    """The row on line `at`."""
    try:
        return Row(parse(line))
    except KeyError as key:
        problem = f"no {key}"
    except (ValueError, TypeError) as other:
        problem = other
    raise NotComparable(f"{path}:{at}: not a row of a logit trace: {problem}")


def quantile(ordered, share):
    """The nearest-rank quantile of numbers in ascending order."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def perplexity(rows):
    try:
        return math.exp(sum(row.nll for row in rows) / len(rows))
    except OverflowError:
        return math.inf


def share(count, total):
    return f"{count} of {total}" + (f" ({100 * count / total:.2f} %)" if total else "")


def compare(reference, other, margin):
    """The comparison as lines, and how many decided positions differ."""
    for key in ("model_hash", "tokens", "chunk_tokens"):
        left, right = reference.header[key], other.header[key]
        if left != right:
            raise NotComparable(f"{key}: {left} and {right}")
    pairs = list(zip(reference.rows, other.rows))
    for a, b in pairs:
        if a.target != b.target:
            raise NotComparable(f"other targets: {a.target} and {b.target} at {a.place}")
    decided = [pair for pair in pairs if pair[0].gap >= margin]
    differ = sum(a.best != b.best for a, b in pairs)
    decided_differ = sum(a.best != b.best for a, b in decided)
    deltas = sorted(
        abs(logit - b.logits[token])
        for a, b in pairs
        for token, logit in a.logits.items()
        if token in b.logits
    )
    shown = "no token in both lists"
    if deltas:
        ranks = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)]
        shown = ", ".join(f"{name} {quantile(deltas, rank):.4g}" for name, rank in ranks)
    perplexities = [perplexity(trace.rows) for trace in (reference, other)]
    return [
        f"positions             {len(pairs)}",
        f"another best token    {share(differ, len(pairs))}",
        f"  where decided       {share(decided_differ, len(decided))}, by at least {margin:g}",
        f"|logit difference|    {shown}",
        "perplexity            {:.6f} and {:.6f}".format(*perplexities),
    ], decided_differ


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
        reference, other = Trace(arguments.a), Trace(arguments.b)
        lines, differ = compare(reference, other, arguments.decided)
    except NotComparable as problem:
        print(f"compare_logit_traces.py: not comparable: {problem}", file=sys.stderr)
        return 2
    failed = differ > 0
    if arguments.identical:
        failed = reference.bytes != other.bytes
        lines.append(f"files                 {'differ' if failed else 'identical'}")
    try:
        print("\n".join(lines), flush=True)
    except OSError as problem:
        print(f"compare_logit_traces.py: cannot write the comparison: {problem}", file=sys.stderr)
        # Or the interpreter fails once more when it closes the stream.
        sys.stdout = None
        return 2
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
