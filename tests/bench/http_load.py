#!/usr/bin/env python3
"""Loads one or two OpenAI-compatible servers on this machine with streams, in turns, and prints a table. http.sh calls it.

    http_load.py [options] infcgi=http://127.0.0.1:8080 llama.cpp=http://127.0.0.1:8081

Every round asks A, then B, for each test: so that a machine that slows down slows both. The prompts are words in an order that
differs in each stream and round (--shared: the same for all), so that no prefix cache helps; tokens are those that the servers
count, and must be equal. Goes to loopback addresses alone. Standard library only. Exit status: 1 when counts differ, 2 when a
server fails.
"""
import argparse
import csv
import datetime
import http.client
import ipaddress
import json
import os
import random
import resource
import socket
import sys
import threading
import time
import urllib.parse

import machine

MAX_REQUESTS, MAX_STREAMS, MAX_ROUNDS = 10000, 256, 100
MIN_WORDS = 8
WORDS = ("the of and to in is was for that on as with by at from his it an were are which this be had not or have one new first "
         "two also after time when all their but there been who her more other some would about into year years only up over than "
         "out made between state city part world may most people under well known such use them while can during before called "
         "where many through water name area later being school work number land high long house music group system line small").split()
# Whatever a model says, what this allows is longer than any test.
TAG = {"enum": ["red", "green", "blue"]}
SCHEMA = {"type": "array", "minItems": 10000, "items": {
    "type": "object", "required": ["name", "age", "is_member", "tags"], "additionalProperties": False,
    "properties": {"name": {"type": "string", "maxLength": 40}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
                   "is_member": {"type": "boolean"}, "tags": {"type": "array", "maxItems": 3, "items": TAG}}}}
FIELDS = ("ttft_ms", "itl_p50_ms", "itl_p99_ms", "tokens_s", "prompt_tokens", "completion_tokens")


class Failed(Exception):
    """A server did not do what was asked."""


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))] if values else float("nan")


def median(values):
    values = sorted(values)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


