"""Tenants through nginx: identification, limits and their headers, reload with a bad line, the journal."""
import concurrent.futures
import json
import os
import pathlib
import resource
import signal
import tempfile

import harness

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HI = [{"role": "user", "content": "Hi"}]

FILE = """
[default]
weight = 2
[free]
key = sk-free
[few]
key = sk-few
requests-per-minute = 3
[tokens]
key = sk-tokens
tokens-per-minute = 60
[one]
key = sk-one
concurrent = 1
max-tokens = 12
[other]
key = sk-other-model
models = another
[named]
requests-per-minute = 2
"""


def key(k):
    return {"Authorization": f"Bearer {k}"}


class Tenants:
    """A server with a file of tenants and a journal."""

    def __init__(self, ctx, text=FILE):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="infcgi-tenants."))
        self.file, self.log = self.dir / "tenants", self.dir / "usage.log"
        self.file.write_text(text)
        self.server = ctx.start(*ctx.ARGS, "--tenants", self.file, "--usage-log", self.log, "--timeout", "60")
        self.said = 0

    def ask(self, k="sk-free", path=CHAT, **fields):
        body = {"max_tokens": 2, **fields}
        body.setdefault("prompt" if path == COMPLETIONS else "messages", "Hi there" if path == COMPLETIONS else HI)
        return self.server.post(path, body, headers=key(k))

    def reload(self, text):
        self.file.write_text(text)
        before = self.server.log()
        os.kill(self.server.engine.pid, signal.SIGHUP)
        assert harness.until(lambda: any(w in self.server.log()[len(before):] for w in ("tenants_reloaded", "tenants_kept")))
        return self.server.log()[len(before):]

    def lines(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()]


def requests_a_minute(ctx, t):
    for left in (2, 1, 0):
        r = t.ask("sk-few")
        assert r.status == 200 and r.headers["x-ratelimit-limit-requests"] == "3", (r.status, r.headers)
        assert r.headers["x-ratelimit-remaining-requests"] == str(left) and "x-ratelimit-limit-tokens" not in r.headers
    r = harness.quick(0.05 if not ctx.is_slow else 1, lambda: t.ask("sk-few"))
    assert r.status == 429 and r.error()["code"] == "rate_limit_exceeded" and r.error()["type"] == "rate_limit_error", r.body
    assert 1 <= int(r.headers["Retry-After"]) <= 20 and r.headers["x-ratelimit-remaining-requests"] == "0", r.headers
    assert r.headers["x-ratelimit-reset-requests"].endswith("s"), r.headers
    r = t.ask("sk-few", "/v1/messages", max_tokens=2)
    assert r.status == 429 and r.json()["error"]["type"] == "rate_limit_error", r.body
    assert r.headers["anthropic-ratelimit-requests-limit"] == "3" and r.headers["anthropic-ratelimit-requests-reset"].endswith("Z")
    r = t.ask("sk-few", "/api/chat")
    assert r.status == 429 and isinstance(r.json()["error"], str), r.body
    r = t.server.request("GET", "/v1/models", headers=key("sk-few"))   # which costs nothing
    assert r.status == 200 and r.headers["x-ratelimit-remaining-requests"] == "0"
    assert t.ask("sk-free").status == 200
    assert t.server.post(CHAT, {"messages": HI}).status == 401


def tokens_a_minute(ctx, t):
    r = t.ask("sk-tokens", COMPLETIONS, prompt="one two three four five six seven eight nine ten " * 20)
    assert r.status == 429 and "Retry-After" not in r.headers and r.headers["x-should-retry"] == "false", (r.status, r.headers)
    r = t.ask("sk-tokens", COMPLETIONS, max_tokens=50, ignore_eos=True)
    assert r.status == 200
    used = r.json()["usage"]["total_tokens"]
    left = int(t.server.request("GET", "/v1/models", headers=key("sk-tokens")).headers["x-ratelimit-remaining-tokens"])
    assert 60 - used <= left <= 60 - used + 15, (used, left)
    assert t.ask("sk-tokens", COMPLETIONS, max_tokens=50, ignore_eos=True).status == 200
    r = t.ask("sk-tokens", COMPLETIONS)
    assert r.status == 429 and 1 <= int(r.headers["Retry-After"]) <= 60, (r.status, r.headers)


def requests_in_progress_and_tokens_of_an_answer(ctx, t):
    r = t.ask("sk-one", COMPLETIONS, max_tokens=500, ignore_eos=True)
    assert r.status == 200 and r.json()["usage"]["completion_tokens"] == 12, r.body
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        got = harness.tried(lambda: set(pool.map(lambda _: t.ask("sk-one", COMPLETIONS, max_tokens=12, ignore_eos=True).status, range(8))),
                            lambda got: 429 in got)   # two at the same time
    assert got == {200, 429}, got
    assert t.ask("sk-one").status == 200, "what has ended is counted out"


def models(ctx, t):
    r = t.ask("sk-other-model")
    assert r.status == 404 and r.error()["code"] == "model_not_found", r.body


def a_bad_line_keeps_the_old(ctx, t):
    said = t.reload("[new]\nkey = sk-new\n\nweight = heavy\n")
    assert "tenants_kept" in said and "line 4" in said and "weight" in said and "sk-new" not in said, said
    assert t.ask("sk-free").status == 200 and t.ask("sk-new").status == 401
    assert "tenants_reloaded" in t.reload(FILE + "[new]\nkey = sk-new\n")
    assert t.ask("sk-free").status == 200 and t.ask("sk-new").status == 200


