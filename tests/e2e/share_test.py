"""What clients share: the queue, and the CPUs that requests are prepared on. None of them takes it all."""
import concurrent.futures
import http.client
import json
import os
import tempfile

import harness

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HI = [{"role": "user", "content": "Hi"}]


def ask(s, method, path, body=None, key=None, address="127.0.0.1"):
    """A request of a client with a key, or from another address of this machine."""
    connection = http.client.HTTPConnection("127.0.0.1", s.port, timeout=120, source_address=(address, 0))
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        return harness.Response(connection.getresponse())
    finally:
        connection.close()


# What costs CPU time outside the engine.
PREPARED = {"/tokenize": {"content": "a"}, "/detokenize": {"tokens": [1]}, "/apply-template": {"messages": HI}, "/api/show": {},
            "/v1/responses/input_tokens": {"input": "a"}, "/v1/messages/count_tokens": {"messages": HI},
            "/v1/chat/completions/input_tokens": {"messages": HI}, "/chat/completions/input_tokens": {"messages": HI}}


def test_what_only_prepares_counts_as_a_request(ctx):
    names = [f"t{i}" for i in range(len(PREPARED))]
    with tempfile.NamedTemporaryFile("w", suffix=".tenants") as f:
        f.write("".join(f"[{n}]\nkey = sk-{n}\nrequests-per-minute = 1\n" for n in names) + "[one]\nkey = sk-one\nconcurrent = 1\n")
        f.flush()
        s = ctx.start(*ctx.ARGS, "--tenants", f.name)
        model = s.client("sk-one").models.list().data[0].id
        bodies = {path: {"model": model, **body} for path, body in PREPARED.items()}
        for name, (path, body) in zip(names, bodies.items()):
            r = ask(s, "POST", path, body, key=f"sk-{name}")
            assert r.status == 200 and r.headers["x-ratelimit-remaining-requests" if "messages/" not in path else
                                                 "anthropic-ratelimit-requests-remaining"] == "0", (path, r.status, r.body, r.headers)
            r = ask(s, "POST", path, body, key=f"sk-{name}")
            assert r.status == 429 and int(r.headers["Retry-After"]) >= 1, (path, r.status, r.body)
        connection = http.client.HTTPConnection("127.0.0.1", s.port, timeout=120)
        connection.request("POST", COMPLETIONS, json.dumps({"prompt": "a", "max_tokens": 2000, "stream": True, "ignore_eos": True}),
                           {"Content-Type": "application/json", "Authorization": "Bearer sk-one"})
        assert connection.getresponse().status == 200   # and it goes on
        for path, body in bodies.items():
            assert ask(s, "POST", path, body, key="sk-one").status == 429, path
        connection.close()
        assert s.idle(60)


def test_an_address_locks_out_no_other(ctx):
    """Without keys: one address fills what it may of the queue, and another is served."""
    s = ctx.start("--threads", "2", "--ctx-size", "2048", "--kv-tokens", "16384", "--parallel", "2", "--queue-max", "8")
    body = {"prompt": "a", "max_tokens": 2000, "ignore_eos": True, "stream": True}
    streams = []
    while True:   # until the first is refused
        connection = http.client.HTTPConnection("127.0.0.1", s.port, timeout=120)
        connection.request("POST", COMPLETIONS, json.dumps(body), {"Content-Type": "application/json"})
        r = connection.getresponse()
        streams.append((connection, r))
        if r.status == 503:
            break
        assert r.status == 200 and len(streams) < 64
    r = ask(s, "POST", COMPLETIONS, {"prompt": "a", "max_tokens": 1}, address="127.0.0.2")
    assert r.status == 200, r.body
    assert ask(s, "POST", COMPLETIONS, {"prompt": "a", "max_tokens": 1}).status == 503
    all_of_them = 'infcgi_tenant_requests_running{tenant="anonymous"}'   # addresses are one tenant
    assert harness.until(lambda: s.metrics()[all_of_them] == 2, 30), {k: v for k, v in s.metrics().items() if "tenant" in k}
    for connection, _ in streams:
        connection.close()
    assert s.idle(60)


def test_as_many_are_prepared_as_there_are_cpus(ctx):
    s = ctx.server
    cpus = len(os.sched_getaffinity(0))
    body = json.dumps({"content": "the quick brown fox " * 40000}).encode()
    seen = []
    with concurrent.futures.ThreadPoolExecutor(12 * cpus) as pool:
        def ask_one():
            return s.request("POST", "/tokenize", body, {"Content-Type": "application/json"}, timeout=120).status

        def look():
            m = s.metrics()
            seen.append((m["infcgi_preparing"], m["infcgi_waiting_to_prepare"]))
            return seen[-1][1] > 0
        for _ in range(20):
            flood = [pool.submit(ask_one) for _ in range(12 * cpus)]
            has_waited = harness.until(lambda: look() or all(f.done() for f in flood), 120, 0)
            assert s.request("GET", "/health").status == 200   # it waits for nothing
            assert all(f.result() == 200 for f in flood)
            if has_waited and seen[-1][1] > 0:
                break
    assert max(n for n, _ in seen) <= cpus and max(w for _, w in seen) > 0, seen
    m = harness.until(lambda: (m := s.metrics())["infcgi_preparing"] == m["infcgi_waiting_to_prepare"] == 0)
    assert m
    assert s.post(CHAT, {"messages": HI, "max_tokens": 1}).status == 200


def test_who_leaves_waits_no_longer(ctx):
    """A client that leaves while it waits for a CPU is forgotten, and the others come in."""
    s = ctx.server
    cpus = len(os.sched_getaffinity(0))
    body = json.dumps({"content": "the quick brown fox " * 40000})
    open_ones = []
    for _ in range(12 * cpus):
        connection = http.client.HTTPConnection("127.0.0.1", s.port, timeout=120)
        connection.request("POST", "/tokenize", body, {"Content-Type": "application/json"})
        open_ones.append(connection)
    for connection in open_ones:
        connection.close()
    assert harness.until(lambda: (m := s.metrics())["infcgi_preparing"] == m["infcgi_waiting_to_prepare"] == 0, 60)
    assert s.post(CHAT, {"messages": HI, "max_tokens": 1}).status == 200
