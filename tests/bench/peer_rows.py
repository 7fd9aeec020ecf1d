"""Rows of `make bench-peer`: a Markdown table, and a CSV file of the form of docs/benchmarks/peer.csv, from which docs/chart.py draws."""
import csv
import datetime
import os
import re
from dataclasses import dataclass, field

import machine
from programs import Failed, median

COLUMNS = ("machine", "cpu", "threads", "model", "quant", "file_bytes", "test", "kv", "unit", "infcgi", "infcgi_min", "infcgi_max", "peer",
           "peer_value", "peer_min", "peer_max", "ratio", "infcgi_read_gb_s", "infcgi_read_percent", "infcgi_int8_top_s",
           "infcgi_int8_percent", "peer_setting", "infcgi_commit", "date", "command")
QUANT = re.compile(r"[-.](I?Q[0-9]\w*|TQ[12]_0|MXFP4|BF16|F16|F32)$", re.IGNORECASE)
DIGITS = {"tokens/s": 1, "ms": 0, "MiB": 1}


@dataclass
class Row:
    """A test of one model with one peer. ours, peer: one value of each round. kv: KV type of infcgi, and the peer's if it differs. limits:
    CSV columns of infcgi's share of the machine's limits. why: the peer has no value."""
    test: str
    unit: str
    kv: str
    ours: list
    peer_name: str
    peer: list
    setting: str
    why: str = ""
    limits: dict = field(default_factory=dict)


def spread(values, digits):
    return f"{median(values):.{digits}f} [{min(values):.{digits}f} - {max(values):.{digits}f}]" if values else "-"


def limits_text(limits):
    parts = []
    if "infcgi_read_gb_s" in limits:
        parts.append(f"{limits['infcgi_read_gb_s']} GB/s, {limits['infcgi_read_percent']} %")
    if "infcgi_int8_top_s" in limits:
        parts.append(f"{limits['infcgi_int8_top_s']} Top/s, {limits['infcgi_int8_percent']} %")
    return "; ".join(parts)


def markdown(rows):
    """Yields the lines of a table."""
    yield "| test | infcgi: median [min - max] | peer | peer: median [min - max] | ratio | infcgi, of the limits | peer's setting |"
    yield "|---|---:|---|---:|---:|---|---|"
    for r in rows:
        digits, unit = DIGITS[r.unit], "" if r.unit == "tokens/s" else f", {r.unit}"
        ratio = f"{median(r.ours) / median(r.peer):.2f}" if r.peer else "-"
        note = (f"not measured: {r.why}" if r.why else r.setting).replace("|", "\\|")
        yield (f"| {r.test}{unit}{', KV q8_0' if r.kv == 'q8_0' else ''} | {spread(r.ours, digits)} | {r.peer_name} | "
               f"{spread(r.peer, digits)} | {ratio} | {limits_text(r.limits)} | {note} |")


def name_and_quant(path):
    """Of a file: SmolLM2-135M-Instruct.Q4_1.gguf gives two words. A copy in another type has two types in its name, of which the last is
    its own."""
    name, quant = os.path.basename(path).removesuffix(".gguf"), ""
    while found := QUANT.search(name):
        name, quant = name[:found.start()], quant or found.group(1).upper()
    return name, quant


def check_header(path):
    """Raises Failed unless rows can be added to the file."""
    try:
        with open(path, "a+", encoding="utf-8", newline="") as f:
            f.seek(0)
            first = f.readline().strip()
    except OSError as e:
        raise Failed(f"CSV: {path}: {e.strerror}") from e
    if first and first != ",".join(COLUMNS):
        raise Failed(f"CSV: {path}: expected a new file or the columns of docs/benchmarks/peer.csv, found '{first[:60]}'")


def three(values, digits):
    return [f"{v:.{digits}f}" for v in (median(values), min(values), max(values))] if values else [""] * 3


def csv_row(row, path, about):
    """about: machine, threads, infcgi_commit and command."""
    digits, (model, quant) = DIGITS[row.unit], name_and_quant(path)
    ours, peer = three(row.ours, digits), three(row.peer, digits)
    return {"machine": about["machine"], "cpu": machine.cpu()[0], "threads": about["threads"], "model": model, "quant": quant,
            "file_bytes": os.path.getsize(path), "test": row.test, "kv": row.kv, "unit": row.unit,
            **dict(zip(("infcgi", "infcgi_min", "infcgi_max"), ours)), "peer": row.peer_name,
            **dict(zip(("peer_value", "peer_min", "peer_max"), peer)),
            "ratio": f"{median(row.ours) / median(row.peer):.2f}" if row.peer else "", **row.limits,
            "peer_setting": f"not measured: {row.why}" if row.why else row.setting, "infcgi_commit": about["infcgi_commit"],
            "date": datetime.date.today().isoformat(), "command": about["command"]}


def append_csv(path, model, rows, about):
    """Adds the rows of one model, and the header if the file is empty."""
    with open(path, "a", encoding="utf-8", newline="") as f:
        out = csv.DictWriter(f, COLUMNS, restval="", lineterminator="\n")
        if f.tell() == 0:
            out.writeheader()
        out.writerows(csv_row(row, model, about) for row in rows)
