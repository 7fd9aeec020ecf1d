#!/usr/bin/env python3
"""Measures infcgi and llama.cpp in turns and prints a Markdown table of both for each model. peer.sh calls it.

Each test first tries llama.cpp's settings and keeps the fastest. Then come the rounds: infcgi, llama.cpp, infcgi, ... so
that a machine that slows down slows both. One program's value of a round is the median of its RUNS timed runs there.
Standard library only.
"""
import argparse
import datetime
import itertools
import json
import os
import sys
import tempfile

import machine
from programs import STREAM_PROMPT, Failed, Infcgi, Llama, median

RUNS = 3  # timed runs of a program in a round, after one that is not
TRIES = 2  # timed runs of a setting on trial; the best one counts
TOO_BUSY = 0.1  # CPUs at other work, above which the numbers are disturbed
PROMPT, DECODED, DEPTH, STREAMS = 512, 64, 4096, (4, 16)
GROUPS = ("shallow", "deep", "q8_0", "streams", "start")


def say(line):
    print(line, file=sys.stderr, flush=True)


def spread(values, digits=1):
    return f"{median(values):.{digits}f} [{min(values):.{digits}f} - {max(values):.{digits}f}]"


def setting_text(setting):
    return " ".join(f"{option} {value}" for option, value in setting)


class Cell:
    """One row of a table: tokens a second of either program at one kind of work."""

    def __init__(self, prompt=0, gen=0, depth=0, seqs=1, kv="f16"):
        self.prompt, self.gen, self.depth, self.seqs, self.kv = prompt, gen, depth, seqs, kv
        self.ours, self.peer, self.setting = [], [], ()
        self.read_bytes = self.matmul_ops = 0  # of one run of ours
        self.our_kv = kv

    def name(self):
        return (f"pp{self.prompt}" if self.prompt else f"tg{self.gen}") + (f" x {self.seqs}" if self.seqs > 1 else "") + \
            (f" @ d{self.depth}" if self.depth else "") + (f", KV {self.kv}" if self.depth >= DEPTH else "")

    def tokens(self):
        return (self.prompt + self.gen) * self.seqs

    def of_limits(self, peaks):
        """What our median is of the machine's limits: a prompt computes, one stream reads, many do both."""
        seconds, parts = self.tokens() / median(self.ours), []
        if self.gen and peaks.read_gbs:
            rate = self.read_bytes / seconds / 1e9
            parts.append(f"{rate:.1f} GB/s, {100 * rate / peaks.read_gbs:.0f} %")
        if (self.prompt or self.seqs > 1) and peaks.int8_gops:
            rate = self.matmul_ops / seconds / 1e9
            parts.append(f"{rate / 1000:.2f} Top/s, {100 * rate / peaks.int8_gops:.0f} %")
        return "; ".join(parts)

    def row(self, peaks):
        ours, peer = median(self.ours), median(self.peer)
        return (f"| {self.name()} | {spread(self.ours)} | {spread(self.peer)} | {ours / peer:.2f} | {self.of_limits(peaks)} "
                f"| {setting_text(self.setting)} |")


class Start:
    """Rows of the start: time to the first token, and peak memory; less is better."""

    def __init__(self):
        self.setting, self.values = (), {}  # values: {(what, who): [one each round]}

    def name(self):
        return "start"

    def add(self, what, who, value):
        self.values.setdefault((what, who), []).append(value)

    def rows(self):
        first, peak, packed = "start to first token, ms", "peak resident, MiB", "with a packed cache: "
        for what, like, digits in ((first, first, 0), (packed + first, first, 0), (peak, peak, 1), (packed + peak, peak, 1)):
            ours, peer = self.values.get((what, "ours")), self.values.get((like, "peer"))
            if ours and peer:
                yield (f"| {what} | {spread(ours, digits)} | {spread(peer, digits)} | {median(ours) / median(peer):.2f} | "
                       f"| {setting_text(self.setting)} |")


