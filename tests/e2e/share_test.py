"""Resources that clients share: the queue, and the CPUs that prepare requests. No client takes all of them."""
import concurrent.futures
import http.client
import json
import os
import tempfile

import harness

TINY = harness.ROOT / "tests/golden/models/llama-biases.gguf"
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HI = [{"role": "user", "content": "Hi"}]


def ask(s, method, path, body=None, key=None, address="127.0.0.1"):
    """Sends a request of a client with a key, or from another address of this machine."""
    connection = http.client.HTTPConnection("127.0.0.1", s.port, timeout=120, source_address=(address, 0))
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        return harness.Response(connection.getresponse())
    finally:
        connection.close()


# Requests that take CPU time outside the engine.
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
        assert connection.getresponse().status == 200   # and it continues
        for path, body in bodies.items():
            assert ask(s, "POST", path, body, key="sk-one").status == 429, path
        connection.close()
        assert s.idle(60)


def test_an_address_locks_out_no_other(ctx):
    """Without keys: one address fills its share of the queue, and another is served."""
    s = ctx.start("--threads", "2", "--ctx-size", "2048", "--kv-tokens", "16384", "--parallel", "2", "--queue-max", "8")
    body = {"prompt": "a", "max_tokens": 2000, "ignore_eos": True, "stream": True}
    streams = []

    def fill():   # until a request is rejected
        for _ in range(64):
            connection = http.client.HTTPConnection("127.0.0.1", s.port, timeout=120)
            connection.request("POST", COMPLETIONS, json.dumps(body), {"Content-Type": "application/json"})
            streams.append((connection, connection.getresponse()))
            status = streams[-1][1].status
            if status == 503:
                return True
            assert status == 200, status
        return False
    assert fill()
    r = ask(s, "POST", COMPLETIONS, {"prompt": "a", "max_tokens": 1}, address="127.0.0.2")
    assert r.status == 200, r.body
    assert fill()   # streams can have ended
    all_of_them = 'infcgi_tenant_requests_running{tenant="anonymous"}'   # addresses are one tenant
    assert harness.until(lambda: s.metrics()[all_of_them] == 2, 30), {k: v for k, v in s.metrics().items() if "tenant" in k}
    for connection, _ in streams:
        connection.close()
    assert s.idle(60)


class Held:
    """Requests that count tokens forever, in a special build of the program (tests/support/faulty_task.c), until their clients
    disconnect."""

    def __init__(self, ctx):
        self.cpus = len(os.sched_getaffinity(0))
        self.server = ctx.start("--threads", "1", "--compute-limit", "0", model=TINY, env={"INFCGI_FAULT": "turn@tokens"}, program="infcgi_faulty")
        self.clients = {}   # by request id

    def ask(self, n):
        for _ in range(n):
            name = f"held-{len(self.clients)}"
            connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=300)
            connection.request("POST", "/tokenize", json.dumps({"content": "abc"}), {"Content-Type": "application/json", "X-Request-Id": name})
            self.clients[name] = connection

    def inside(self):
        return {r["request_id"] for r in self.server.ask("requests") if r["phase"] == "tokens"}

    def leave(self, names):
        for name in names:
            self.clients.pop(name).close()

    def become(self, preparing, waiting):
        """Waits until `preparing` are inside and `waiting` wait; never more are inside than there are CPUs."""
        def look():
            m = self.server.metrics()
            seen = (m["infcgi_preparing"], m["infcgi_waiting_to_prepare"])
            assert seen[0] <= self.cpus, seen
            return seen == (preparing, waiting)
        assert harness.until(look, 300), (preparing, waiting, self.server.ask("requests"))


def test_as_many_are_prepared_as_there_are_cpus(ctx):
    held = Held(ctx)
    s = held.server
    held.ask(held.cpus + 6)
    held.become(held.cpus, 6)
    assert s.request("GET", "/health", timeout=300).status == 200   # it waits for nothing
    assert harness.until(lambda: len(held.inside()) == held.cpus, 300), held.inside()   # they have reached their tokens
    held.leave(held.inside())
    held.become(*((held.cpus, 6 - held.cpus) if held.cpus < 6 else (6, 0)))   # the waiting ones enter
    held.leave(list(held.clients))
    held.become(0, 0)
    assert s.post(COMPLETIONS, {"prompt": [1, 2, 3], "max_tokens": 1}).status == 200


def test_a_flood_that_is_prepared_is_answered(ctx):
    s = ctx.server
    body = json.dumps({"content": "the quick brown fox " * 4000}).encode()
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        flood = [pool.submit(lambda: s.request("POST", "/tokenize", body, {"Content-Type": "application/json"}, timeout=120).status) for _ in range(48)]
        assert all(f.result() == 200 for f in flood)
    assert harness.until(lambda: (m := s.metrics())["infcgi_preparing"] == m["infcgi_waiting_to_prepare"] == 0, 60)
    assert s.post(CHAT, {"messages": HI, "max_tokens": 1}).status == 200


def test_who_leaves_waits_no_longer(ctx):
    """A client that leaves while it waits for a CPU is removed, and the others enter."""
    held = Held(ctx)
    held.ask(held.cpus + 3)
    held.become(held.cpus, 3)
    assert harness.until(lambda: len(held.inside()) == held.cpus, 300), held.inside()   # they have reached their tokens
    inside = held.inside()
    held.leave([name for name in held.clients if name not in inside][:2])
    held.become(held.cpus, 1)
    assert harness.until(lambda: held.inside() == inside, 300), (held.inside(), inside)   # requests inside stay
    last = next(name for name in held.clients if name not in inside)
    held.leave([inside.pop()])
    held.become(held.cpus, 0)
    assert harness.until(lambda: held.inside() == inside | {last}, 300), (held.inside(), inside, last)
    held.leave(list(held.clients))
    held.become(0, 0)
    assert held.server.post(COMPLETIONS, {"prompt": [1, 2, 3], "max_tokens": 1}).status == 200