def nginx_names_the_tenant(ctx, t):
    conf = pathlib.Path(t.server.dir) / "nginx.conf"
    text = conf.read_text()
    at = text.index("listen ")
    conf.write_text(text[:at] + "fastcgi_param INFCGI_TENANT $arg_who;\n" + text[at:])
    children = pathlib.Path(f"/proc/{t.server.nginx.pid}/task/{t.server.nginx.pid}/children")
    old = set(children.read_text().split())
    t.server.nginx.send_signal(signal.SIGHUP)
    # An old worker that ends closes a connection that it has accepted and not read yet.
    assert harness.until(lambda: not old & (now := set(children.read_text().split())) and now)

    def named(who, **headers):
        return t.server.post(f"{CHAT}?who={who}", {"messages": HI, "max_tokens": 1}, headers=headers)
    assert named("anna").status == 200
    for n in range(2):
        assert named("named").status == 200, n
    assert named("named").status == 429
    assert named("").status == 401
    assert named("", INFCGI_TENANT="anna", **{"Infcgi-Tenant": "anna"}).status == 401, "a client cannot name itself"
    assert [line["tenant"] for line in t.lines()][-2:] == ["named", "named"], t.lines()[-3:]
    m = t.server.metrics()
    assert m['infcgi_tenant_requests_total{tenant="named"}'] == 2 and m['infcgi_tenant_refused_total{tenant="named"}'] == 1, m
    assert m['infcgi_tenant_requests_total{tenant="anna"}'] >= 1


def the_journal(ctx, t):
    n = len(t.lines())
    r = t.ask("sk-free", COMPLETIONS, prompt="The secret word is xyzzy, and", max_tokens=5, ignore_eos=True)
    assert r.status == 200
    assert harness.until(lambda: len(t.lines()) == n + 1)
    line, usage = t.lines()[-1], r.json()["usage"]
    assert line["tenant"] == "free" and line["path"] == COMPLETIONS and line["status"] == 200 and line["code"] == "ok", line
    assert line["id"] == r.headers["X-Request-Id"] and line["finish"] == "length" and line["model"] == r.json()["model"], line
    assert line["tokens_in"] == usage["prompt_tokens"] and line["tokens_out"] == 5 and line["tokens_cached"] == 0, line
    assert line["total_ms"] >= line["prefill_ms"] > 0 and line["decode_ms"] > 0 and line["queue_ms"] >= 0, line
    assert "xyzzy" not in t.log.read_text() and "sk-free" not in t.log.read_text()
    connection, response = t.server.stream(COMPLETIONS, {"prompt": "x"})   # no key
    assert response.status == 401
    connection.close()
    moved = t.log.rename(t.dir / "usage.1")
    os.kill(t.server.engine.pid, signal.SIGUSR1)
    assert harness.until(t.log.exists)
    assert harness.until(lambda: "usage_log_reopened" in t.server.log())
    assert t.ask("sk-free").status == 200
    assert harness.until(lambda: len(t.lines()) == 1) and len(moved.read_text().splitlines()) == n + 1


def a_deadline_of_the_clients(ctx, t):
    r = t.server.post(COMPLETIONS, {"prompt": "x", "max_tokens": 1500, "ignore_eos": True},
                      headers={**key("sk-free"), "X-Request-Timeout-Ms": "150"})
    assert r.status == 504 and r.error()["code"] == "deadline_exceeded", r.body
    for bad in ("0", "-1", "soon", "1.5", "99999999999"):
        r = t.server.post(COMPLETIONS, {"prompt": "x"}, headers={**key("sk-free"), "X-Request-Timeout-Ms": bad})
        assert r.status == 400 and r.error()["param"] == "X-Request-Timeout-Ms", (bad, r.body)


@harness.in_release
def test_tenants(ctx):
    """One server for all, because starting takes longer than the requests."""
    t = Tenants(ctx)
    for part in (requests_a_minute, tokens_a_minute, requests_in_progress_and_tokens_of_an_answer, models, a_bad_line_keeps_the_old,
                 the_journal, a_deadline_of_the_clients, nginx_names_the_tenant):
        part(ctx, t)


@harness.in_release
def test_a_full_disk_stops_no_request(ctx):
    s = ctx.start(*ctx.ARGS, "--usage-log", "/dev/full", wait=False)
    assert harness.until(lambda: s.engine.poll() is not None, 20) and s.engine.returncode == 78, s.log()
    t = Tenants(ctx, "[free]\nkey = sk-free\n")
    most = 1 << 20   # the engine's log is a file, too
    os.truncate(t.log, most)
    resource.prlimit(t.server.engine.pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
    assert t.ask().status == 200 and t.ask().status == 200
    assert harness.until(lambda: t.server.metrics()["infcgi_usage_log_dropped_total"] == 2)
    assert harness.until(lambda: "usage_log_loses_lines" in t.server.log())
    resource.prlimit(t.server.engine.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert t.ask().status == 200
    assert harness.until(lambda: "usage_log_goes_on" in t.server.log())
    assert json.loads(t.log.read_text()[most:].splitlines()[-1])["tenant"] == "free"   # written before the answer


def test_an_error_in_the_file_ends_the_start(ctx):
    with tempfile.NamedTemporaryFile("w", suffix=".tenants") as f:
        f.write("[a]\nkey = sk-a\ncolour = red\n")
        f.flush()
        s = ctx.start(*ctx.ARGS, "--tenants", f.name, wait=False)
        assert harness.until(lambda: s.engine.poll() is not None, 20) and s.engine.returncode == 78, s.log()
        assert f"{f.name} line 3: expected key" in s.log() and "sk-a" not in s.log(), s.log()