class Model:
    """The table of one file."""

    def __init__(self, args, path, ours, peer):
        self.args, self.path, self.ours, self.peer = args, path, ours, peer
        self.notes, self.busy, self.start = [], [], Start()
        self.cells = {"shallow": [Cell(prompt=PROMPT), Cell(gen=DECODED)],
                      "deep": [Cell(prompt=PROMPT, depth=DEPTH), Cell(gen=DECODED, depth=DEPTH)],
                      "q8_0": [Cell(gen=DECODED, depth=DEPTH, kv="q8_0")],
                      "streams": [Cell(gen=DECODED, depth=STREAM_PROMPT, seqs=n) for n in STREAMS]}
        self.groups = [g for g in GROUPS if g in args.only]
        if "q8_0" in self.groups and not ours.takes_kv_types():
            self.skip("q8_0", "this infcgi's bench has no -ctk")
        if "start" in self.groups and not peer.has("llama-completion"):
            self.skip("start", "there is no llama-completion in PEER_BIN")

    def skip(self, group, why):
        names = "start to first token" if group == "start" else ", ".join(c.name() for c in self.cells[group])
        self.groups.remove(group)
        self.notes.append(f"not measured: {names}: {why}")
        say(f"{os.path.basename(self.path)}: {self.notes[-1]}")

    # --- llama.cpp's settings ---

    def try_setting(self, cells, setting, seen):
        speeds = self.peer.bench(self.path, cells, setting, TRIES)
        for cell, values in speeds.items():
            seen.setdefault(cell, {})[setting] = max(values)

    def keep_best(self, seen):
        for cell, by_setting in seen.items():
            cell.setting = max(by_setting, key=by_setting.get)
            say(f"{cell.name()}: llama.cpp is fastest with {setting_text(cell.setting)} ({by_setting[cell.setting]:.1f} t/s; the "
                f"slowest of {len(by_setting)} settings {min(by_setting.values()):.1f})")

    def choose_shallow(self):
        """Flash attention, repacking and, for the prompt, the micro-batch: all combinations."""
        prompt, decode = self.cells["shallow"]
        seen = {}
        for fa, repack, ubatch in itertools.product(("on", "off"), ("1", "0"), ("512", "256", "128")):
            setting = (("-fa", fa), ("--repack", repack))
            self.try_setting([prompt], (*setting, ("-ub", ubatch)), seen)
            if ubatch == "512":
                self.try_setting([decode], setting, seen)
        self.keep_best(seen)

    def choose_deep(self, group):
        """At depth: what is best without it, with flash attention on and off. Only with it can V be quantised."""
        seen = {}
        for cell in self.cells[group]:
            without = self.cells["shallow"][0 if cell.prompt else 1].setting
            for fa in ("on",) if cell.kv != "f16" else ("on", "off"):
                setting = tuple((option, fa if option == "-fa" else value) for option, value in without)
                self.try_setting([cell], setting, seen)
        self.keep_best(seen)

    def choose_streams(self):
        seen = {}
        for fa, repack, unified in itertools.product(("on", "off"), ("1", "0"), ("0", "1")):
            self.try_setting(self.cells["streams"], (("-fa", fa), ("--repack", repack), ("-kvu", unified)), seen)
        self.keep_best(seen)

    def choose_start(self):
        times = {(("--repack", r),): min(self.peer.first_token(self.path, (("--repack", r),))[0] for _ in range(TRIES + 1))
                 for r in ("1", "0")}
        self.start.setting = min(times, key=times.get)

    def choose(self):
        unknown = [g for g in self.groups if not self.recall(g)]
        if "shallow" in unknown or ({"deep", "q8_0"} & set(unknown) and not self.recall("shallow")):
            self.choose_shallow()
        for group in unknown:
            if group in ("deep", "q8_0"):
                self.choose_deep(group)
            elif group == "streams":
                self.choose_streams()
            elif group == "start":
                self.choose_start()
        self.remember()

    def choices(self, group):
        """What the settings of a group's tests are remembered under, and who has them."""
        file = f"{os.path.basename(self.path)} {os.path.getsize(self.path)} threads {self.args.threads}"
        return {f"{file} {c.name()}": c for c in ([self.start] if group == "start" else self.cells[group])}

    def recall(self, group):
        """Takes the settings of an earlier run from SETTINGS; False unless all of the group are there."""
        known, choices = read_settings(self.args.settings), self.choices(group)
        if not all(name in known for name in choices):
            return False
        for name, cell in choices.items():
            cell.setting = tuple(tuple(pair) for pair in known[name])
            say(f"{name}: llama.cpp with {setting_text(cell.setting)}, as {self.args.settings} says")
        return True

    def remember(self):
        if self.args.settings:
            known = read_settings(self.args.settings)
            for group in GROUPS:
                known.update({name: cell.setting for name, cell in self.choices(group).items() if cell.setting})
            with open(self.args.settings, "w", encoding="utf-8") as f:
                json.dump(known, f, indent=1)

    # --- rounds ---

    def round_of(self, group):
        cells = self.cells[group]
        for cell, values in self.ours.bench(self.path, cells, RUNS).items():
            cell.ours.append(median(values))
        for setting in dict.fromkeys(c.setting for c in cells):
            for cell, values in self.peer.bench(self.path, [c for c in cells if c.setting == setting], setting, RUNS).items():
                cell.peer.append(median(values))
        return ", ".join(f"{c.name()} {c.ours[-1]:.1f} : {c.peer[-1]:.1f}" for c in cells)

    def round_of_start(self, pack_cache):
        sides = {("", "ours"): lambda: self.ours.first_token(self.path, ""),
                 ("", "peer"): lambda: self.peer.first_token(self.path, self.start.setting)}
        if self.ours.packs_to_cache():
            sides["with a packed cache: ", "ours"] = lambda: self.ours.first_token(self.path, pack_cache)
        for once in sides.values():  # reads the file into memory, and writes the packed cache
            once()
        results = [{side: once() for side, once in sides.items()} for _ in range(RUNS)]
        for which, who in sides:
            for i, what in enumerate(("start to first token, ms", "peak resident, MiB")):
                self.start.add(which + what, who, median([r[which, who][i] for r in results]))

    def measure(self, peaks):
        say(f"{os.path.basename(self.path)}: trying llama.cpp's settings")
        for group in list(self.groups):  # a model that one program cannot run
            try:
                if group == "start":
                    self.ours.first_token(self.path, "")
                else:
                    self.ours.bench(self.path, self.cells[group][:1], 1)
            except Failed as e:
                self.skip(group, str(e))
        self.choose()
        with tempfile.TemporaryDirectory(prefix="infcgi-pack-") as pack_cache:
            for i in range(self.args.rounds):
                self.busy.append(machine.other_work())
                peaks.measure()
                for group in self.groups:
                    if group == "start":
                        self.round_of_start(pack_cache)
                    else:
                        say(f"round {i + 1} of {self.args.rounds}: {self.round_of(group)}")

    def report(self, peaks):
        cells = itertools.chain.from_iterable(self.cells[g] for g in self.groups if g != "start")
        lines = [f"**{os.path.basename(self.path)}**, {os.path.getsize(self.path)} bytes", "",
                 "| test | infcgi: median [min - max] | llama.cpp: median [min - max] | ratio | infcgi, of the limits "
                 "| llama.cpp's setting |",
                 "|---|---:|---:|---:|---|---|",
                 *(cell.row(peaks) for cell in cells), *self.start.rows(), ""]
        others = sorted({c.our_kv for c in itertools.chain(*self.cells.values()) if c.our_kv != c.kv})
        lines += [f"- infcgi's KV type where llama.cpp's is f16: {', '.join(others)}"] if others else []
        lines += [f"- {note}" for note in self.notes]
        busy = max(self.busy, default=0)
        lines.append(f"- at most {busy:.2f} CPUs at other work between the rounds")
        if busy > TOO_BUSY:
            lines.append("- **Other work ran on the machine meanwhile: these numbers are a trial, not a result.**")
        return "\n".join(lines) + "\n\n"


