#!/usr/bin/python3
"""Writes the table of models by name in docs/models.md, from docs/known-models.csv.

    known_models.py CSV PAGE

The columns of the CSV: name as on the model's card; family, a row of engine/model/model_families.c; parameters and, with experts, those
of a token (active), in 10^9, as on the card; bits per weight of the file people use, if not Q4_K_M's; tools, a --tool-format (empty: no
chat); thinking; head, a prediction head: in the model's file (yes) or a separate one (EAGLE-3, assistant); sees: the published model takes images,
of which infcgi computes the text alone. Prints the page.
"""
import csv
import re
import sys

BITS = 4.9  # of Q4_K_M: 4.92 GB of Llama 3.1 8B's 8.03 x 10^9 parameters
BEGIN, END = "<!-- made by `make docs`: begin -->", "<!-- made by `make docs`: end -->"


def number(x):
    return f"{x:.1f}" if x < 100 else f"{x:.0f}"


def row(r):
    total, bits = float(r["parameters"]), float(r["bits"] or BITS)
    size = f"{total:g}" + (f", {float(r['active']):g} active" if r["active"] else "")
    tools = f"`{r['tools']}`" if r["tools"] else ""
    cells = [r["name"].replace(";", ","), f"`{r['family']}`", size, number(total * bits / 8), tools, r["thinking"], r["head"],
             "text only" if r["sees"] else ""]
    return "| " + " | ".join(cells) + " |"


def main():
    with open(sys.argv[1], encoding="utf-8", newline="") as f:
        rows = list(csv.DictReader(f))
    with open(sys.argv[2], encoding="utf-8") as f:
        page = f.read()
    table = ["| model | family | 10^9 parameters | GB at Q4_K_M | tool format | thinks | head | sees |", "|---|---|---|---:|---|---|---|---|"]
    table += [row(r) for r in rows]
    part = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.S)
    if len(part.findall(page)) != 1:
        sys.exit(f"{sys.argv[2]}: expected one pair of marks {BEGIN!r} and {END!r}, found {len(part.findall(page))}")
    sys.stdout.write(part.sub(lambda _: "\n".join([BEGIN, *table, END]), page))


main()
