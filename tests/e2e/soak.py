"""A minute of mixed clients behind nginx, for the thread sanitizer above all: streams, whole answers, clients that leave,
embeddings, token counts, metrics, the status page, an operator at the admin socket, keys, tenants and a journal that change, snapshots,
more than the queue takes; and at the end SIGTERM while streams run.
The last line is `N passed, N failed`; a part passes when all its answers were right.

    soak.py [--variant tsan] [--seconds 60] [--seed N]

The model is a tiny golden one, as steps of a real one take a second under a sanitizer: here many short ones are wanted.
"""
import argparse
import collections
import http.client
import json
import pathlib
import random
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback

from harness import ROOT, Server, events, until

MODEL = ROOT / "tests/golden/models/llama-gqa-tied.gguf"
KEYS = ("first", "second")   # the second one is added and removed repeatedly
TENANT = "third"             # its weight changes
ADMIN = ("status", "requests", "tenants", "kv", "cache", "model", "memory", "threads", "config", "log", "devices", "loglevel info", "cancel 0", "nonsense")
# Fewer slots, pages and queue entries than clients need, so that all of them run out.
ARGS = ("--threads", "2", "--parallel", "6", "--kv-tokens", "1024", "--queue-max", "12", "--batch-size", "64", "--pooling", "mean",
        "--chat-template", "chatml", "--drain-timeout", "60", "--sse-ping-interval", "1", "--speculate", "auto")
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


