"""The memory that requests can hold: hostile bodies, many at the same time, with and without an address-space limit. The process
survives, other requests are served, and the memory is freed."""
import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import threading

import harness
from harness import Skip, until

CLIENTS = 200
STACK_KIB = 512   # FASTCGI_STACK_BYTES
KIB, MIB = 1 << 10, 1 << 20


def hostile(part):
    """Makes 4 MiB of a repeated part in an unknown field, which is ignored whatever it holds."""
    head, tail = b'{"prompt":"Hi","max_tokens":1,"unknown":[', b']}'
    n = (4 * MIB - len(head) - len(tail)) // (len(part) + 1)
    return head + b",".join([part] * n) + tail


def pid_of(s):
    """Returns the engine's pid: spawn-fcgi's child, or spawn-fcgi itself after exec."""
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(s.engine.pid)], stdout=subprocess.PIPE, text=True).stdout.split()
    return int(children[0]) if children else s.engine.pid


def kib_of(s, name):
    with open(f"/proc/{pid_of(s)}/status") as f:
        return int(re.search(rf"^{name}:\s+(\d+) kB", f.read(), re.M).group(1))


def flood(s, bodies, n=CLIENTS):
    """Sends them all simultaneously; returns the counted statuses, and those of a client that sends small requests at the same time."""
    statuses, small = collections.Counter(), collections.Counter()
    ended = threading.Event()

    def send(body):
        try:
            r = s.request("POST", "/v1/completions", body, {"Content-Type": "application/json"}, timeout=60)
            assert r.status != 503 or r.headers["Retry-After"], r.headers
            statuses[r.status, r.error()["code"] if r.status != 200 else "ok"] += 1
        except (OSError, AssertionError) as e:
            statuses[repr(e)[:80]] += 1

    def ask():
        while not ended.is_set():
            try:
                small[s.post("/v1/completions", {"prompt": "Hi", "max_tokens": 1}, timeout=60).status] += 1
            except OSError as e:
                small[repr(e)[:80]] += 1
    asking = threading.Thread(target=ask)
    threads = [threading.Thread(target=send, args=(bodies[i % len(bodies)],)) for i in range(n)]
    asking.start()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    ended.set()
    asking.join()
    return statuses, small


def settled_kib(s):
    """Returns the resident memory once answers add nothing: each step requests some memory of the KV cache ahead of its use
    (cpu_kv_ahead.c)."""
    sizes = [0]

    def adds_nothing():
        for _ in range(10):
            assert s.post("/v1/completions", {"prompt": "Hi", "max_tokens": 1}).status == 200
        sizes.append(kib_of(s, "VmRSS"))
        return sizes[-1] - sizes[-2] < 1024
    assert until(adds_nothing, 60, 0), sizes
    return sizes[-1]


def check_flood(ctx, s, bodies, expected):
    before = None if ctx.is_slow else settled_kib(s)
    statuses, small = flood(s, bodies)
    assert s.engine.poll() is None, s.log()[-3000:]
    assert sum(statuses.values()) == CLIENTS and set(statuses) <= expected, statuses
    assert set(small) == {200} and small[200] >= 3, small
    assert s.post("/v1/completions", {"prompt": "Hi", "max_tokens": 1}).status == 200
    m = s.metrics()
    assert m["infcgi_request_memory_bytes"] < MIB, m["infcgi_request_memory_bytes"]
    if not ctx.is_slow:   # a sanitizer keeps freed memory
        assert until(lambda: kib_of(s, "VmRSS") < before + 32 * 1024, 5, 0.2), (before, kib_of(s, "VmRSS"))
    return statuses


TOO_LARGE, FULL = (400, "json_too_large"), (503, "request_memory_full")


