"""R11, R12: somebody sets the clock, or stops the process, while requests run. What has a time ends in time, what has none goes on; and
what tells the date tells it."""
import http.client
import json
import os
import pathlib
import signal
import struct
import subprocess
import tempfile
import threading
import time

import harness
import leaving_test
import master_test

URL = "/v1/completions"
HOUR, YEARS = 3600, 10 * 365 * 86400
TENANTS = "[few]\nkey = few\nrequests-per-minute = 2\n[free]\nkey = free\n"


class Clock:
    """A server whose wall clock a test sets (set_clock.c)."""

    def __init__(self, ctx, *args):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="infcgi-clock."))
        library, self.file, self.steady = self.dir / "set_clock.so", self.dir / "seconds", self.dir / "steady"
        subprocess.run(["gcc", "-std=gnu17", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, harness.ROOT / "tests/e2e/set_clock.c", "-ldl"], check=True)
        (self.dir / "tenants").write_text(TENANTS)
        self.set(0)
        self.set(0, self.steady)
        self.server = ctx.start(*ctx.ARGS, "--tenants", str(self.dir / "tenants"), *args, env={
            "LD_PRELOAD": str(library), "SET_CLOCK": str(self.file), "SET_STEADY_CLOCK": str(self.steady), "ASAN_OPTIONS": "verify_asan_link_order=0"})

    def set(self, seconds, file=None):
        fd = os.open(file or self.file, os.O_WRONLY | os.O_CREAT, 0o600)   # nor empty for a moment, which would be 0
        os.pwrite(fd, struct.pack("=q", seconds), 0)
        os.close(fd)

    def jump(self, pause=0.15):
        """An hour and ten years, forward and back; it stays ten years back."""
        for seconds in (HOUR, -HOUR, YEARS, -YEARS):
            time.sleep(pause)
            self.set(seconds)

    def ask(self, key="free", **fields):
        return self.server.post(URL, {"prompt": "Hi", "max_tokens": 2, **fields}, headers={"Authorization": f"Bearer {key}"})


def two_streams(s, meanwhile):
    """One that may take 900 ms and would take many seconds, and one that ends by itself; seconds that the first took."""
    answers, took = {}, {}

    def run(name, max_tokens, **headers):
        connection, begin = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60), time.monotonic()
        connection.request("POST", URL, json.dumps({"prompt": "Once", "max_tokens": max_tokens, "ignore_eos": True, "stream": True}),
                           {"Content-Type": "application/json", "Authorization": "Bearer free", **headers})
        response = connection.getresponse()
        answers[name] = list(harness.events(iter(response.readline, b"")))
        took[name] = time.monotonic() - begin
        connection.close()
    threads = [threading.Thread(target=run, args=("limited", 1900), kwargs={"X-Request-Timeout-Ms": "900"}),
               threading.Thread(target=run, args=("free", 90))]
    for t in threads:
        t.start()
    meanwhile()
    for t in threads:
        t.join()
    assert answers["limited"][-1]["error"]["code"] == "deadline_exceeded", answers["limited"][-1]
    assert answers["free"][-1] is None and answers["free"].count(None) == 1, answers["free"][-1]
    return took["limited"]


@harness.in_release
def test_the_clock_is_set(ctx):
    c = Clock(ctx)
    s = c.server
    created = c.ask().json()["created"]
    assert abs(created - time.time()) < 5
    took = harness.tried(lambda: two_streams(s, c.jump), lambda took: took < 1.9)
    assert 0.8 < took < 0.9 + (5 if ctx.is_slow else 1), took
    assert abs(c.ask().json()["created"] - (time.time() - YEARS)) < 5   # the date that it is told
    up = s.ask("status")["up_s"]
    assert 0 <= up < 120, up
    assert s.request("GET", "/health").status == 200
    # Two a minute: none come back by what the clock says.
    c.set(0)
    assert [c.ask("few").status for _ in range(2)] == [200, 200]
    for seconds in (HOUR, -HOUR, YEARS, -YEARS):
        c.set(seconds)
        r = c.ask("few")
        assert r.status == 429 and 1 <= int(r.headers["Retry-After"]) <= 60, (seconds, r.status, r.headers)

    def stop():
        """It drains no longer than it takes, and might for 30 s."""
        if s.engine.poll() is not None:
            s.start_engine()
            s.wait_ready()
        begin = time.monotonic()
        s.stop_engine()
        return time.monotonic() - begin
    took = harness.tried(stop, lambda took: took < 3)
    assert took < (20 if ctx.is_slow else 3), took