class Soak:
    def __init__(self, options, folder):
        self.seed = options.seed
        self.counts = collections.Counter()   # (part, status or outcome)
        self.problems = {}                    # part: its first error
        self.lock = threading.Lock()
        self.keys = pathlib.Path(folder) / "keys"
        self.tenants, self.journal = (pathlib.Path(folder) / name for name in ("tenants", "usage.log"))
        self.write_keys(KEYS)
        self.write_tenants(1)
        self.server = Server(options.variant, MODEL, (
            "--api-key-file", str(self.keys), "--tenants", str(self.tenants), "--usage-log", str(self.journal), "--slow-log", "0.05",
            "--slow-log-file", f"{folder}/slow.log", "--cache-dir", f"{folder}/kv", "--cache-disk-mib", "1", *ARGS))
        self.end = time.monotonic() + options.seconds

    def write_keys(self, keys):
        self.keys.write_text("".join(f"{k}\n" for k in keys))

    def write_tenants(self, weight):
        self.tenants.write_text(f"[other]\nkey = {TENANT}\nweight = {weight}\n")

    # --- clients: each returns its outcome ----------------------------------------------------------------------------

    def body(self, rng, **more):
        return {"prompt": "".join(rng.choice("abc \n") for _ in range(rng.randrange(1, 200))), "ignore_eos": True,
                "max_tokens": rng.randrange(1, 60), "seed": rng.randrange(9), "temperature": rng.choice([0, 1]), **more}

    def headers(self, rng):
        return {"Authorization": f"Bearer {rng.choice((*KEYS, TENANT))}"}

    def check(self, r):
        """Returns its status: success, or an error that the API allows. The second key is sometimes unknown."""
        assert r.status in (200, 401, 503), (r.status, r.body[:300])
        if r.status != 200:
            r.error()
            assert r.status != 503 or int(r.headers["Retry-After"]) > 0, r.headers
        return r.status

    def whole(self, rng):
        r = self.server.post(COMPLETIONS, self.body(rng, n=rng.choice([1, 1, 3]), logprobs=rng.choice([None, 2])),
                             headers=self.headers(rng))
        if self.check(r) == 200:
            answer = r.json()
            assert all(c["finish_reason"] == "length" for c in answer["choices"]), answer
            assert answer["usage"]["completion_tokens"] > 0, answer
        return r.status

    def open_stream(self, rng, path=CHAT, **more):
        body = self.body(rng, stream=True, **more)
        body["messages"] = [{"role": "user", "content": body["prompt"][:100]}]
        body.pop("prompt" if path == CHAT else "messages")
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=120)
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **self.headers(rng)})
        return connection, connection.getresponse()

    def stream(self, rng):
        connection, response = self.open_stream(rng, rng.choice([CHAT, COMPLETIONS]))
        try:
            return self.read_stream(response)
        finally:
            connection.close()

    def read_stream(self, response):
        assert response.status in (200, 401, 503), response.status
        if response.status != 200:
            assert response.status != 503 or int(response.headers["Retry-After"]) > 0, response.headers
            response.read()
            return response.status
        got = list(events(iter(response.readline, b"")))
        assert got and got[-1] is None, got[-2:]
        assert any(e["choices"] and e["choices"][0]["finish_reason"] == "length" for e in got[:-1]), got[-3:]
        return 200

    def leave_stream(self, rng):
        connection, response = self.open_stream(rng, max_tokens=300)
        for _ in range(rng.randrange(12)):
            response.readline()
        connection.close()
        return f"left, {response.status}"

    def leave_whole(self, rng):
        body = json.dumps(self.body(rng, max_tokens=300)).encode()
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=60) as s:
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer first\r\n"
                      b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            time.sleep(rng.random() * 0.2)
        return "left"

    def embed(self, rng):
        texts = ["ab " * rng.randrange(1, 30) for _ in range(rng.randrange(1, 5))]
        r = self.server.post("/v1/embeddings", {"input": texts}, headers=self.headers(rng))
        assert self.check(r) != 200 or len(r.json()["data"]) == len(texts), r.body[:300]
        return r.status

    def count(self, rng):
        r = self.server.post("/tokenize", {"content": "ab c" * rng.randrange(1, 500)}, headers=self.headers(rng))
        if self.check(r) == 200:
            back = self.server.post("/detokenize", {"tokens": r.json()["tokens"]}, headers=self.headers(rng))
            self.check(back)
        return r.status

    def refuse(self, rng):
        bad = rng.choice([b"{", b'{"prompt":1}', b'{"prompt":"a","n":1000}', b'{"prompt":"a","temperature":"x"}', b"[" * 1000])
        r = self.server.request("POST", COMPLETIONS, bad, {"Authorization": "Bearer first", "Content-Type": "application/json"})
        assert r.status in (400, 503), (bad[:40], r.status)   # a full queue rejects before parsing
        assert r.status == 400 or r.error()["code"] == "server_overloaded", r.body
        r.error()
        return r.status

    def look(self, rng):
        del rng
        assert self.server.request("GET", "/health").status == 200
        m = self.server.metrics()
        assert m["infcgi_kv_pages_used"] <= m["infcgi_kv_pages"], m
        assert self.server.request("GET", "/status?json&full").status == 200
        return 200

    def operate(self, rng):
        """Sends lines to the admin socket; `cancel 0` and unknown commands are rejected."""
        line = rng.choice(("", "--json ")) + rng.choice(ADMIN)
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(60)
            s.connect(self.server.admin)
            s.sendall(line.encode() + b"\n")
            got = b""
            while part := s.recv(65536):
                got += part
        assert got.split(b" ")[0] in (b"ok", b"usage", b"refused"), (line, got[:200])
        time.sleep(0.02)
        return got.split(b" ")[0].decode()

    def reload(self, rng):
        self.write_keys(KEYS[:rng.choice([1, 2])])
        self.write_tenants(rng.randrange(1, 9))
        self.server.engine.send_signal(signal.SIGHUP)
        if self.journal.exists():
            self.journal.rename(self.journal.with_suffix(".1"))
        self.server.engine.send_signal(signal.SIGUSR1)
        time.sleep(0.3)
        return "SIGHUP"

    # --- the run -------------------------------------------------------------------------------------------------------

    def client(self, part, act, number):
        rng = random.Random(f"{self.seed} {part} {number}")
        while time.monotonic() < self.end and part not in self.problems:
            try:
                what = act(rng)
                with self.lock:
                    self.counts[part, what] += 1
                if what in (401, 503):
                    time.sleep(0.05)
            except Exception:  # noqa: BLE001 any is a failure
                with self.lock:
                    self.problems.setdefault(part, traceback.format_exc())

    def parts(self):
        return {"whole": (self.whole, 4), "stream": (self.stream, 6), "leave-stream": (self.leave_stream, 2),
                "leave-whole": (self.leave_whole, 2), "embed": (self.embed, 2), "count": (self.count, 1),
                "refuse": (self.refuse, 1), "look": (self.look, 1), "operate": (self.operate, 2), "reload": (self.reload, 1)}

    def run(self):
        threads = [threading.Thread(target=self.client, args=(part, act, i), daemon=True)
                   for part, (act, n) in self.parts().items() for i in range(n)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(max(0, self.end - time.monotonic()) + 120)
            assert not t.is_alive(), "a client has no answer"

    def idle(self):
        assert self.server.idle(20), self.server.metrics()
        assert until(lambda: self.server.metrics()['infcgi_memory_bytes{purpose="request"}'] < 1 << 20), self.server.metrics()
        m = self.server.metrics()
        self.counts["steps", "overtaking"] = int(m["infcgi_overtaking_steps_total"])

    def drain(self):
        """Streams that run at SIGTERM are answered to their end."""
        rng = random.Random(self.seed)
        self.write_keys(KEYS)
        n = self.server.log().count("api_keys_reloaded")
        self.server.engine.send_signal(signal.SIGHUP)
        assert until(lambda: self.server.log().count("api_keys_reloaded") > n, 30), self.server.log()[-2000:]
        streams = [self.open_stream(rng, max_tokens=250) for _ in range(4)]
        for _, response in streams:
            assert response.status == 200 and response.readline(), response.status
        self.server.engine.terminate()
        for connection, response in streams:
            assert self.read_stream(response) == 200
            connection.close()
        assert self.server.engine.wait(60) == 0, self.server.log()[-6000:]


def soak_of(options, folder):
    """Prints the outcomes; returns how many parts passed and failed."""
    soak = Soak(options, folder)
    steps = {"run": soak.run, "idle": soak.idle, "drain": soak.drain, "end": soak.server.stop}
    for name, step in steps.items():
        try:
            step()
        except Exception:  # noqa: BLE001 the server must end
            soak.problems.setdefault(name, traceback.format_exc())
    for (part, what), n in sorted(soak.counts.items(), key=str):
        print(f"{part:14} {what!s:12} {n}")
    answered = {part for part, what in soak.counts if what not in (401, 503)}
    for part in set(soak.parts()) - answered - set(soak.problems):
        soak.problems[part] = "it never had an answer"
    for part, problem in soak.problems.items():
        print(f"FAIL {part}\n{problem}")
    return len(soak.parts()) + len(steps) - len(soak.problems), len(soak.problems)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", default="tsan")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="infcgi-soak.") as folder:
        passed, failed = soak_of(options, folder)
    print(f"{passed} passed, {failed} failed")
    return 0 if failed == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
