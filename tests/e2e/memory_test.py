"""What requests may hold: hostile bodies, many at once, with and without an address-space limit. The process lives, others
are served, and the memory goes back."""
import collections
import json
import re
import shutil
import subprocess
import threading

from harness import Skip, until

CLIENTS = 200
MIB = 1 << 20


def hostile(part):
    """4 MiB of a part, again and again, in a field that is not known, so ignored, whatever it holds."""
    head, tail = b'{"prompt":"Hi","max_tokens":1,"unknown":[', b']}'
    n = (4 * MIB - len(head) - len(tail)) // (len(part) + 1)
    return head + b",".join([part] * n) + tail


def pid_of(s):
    """The engine: spawn-fcgi's child, or spawn-fcgi itself once it has become it."""
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(s.engine.pid)], stdout=subprocess.PIPE, text=True).stdout.split()
    return int(children[0]) if children else s.engine.pid


def kib_of(s, name):
    with open(f"/proc/{pid_of(s)}/status") as f:
        return int(re.search(rf"^{name}:\s+(\d+) kB", f.read(), re.M).group(1))


def flood(s, bodies, n=CLIENTS):
    """Sends them all at once; returns the statuses counted, and those of a client that asks for little meanwhile."""
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


def check_flood(ctx, s, bodies, expected):
    assert s.post("/v1/completions", {"prompt": "Hi", "max_tokens": 1}).status == 200
    before = kib_of(s, "VmRSS")
    statuses, small = flood(s, bodies)
    assert s.engine.poll() is None, s.log()[-3000:]
    assert sum(statuses.values()) == CLIENTS and set(statuses) <= expected, statuses
    assert set(small) == {200} and small[200] >= 3, small
    assert s.post("/v1/completions", {"prompt": "Hi", "max_tokens": 1}).status == 200
    m = s.metrics()
    assert m["infcgi_request_memory_bytes"] < MIB, m["infcgi_request_memory_bytes"]
    if not ctx.is_slow:   # a sanitizer keeps what is freed
        assert until(lambda: kib_of(s, "VmRSS") < before + 32 * 1024, 5, 0.2), (before, kib_of(s, "VmRSS"))
    return statuses


TOO_LARGE, FULL = (400, "json_too_large"), (503, "request_memory_full")


def test_trees_are_judged_before_they_are_parsed(ctx):
    s = ctx.server
    for part in (b"{}", b"[]", b'""', b'{"":{}}', b"[[]]"):
        r = s.request("POST", "/v1/completions", hostile(part), {"Content-Type": "application/json"})
        assert r.status == 400 and r.error()["code"] == "json_too_large", (part, r.status, r.body[:300])
        assert re.search(r"at most \d+ MiB of memory, found \d+ values that take \d+ MiB", r.error()["message"]), r.body
    assert s.metrics()["infcgi_memory_bytes{purpose=\"request\"}"] < MIB


def test_two_hundred_hostile_clients(ctx):
    s = ctx.start(*ctx.ARGS, "--request-memory", "256")
    check_flood(ctx, s, [hostile(p) for p in (b"{}", b"[]", b'""')], {TOO_LARGE, FULL})


def test_two_hundred_large_texts(ctx):
    """Bodies that are fine but long: parsed, tokenised and refused for their length, or for want of memory."""
    s = ctx.start(*ctx.ARGS, "--request-memory", "256")
    long_text = json.dumps({"prompt": "a b " * (MIB // 4), "max_tokens": 1}).encode()
    check_flood(ctx, s, [long_text, hostile(b"12345")], {TOO_LARGE, FULL, (200, "ok"), (400, "context_length_exceeded"),
                                                         (413, "request_too_large")})


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
    assert until(s.idle)
