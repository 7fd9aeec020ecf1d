#!/usr/bin/env python3
"""What the server does under load, through nginx: `make bench-load`, in its long form `make test-load` (docs/benchmarks.md).

    load.py [--variant release] [--model FILE] [--size test|bench|long] [--peer FOLDER] [--seconds N] [--only NAME,...] [--out FILE]

A scenario is a function here: it starts a server, makes requests for the driver (load.c), and gives rows of a table: what was
measured, the figure, what is wanted, whether it holds. What is wanted of answers (every request answered, none lost, nothing left
after) is checked and decides the exit status; times and speeds are printed, as they are the machine's and its neighbours' too.
The long forms are those of the table in docs/benchmarks.md; the short ones show the same in a minute or two.
"""
import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests/e2e"), str(ROOT / "tests/bench")]
from harness import Server, free_port, until, with_context  # noqa: E402
from http_load import WORDS, median, quantile  # noqa: E402

COMPLETIONS = "/v1/completions"
BETWEEN = " "
SIZES = ("test", "bench", "long")


class Wrong(Exception):
    """Something that must hold does not."""


# --- requests and what came of them -----------------------------------------------------------------------------------

def words(rng, n):
    return BETWEEN.join(rng.choice(WORDS) for _ in range(n))


def request(client, prompt, max_tokens, *, at_ms=0, wait_ms=0, key=None, stream=True, leave_ms=0, leave_events=0, **fields):
    body = {"prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True, "temperature": 0, "stream": stream, **fields}
    if stream:
        body["stream_options"] = {"include_usage": True}
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    return {"client": client, "at_ms": at_ms, "wait_ms": wait_ms, "path": COMPLETIONS, "headers": headers, "body": json.dumps(body),
            "leave_ms": leave_ms, "leave_events": leave_events}


class Answer:
    """What the driver tells of one request."""

    def __init__(self, told):
        self.__dict__.update(told)
        self.ttft_ms = (self.events_ms[0] - self.start_ms) if self.events_ms else self.first_ms - self.start_ms
        self.is_stream = bool(self.events_ms)

    def gaps_ms(self):
        return [b - a for a, b in zip(self.events_ms, self.events_ms[1:])]

    def document(self):
        try:
            text = self.tail or ""
            return json.loads(text[6:] if text.startswith("data: ") else text)
        except ValueError:
            return {}

    def tokens(self):
        return (self.document().get("usage") or {}).get("completion_tokens", 0)

    def is_complete(self):
        return self.status == 200 and not self.error and (self.is_done or not self.is_stream)

    def is_refused(self):
        """Refused as clients can act on: 429 or 503 with Retry-After and an error object."""
        return self.status in (429, 503) and self.retry_after >= 1 and "error" in self.document()


def play(program, url, requests, seconds=None):
    """The answers to all requests; those that never started, as SECONDS had passed, have none."""
    run = subprocess.run([program, url, *([str(seconds)] if seconds else [])], input="".join(json.dumps(r) + "\n" for r in requests),
                         stdout=subprocess.PIPE, text=True, check=True)
    return [Answer(json.loads(line)) for line in run.stdout.splitlines()]


def must_be_complete(answers, n=None):
    bad = [a for a in answers if not a.is_complete()]
    if bad or (n is not None and len(answers) != n):
        raise Wrong(f"{len(bad)} of {len(answers)} answers are not whole (expected {n}); the first: " +
                    (str({k: v for k, v in bad[0].__dict__.items() if k != "events_ms"})[:600] if bad else "-"))


def jain(values):
    """Jain's index of fairness (Jain 1984): 1 = all equal, 1/n = one has all."""
    return sum(values) ** 2 / (len(values) * sum(v * v for v in values)) if any(values) else 0.0


# --- the server ---------------------------------------------------------------------------------------------------------

class Bench:
    def __init__(self, options):
        self.options, self.size = options, SIZES.index(options.size)
        self.program = ROOT / "build/release/load"   # whatever the server is built with
        self.model = options.model or subprocess.run(["bash", ROOT / "nginx/fetch-model.sh"], stdout=subprocess.PIPE, text=True,
                                                     check=True).stdout.strip()
        self.rows = []

    def serve(self, *args, **kw):
        return Running(Server(self.options.variant, self.model, ("--threads", "2", *args), **kw))

    def play(self, server, requests, seconds=None):
        return play(self.program, server.base, requests, seconds)

    def row(self, name, figure, wanted, holds=None):
        """holds: None where it is a time or a speed."""
        self.rows.append((name, figure, wanted, "" if holds is None else "yes" if holds else "NO"))
        print(f"| {name} | {figure} | {wanted} | {self.rows[-1][3]} |", flush=True)

    def pick(self, *sizes):
        return sizes[self.size]


class Running:
    """A server for the length of a `with`."""

    def __init__(self, server):
        self.server = server

    def __enter__(self):
        return self.server

    def __exit__(self, *_):
        self.server.stop()


def engine_pid(server):
    """The process that computes: the one that has the model, be it the one that was started or its child."""
    pid = server.engine.pid
    while True:
        children = [c for t in pathlib.Path(f"/proc/{pid}/task").glob("*/children") for c in t.read_text().split()]
        if not children:
            return pid
        pid = int(children[-1])


def resident_kib(pid, key="VmRSS"):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1])
    raise Wrong(f"/proc/{pid}/status: no {key}")


