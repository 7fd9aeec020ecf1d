#!/usr/bin/env python3
"""Measures infcgi and other programs in turns and prints a Markdown table for each model. peer.sh calls it.

Each test first tries a peer's settings and keeps the fastest. Then come the rounds: infcgi, each peer, infcgi, ... so that a machine that
slows down slows all. One program's value of a round is the median of its RUNS timed runs there. Standard library only.
"""
import argparse
import datetime
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import machine
import peer_rows
from peers import PEERS
from programs import STREAM_PROMPT, Died, Failed, Infcgi, median

HERE = pathlib.Path(__file__).resolve().parent
RUNS = 3  # timed runs of a program in a round, after one that is not
TRIES = 2  # timed runs of a setting on trial; the best one counts
TOO_BUSY = 0.1  # CPUs at other work, above which the numbers are disturbed
PROMPT, DECODED, DEPTH, STREAMS = 512, 64, 4096, (4, 16)
GROUPS = ("shallow", "deep", "q8_0", "streams", "start")


def say(line):
    print(line, file=sys.stderr, flush=True)


def setting_text(setting):
    return " ".join(f"{option} {value}" for option, value in setting)


class Cell:
    """A test whose result is tokens a second of one kind of work."""

    def __init__(self, prompt=0, gen=0, depth=0, seqs=1, kv="f16"):
        self.prompt, self.gen, self.depth, self.seqs, self.kv = prompt, gen, depth, seqs, kv
        self.ours = []
        self.read_bytes = self.matmul_ops = 0  # of one run of ours
        self.our_kv = kv

    @staticmethod
    def is_start():
        return False

    def test(self):
        return (f"pp{self.prompt}" if self.prompt else f"tg{self.gen}") + (f" x {self.seqs}" if self.seqs > 1 else "") + \
            (f" @ d{self.depth}" if self.depth else "")

    def name(self):
        return self.test() + (f", KV {self.kv}" if self.depth >= DEPTH else "")

    def kv_text(self):
        return self.kv if self.our_kv == self.kv else f"{self.our_kv} / {self.kv}"

    def tokens(self):
        return (self.prompt + self.gen) * self.seqs

    def limits(self, peaks):
        """What our median is of the machine's limits: a prompt computes, one stream reads, many do both."""
        seconds, columns = self.tokens() / median(self.ours), {}
        if self.gen and peaks.read_gbs:
            rate = self.read_bytes / seconds / 1e9
            columns |= {"infcgi_read_gb_s": f"{rate:.1f}", "infcgi_read_percent": f"{100 * rate / peaks.read_gbs:.0f}"}
        if (self.prompt or self.seqs > 1) and peaks.int8_gops:
            rate = self.matmul_ops / seconds / 1e9
            columns |= {"infcgi_int8_top_s": f"{rate / 1000:.2f}", "infcgi_int8_percent": f"{100 * rate / peaks.int8_gops:.0f}"}
        return columns


class Start:
    """The test of the start: time to the first token, and peak memory; less is better."""
    prompt = gen = depth = 0
    seqs, kv = 1, "f16"

    def __init__(self):
        self.plain, self.packed = [], []  # ours: (ms, MiB) of each round, without and with a packed cache

    @staticmethod
    def is_start():
        return True

    @staticmethod
    def name():
        return "start to first token"


class Peer:
    """A program of a run, and its builds in the order of preference: folders of the caller, or what peer_build.sh builds once."""

    def __init__(self, kind, threads, folders):
        self.kind, self.threads = kind, threads
        self.builds = folders or kind.builds()
        self.is_callers = bool(folders)
        self.folders, self.used = {}, {}  # used: {build: what it says of its version}

    def program(self, build):
        """Raises Failed if the build cannot be had; asks once."""
        if build not in self.folders:
            self.folders[build] = build if self.is_callers else self.build(build)
        folder = self.folders[build]
        if isinstance(folder, Failed):
            raise folder
        return self.kind(folder, self.threads)

    def build(self, build):
        said = "nothing on stderr"
        with tempfile.TemporaryFile("w+") as out, subprocess.Popen(["bash", HERE / "peer_build.sh", self.kind.NAME, build], stdout=out,
                                                                   stderr=subprocess.PIPE, text=True) as script:
            for line in script.stderr:  # it takes minutes
                said = line.strip() or said
                say(line.rstrip())
            if script.wait() == 0:
                out.seek(0)
                return out.read().strip()
        return Failed(f"its {build} build cannot be had: {said.removeprefix('error: ')[:200]}")


