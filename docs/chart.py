#!/usr/bin/python3
"""Draws docs/speed.svg, the ratio of infcgi's speed to that of other programs, from docs/benchmarks/peer.csv.

    chart.py CSV SVG

Each bar is one row of the CSV whose unit is tokens/s and whose peer has a value. Of rows of the same machine, model, test and peer it is
the last one. The output depends only on the CSV.
"""
import csv
import math
import sys
from html import escape

WIDTH, LEFT, RIGHT, TOP, BAR, GAP, HEAD, FOOT = 780, 226, 170, 82, 14, 5, 30, 46
LEGEND = 18  # height of a line with two peers
COLORS = 4
TESTS = {"pp512": "prefill, 512 tokens", "tg64": "decode, 1 stream", "tg64 x 4 @ d16": "decode, 4 streams",
         "tg64 x 16 @ d16": "decode, 16 streams", "pp512 @ d4096": "prefill after 4,096 tokens",
         "tg64 @ d4096": "decode after 4,096 tokens"}
STYLE = """
    .back { fill: #ffffff } .halo { stroke: #ffffff } .text { fill: #1f2328 } .soft { fill: #59636e }
    .grid { stroke: #d1d9e0 } .one { stroke: #1f2328 } .peer-0 { fill: #0f6e5c } .peer-1 { fill: #c2570c }
    .peer-2 { fill: #4f56b8 } .peer-3 { fill: #8a6d00 }
    @media (prefers-color-scheme: dark) {
      .back { fill: #0d1117 } .halo { stroke: #0d1117 } .text { fill: #e6edf3 } .soft { fill: #9198a1 }
      .grid { stroke: #3d444d } .one { stroke: #e6edf3 } .peer-0 { fill: #2ea88f } .peer-1 { fill: #f08c3c }
      .peer-2 { fill: #8f96f0 } .peer-3 { fill: #d1ae2e }
    }
    text { font: 12px system-ui, "Segoe UI", Helvetica, Arial, sans-serif } .big { font-size: 16px; font-weight: 600 }
    .bold { font-weight: 600 } .halo { paint-order: stroke; stroke-width: 4px } .end { text-anchor: end } .middle { text-anchor: middle }"""


def read(path):
    """Rows of speeds by heading, in the order of the file; of a model the tests in the order of TESTS."""
    with open(path, encoding="utf-8", newline="") as f:
        every = [r for r in csv.DictReader(f) if r["unit"] == "tokens/s" and r["ratio"]]
    rows = list({(r["machine"], r["model"], r["quant"], label(r), r["peer"]): r for r in every}.values())
    several = len({r["machine"] for r in rows}) > 1
    models = {}
    for r in rows:
        models.setdefault(f"{r['model']} {r['quant']}" + (f" on {r['machine']}" if several else ""), []).append(r)
    for speeds in models.values():
        speeds.sort(key=lambda r: list(TESTS).index(r["test"]))
    return rows, models


def label(row):
    return TESTS[row["test"]] + (f", KV {row['kv']}" if row["kv"] == "q8_0" else "")


def main():
    rows, models = read(sys.argv[1])
    peers = list(dict.fromkeys(r["peer"] for r in rows))
    limit = math.ceil(max(float(r["ratio"]) for r in rows))
    scale = (WIDTH - LEFT - RIGHT) / limit
    top = TOP + LEGEND * ((len(peers) - 1) // 2)
    bottom = top + len(models) * HEAD + len(rows) * (BAR + GAP)
    out = []

    def text(x, y, words, classes):
        out.append(f'  <text x="{x:.1f}" y="{y:.1f}" class="{classes}">{escape(words)}</text>')

    def box(x, y, w, h, classes):
        out.append(f'  <rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" class="{classes}"/>')

    def line(x, classes):
        out.append(f'  <line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}" class="{classes}"/>')

    box(0, 0, WIDTH, bottom + FOOT, "back")
    text(16, 26, "Speed of infcgi relative to other programs", "text big")
    places = list(dict.fromkeys(f"{r['cpu']}, {r['threads']} threads" for r in rows))
    text(16, 46, f"{places[0] if len(places) == 1 else 'several machines'}; medians of alternating runs on the same file", "soft")
    for i, peer in enumerate(peers):
        box(16 + 260 * (i % 2), 56 + LEGEND * (i // 2), 10, 10, f"peer-{i % COLORS}")
        text(32 + 260 * (i % 2), 65 + LEGEND * (i // 2), f"infcgi / {peer}", "text")
    text(WIDTH - 16, 65, "tokens/s of both", "soft end")
    for n in range(limit + 1):
        line(LEFT + n * scale, "one" if n == 1 else "grid")
        text(LEFT + n * scale, bottom + 16, str(n), "soft middle")
    text(LEFT + limit * scale / 2, bottom + 36, "ratio of speeds (1 = equal; above 1 infcgi is faster)", "text middle")
    y = top
    for model, speeds in models.items():
        text(16, y + 20, model, "text bold halo")
        y += HEAD
        for r in speeds:
            length, ratio = float(r["ratio"]) * scale, r["ratio"]
            text(LEFT - 8, y + 11, label(r), "text end")
            box(LEFT, y, length, BAR, f"peer-{peers.index(r['peer']) % COLORS}")
            text(LEFT + length + 6, y + 11, f"{ratio}×", "text bold halo")
            text(WIDTH - 16, y + 11, f"{float(r['infcgi']):,.1f} : {float(r['peer_value']):,.1f}", "text end")
            y += BAR + GAP
    size = f'width="{WIDTH}" height="{bottom + FOOT}" viewBox="0 0 {WIDTH} {bottom + FOOT}"'
    with open(sys.argv[2], "w", encoding="utf-8", newline="\n") as f:
        print(f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"\n'
              f'  aria-label="Bar chart: speed of infcgi divided by that of {escape(" and ".join(peers))}">\n'
              f'  <!-- made by `make docs` from docs/benchmarks/peer.csv -->\n  <style>{STYLE}\n  </style>', *out, "</svg>", sep="\n", file=f)


main()