def holdings(pid):
    """Descriptors and threads."""
    return len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))


def must_be_idle(server, seconds=10):
    if not server.idle(seconds):
        m = server.metrics()
        raise Wrong("left behind: " + ", ".join(f"{k} {m[k]:.0f}" for k in
                                                ("infcgi_requests_running", "infcgi_requests_waiting", "infcgi_kv_pages_used")))


# --- scenarios ----------------------------------------------------------------------------------------------------------

def gaps(bench):
    """8 streams while prompts of 1,500 tokens arrive, one after the other; in front of and after each round these alone, as machines
    are faster now and then."""
    rng = random.Random(1)
    rounds, seconds = bench.pick((1, 4), (4, 6), (6, 12))
    quiet_ms = 3000   # of the streams, in front of the prompts

    def streams(n):
        return [request(i, words(rng, 20), 4000) | {"leave_ms": quiet_ms + 1e3 * seconds + 4000} for i in range(n)]

    def prompts(first, at):
        return [request(first, words(rng, 1480), 1, at_ms=at, stream=False) for _ in range(200)]

    def rate(answers):
        return sum(a.document()["usage"]["prompt_tokens"] for a in answers) / (answers[-1].end_ms - answers[0].start_ms) * 1e3

    def decoded(running, begin, end):
        return sum(1 for s in running for t in s.events_ms if begin <= t <= end) / (end - begin) * 1e3
    all_gaps, rates, rates_alone, decoding, parts = [], [], [], [], []
    with bench.serve("--ctx-size", "4096", "--kv-tokens", "65536") as server:
        def measure_alone():
            alone = bench.play(server, prompts(0, 0), seconds)
            must_be_complete(alone)
            rates_alone.append(rate(alone))
        measure_alone()
        for _ in range(rounds):
            both = bench.play(server, streams(8) + prompts(8, quiet_ms), quiet_ms / 1e3 + seconds)
            running, arrived = [a for a in both if a.client < 8], [a for a in both if a.client == 8]
            must_be_complete(arrived)
            if any(a.status != 200 or not a.has_left for a in running):
                raise Wrong("a stream ended by itself")
            must_be_idle(server)
            measure_alone()
            begin, end = arrived[0].start_ms, arrived[-1].end_ms
            all_gaps += [b - a for s in running for a, b in zip(s.events_ms, s.events_ms[1:]) if a >= begin and b <= end]
            rates.append(rate(arrived))
            decoding.append(decoded(running, begin, end))
            before = decoded(running, 1000, begin)
            if before > decoding[-1]:   # else they had not begun yet, under a sanitizer
                left = 1 - decoding[-1] / before   # of the time, by the speed of the streams without prompts
                parts.append(rates[-1] / left / median(rates_alone[-2:]) * 100)
    bench.row("worst gap between tokens of 8 streams while prompts of 1,500 tokens arrive",
              f"{max(all_gaps):.0f} ms (p99 {quantile(all_gaps, 0.99):.0f}, median {median(all_gaps):.0f})", "100 ms")
    bench.row("prompt tokens/s beside them, and alone",
              f"{median(rates):.0f} and {median(rates_alone):.0f}, with {median(decoding):.0f} tokens/s of the streams", "")
    if parts:
        bench.row("prompt tokens/s of the time that the streams leave, of those alone",
                  f"{median(parts):.0f} % ({min(parts):.0f} to {max(parts):.0f} in {len(parts)} rounds)", "90 %")