class Entry:
    """A peer at one model: its settings and results by cell. why: {cell: what kept it from a result}."""

    def __init__(self, args, path, peer, cells, groups):
        self.args, self.path, self.peer, self.cells, self.groups = args, path, peer, cells, groups
        self.name, self.program, self.build = peer.kind.NAME, None, ""
        self.setting, self.values, self.why, self.notes = {}, {}, {}, []

    def chosen(self):
        return [c for g in self.groups for c in self.cells[g]]

    def prepare(self):
        """Takes the first build that runs the model, and the settings of each cell that are fastest with it."""
        for i, build in enumerate(self.peer.builds):
            is_last = i == len(self.peer.builds) - 1
            self.setting, self.why, self.build = {}, {}, build
            try:
                self.program = self.peer.program(build)
                self.program.trial(self.path)
                self.choose(is_last)
            except Died as e:
                self.note(f"{self.peer.kind.NAME} crashed, build {os.path.basename(build)}: {e}")
                if is_last:
                    self.fail(self.chosen(), str(e))
            except Failed as e:
                self.fail(self.chosen(), str(e))
                break
            else:
                self.peer.used[build] = self.program.version()
                break
        if self.program:
            self.name = self.program.title()

    def note(self, text):
        self.notes.append(text)
        say(f"{os.path.basename(self.path)}: {text}")

    def fail(self, cells, why):
        for cell in cells:
            if cell not in self.why:
                say(f"{cell.name()}: {self.peer.kind.NAME} is not measured: {why}")
            self.why[cell] = why
            self.values.pop(cell, None)

    def choose(self, is_last):
        known = read_settings(self.args.settings)
        for group in self.groups:
            unknown = [c for c in self.cells[group] if not self.recall(c, known) and not self.lacks(c)]
            seen, failures = {}, {}
            by_setting = {}
            for cell in unknown:
                for setting in dict.fromkeys(self.program.settings(cell, lambda c=cell: self.shallow(c, is_last))):
                    by_setting.setdefault(setting, []).append(cell)
            for setting, cells in by_setting.items():
                self.attempt(cells, setting, is_last, seen, failures)
            for cell in unknown:
                self.keep_best(cell, seen.get(cell), failures.get(cell))
        self.remember()

    def lacks(self, cell):
        if why := self.program.lacks(cell):
            self.fail([cell], why)
        return why

    def shallow(self, cell, is_last):
        """The best setting of the same kind of work without depth; empty if there is none."""
        twin = self.cells["shallow"][0 if cell.prompt else 1]
        if twin not in self.setting and not self.recall(twin, read_settings(self.args.settings)):
            seen, failures = {}, {}
            for setting in self.program.settings(twin, tuple):
                self.attempt([twin], setting, is_last, seen, failures)
            if twin not in seen:
                return ()
            self.keep_best(twin, seen[twin], None)
        return self.setting[twin]

    def attempt(self, cells, setting, is_last, seen, failures):
        """Notes speeds, or why there are none. A crash ends the build's trial if there is another build."""
        try:
            if cells[0].is_start():
                results = {cells[0]: [1 / min(self.program.first_token(self.path, setting)[0] for _ in range(TRIES + 1))]}
            else:
                results = self.program.bench(self.path, cells, setting, TRIES)
        except Died as e:
            if not is_last:
                raise
            self.note(f"{self.peer.kind.NAME} crashed with {setting_text(setting)}: {e}")
            failures.update({cell: str(e) for cell in cells})
        except Failed as e:
            failures.update({cell: str(e) for cell in cells})
        else:
            for cell, values in results.items():
                seen.setdefault(cell, {})[setting] = max(values)

    def keep_best(self, cell, by_setting, failure):
        if not by_setting:
            self.fail([cell], failure or "no setting gave a result")
            return
        best = self.setting[cell] = max(by_setting, key=by_setting.get)
        if not cell.is_start():
            say(f"{cell.name()}: {self.peer.kind.NAME} is fastest with {setting_text(best)} ({by_setting[best]:.1f} t/s; the slowest of "
                f"{len(by_setting)} settings {min(by_setting.values()):.1f})")

    def key(self, cell):
        """What a cell's setting is remembered under."""
        file = f"{os.path.basename(self.path)} {os.path.getsize(self.path)} threads {self.args.threads}"
        return f"{self.program.title()} {os.path.basename(self.build)} {file} {cell.name()}"

    def recall(self, cell, known):
        """Takes a cell's setting from an earlier run's SETTINGS, if it is there."""
        if self.key(cell) not in known:
            return False
        self.setting[cell] = tuple(tuple(pair) for pair in known[self.key(cell)])
        say(f"{self.key(cell)}: with {setting_text(self.setting[cell])}, as {self.args.settings} says")
        return True

    def remember(self):
        if self.args.settings:
            known = read_settings(self.args.settings) | {self.key(c): setting for c, setting in self.setting.items()}
            with open(self.args.settings, "w", encoding="utf-8") as f:
                json.dump(known, f, indent=1)

    def round_of(self, group):
        """Measures the cells of a group, those of one setting in one process."""
        cells = [c for c in self.cells[group] if c not in self.why]
        for setting in dict.fromkeys(self.setting[c] for c in cells):
            same = [c for c in cells if self.setting[c] == setting]
            try:
                if group == "start":
                    self.program.first_token(self.path, setting)  # reads the file into memory
                    results = {same[0]: [self.program.first_token(self.path, setting) for _ in range(RUNS)]}
                else:
                    results = self.program.bench(self.path, same, setting, RUNS)
            except Failed as e:
                self.fail(same, str(e))
                continue
            for cell, values in results.items():
                value = tuple(median(v) for v in zip(*values)) if group == "start" else median(values)
                self.values.setdefault(cell, []).append(value)

    def setting_of(self, cell):
        """The setting, and the build if it is not the best one."""
        built = "" if self.build == self.peer.builds[0] else f"; build {os.path.basename(self.build)}"
        return setting_text(self.setting.get(cell, ())) + built