@harness.in_release
def test_the_process_is_stopped(ctx):
    """For longer than a step may take: nothing is stuck, and a time that passed meanwhile is told at once."""
    s = ctx.start(*ctx.ARGS, "--step-limit", "2")

    def stop():
        time.sleep(0.3)
        os.kill(s.engine.pid, signal.SIGSTOP)
        time.sleep(2.5)
        os.kill(s.engine.pid, signal.SIGCONT)
    took = harness.tried(lambda: two_streams(s, stop), lambda took: took < 3.8)
    assert 2.7 < took < 2.8 + (5 if ctx.is_slow else 1), took
    assert s.request("GET", "/health").status == 200 and "step_stuck" not in s.log(), s.log()[-2000:]


@harness.in_release
def test_a_master_is_stopped_with_its_worker(ctx):
    """As a frozen container is. The worker was as silent as its master was deaf; one that is silent alone is replaced."""
    c = Clock(ctx, "--master")
    s, worker = c.server, master_test.worker_of(c.server)
    for pid in (s.engine.pid, worker):
        os.kill(pid, signal.SIGSTOP)
    c.set(60, c.steady)
    os.kill(s.engine.pid, signal.SIGCONT)
    time.sleep(1.5)   # it looks at the time before the worker can say anything
    os.kill(worker, signal.SIGCONT)
    assert c.ask().status == 200 and master_test.worker_of(s) == worker and "worker_killed" not in s.log(), s.log()[-2000:]
    os.kill(s.engine.pid, signal.SIGSTOP)   # alone, and its worker goes on telling
    c.set(120, c.steady)
    time.sleep(1.5)
    os.kill(s.engine.pid, signal.SIGCONT)
    time.sleep(0.5)
    assert c.ask().status == 200 and master_test.worker_of(s) == worker and "worker_killed" not in s.log(), s.log()[-2000:]
    os.kill(worker, signal.SIGSTOP)
    for seconds in range(121, 150):
        c.set(seconds, c.steady)
        os.kill(s.engine.pid, signal.SIGCHLD)   # it looks at the time
        time.sleep(0.1)
    assert harness.until(lambda: c.ask().status == 200, 20) and master_test.worker_of(s) != worker
    assert 'reason="it no longer responds"' in s.log(), s.log()[-2000:]


@harness.in_long
def test_a_reader_that_takes_next_to_nothing_is_dropped(ctx):
    """D04: a hundred bytes a second, and nothing at all, for half a minute. What they held is free, they are told, and others saw nothing of it."""
    c = Clock(ctx)
    s = c.server
    data = json.dumps({"prompt": "Once", "max_tokens": 1900, "ignore_eos": True, "stream": True, "logprobs": 5}).encode()
    request = leaving_test.head_of("direct", len(data), HTTP_AUTHORIZATION="Bearer free") + leaving_test.body_of("direct", data)
    slow = [leaving_test.connect(s, "direct") for _ in range(2)]
    for reader in slow:
        reader.sendall(request)

    def have_stopped():   # for good: a ring may be full for a moment because the thread that empties it has no CPU
        before = s.metrics()
        time.sleep(1)
        m = s.metrics()
        return m['infcgi_sequences_waiting{reason="reader"}'] == 2 and m["infcgi_generated_tokens_total"] == before["infcgi_generated_tokens_total"]
    assert harness.until(have_stopped, 60), s.metrics()
    expected = c.ask(max_tokens=24, temperature=0).json()["choices"]
    for seconds in range(1, 20, 3):   # and what passes of itself
        c.set(seconds, c.steady)
        slow[0].recv(400)
        assert s.metrics()["infcgi_requests_running"] == 2
    c.set(31, c.steady)
    assert s.idle(), s.metrics()
    assert c.ask(max_tokens=24, temperature=0).json()["choices"] == expected
    for reader in slow:
        got = b""
        while part := reader.recv(65536):
            got += part
        assert b"slow_reader" in got and b"[DONE]" not in got, got[-400:]
        reader.close()


@harness.in_release
def test_the_machine_is_busy(ctx):
    """R12: eight others want its CPUs all the time. Who is slow is not taken for stuck, and times are kept as well as they can be."""
    s = ctx.start(*ctx.ARGS, "--master", "--step-limit", "5")
    worker = master_test.worker_of(s)
    hogs = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(8)]
    try:
        begin = time.monotonic()
        while time.monotonic() - begin < 6:
            r = s.post(URL, {"prompt": "Hi", "max_tokens": 8, "ignore_eos": True})
            assert r.status == 200, r.body
            r = s.post(URL, {"prompt": "Hi", "max_tokens": 1900, "ignore_eos": True}, headers={"X-Request-Timeout-Ms": "500"})
            assert r.status == 504 and r.error()["code"] == "deadline_exceeded", r.body
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    assert master_test.worker_of(s) == worker and not any(w in s.log() for w in ("worker_killed", "step_stuck")), s.log()[-2000:]
    assert s.request("GET", "/health").status == 200 and s.idle()