def test_trees_are_judged_before_they_are_parsed(ctx):
    s = ctx.server
    for part in (b"{}", b"[]", b'""', b'{"":{}}', b"[[]]"):
        r = s.request("POST", "/v1/completions", hostile(part), {"Content-Type": "application/json"})
        assert r.status == 400 and r.error()["code"] == "json_too_large", (part, r.status, r.body[:300])
        assert re.search(r"at most \d+ MiB of memory, found \d+ values that take \d+ MiB", r.error()["message"]), r.body
    assert harness.until(lambda: s.metrics()["infcgi_memory_bytes{purpose=\"request\"}"] < MIB), s.metrics()


@harness.in_release
def test_two_hundred_hostile_clients(ctx):
    s = ctx.start(*ctx.ARGS, "--request-memory", "256")
    check_flood(ctx, s, [hostile(p) for p in (b"{}", b"[]", b'""')], {TOO_LARGE, FULL})


@harness.in_long
def test_two_hundred_large_texts(ctx):
    """Bodies that are valid but long: parsed, tokenized and rejected for their length, or for lack of memory."""
    s = ctx.start(*ctx.ARGS, "--request-memory", "256")
    long_text = json.dumps({"prompt": "a b " * (MIB // 4), "max_tokens": 1}).encode()
    check_flood(ctx, s, [long_text, hostile(b"12345")], {TOO_LARGE, FULL, (200, "ok"), (400, "context_length_exceeded"),
                                                         (413, "request_too_large")})


@harness.in_long
def test_under_an_address_space_limit(ctx):
    if ctx.is_slow:
        raise Skip("a sanitizer needs more address space than any limit leaves")
    used = ctx.start(*ctx.ARGS, "--max-connections", "256")
    limit = (kib_of(used, "VmSize") + 600 * 1024) * 1024
    s = ctx.start(*ctx.ARGS, "--max-connections", "256", prefix=(shutil.which("prlimit"), f"--as={limit}"))
    assert "memory requests_mib=" in s.log(), s.log()
    assert s.metrics()["infcgi_request_memory_limit_bytes"] < 600 * MIB
    check_flood(ctx, s, [hostile(p) for p in (b"{}", b"12345", b'""')], {TOO_LARGE, FULL, (200, "ok"), (413, "request_too_large")})
    assert "no_address_space" not in s.log() and "no_thread" not in s.log(), s.log()[-2000:]


def test_a_request_over_its_share_is_told_so(ctx):
    s = ctx.start(*ctx.ARGS, "--request-memory", "8")
    r = s.request("POST", "/v1/completions", json.dumps({"prompt": "a b " * (MIB * 7 // 8)}).encode(), {"Content-Type": "application/json"})
    assert r.status == 413 and r.error()["code"] == "request_too_large" and "MiB of memory" in r.error()["message"], r.body
    assert s.post("/v1/completions", {"prompt": "Hi", "max_tokens": 1}).status == 200


@harness.in_release
def test_an_address_space_limit_that_is_too_small_is_refused(ctx):
    if ctx.is_slow:
        raise Skip("a sanitizer needs more address space than any limit leaves")
    used = ctx.server
    limit = (kib_of(used, "VmSize") + 100 * 1024) * 1024
    run = subprocess.run(["prlimit", f"--as={limit}", str(ctx.binary), "serve", "--model", str(ctx.model), *ctx.ARGS, "--request-memory", "4096",
                          "--socket", f"{used.dir}/narrow.sock"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    assert run.returncode == 65 and "memory_limit" in run.stdout and "RLIMIT_AS" in run.stdout, run.stdout


def test_trees_are_gone_while_an_answer_is_made(ctx):
    s = ctx.server
    held = s.metrics()["infcgi_request_memory_bytes"]
    body = {"prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": True, "metadata": {f"k{i}": [i] * 10 for i in range(5000)}}
    connection, response = s.stream("/v1/completions", body)
    for _ in range(4):
        response.readline()
    now = s.metrics()["infcgi_request_memory_bytes"]
    connection.close()
    assert now < held + MIB, (held, now)   # the tree takes 8 MiB
    assert s.idle()


def stacks_kib(s):
    """Returns the resident memory of the stacks of threads that have served a connection."""
    sizes, is_stack = [], False
    with open(f"/proc/{pid_of(s)}/smaps") as f:
        for line in f:
            if head := re.match(r"([0-9a-f]+)-([0-9a-f]+) rw-p .* 0 +$", line):
                is_stack = int(head[2], 16) - int(head[1], 16) == STACK_KIB * KIB
            elif is_stack and line.startswith("Rss:"):
                sizes.append(int(line.split()[1]))
    return [n for n in sizes if n > 8]


def test_what_a_stream_takes(ctx):
    """In addition to keys and values: the request's memory, and its thread's stack. docs/internals/fastcgi.md has the figures."""
    n, s = 100, ctx.start(*ctx.ARGS)
    held = 'infcgi_memory_bytes{purpose="request"}'
    before = s.metrics()[held]
    opened = harness.at_once([lambda: s.stream("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 64, "ignore_eos": True})
                              for _ in range(n)])
    assert {response.status for _, response in opened} == {200}
    each = (s.metrics()[held] - before) / n
    stacks = stacks_kib(s)
    for connection, _ in opened:
        connection.close()
    assert 8 * KIB < each < 24 * KIB, each
    if not ctx.is_slow:   # a sanitizer has its own overhead
        assert len(stacks) > n // 2 and sum(stacks) / len(stacks) < 28, stacks
    assert s.idle()


# --- a limit of a control group ---------------------------------------------------------------------------------------

class ControlGroup:
    """A control group for memory, of version 1 or 2, that is removed after the test; path None: none can be made here."""

    def __init__(self, ctx):
        self.path = None
        for base, self.limit, self.events in ((pathlib.Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.oom_control"),
                                              (pathlib.Path("/sys/fs/cgroup"), "memory.max", "memory.events")):
            path = base / f"infcgi-test.{os.getpid()}"
            try:
                path.mkdir()
            except OSError:
                continue
            if (path / self.limit).exists():
                self.path = path
                ctx.cleanups.append(lambda: until(self.remove, 10))
                return
            path.rmdir()

    def remove(self):
        """Removes it after its processes have ended."""
        try:
            self.path.rmdir()
        except OSError:
            return False
        return True

    def prefix(self):
        return ("/bin/sh", "-c", f'echo $$ >{self.path}/cgroup.procs && exec "$@"', "sh") if self.path else ()

    def n_killed(self):
        return int(re.search(r"^oom_kill (\d+)$", (self.path / self.events).read_text(), re.M).group(1))


@harness.in_release
def test_full_load_takes_what_was_told_at_the_start(ctx):
    """R05: with 32 MiB more than it announced, as a limit of a control group if possible; the process must not be killed."""
    if ctx.is_slow:
        raise Skip("a sanitizer takes memory of its own")
    group = ControlGroup(ctx)
    s = ctx.start("--threads", "2", "--ctx-size", "512", "--kv-tokens", "1024", "--parallel", "8", "--request-memory", "16", prefix=group.prefix())
    planned = sum(v for k, v in s.metrics().items() if k.startswith("infcgi_memory_bytes{"))
    limit = int(planned) + 32 * MIB
    if group.path:
        (group.path / group.limit).write_text(str(limit))
    texts = [{"prompt": f"{i} " + "word " * 120, "max_tokens": 4, "ignore_eos": True, "stream": i % 2 == 0} for i in range(12)]
    bodies = [json.dumps(text).encode() for text in texts] + [hostile(p) for p in (b"{}", b"12345", b'""')] * 5
    statuses, held = collections.Counter(), [0]

    def send(body):
        r = s.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        statuses[r.status] += 1
        assert s.engine.poll() is None, s.log()[-2000:]
        held[0] = max(held[0], kib_of(s, "RssAnon"))
    harness.at_once([lambda body=body: send(body) for body in bodies])
    assert statuses[200] >= len(texts) and set(statuses) <= {200, 400, 413, 503}, statuses
    assert planned > 100 * MIB and held[0] * KIB < limit, (planned, held, limit)
    if not group.path:
        raise Skip("no control group can be made here; what the process held was within the limit that one would have had")
    assert group.n_killed() == 0