class Model:
    """The table of one file."""

    def __init__(self, args, path, ours, peers):
        self.args, self.path, self.ours = args, path, ours
        self.notes, self.busy, self.start = [], [], Start()
        self.cells = {"shallow": [Cell(prompt=PROMPT), Cell(gen=DECODED)],
                      "deep": [Cell(prompt=PROMPT, depth=DEPTH), Cell(gen=DECODED, depth=DEPTH)],
                      "q8_0": [Cell(gen=DECODED, depth=DEPTH, kv="q8_0")],
                      "streams": [Cell(gen=DECODED, depth=STREAM_PROMPT, seqs=n) for n in STREAMS],
                      "start": [self.start]}
        self.groups = [g for g in GROUPS if g in args.only]
        self.entries = [Entry(args, path, peer, self.cells, self.groups) for peer in peers]
        if "q8_0" in self.groups and not ours.takes_kv_types():
            self.skip("q8_0", "this infcgi's bench has no -ctk")

    def skip(self, group, why):
        self.groups.remove(group)
        self.notes.append(f"not measured: {', '.join(c.name() for c in self.cells[group])}: {why}")
        say(f"{os.path.basename(self.path)}: {self.notes[-1]}")

    def round_of(self, group, pack_cache):
        cells = self.cells[group]
        if group == "start":
            for values, cache in ((self.start.plain, ""), (self.start.packed, pack_cache)):
                if not cache or self.ours.packs_to_cache():
                    self.ours.first_token(self.path, cache)  # reads the file into memory, and writes the packed cache
                    runs = [self.ours.first_token(self.path, cache) for _ in range(RUNS)]
                    values.append(tuple(median(v) for v in zip(*runs)))
        else:
            for cell, values in self.ours.bench(self.path, cells, RUNS).items():
                cell.ours.append(median(values))
        for entry in self.entries:
            entry.round_of(group)
        if group == "start":
            return ""
        return "; ".join(f"{c.name()} {c.ours[-1]:.1f} : " + " : ".join(f"{e.values[c][-1]:.1f}" if c in e.values else "-" for e in self.entries)
                         for c in cells)

    def measure(self, peaks):
        for group in list(self.groups):  # a model that infcgi cannot run
            try:
                if group == "start":
                    self.ours.first_token(self.path, "")
                else:
                    self.ours.bench(self.path, self.cells[group][:1], 1)
            except Failed as e:
                self.skip(group, str(e))
        for entry in self.entries if self.groups else []:
            say(f"{os.path.basename(self.path)}: trying {entry.peer.kind.NAME}'s settings")
            entry.prepare()
        with tempfile.TemporaryDirectory(prefix="infcgi-pack-") as pack_cache:
            for i in range(self.args.rounds):
                self.busy.append(machine.other_work(self.args.watch))
                peaks.measure()
                for group in self.groups:
                    if text := self.round_of(group, pack_cache):
                        say(f"round {i + 1} of {self.args.rounds}: {text}")

    def is_trial(self):
        return max(self.busy, default=0) > TOO_BUSY

    def rows(self, peaks):
        """Yields the rows of the table: each test with each peer."""
        mark = f"; trial: {max(self.busy):.2f} CPUs of other work" if self.is_trial() else ""
        kvs = [c.kv_text() for g in self.groups for c in self.cells[g] if g not in ("start", "q8_0")]
        for cell, entry in itertools.product((c for g in self.groups for c in self.cells[g]), self.entries):
            setting, why, values = entry.setting_of(cell) + mark, entry.why.get(cell, ""), entry.values.get(cell, [])
            if not cell.is_start():
                yield peer_rows.Row(cell.test(), "tokens/s", cell.kv_text(), cell.ours, entry.name, values, setting, why, cell.limits(peaks))
                continue
            for i, (what, unit) in enumerate((("start to first token", "ms"), ("peak resident", "MiB"))):
                for ours, more in ((self.start.plain, ""), (self.start.packed, ", packed cache")):
                    if ours:
                        yield peer_rows.Row(what + more, unit, kvs[0] if kvs else "", [v[i] for v in ours], entry.name, [v[i] for v in values],
                                            setting, why)

    def report(self, rows):
        lines = [f"**{os.path.basename(self.path)}**, {os.path.getsize(self.path)} bytes", "", *peer_rows.markdown(rows), ""]
        others = sorted({c.our_kv for g, cells in self.cells.items() if g != "start" for c in cells if c.our_kv != c.kv})
        lines += [f"- infcgi's KV type where a peer's is f16: {', '.join(others)}"] if others else []
        lines += [f"- {note}" for note in self.notes + [n for e in self.entries for n in e.notes]]
        lines.append(f"- at most {max(self.busy, default=0):.2f} CPUs at other work between the rounds")
        if self.is_trial():
            lines.append("- **Other work ran on the machine meanwhile: these numbers are a trial, not a result.**")
        return "\n".join(lines) + "\n\n"