def many_streams(bench):
    """1,000 streams at once, and again: the second time they get memory that was used before, of which zeros have to be made."""
    rng = random.Random(2)
    n, tokens = bench.pick(150, 1000, 1000), bench.pick(4, 8, 16)
    with bench.serve("--ctx-size", "512", "--kv-tokens", "16384", "--queue-max", str(n), "--max-connections", str(2 * n)) as server:
        bench.play(server, [request(i, words(rng, 12), tokens) for i in range(16)])
        pid = engine_pid(server)
        before, top = resident_kib(pid), [0]
        stop = threading.Event()

        def watch():
            while not stop.wait(0.05):
                top[0] = max(top[0], resident_kib(pid))
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            answers, again = (bench.play(server, [request(i, words(rng, 12), tokens) for i in range(n)]) for _ in range(2))
        finally:
            stop.set()
            watcher.join()
        must_be_complete(answers, n)
        must_be_complete(again, n)
        must_be_idle(server)
    first = [a.ttft_ms for a in answers]
    bench.row(f"{n} streams at once, twice", f"{len(answers) + len(again)} answered whole, first token p50 {median(first) / 1e3:.1f} s, last {max(first) / 1e3:.1f} s",
              "0 errors", True)
    each = max(0, top[0] - before) / n
    bench.row("memory of each beyond the KV cache", f"{each:.0f} KiB", "64 KiB", each <= 64 if n == 1000 and bench.options.variant == "release" else None)


def throughput(bench):
    """16 streams, against llama-server where it is given."""
    rng = random.Random(3)
    rounds, tokens = bench.pick(1, 3, 5), bench.pick(64, 128, 128)
    speeds = {"infcgi": [], "llama.cpp": []}
    with bench.serve("--ctx-size", "2048", "--kv-tokens", "32768", "--parallel", "16") as server:
        peer = Peer(bench) if bench.options.peer else None
        try:
            for _ in range(rounds):
                requests = [request(i, words(rng, 64), tokens) for i in range(16)]
                for name, url in (("infcgi", server.base), *([("llama.cpp", peer.base)] if peer else [])):
                    answers = play(bench.program, url, requests)
                    must_be_complete(answers, 16)
                    speeds[name].append(16 * tokens / (max(a.end_ms for a in answers) - min(a.start_ms for a in answers)) * 1e3)
        finally:
            if peer:
                peer.stop()
    figure = f"{median(speeds['infcgi']):.0f}/s (the first 16 of a fresh server {speeds['infcgi'][0]:.0f})"
    if peer:
        figure += f", llama-server {median(speeds['llama.cpp']):.0f}: {median(speeds['infcgi']) / median(speeds['llama.cpp']):.1f}x"
    bench.row("output tokens of 16 streams", figure, "6x llama-server")