class Server:
    """A name and the base URL behind it; with_schema: it is asked for answers that a schema allows."""

    def __init__(self, text, timeout, with_schema=False):
        self.name, _, url = text.partition("=")
        parts = urllib.parse.urlsplit(url)
        if not self.name or parts.scheme != "http" or not parts.hostname:
            raise Failed(f"expected NAME=http://HOST:PORT, found '{text}'")
        self.address, self.port = self.loopback(parts.hostname), parts.port or 80
        self.path = parts.path.rstrip("/").removesuffix("/v1")
        self.name += ", schema" if with_schema else ""
        self.form = {"response_format": {"type": "json_schema", "json_schema": {"name": "people", "schema": SCHEMA}}} if with_schema else {}
        self.timeout = timeout
        self.model = self.ask("GET", "/v1/models")["data"][0]["id"]

    @staticmethod
    def loopback(host):
        """This machine's address of that name; whoever else has the name is not asked."""
        try:
            found = {info[4][0] for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
        except OSError as e:
            raise Failed(f"{host}: {e}") from e
        if not all(ipaddress.ip_address(a).is_loopback for a in found):
            raise Failed(f"expected a loopback address, found {host} ({', '.join(sorted(found))})")
        return sorted(found)[0]

    def connect(self):
        return http.client.HTTPConnection(self.address, self.port, timeout=self.timeout)

    def ask(self, method, path, body=None):
        connection = self.connect()
        try:
            connection.request(method, self.path + path, body and json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            data = response.read()
            if response.status != 200:
                raise Failed(f"{self.name}: {path}: status {response.status}: {data[:200]!r}")
            return json.loads(data)
        except (OSError, http.client.HTTPException, ValueError) as e:
            raise Failed(f"{self.name}: {path}: {str(e) or type(e).__name__}") from e
        finally:
            connection.close()


class Stream(threading.Thread):
    """One streamed completion; times of its events, on the clock of all."""

    def __init__(self, server, prompt, n_tokens, go):
        super().__init__(daemon=True)
        self.server, self.go, self.problem = server, go, None
        self.body = json.dumps({"model": server.model, "prompt": prompt, "max_tokens": n_tokens, "ignore_eos": True,
                                "temperature": 0, "stream": True, "stream_options": {"include_usage": True}, **server.form})
        self.times, self.usage, self.began, self.ended = [], None, 0.0, 0.0

    def run(self):
        connection = self.server.connect()
        try:
            connection.connect()
            self.go.wait(self.server.timeout)
            self.began = time.monotonic()
            connection.request("POST", self.server.path + "/v1/completions", self.body, {"Content-Type": "application/json"})
            self.read(connection.getresponse())
            self.ended = time.monotonic()
        except (OSError, http.client.HTTPException, ValueError, Failed, threading.BrokenBarrierError) as e:
            self.problem = f"{self.server.name}: {str(e) or type(e).__name__}"
            self.go.abort()  # the others need not wait
        finally:
            connection.close()

    def read(self, response):
        if response.status != 200:
            raise Failed(f"status {response.status}: {response.read(200)!r}")
        while (line := response.readline()) and line.strip() != b"data: [DONE]":
            if not line.startswith(b"data: "):
                continue
            now, event = time.monotonic(), json.loads(line[6:])
            self.usage = event.get("usage") or self.usage
            choices = event.get("choices")
            if choices and (choices[0].get("text") or not self.times):  # the chunk of the end has none, and is no token
                self.times.append(now)
        if not self.usage or not self.times:
            raise Failed("the stream ended without text or without usage")


class Test:
    """So many streams, each with a prompt of so many words and so many tokens to generate."""

    def __init__(self, text):
        try:
            self.streams, self.words, self.tokens = (int(n) for n in text.split("x"))
        except ValueError as e:
            raise Failed(f"expected STREAMSxWORDSxTOKENS, as 16x64x64; found '{text}'") from e
        if not (1 <= self.streams <= MAX_STREAMS and MIN_WORDS <= self.words <= 100000 and 1 <= self.tokens <= 100000):
            raise Failed(f"{text}: expected 1 to {MAX_STREAMS} streams, {MIN_WORDS} to 100000 words, 1 to 100000 tokens")

    def name(self):
        streams = f"{self.streams} streams" if self.streams > 1 else "1 stream"
        return f"{streams}, {self.words} words, " + (f"{self.tokens} tokens" if self.tokens > 1 else "prefill")

    def prompts(self, round_, shared):
        for i in range(self.streams):
            # Not of the server: both are asked the same.
            order = random.Random(f"{self.words} {0 if shared else round_} {0 if shared else i}")
            yield " ".join(order.choice(WORDS) for _ in range(self.words))

    def run(self, server, round_, shared):
        """One row of figures."""
        go = threading.Barrier(self.streams)
        streams = [Stream(server, p, self.tokens, go) for p in self.prompts(round_, shared)]
        for s in streams:
            s.start()
        for s in streams:
            s.join(2 * server.timeout)
            if s.is_alive():
                raise Failed(f"{server.name}: no end within {2 * server.timeout} s")
        problems = [s.problem for s in streams if s.problem]
        if problems:
            raise Failed(next((p for p in problems if "BrokenBarrier" not in p), problems[0]))
        prompt, completion = (sum(s.usage[k] for s in streams) for k in ("prompt_tokens", "completion_tokens"))
        gaps = [b - a for s in streams for a, b in zip(s.times, s.times[1:])]
        seconds = max(s.ended for s in streams) - min(s.began for s in streams)
        return {"ttft_ms": 1e3 * median([s.times[0] - s.began for s in streams]), "itl_p50_ms": 1e3 * quantile(gaps, 0.5),
                "itl_p99_ms": 1e3 * quantile(gaps, 0.99), "tokens_s": (completion if self.tokens > 1 else prompt) / seconds,
                "prompt_tokens": prompt, "completion_tokens": completion}


def differences(test, rows, names):
    """What is wrong with the counts of a test: those of the servers differ, or not all tokens came."""
    for name in names:
        for row in rows[name]:
            if row["completion_tokens"] != test.streams * test.tokens:
                yield f"{test.name()}: {name} generated {row['completion_tokens']} tokens, {test.streams * test.tokens} were asked for"
                return
    for found in zip(*(rows[name] for name in names)):
        if len({row["prompt_tokens"] for row in found}) > 1:
            yield f"{test.name()}: prompt tokens differ: " + ", ".join(f"{n} {r['prompt_tokens']}" for n, r in zip(names, found))
            return


def spread(values, digits):
    if any(v != v for v in values):
        return ""
    return f"{median(values):.{digits}f} [{min(values):.{digits}f} - {max(values):.{digits}f}]"


def table(tests, results, names):
    yield "| test | server | TTFT ms | ITL p50 ms | ITL p99 ms | tokens/s | of the first's |"
    yield "|---|---|---|---|---|---|---|"
    for test, rows in zip(tests, results):
        first = median([r["tokens_s"] for r in rows[names[0]]])
        for name in names:
            values = {f: [r[f] for r in rows[name]] for f in FIELDS}
            yield (f"| {test.name()} | {name} | {spread(values['ttft_ms'], 1)} | {spread(values['itl_p50_ms'], 1)} | "
                   f"{spread(values['itl_p99_ms'], 1)} | {spread(values['tokens_s'], 1)} | {median(values['tokens_s']) / first:.2f} |")


def write_csv(path, about, tests, results, names):
    with open(path, "w", newline="", encoding="utf-8") as f:
        out = csv.writer(f)
        out.writerow(("machine", "versions", "test", "streams", "words", "tokens", "server", "round", *FIELDS))
        for test, rows in zip(tests, results):
            for name in names:
                for i, row in enumerate(rows[name]):
                    out.writerow((*about, test.name(), test.streams, test.words, test.tokens, name, i + 1, *(row[k] for k in FIELDS)))


def measure(o, servers, tests):
    """[test] {server: [row of each round]}; one round before them is not counted."""
    results, end = [{s.name: [] for s in servers} for _ in tests], time.monotonic() + o.limit
    for round_ in range(o.rounds + 1):
        for test, rows in zip(tests, results):
            for s in servers:
                if time.monotonic() > end:
                    raise Failed(f"not done after {o.limit} s (--limit)")
                row = test.run(s, round_, o.shared)
                if round_ > 0:
                    rows[s.name].append(row)
        print(f"round {round_} of {o.rounds}", file=sys.stderr, flush=True)
    return results


def read_options():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("servers", nargs="+", metavar="NAME=URL")
    p.add_argument("--tests", default="1x512x1,1x16x64,4x64x64,16x64x64", help="STREAMSxWORDSxTOKENS, with commas [%(default)s]")
    p.add_argument("--rounds", type=int, default=5, help="counted rounds [5]")
    p.add_argument("--shared", action="store_true", help="the same prompt for all, so that prefix caches help")
    p.add_argument("--schema", action="store_true", help="each server also with answers that a JSON Schema allows")
    p.add_argument("--timeout", type=float, default=300, help="seconds without a byte [300]")
    p.add_argument("--limit", type=float, default=3600, help="seconds in all [3600]")
    p.add_argument("--csv", default="", help="file for every row")
    p.add_argument("--out", default="", help="file for the table, too")
    p.add_argument("--about", action="append", default=[], help="a line of what was measured: versions, commit, options")
    return p.parse_args()


def run(o):
    forms = (False, True) if o.schema else (False,)
    servers, tests = [Server(text, o.timeout, form) for text in o.servers for form in forms], [Test(text) for text in o.tests.split(",")]
    names = [s.name for s in servers]
    n = (o.rounds + 1) * len(servers) * sum(t.streams for t in tests)
    if len(set(names)) != len(names) or not 1 <= o.rounds <= MAX_ROUNDS or n > MAX_REQUESTS:
        raise Failed(f"expected servers of different names, 1 to {MAX_ROUNDS} rounds and {MAX_REQUESTS} requests at most; found {n}")
    busy, began = machine.other_work(), time.monotonic()
    results = measure(o, servers, tests)
    used = resource.getrusage(resource.RUSAGE_SELF)
    share = (used.ru_utime + used.ru_stime) / (time.monotonic() - began)
    name, flags = machine.cpu()
    lines = [f"- {datetime.date.today()}; {name} ({flags}); {busy:.2f} CPUs at other work before, {share:.2f} at this driver",
             *(f"- {line}" for line in o.about),
             f"- {', '.join(f'{s.name}: model {os.path.basename(s.model)}' for s in servers)}; {o.rounds} rounds in turns, median [least - most] of the "
             f"rounds; prompts {'shared' if o.shared else 'differ'}", "", *table(tests, results, names)]
    wrong = [d for test, rows in zip(tests, results) for d in differences(test, rows, names)]
    lines += ["", *(f"Not comparable: {d}" for d in wrong)] if wrong else []
    print("\n".join(lines))
    if o.out:
        with open(o.out, "w", encoding="utf-8") as f:
            f.write("\n".join(lines) + "\n")
    if o.csv:
        write_csv(o.csv, (name, "; ".join(o.about)), tests, results, names)
    return 1 if wrong else 0


def main():
    try:
        return run(read_options())
    except (Failed, KeyError, IndexError, TypeError) as e:
        print(f"error: {e if isinstance(e, Failed) else 'an answer has not the shape of the API: ' + repr(e)}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