def foot(args, peaks, peers):
    name, flags = machine.cpu()
    return "\n".join([f"- CPU: {name}; {flags}",
                      f"- threads of all programs: {args.threads}; KV f16 where nothing else is said; {peaks.text()}",
                      f"- {machine.our_version(args.infcgi)}",
                      *(f"- {version}" for peer in peers for version in dict.fromkeys(peer.used.values())),
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
    for name in ("infcgi", "checkkern", "command"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--watch", type=float, default=1.0, help="seconds for which other work is measured each time")
    for name in ("peers", "only", "out", "csv", "machine", "settings"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("models", nargs="+")
    args = parser.parse_args()
    args.only = args.only.replace(",", " ").split() or list(GROUPS)
    args.peers = args.peers.replace(",", " ").split() or ["llama.cpp"]
    if args.rounds < 1 or args.threads < 1:
        sys.exit("error: ROUNDS and THREADS: expected 1 or more")
    if not set(args.only) <= set(GROUPS):
        sys.exit(f"error: ONLY: expected some of {' '.join(GROUPS)}, found {' '.join(args.only)}")
    if not set(args.peers) <= set(PEERS):
        sys.exit(f"error: PEERS: expected some of {' '.join(PEERS)}, found {' '.join(args.peers)}")
    return args


def measure(args, ours, peers, peaks):
    """Prints the table of each model, adds its rows to the CSV file, and returns the tables."""
    about = {"machine": args.machine or machine.short_name(), "threads": args.threads, "infcgi_commit": machine.our_commit(),
             "command": args.command}
    text = ""
    if args.csv:
        peer_rows.check_header(args.csv)
    for path in args.models:
        model = Model(args, path, ours, peers)
        try:
            model.measure(peaks)
        except Failed as e:
            raise Failed(f"{path}: {e}") from e
        rows = list(model.rows(peaks))
        table = model.report(rows)
        text += table
        print(table, end="", flush=True)
        if args.csv:
            peer_rows.append_csv(args.csv, path, rows, about)
    return text


def main():
    args = read_arguments()
    busy = machine.other_work(args.watch)
    if busy > TOO_BUSY:
        say(f"warning: {busy:.2f} CPUs are at other work; that slows all programs, and not all alike")
    peers = []
    for name in dict.fromkeys(args.peers):
        folders = os.environ.get(PEERS[name].VARIABLE, "")
        peers.append(Peer(PEERS[name], args.threads, [f for f in folders.split(":") if f]))
    peaks = machine.Peaks(args.checkkern, args.threads)
    try:
        text = measure(args, Infcgi(args.infcgi, args.threads), peers, peaks)
    except Failed as e:
        sys.exit(f"error: {e}")
    tail = foot(args, peaks, peers)
    print(tail, end="")
    if args.out:
        with open(args.out, "w", encoding="utf-8") as f:
            f.write(text + tail)


if __name__ == "__main__":
    main()
