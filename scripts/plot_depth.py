#!/usr/bin/env python3
"""Plots the tables of a page that `depth_bench` printed: speed, and share of the limit, by depth.

Usage: scripts/plot_depth.py PAGE.md OUT.svg
A table belongs to the heading above it.
"""

import math
import re
import sys

COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7"]
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, GAP = 900, 380, 60, 40, 50, 80
PANEL = (WIDTH - 2 * LEFT - GAP) // 2


def tables(page):
    """{heading: [(depth, tok/s, share in percent, slowest and fastest tok/s)]}"""
    found, heading = {}, None
    for line in page.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        if len(cells) == 5 and cells[0].isdigit():
            speed = re.fullmatch(r"([\d.]+) \(([\d.]+)–([\d.]+)\)", cells[1])
            share = re.fullmatch(r"([\d.]+) %", cells[4])
            if not speed or not share:
                sys.exit(f"{sys.argv[1]}: expected `| depth | tok/s (…–…) | MB | limit | share % |`, got: {line}")
            found.setdefault(heading, []).append(
                (int(cells[0]), float(speed[1]), float(share[1]), (float(speed[2]), float(speed[3])))
            )
    if not found:
        sys.exit(f"{sys.argv[1]}: expected a table of depth_bench, got none")
    return found


def panel(left, title, top_value, step, rows_by_model, value_of):
    depths = sorted({row[0] for rows in rows_by_model.values() for row in rows})
    low, high = math.log2(depths[0]), math.log2(depths[-1])
    bottom = HEIGHT - BOTTOM

    def x(depth):
        return left + PANEL * (math.log2(depth) - low) / max(high - low, 1)

    def y(value):
        return bottom - (bottom - TOP) * value / top_value

    out = [f'<text x="{left}" y="{TOP - 16}" font-weight="bold">{title}</text>']
    for tick in range(0, top_value + 1, step):
        out.append(f'<path d="M{left} {y(tick):.1f}h{PANEL}" stroke="#ddd"/>')
        out.append(f'<text x="{left - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick}</text>')
    for depth in depths:
        label = str(depth) if depth < 1024 else f"{round(depth / 1000)}k"
        out.append(f'<text x="{x(depth):.1f}" y="{bottom + 18}" text-anchor="middle">{label}</text>')
    for (model, rows), colour in zip(rows_by_model.items(), COLOURS):
        points = [(x(row[0]), y(value_of(row))) for row in rows]
        line = "L".join(f"{px:.1f} {py:.1f}" for px, py in points)
        out.append(f'<path d="M{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        # From the slowest stretch to the fastest.
        for px, row in zip((point[0] for point in points), rows):
            ends = [y(value_of(row) * end / row[1]) for end in row[3]]
            out.append(f'<path d="M{px:.1f} {ends[0]:.1f}V{ends[1]:.1f}" stroke="{colour}" stroke-opacity="0.5" stroke-width="4"/>')
        out += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{colour}"/>' for px, py in points]
    return out


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as page:
        found = tables(page.read())
    fastest = max(row[3][1] for rows in found.values() for row in rows)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
    ]
    out += panel(LEFT, "decode, tokens per second", math.ceil(fastest / 200) * 200, 200, found, lambda row: row[1])
    out += panel(LEFT + PANEL + GAP, "share of the read bandwidth, %", 100, 20, found, lambda row: row[2])
    for i, (model, colour) in enumerate(zip(found, COLOURS)):
        at = LEFT + 220 * i
        out.append(f'<path d="M{at} {HEIGHT - 12}h20" stroke="{colour}" stroke-width="2"/>')
        out.append(f'<text x="{at + 26}" y="{HEIGHT - 8}">{model}</text>')
    out.append("</svg>")
    with open(sys.argv[2], "w", encoding="utf-8") as svg:
        svg.write("\n".join(out) + "\n")


main()