class Peer:
    """llama-server with the same model."""

    def __init__(self, bench):
        port = free_port()
        self.base = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen([f"{bench.options.peer}/llama-server", "-m", bench.model, "-t", "2", "-tb", "2", "-np", "16", "-c", "32768",
                                         "--host", "127.0.0.1", "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if not until(lambda: subprocess.run(["curl", "-sf", "-m", "2", f"{self.base}/health"], stdout=subprocess.DEVNULL).returncode == 0, 120, 0.2):
            self.stop()
            raise Wrong("llama-server does not answer")

    def stop(self):
        self.process.kill()
        self.process.wait()


def overload(bench):
    """Ten times what the server can do, of nine equal heavy tenants, and a light one that asks now and then."""
    rng = random.Random(4)
    seconds, tokens, heavy = bench.options.seconds or bench.pick(8, 30, 300), 32, 9
    keys = [f"heavy{i}" for i in range(heavy)] + ["light"]
    with tempfile.TemporaryDirectory() as folder:
        key_file = pathlib.Path(folder) / "keys"
        key_file.write_text("".join(k + "\n" for k in keys))
        with bench.serve("--ctx-size", "512", "--kv-tokens", "16384", "--queue-max", "64", "--api-key-file", str(key_file)) as server:
            def light(n, at_ms=0):
                return [request(90, words(rng, 20), 8, key="light", wait_ms=500, at_ms=at_ms) for _ in range(n)]
            def peak():
                some = bench.play(server, [request(i, words(rng, 40), tokens, key=keys[i % heavy]) for i in range(32) for _ in range(50)] +
                                  light(100), bench.pick(4, 10, 30))   # as in the flood: its prompts cost, and are no output
                must_be_complete(some)
                return goodput(some, bench.pick(4, 10, 30))
            before = peak()
            unloaded = bench.play(server, light(bench.pick(6, 20, 40)))
            must_be_complete(unloaded)
            # Arrivals in time, whatever came of those before: a client asks again when 9,000 others have.
            can = before / tokens
            rate = 10 * can if bench.options.variant == "release" else min(10 * can, 600)   # what a sanitizer lets it refuse in a second
            n = int(rate * seconds)
            flood = [request(100 + i % (1000 * heavy), words(rng, 40), tokens, key=keys[i % heavy], at_ms=1e3 * i / rate) | {"keeps": 1} for i in range(n)]
            answers = bench.play(server, flood + light(10000, at_ms=2000), seconds)   # at first nobody has more than a request
            must_be_idle(server, 30)
            after = peak()
    crowd = [a for a in answers if a.client >= 100]
    whole, refused = [a for a in crowd if a.is_complete()], [a for a in crowd if a.is_refused()]
    lost = [a for a in answers if not a.is_complete() and not a.is_refused()]
    bench.row(f"{rate:.0f} requests/s where {can:.0f} can be done, for {seconds} s: answered",
              f"{len(crowd) - len(lost)} of {len(crowd)}: {len(whole)} whole, {len(refused)} refused with Retry-After", "every one", not lost)
    if lost:
        raise Wrong(f"{len(lost)} without an answer; the first: { {k: v for k, v in lost[0].__dict__.items() if k != 'events_ms'} }"[:700])
    took = [a.end_ms - a.start_ms for a in refused]
    if took:
        bench.row("refusals", f"p99 {quantile(took, 0.99):.0f} ms, median {median(took):.0f}", "p99 50 ms")
    bench.row("goodput", f"{goodput(answers, seconds) * 2 / (before + after) * 100:.0f} % of peak ({before:.0f} tokens/s before, {after:.0f} after it)", "95 %")
    quiet, busy = [a for a in unloaded], [a for a in answers if a.client == 90]
    p99 = [quantile([a.ttft_ms for a in some if a.is_complete()], 0.99) for some in (quiet, busy)]
    bench.row("first token of a light tenant", f"p99 {p99[1]:.0f} ms, without load {p99[0]:.0f}: {p99[1] / p99[0]:.1f}x "
              f"({sum(a.is_refused() for a in busy)} of {len(busy)} refused)", "2x")
    shares = [sum(a.i % heavy == i for a in whole) for i in range(heavy)]
    bench.row("shares of equal tenants", f"Jain {jain(shares):.3f}", "0.95")


def goodput(answers, seconds):
    """Tokens/s of whole answers, from when the first one is there: before, a server that was idle fills its batch."""
    whole = [a for a in answers if a.is_complete()]
    begin = min(a.end_ms for a in whole)
    end = max(1e3 * seconds, 2 * begin)   # under a sanitizer the first one may take that long
    return sum(a.tokens() * sum(begin < t <= end for t in a.events_ms) / len(a.events_ms) for a in whole) / (end - begin) * 1e3


def aborts(bench):
    """Streams whose clients leave at random moments: in the queue, in prefill, while tokens come."""
    rng = random.Random(5)
    n, clients = bench.pick(200, 1000, 10000), 24
    longest = 900 if bench.options.variant == "release" else 300   # the small model that others have has said all by then
    with bench.serve("--ctx-size", "1024", "--kv-tokens", "16384") as server:
        bench.play(server, [request(i, words(rng, 12), 8) for i in range(16)])
        pid = engine_pid(server)
        must_be_idle(server)
        before, memory = holdings(pid), resident_kib(pid)
        answers = bench.play(server, [request(i % clients, words(rng, rng.choice([8, 40, 400])), 400, leave_ms=rng.uniform(1, longest),
                                              n=rng.choice([1, 1, 1, 4]))
                                      for i in range(n)])
        left = [a for a in answers if a.has_left]
        if len(left) < 0.8 * n:
            raise Wrong(f"{len(left)} of {n} left")
        must_be_complete([a for a in answers if not a.has_left])   # some are quick
        began = time.monotonic()
        must_be_idle(server)
        idle = time.monotonic() - began
        # Threads of connections are kept for the next ones; what counts is that none is more than were once wanted.
        after = holdings(pid)
        grown = resident_kib(pid) - memory
        alone = bench.play(server, [request(0, "once", 8)])
        must_be_complete(alone, 1)
    bench.row(f"{len(left)} streams left at random moments", f"nothing left {1e3 * idle:.0f} ms after the last; descriptors {before[0]} -> {after[0]}, "
              f"threads {before[1]} -> {after[1]}, memory {grown:+d} KiB", "nothing left", after[0] <= before[0] + 2)


class Under:
    """A load beside something else: rounds of requests, one after the other, until the `with` ends; its answers."""

    def __init__(self, bench, server, make, clients):
        self.answers, self.problem, self.is_over = [], None, threading.Event()

        def go_on():
            try:
                while not self.is_over.is_set():
                    self.answers += bench.play(server, [r for i in range(clients) for r in make(i)])
            except Exception as e:  # noqa: BLE001 raised at the end
                self.problem = e
        self.thread = threading.Thread(target=go_on)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join()
        if self.problem:
            raise self.problem


def kills(bench):
    """kill -9 of the engine under load; the master holds the socket."""
    rng = random.Random(6)
    n, tokens = bench.pick(3, 20, 100), 16
    with bench.serve("--master", "--ctx-size", "512", "--kv-tokens", "8192") as server:
        with Under(bench, server, lambda i: [request(i, words(rng, 20), tokens)], 4) as load:
            times = []
            for i in range(n):
                time.sleep(rng.uniform(0.2, 1.5))
                os.kill(engine_pid(server), signal.SIGKILL)
                began = time.monotonic()
                while len(times) == i:
                    got = bench.play(server, [request(0, "now", 1)])[0]
                    if got.status == 0 or "onnect" in (got.tail or "") and got.status == 502:
                        raise Wrong(f"refused {time.monotonic() - began:.2f} s after a kill: {got.error} {got.tail}")
                    if got.is_complete():
                        times.append(time.monotonic() - began)
                    elif time.monotonic() - began > 30:
                        raise Wrong(f"no answer 30 s after a kill: {got.status} {got.tail}")
    false = [a for a in load.answers if a.is_done and a.tokens() != tokens]
    whole = sum(a.is_complete() for a in load.answers)
    bench.row(f"{n} times kill -9 under load", f"first good token p50 {median(times):.2f} s, worst {max(times):.2f} s; {whole} answers whole, "
              f"{len(load.answers) - whole} cut, {len(false)} with a false [DONE]", "2 s, none false", not false)


def reloads(bench):
    """Another model under load, in turns with one that is none: the old one stays then."""
    rng = random.Random(8)
    n = bench.pick(2, 10, 100)
    with tempfile.TemporaryDirectory() as folder:
        link, bad = pathlib.Path(folder) / "model.gguf", pathlib.Path(folder) / "bad"
        bad.write_bytes(pathlib.Path(bench.model).read_bytes()[:100000])

        def point(target):
            (link.parent / "next").symlink_to(target)
            (link.parent / "next").rename(link)
        point(bench.model)
        args = ("--master", "--threads", "2", "--ctx-size", "512", "--kv-tokens", "8192", "--pack-cache", folder)
        with Running(Server(bench.options.variant, link, args)) as server:
            with Under(bench, server, lambda i: [request(i, words(rng, 20), 16)], 4) as load:
                times = []
                for i in range(n):
                    for target, word in ((bench.model, "worker_took_over"), (bad, "reload_failed")):
                        point(target)
                        seen, began = server.log().count(word), time.monotonic()
                        server.engine.send_signal(signal.SIGUSR2)
                        if not until(lambda: server.log().count(word) > seen, 60, 0.05):
                            raise Wrong(f"reload {i}: no '{word}' in the log within 60 s")
                        times.append(time.monotonic() - began)
    failed = [a for a in load.answers if not a.is_complete()]
    bench.row(f"{n} reloads and {n} that fail, under load", f"{len(load.answers)} answers, {len(failed)} not whole; a reload takes p50 {median(times[::2]):.1f} s, "
              f"worst {max(times[::2]):.1f} s", "0 failed requests", not failed)


def restart(bench):
    """A session of 4,000 tokens after a restart, with snapshots on the disk."""
    rng = random.Random(9)
    rounds = bench.pick(1, 3, 5)
    with tempfile.TemporaryDirectory() as folder:
        cold, warm = [], []
        with bench.serve("--ctx-size", "8192", "--kv-tokens", "16384", "--cache-dir", f"{folder}/kv") as server:
            for _ in range(rounds):
                prompt = words(rng, bench.pick(950, 3950, 3950))
                for times in (cold, warm):
                    answers = bench.play(server, [request(0, words(rng, 12), 1), request(0, prompt, 8)])
                    must_be_complete(answers, 2)
                    times.append(answers[1].ttft_ms)
                    if times is cold:
                        until(lambda: server.metrics().get("infcgi_snapshot_pending", 1) == 0, 20)
                        server.engine.kill()
                        server.engine.wait()
                        server.start_engine()
                        server.wait_ready()
                usage = answers[1].document()["usage"]
    cached = usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
    bench.row(f"a session of {usage['prompt_tokens']} tokens after kill -9 and a start", f"first token {median(cold):.0f} ms computed, {median(warm):.0f} ms read: "
              f"{median(cold) / median(warm):.0f}x, {cached} tokens from the disk", "20x", cached >= 0.95 * usage["prompt_tokens"])


def soak(bench):
    """A load of some 80 %, with clients that leave and requests that are wrong."""
    rng = random.Random(7)
    seconds = bench.options.seconds or bench.pick(12, 60, 3600)
    with bench.serve("--ctx-size", "512", "--kv-tokens", "16384") as server:
        peak_answers = bench.play(server, [request(i, words(rng, 30), 16) for i in range(16) for _ in range(1000)], bench.pick(3, 10, 20))
        peak = len(peak_answers) / (max(a.end_ms for a in peak_answers) - min(a.start_ms for a in peak_answers)) * 1e3

        def one(i):
            r = request(i % 400, words(rng, rng.randrange(5, 60)), rng.randrange(2, 30), at_ms=1e3 * i / (0.8 * peak))
            kind = rng.random()
            if kind < 0.2:
                r["leave_ms"] = rng.uniform(1, 600)
            elif kind < 0.25:
                r["body"] = rng.choice(["{", "[]", '{"prompt":1}', '{"prompt":"a","temperature":"hot"}'])
            return r
        samples, stop = [], threading.Event()
        pid = engine_pid(server)

        def watch():
            while not stop.wait(seconds / 600):
                samples.append((time.monotonic(), resident_kib(pid), *holdings(pid)))
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            answers = bench.play(server, [one(i) for i in range(int(0.8 * peak * seconds))], seconds)
        finally:
            stop.set()
            watcher.join()
        must_be_idle(server, 30)
    lost = [a for a in answers if not (a.has_left or a.is_complete() or a.is_refused() or a.status == 400)]
    bench.row(f"{len(answers)} requests in {seconds} s at 80 % load", f"{sum(a.is_complete() and not a.has_left for a in answers)} whole, "
              f"{sum(a.has_left for a in answers)} left, {sum(a.status == 400 for a in answers)} wrong, {len(lost)} lost", "0 lost", not lost)
    late = samples[len(samples) // 4:]   # after the first growth
    mean = [sum(s[k] for s in late) / len(late) for k in (0, 1)]
    slope = sum((s[0] - mean[0]) * (s[1] - mean[1]) for s in late) / sum((s[0] - mean[0]) ** 2 for s in late) * 3600 / 1024

    def most(k):   # in the first and in the second half of that; threads end when nobody wants them
        half = len(late) // 2
        return max(s[k] for s in late[:half]), max(s[k] for s in late[half:])
    fds, threads = most(2), most(3)
    grows = slope >= 1 or fds[1] > fds[0] + 8 or threads[1] > threads[0] + 8
    bench.row("memory, descriptors, threads", f"{slope:+.2f} MiB/h; at most {fds[0]} and then {fds[1]} descriptors, {threads[0]} and then {threads[1]} threads",
              "under 1 MiB/h, constant", not grows if seconds >= 3600 and bench.options.variant == "release" else None)


SCENARIOS = {f.__name__.replace("_", "-"): f for f in (gaps, many_streams, throughput, overload, aborts, kills, reloads, restart, soak)}


def main():
    parser = argparse.ArgumentParser(description="What the server does under load.")
    parser.add_argument("--variant", default="release")
    parser.add_argument("--model")
    parser.add_argument("--size", choices=SIZES, default="bench")
    parser.add_argument("--seconds", type=int, default=0, help="of overload and soak; 0 = as SIZE has it")
    parser.add_argument("--peer", help="a folder with llama-server")
    parser.add_argument("--only", default="", help="of " + ", ".join(SCENARIOS))
    parser.add_argument("--out", help="the table, as a file too")
    options = parser.parse_args()
    names = [n for n in options.only.replace(",", " ").split()] or list(SCENARIOS)
    unknown = [n for n in names if n not in SCENARIOS]
    if unknown:
        parser.error(f"--only {unknown[0]}: expected some of {', '.join(SCENARIOS)}")
    if options.variant != "release" and not options.model:   # what it computes is not looked at there, and takes most of the time
        global WORDS, BETWEEN
        WORDS, BETWEEN = "abcdefghijklmnopqrstuvwxyz", ""
        folder = tempfile.TemporaryDirectory()
        options.model = with_context(ROOT / "tests/golden/models/llama-biases.gguf", 8192, pathlib.Path(folder.name))
    bench, n_bad = Bench(options), 0
    print("| | measured | wanted | holds |\n|---|---|---|---|")
    for name in names:
        try:
            SCENARIOS[name](bench)
        except (Wrong, AssertionError) as e:
            n_bad += 1
            bench.row(name, " ".join(str(e).split())[:900], "", False)
    n_bad += sum(r[3] == "NO" for r in bench.rows) - n_bad
    if options.out:
        pathlib.Path(options.out).write_text("| | measured | wanted | holds |\n|---|---|---|---|\n" +
                                             "".join("| " + " | ".join(r) + " |\n" for r in bench.rows))
    print(f"{sum(r[3] == 'yes' for r in bench.rows)} passed, {n_bad} failed")
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())
