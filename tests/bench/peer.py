#!/usr/bin/env python3
"""Measures infcgi and llama.cpp in turns and prints a Markdown table of both. tests/bench/peer.sh calls it.

Each test first tries llama.cpp's settings and keeps the fastest. Then come the rounds: infcgi, llama.cpp, infcgi, ... so
that a machine that slows down slows both. One program's value of a round is the median of its RUNS timed runs there.
Standard library only.
"""
import argparse
import datetime
import itertools
import json
import os
import statistics
import subprocess
import sys
import time

RUNS = 3  # timed runs of a program in a round, after one that is not
TRIES = 2  # timed runs of a setting on trial; the best one counts
TOO_BUSY = 0.1  # CPUs at other work, above which the numbers are disturbed
BEGIN, END = "<!-- bench-peer: begin -->", "<!-- bench-peer: end -->"
PROMPT, DECODED, STREAMS, STREAM_PROMPT = 512, 64, 16, 16


def run(command):
    # llama.cpp reads options from LLAMA_ARG_*; what the caller has there must not decide the race.
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("LLAMA_", "INFCGI_"))}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean, check=False)
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def rows_of(command, tokens):
    """Tokens a second of each timed run: infcgi bench and llama-bench print the same JSON."""
    row, = json.loads(run(command))
    return [tokens * 1e9 / ns for ns in row["samples_ns"]]


class Test:
    """One line of the table: its name, and how either program runs it."""

    def __init__(self, args, name, n_prompt, n_gen, n_seqs=1):
        self.args, self.name, self.n_prompt, self.n_gen, self.n_seqs = args, name, n_prompt, n_gen, n_seqs
        self.ours, self.peer, self.setting = [], [], {}
        choices = {"-fa": ("on", "off"), "--repack": ("1", "0")}
        if n_gen == 0:
            choices["-ub"] = ("512", "256", "128")
        if n_seqs > 1:
            choices["-kvu"] = ("0", "1")
        self.choices = [dict(zip(choices, values)) for values in itertools.product(*choices.values())]

    def run_ours(self, repeats):
        many = ["-p", "0", "-s", str(self.n_seqs), "-d", str(self.n_prompt)] if self.n_seqs > 1 else ["-p", str(self.n_prompt)]
        command = [self.args.infcgi, "bench", "-m", self.args.model, "-t", str(self.args.threads), *many, "-n", str(self.n_gen),
                   "-r", str(repeats), "-o", "json"]
        return rows_of(command, (self.n_gen or self.n_prompt) * self.n_seqs)

    def run_peer(self, setting, repeats):
        common = ["-m", self.args.model, "-t", str(self.args.threads), "-ctk", "f16", "-ctv", "f16"]
        if self.n_seqs == 1:
            options = list(itertools.chain.from_iterable(setting.items()))
            command = [f"{self.args.peer}/llama-bench", *common, "-p", str(self.n_prompt), "-n", str(self.n_gen), *options,
                       "-r", str(repeats), "-o", "json"]
            return rows_of(command, self.n_prompt + self.n_gen)
        # It has no repeats, but takes the same number of streams many times. The first time warms up.
        switches = ["-fa", setting["-fa"], "--repack" if setting["--repack"] == "1" else "--no-repack",
                    "--kv-unified" if setting["-kvu"] == "1" else "--no-kv-unified"]
        command = [f"{self.args.peer}/llama-batched-bench", *common, "-tb", str(self.args.threads), *switches,
                   "-c", str(self.n_seqs * (self.n_prompt + self.n_gen)), "-npp", str(self.n_prompt), "-ntg", str(self.n_gen),
                   "-npl", ",".join([str(self.n_seqs)] * (repeats + 1)), "--output-format", "jsonl"]
        rows = [json.loads(line) for line in run(command).splitlines() if line.startswith("{")]
        if len(rows) != repeats + 1:
            sys.exit(f"error: {' '.join(command)}: expected {repeats + 1} rows, found {len(rows)}")
        return [row["speed_tg"] for row in rows[1:]]

    def choose(self):
        speeds = [max(self.run_peer(setting, TRIES)) for setting in self.choices]
        self.setting = self.choices[speeds.index(max(speeds))]
        say(f"{self.name}: llama.cpp is fastest with {self.setting_text()}"
            f" ({max(speeds):.1f} t/s; the slowest of {len(speeds)} settings {min(speeds):.1f})")

    def setting_text(self):
        return " ".join(f"{k} {v}" for k, v in self.setting.items())

    def round(self):
        self.ours.append(statistics.median(self.run_ours(RUNS)))
        self.peer.append(statistics.median(self.run_peer(self.setting, RUNS)))

    def row(self):
        ours, peer = statistics.median(self.ours), statistics.median(self.peer)
        return (f"| {self.name} | {spread(self.ours)} | {spread(self.peer)} | {ours / peer:.2f} | {self.setting_text()} |")


