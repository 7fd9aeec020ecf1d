"""R11, R12: the clock is set, or the process is stopped, while requests run. Requests with a deadline end in time, others continue, and
dates follow the clock."""
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
        fd = os.open(file or self.file, os.O_WRONLY | os.O_CREAT, 0o600)   # never empty for a moment, which would mean 0
        os.pwrite(fd, struct.pack("=q", seconds), 0)
        os.close(fd)

    def jump(self, pause=0.15):
        """Jumps by an hour and ten years, forward and back; stays ten years back."""
        for seconds in (HOUR, -HOUR, YEARS, -YEARS):
            time.sleep(pause)
            self.set(seconds)

    def ask(self, key="free", **fields):
        return self.server.post(URL, {"prompt": "Hi", "max_tokens": 2, **fields}, headers={"Authorization": f"Bearer {key}"})


def two_streams(s, meanwhile):
    """Runs a stream with a deadline of 900 ms that would take many seconds, and one that ends normally; returns the seconds that the
    first took."""
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
    assert abs(c.ask().json()["created"] - (time.time() - YEARS)) < 5   # the date from the clock
    up = s.ask("status")["up_s"]
    assert 0 <= up < 120, up
    assert s.request("GET", "/health").status == 200
    # Two per minute: the clock does not renew them.
    c.set(0)
    assert [c.ask("few").status for _ in range(2)] == [200, 200]
    for seconds in (HOUR, -HOUR, YEARS, -YEARS):
        c.set(seconds)
        r = c.ask("few")
        assert r.status == 429 and 1 <= int(r.headers["Retry-After"]) <= 60, (seconds, r.status, r.headers)

    def stop():
        """Checks that draining takes no longer than it needs, although it could take 30 s."""
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
    """Stopped for longer than the step limit: nothing is reported as stuck, and a deadline that expired during the stop takes effect
    immediately."""
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
    """Like a frozen container. The master does not replace a worker that was silent while it was stopped itself, but one that is silent
    while it runs."""
    c = Clock(ctx, "--master")
    s, worker = c.server, master_test.worker_of(c.server)
    for pid in (s.engine.pid, worker):
        os.kill(pid, signal.SIGSTOP)
    c.set(60, c.steady)
    os.kill(s.engine.pid, signal.SIGCONT)
    time.sleep(1.5)   # it checks the time before the worker can report
    os.kill(worker, signal.SIGCONT)
    assert c.ask().status == 200 and master_test.worker_of(s) == worker and "worker_killed" not in s.log(), s.log()[-2000:]
    os.kill(s.engine.pid, signal.SIGSTOP)   # only the master, while its worker continues to report
    c.set(120, c.steady)
    time.sleep(1.5)
    os.kill(s.engine.pid, signal.SIGCONT)
    time.sleep(0.5)
    assert c.ask().status == 200 and master_test.worker_of(s) == worker and "worker_killed" not in s.log(), s.log()[-2000:]
    os.kill(worker, signal.SIGSTOP)
    for seconds in range(121, 150):
        c.set(seconds, c.steady)
        os.kill(s.engine.pid, signal.SIGCHLD)   # makes it check the time
        time.sleep(0.1)
    assert harness.until(lambda: c.ask().status == 200, 20) and master_test.worker_of(s) != worker
    assert 'reason="it no longer responds"' in s.log(), s.log()[-2000:]


@harness.in_long
def test_a_reader_that_takes_next_to_nothing_is_dropped(ctx):
    """D04: clients that read a hundred bytes per second, or nothing, for half a minute. They are told, their resources are freed, and
    other clients are not affected."""
    c = Clock(ctx)
    s = c.server
    data = json.dumps({"prompt": "Once", "max_tokens": 1900, "ignore_eos": True, "stream": True, "logprobs": 5}).encode()
    request = leaving_test.head_of("direct", len(data), HTTP_AUTHORIZATION="Bearer free") + leaving_test.body_of("direct", data)
    slow = [leaving_test.connect(s, "direct") for _ in range(2)]
    begin = time.monotonic()
    for reader in slow:
        reader.sendall(request)

    def have_stopped():   # permanently: a ring can be full for a moment because the thread that empties it has no CPU
        before = s.metrics()
        time.sleep(1)
        m = s.metrics()
        return m['infcgi_sequences_waiting{reason="reader"}'] == 2 and m["infcgi_generated_tokens_total"] == before["infcgi_generated_tokens_total"]
    assert harness.until(have_stopped, 60), s.metrics()
    expected = c.ask(max_tokens=24, temperature=0).json()["choices"]
    for seconds in range(1, 20, 3):   # in addition to real time, which is much on a busy machine
        c.set(seconds, c.steady)
        slow[0].recv(400)
        m = s.metrics()
        assert m["infcgi_requests_running"] == 2 or time.monotonic() - begin + seconds >= 30, m
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
    """R12: eight other threads use its CPUs all the time. Slow threads are not reported as stuck, and deadlines are kept as well as
    possible."""
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