def foot(args, peaks):
    name, flags = machine.cpu()
    return "\n".join([f"- CPU: {name}; {flags}",
                      f"- threads of both programs: {args.threads}; KV f16 where nothing else is said; {peaks.text()}",
                      f"- {machine.our_version(args.infcgi)}",
                      f"- {machine.peer_version(args.peer)}",
                      f"- {datetime.date.today()}, `{args.command}`: {args.rounds} rounds of {RUNS} runs"]) + "\n"


def read_settings(path):
    if not path or not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as f:
        try:
            known = json.load(f)
        except ValueError as e:
            sys.exit(f"error: SETTINGS: {path}: expected what an earlier run wrote, found no JSON: {e}")
    if not isinstance(known, dict):
        sys.exit(f"error: SETTINGS: {path}: expected what an earlier run wrote, an object, found {type(known).__name__}")
    return known


def read_arguments():
    parser = argparse.ArgumentParser()
    for name in ("infcgi", "peer", "checkkern", "command"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", default="")
    parser.add_argument("--settings", default="")
    parser.add_argument("models", nargs="+")
    args = parser.parse_args()
    args.only = args.only.replace(",", " ").split() or list(GROUPS)
    if args.rounds < 1 or args.threads < 1:
        sys.exit("error: ROUNDS and THREADS: expected 1 or more")
    if not set(args.only) <= set(GROUPS):
        sys.exit(f"error: ONLY: expected some of {' '.join(GROUPS)}, found {' '.join(args.only)}")
    return args


def main():
    args = read_arguments()
    busy = machine.other_work()
    if busy > TOO_BUSY:
        say(f"warning: {busy:.2f} CPUs are at other work; that slows both programs, and not both alike")
    ours, peer, peaks = Infcgi(args.infcgi, args.threads), Llama(args.peer, args.threads), machine.Peaks(args.checkkern, args.threads)
    text = ""
    for path in args.models:
        model = Model(args, path, ours, peer)
        try:
            model.measure(peaks)
        except Failed as e:
            sys.exit(f"error: {path}: {e}")
        table = model.report(peaks)
        text += table
        print(table, end="", flush=True)
    tail = foot(args, peaks)
    print(tail, end="")
    if args.out:
        with open(args.out, "w", encoding="utf-8") as f:
            f.write(text + tail)


if __name__ == "__main__":
    main()