def spread(values):
    return f"{statistics.median(values):.1f} [{min(values):.1f} - {max(values):.1f}]"


def say(line):
    print(line, file=sys.stderr, flush=True)


def other_work(seconds=1.0):
    """How many CPUs are busy while we sleep; what a hypervisor takes away counts too [proc(5), /proc/stat]."""
    def idle_and_all():
        with open("/proc/stat", encoding="utf-8") as f:
            ticks = [int(v) for v in f.readline().split()[1:9]]
        return ticks[3] + ticks[4], sum(ticks)

    idle, total = idle_and_all()
    time.sleep(seconds)
    idle_after, total_after = idle_and_all()
    return (1 - (idle_after - idle) / max(1, total_after - total)) * os.cpu_count()


def cpu():
    """The CPU's name and those of its flags that matter here."""
    name, flags = "unknown CPU", []
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        for line in f:
            key, _, value = (part.strip() for part in line.partition(":"))
            if key == "model name":
                name = value
            elif key in ("flags", "Features"):
                flags = value.split()
    wanted = ("avx", "fma", "f16c", "amx", "asimd", "i8mm", "bf16", "sve")
    return f"{name}, {os.cpu_count()} CPUs", " ".join(sorted(f for f in flags if f.startswith(wanted)))


def peer_version(folder):
    try:
        with open(f"{folder}/version", encoding="utf-8") as f:
            return f.read().strip()
    except OSError:
        done = subprocess.run([f"{folder}/llama-bench", "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)
        said = " ".join(done.stdout.split()) if done.returncode == 0 else "it does not say its version"
        return f"llama.cpp, a build of the caller's (PEER_BIN): {said}"


def our_version(binary):
    version = run([binary, "--version"]).splitlines()[0]
    git = subprocess.run(["git", "describe", "--always", "--dirty"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                         check=False)
    return f"{version}, commit {git.stdout.strip()}" if git.returncode == 0 else version


def report(args, tests, busy):
    machine, flags = cpu()
    lines = ["| test | infcgi, t/s: median [min - max] | llama.cpp, t/s: median [min - max] | ratio of medians "
             "| llama.cpp's setting |",
             "|---|---:|---:|---:|---|",
             *(test.row() for test in tests), "",
             f"- CPU: {machine}; {flags}",
             f"- model: {os.path.basename(args.model)}, {os.path.getsize(args.model)} bytes; {args.threads} threads, KV f16, "
             "both programs",
             f"- {our_version(args.infcgi)}",
             f"- {peer_version(args.peer)}",
             f"- {datetime.date.today()}, `{args.command}`: {args.rounds} rounds of {RUNS} runs; "
             f"at most {busy:.2f} CPUs at other work between the rounds"]
    if busy > TOO_BUSY:
        lines.append("- **Other work ran on the machine meanwhile: these numbers are a trial, not a result.**")
    return "\n".join(lines) + "\n"


def replace_between_markers(path, text):
    with open(path, encoding="utf-8") as f:
        old = f.read()
    if old.count(BEGIN) != 1 or old.count(END) != 1 or old.index(BEGIN) > old.index(END):
        sys.exit(f"error: {path}: expected the lines {BEGIN} and {END}, in this order, once each")
    head, tail = old[:old.index(BEGIN) + len(BEGIN)], old[old.index(END):]
    with open(path, "w", encoding="utf-8") as f:
        f.write(f"{head}\n{text}{tail}")


def main():
    parser = argparse.ArgumentParser()
    for name in ("infcgi", "peer", "model", "command"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--out", default="")
    parser.add_argument("--docs", default="")
    args = parser.parse_args()
    if args.rounds < 1 or args.threads < 1:
        sys.exit("error: ROUNDS and THREADS: expected 1 or more")
    busy = [other_work()]
    if busy[0] > TOO_BUSY:
        say(f"warning: {busy[0]:.2f} CPUs are at other work; that slows both programs, and not both alike")
    tests = [Test(args, f"pp{PROMPT}", PROMPT, 0), Test(args, f"tg{DECODED}", 0, DECODED),
             Test(args, f"tg{DECODED} x {STREAMS} @ d{STREAM_PROMPT}", STREAM_PROMPT, DECODED, STREAMS)]
    for test in tests:
        test.choose()
    for i in range(args.rounds):
        busy.append(other_work())
        for test in tests:
            test.round()
        say(f"round {i + 1} of {args.rounds}: " + ", ".join(f"{t.name} {t.ours[-1]:.1f} : {t.peer[-1]:.1f}" for t in tests))
    text = report(args, tests, max(busy))
    print(text, end="")
    if args.out:
        with open(args.out, "w", encoding="utf-8") as f:
            f.write(text)
    if args.docs:
        replace_between_markers(args.docs, text)


if __name__ == "__main__":
    main()
