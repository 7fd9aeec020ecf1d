"""`serve --master`: workers that die, hang and are replaced under load, messages to the service manager, and which processes end
together."""
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

import harness

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
TINY = harness.ROOT / "tests/golden/models/llama-biases.gguf"
SMALL = ("--threads", "2", "--ctx-size", "1024", "--kv-tokens", "4096")


def workers_of(master):
    """Returns the pids of a master's workers."""
    found = []
    for p in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            name, rest = (p / "stat").read_text().rsplit(")", 1)
            if int(rest.split()[1]) == master and rest.split()[0] != "Z":
                found.append(int(p.name))
        except OSError:
            pass
    return found


def worker_of(s):
    """Returns the pid of the only worker."""
    found = harness.until(lambda: len(w := workers_of(s.engine.pid)) == 1 and w, 30)
    assert found, f"expected one worker, found {workers_of(s.engine.pid)}:\n{s.log()[-3000:]}"
    return found[0]


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Load:
    """Clients that repeat one request, and the outcome of each: "good" (the whole text and [DONE]), "cut" (no [DONE]), a status, or
    "false" (a [DONE] after another text)."""

    def __init__(self, s, clients=2, tokens=12, pause=0.02):
        self.s = s
        self.body = {"prompt": "Once upon a time", "max_tokens": tokens, "ignore_eos": True, "temperature": 0, "stream": True}
        self.pause = pause
        self.is_over = threading.Event()
        self.lock = threading.Lock()
        self.counts = {}
        self.text = None
        self.text = self.ask()[1]
        assert self.text
        self.threads = [threading.Thread(target=self.go_on, daemon=True) for _ in range(clients)]
        for t in self.threads:
            t.start()

    def ask(self, on_first=lambda: None):
        text = []
        try:
            connection, response = self.s.stream(COMPLETIONS, self.body, timeout=60)
            if response.status != 200:
                response.read()
                return str(response.status), None
            for event in harness.events(iter(response.readline, b"")):
                if event is None:
                    whole = "".join(text)
                    return ("good" if self.text in (None, whole) else "false"), whole
                if "error" in event:
                    return "error", None
                if event["choices"][0]["text"]:
                    on_first()
                    text.append(event["choices"][0]["text"])
            return "cut", None
        except (http.client.HTTPException, OSError):
            return "cut", None
        finally:
            try:
                connection.close()
            except UnboundLocalError:
                pass

    def go_on(self):
        while not self.is_over.is_set():
            how, _ = self.ask()
            with self.lock:
                self.counts[how] = self.counts.get(how, 0) + 1
            time.sleep(self.pause)   # the tests share their machine

    def good(self):
        with self.lock:
            return self.counts.get("good", 0)

    def wait_for(self, n):
        """Waits until n more requests succeed."""
        wanted = self.good() + n
        assert harness.until(lambda: self.good() >= wanted, 60), f"{self.counts}\n{self.s.log()[-3000:]}"

    def end(self):
        self.is_over.set()
        for t in self.threads:
            t.join(70)
            assert not t.is_alive()
        return self.counts


def knock(s, is_over, refused):
    """Connects repeatedly, like nginx; records refused connections."""
    while not is_over.is_set():
        with socket.socket(socket.AF_UNIX) as c:
            try:
                c.connect(f"{s.dir}/infcgi.sock")
            except OSError as e:
                refused.append(e)
        time.sleep(0.01)


@harness.in_long
def test_a_killed_worker_is_replaced(ctx):
    """kill -9 under load, eight times: no connection is refused, no cut stream looks complete, and the next request is answered; 503 if
    a model takes longer to load than the requests wait."""
    s = ctx.start("--master", *SMALL)
    load, refused, is_over = Load(s), [], threading.Event()
    door = threading.Thread(target=knock, args=(s, is_over, refused), daemon=True)
    door.start()
    seconds = []
    for _ in range(2 if ctx.is_slow else 8):
        load.wait_for(2)
        worker, first = worker_of(s), []
        os.kill(worker, signal.SIGKILL)
        start = time.monotonic()
        while not first:   # a request that was running when it died gets an error, and is repeated
            load.ask(lambda: first.append(time.monotonic() - start))
            assert time.monotonic() - start < 60, s.log()[-3000:]
        seconds.append(first[0])
        assert worker_of(s) != worker
    is_over.set()
    door.join(10)
    counts = load.end()
    print(f"     from kill -9 to the first good token: {', '.join(f'{t:.2f}' for t in seconds)} s; requests {counts}")
    assert not refused, refused[:3]
    assert set(counts) <= {"good", "cut", "error", "502", "503"} and counts["good"] >= 4, counts
    assert s.log().count("worker_died") == len(seconds), s.log()
    pauses = [int(ms) for ms in re.findall(r" worker_died .* restart_in_ms=(\d+)", s.log())]
    assert len(pauses) == len(seconds) and max(pauses) <= 400, pauses   # the eighth would wait 3.2 s if it had never served


def test_a_killed_master_takes_its_worker_along(ctx):
    s = ctx.start("--master", "--threads", "1", model=TINY)
    worker = worker_of(s)
    s.engine.kill()
    s.engine.wait()
    assert harness.until(lambda: not is_alive(worker), 5), "the worker outlived its master"


def configured(ctx, folder, *args, **options):
    """Starts a master with its options in a file; returns it and a function that rewrites them."""
    path = pathlib.Path(folder) / "infcgi.conf"

    def write(**more):
        path.write_text("".join(f"{k.replace('_', '-')} = {v}\n" for k, v in {**options, **more}.items()))
    write()
    model = options.pop("model", ctx.model)
    options["model"] = model

    class Configured(harness.Server):
        def start_engine(self, held=None):
            spawn = ["spawn-fcgi", "-n", "-s", f"{self.dir}/infcgi.sock", "-M", "0660", "--"]
            with open(self.log_path, "ab") as log:
                self.engine = subprocess.Popen([*spawn, str(self.binary), "serve", "--master", "--config", str(path), *self.args],
                                               stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    write()
    s = Configured(ctx.variant, model, args, wait=False)
    ctx.cleanups.append(s.stop)
    s.wait_ready()
    return s, write


def names(s):
    return [m["id"] for m in s.request("GET", "/v1/models").json()["data"]]


def test_reloads_under_load_fail_no_request(ctx):
    """SIGUSR2: good options take effect, bad ones keep the old worker."""
    with tempfile.TemporaryDirectory() as folder:
        cut = pathlib.Path(folder) / "cut.gguf"
        cut.write_bytes(TINY.read_bytes()[:-1000])
        s, write = configured(ctx, folder, model=TINY, alias="name0", threads=1)
        load = Load(s, clients=3)
        bad = [({"model": "/nowhere/model.gguf"}, "status=65"), ({"model": cut}, "status=65"), ({"threads": "many"}, "status=64"),
               ({"api-key-file": "/nowhere/keys"}, "status=78"), ({"memory-limit": 1}, "status=65")]
        for i, (options, status) in enumerate(bad):
            worker = worker_of(s)
            write(alias=f"name{i + 1}")
            s.engine.send_signal(signal.SIGUSR2)
            assert harness.until(lambda: names(s) == [f"name{i + 1}"], 60), s.log()[-3000:]
            assert worker_of(s) != worker
            worker, n = worker_of(s), s.log().count("reload_failed")
            write(alias="never", **options)
            s.engine.send_signal(signal.SIGUSR2)
            assert harness.until(lambda: s.log().count("reload_failed") == n + 1, 60), s.log()[-3000:]
            line = [x for x in s.log().splitlines() if "reload_failed" in x][-1]
            assert status in line and f"kept={worker}" in line, line
            assert names(s) == [f"name{i + 1}"] and workers_of(s.engine.pid) == [worker]
            load.wait_for(2)
        counts = load.end()
        print(f"     {counts}")
        assert set(counts) == {"good"}, counts


@harness.in_release
def test_a_stream_outlives_a_reload(ctx):
    """A running stream ends as it began, while the next worker answers already; reloads requested during this follow it."""
    with tempfile.TemporaryDirectory() as folder:
        s, write = configured(ctx, folder, alias="old", threads=1, ctx_size=1024, kv_tokens=2048, admin_socket=f"{folder}/admin")

        def ctl(*words):
            run = subprocess.run([s.binary, "ctl", "--socket", f"{folder}/admin", "--json", *words], capture_output=True, text=True, timeout=30)
            return json.loads(run.stdout) if run.returncode == 0 else {}
        old = worker_of(s)
        n = 60 if ctx.is_slow else 200
        connection, response = s.stream(CHAT, {"messages": [{"role": "user", "content": "Count."}], "max_tokens": n, "ignore_eos": True})
        response.readline()
        write(alias="new")
        assert "model" in ctl("reload")["reloads"]
        assert harness.until(lambda: names(s) == ["new"], 60), s.log()[-3000:]
        write(alias="newer")
        s.engine.send_signal(signal.SIGUSR2)
        got = list(harness.events(iter(response.readline, b"")))
        assert got[-1] is None and got[-2]["timings"]["predicted_n"] == n and {e["model"] for e in got[:-1]} == {"old"}, got[-2:]
        connection.close()
        assert harness.until(lambda: names(s) == ["newer"], 60), s.log()[-3000:]
        assert not is_alive(old) and harness.until(lambda: s.log().count("worker_took_over") == 2), s.log()[-3000:]
        assert harness.until(lambda: ctl("model").get("id") == "newer", 10), ctl("model")   # and has the admin socket


def test_a_second_model_needs_room(ctx):
    """Models that do not fit together are rejected, and the old one continues to serve."""
    free = {k: int(v) * 1024 for k, v in re.findall(r"(\w+):\s+(\d+) kB", pathlib.Path("/proc/meminfo").read_text())}
    with tempfile.TemporaryDirectory() as folder:
        s, write = configured(ctx, folder, alias="small", threads=1, model=TINY, ctx_size=512, kv_tokens=8192)
        per_token = s.request("GET", "/health").json()["kv_bytes"] / 8192
        between = (free["MemAvailable"] + free["MemTotal"]) // 2   # less than the machine has, more than is free
        if free["MemTotal"] - free["MemAvailable"] < 2**29 or between / per_token > 2**29:
            raise harness.Skip("too much of this machine's memory is free")
        write(kv_tokens=int(between / per_token))
        s.engine.send_signal(signal.SIGUSR2)
        assert harness.until(lambda: "reload_failed" in s.log(), 30), s.log()
        line = [x for x in s.log().splitlines() if "reload_failed" in x][-1]
        assert "two models do not fit together" in line and "status=65" in line, line
        assert s.post(COMPLETIONS, {"prompt": [1, 2, 3], "max_tokens": 2}).status == 200


def test_sighup_under_load(ctx):
    with tempfile.TemporaryDirectory() as folder:
        keys = pathlib.Path(folder) / "keys"
        keys.write_text("first\n")
        options = pathlib.Path(folder) / "infcgi.conf"
        options.write_text("threads = 1\n")
        s = ctx.start("--master", "--config", str(options), "--api-key-file", str(keys), model=TINY)
        worker = worker_of(s)
        failed, is_over = [], threading.Event()

        def ask(key):
            return s.post(COMPLETIONS, {"prompt": [1, 2, 3], "max_tokens": 8}, headers={"Authorization": f"Bearer {key}"}).status

        def go_on():
            while not is_over.is_set():
                failed.extend(status for status in [ask("first")] if status != 200)
        client = threading.Thread(target=go_on, daemon=True)
        client.start()
        assert ask("second") == 401
        keys.write_text("first\nsecond\n")
        for i in range(5):
            s.engine.send_signal(signal.SIGHUP)
            assert harness.until(lambda: s.log().count("api_keys_reloaded") == i + 1, 10), s.log()
        assert ask("second") == 200
        keys.write_text("no key\n")   # a file with an error: the old keys stay
        s.engine.send_signal(signal.SIGHUP)
        assert harness.until(lambda: "api_keys_kept" in s.log(), 10), s.log()
        assert ask("second") == 200
        assert ask("first") == 200
        options.write_text("body-limit = 1\nthreads = 7\n")   # one option that changes live, and one that does not
        s.engine.send_signal(signal.SIGHUP)
        assert harness.until(lambda: "options_reloaded changed=1" in s.log(), 10), s.log()
        assert harness.until(lambda: re.search(r'warn options_wait names="threads"', s.log())), s.log()
        long = s.post(COMPLETIONS, {"prompt": [1] * 600, "max_tokens": 1}, headers={"Authorization": "Bearer first"})
        assert long.status == 413 and "1024 bytes" in long.error()["message"], long.body
        options.write_text("body-limit = none\n")
        s.engine.send_signal(signal.SIGHUP)
        assert harness.until(lambda: "options_kept reason=" in s.log(), 10), s.log()
        is_over.set()
        client.join(30)
        assert not failed and worker_of(s) == worker, failed


HANG = {"INFCGI_FAULT": "hang@30"}
HANG_ARGS = ("--threads", "1", "--step-limit", "2")


def hang(s):
    """Sends requests until the step that never ends."""
    for _ in range(40):
        try:
            s.request("POST", COMPLETIONS, {"prompt": [1, 2, 3], "max_tokens": 4, "ignore_eos": True}, timeout=1)
        except OSError:
            if harness.until(lambda: "step_stuck" in s.log(), 20):
                return
    raise AssertionError("no step hung")


def test_a_stuck_step_is_told(ctx):
    """Without a master: the log says where, /health is 503, and the service manager gets no more watchdog messages."""
    with listening() as manager:
        s = ctx.start(*HANG_ARGS, model=TINY, env={**HANG, **manager.env}, program="infcgi_faulty")
        ctx.cleanups.insert(-1, s.engine.kill)   # nothing else ends a scheduler that hangs
        hang(s)
        assert harness.until(lambda: s.request("GET", "/health").status == 503, 20), s.log()
        assert s.request("GET", "/health").json()["status"] == "stuck"
        line = [x for x in s.log().splitlines() if "step_stuck" in x]
        assert len(line) == 1 and " at=backend " in line[0] and " limit_ms=2000 " in line[0], line
        manager.drain()
        time.sleep(2.5)
        assert not [m for m in manager.drain() if "WATCHDOG=1" in m], "a stuck scheduler fed the watchdog"
        s.engine.kill()
        s.engine.wait()


def test_a_stuck_worker_is_replaced(ctx):
    s = ctx.start("--master", *HANG_ARGS, model=TINY, env=HANG, program="infcgi_faulty")
    worker = worker_of(s)
    body = {"prompt": [1, 2, 3], "max_tokens": 400, "ignore_eos": True}
    connection, response = s.stream(COMPLETIONS, body)   # the step that never ends is one of its own
    whole = s.post(COMPLETIONS, body)
    assert whole.status == 502 and whole.error()["code"] == "engine_unavailable" and int(whole.headers["Retry-After"]) >= 1, (whole.status, whole.body)
    try:   # it did not receive the end of an answer
        assert None not in list(harness.events(iter(response.readline, b"")))
    except (http.client.HTTPException, OSError):
        pass
    connection.close()
    assert harness.until(lambda: not is_alive(worker), 20), s.log()
    assert s.post(COMPLETIONS, {"prompt": [1, 2, 3], "max_tokens": 2}).status == 200
    log = s.log()
    told = [log.index("step_stuck at=backend"), log.index(f"worker_killed pid={worker}")]   # by two processes
    assert max(told) < log.index("worker_died"), log


class listening:
    """A service manager's socket."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(f"{self.folder.name}/notify")
        self.env = {"NOTIFY_SOCKET": f"{self.folder.name}/notify", "WATCHDOG_USEC": "900000"}
        self.said = []
        self.n_seen = 0   # of them, by wait_for
        return self

    def __exit__(self, *_):
        self.socket.close()
        self.folder.cleanup()

    def drain(self):
        """Reads the messages since the last call."""
        n = len(self.said)
        self.socket.setblocking(False)
        try:
            while True:
                self.said.append(self.socket.recv(4096).decode())
        except BlockingIOError:
            return self.said[n:]

    def wait_for(self, text, seconds=30):
        """Waits for a message with the text, after that of the previous call."""
        def has_come():
            self.drain()
            return next((i + 1 for i in range(self.n_seen, len(self.said)) if text in self.said[i]), 0)
        n = harness.until(has_come, seconds)
        assert n, (text, self.n_seen, self.said)
        self.n_seen = n


def test_what_the_service_manager_is_told(ctx):
    """The order of sd_notify's messages, with and without a master."""
    for master in ((), ("--master",)):
        with listening() as manager:
            s = ctx.start(*master, "--threads", "1", model=TINY, env=manager.env)
            manager.wait_for("READY=1")
            first = list(manager.said)
            assert re.match(rf"(EXTEND_TIMEOUT_USEC=\d+\n)STATUS=loading {re.escape(str(TINY))}: 0 %$", next(m for m in first if "STATUS" in m)), first
            ready = next(i for i, m in enumerate(first) if m.startswith("READY=1"))
            assert "STATUS=serving llama-biases" in first[ready] and any("STATUS=loading" in m for m in first[:ready]), first
            manager.wait_for("WATCHDOG=1")
            manager.wait_for("WATCHDOG=1")
            s.engine.send_signal(signal.SIGHUP)
            manager.wait_for("RELOADING=1\nMONOTONIC_USEC=")
            manager.wait_for("READY=1")
            if master:
                s.engine.send_signal(signal.SIGUSR2)
                manager.wait_for("STATUS=reload: loading")
                manager.wait_for("READY=1")
                said = "\n".join(manager.said)
                assert said.index("RELOADING=1") < said.rindex("STATUS=reload: loading") < said.rindex("READY=1"), said
            manager.drain()
            s.stop_engine()
            manager.drain()
            assert [m for m in manager.said if m.startswith("STOPPING=1")], manager.said
            assert not [m for m in manager.said[next(i for i, m in enumerate(manager.said) if m.startswith("STOPPING=1")):] if "READY" in m]


def test_a_first_start_that_fails_ends_the_master(ctx):
    """With the status and the error line of the worker, as without a master."""
    folder = ctx.server.dir

    def fails(*args):
        start = time.monotonic()
        run = subprocess.run([ctx.binary, "serve", "--master", "--socket", f"{folder}/first.sock", *args], stdin=subprocess.DEVNULL,
                             capture_output=True, text=True, timeout=60)
        lines = [x for x in run.stderr.splitlines() if x.startswith("error: ")]
        assert len(lines) == 1 and time.monotonic() - start < 30, run.stderr
        assert not os.path.exists(f"{folder}/first.sock")
        return run.returncode
    assert fails("--model", "/nowhere/model.gguf") == 65
    assert fails("--model", str(harness.ROOT / "README.md")) == 65
    assert fails("--model", str(ctx.model), "--threads", "many") == 64
    assert fails("--model", str(ctx.model), "--api-key-file", "/nowhere/keys") == 78
    assert fails("--model", str(ctx.model), "--memory-limit", "1") == 65
    run = subprocess.run([ctx.binary, "serve", "--master", "--model", str(ctx.model), "--socket", f"{folder}/infcgi.sock"],
                         stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
    assert run.returncode == 78 and "another process listens" in run.stderr, run   # the shared engine's
    lone = subprocess.run([ctx.binary, "serve", "--model", str(ctx.model)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=30, env={**os.environ, "INFCGI_WORKER": "first"})
    assert lone.returncode == 64 and "INFCGI_WORKER" in lone.stderr, lone


@harness.in_release
def test_a_master_drains_and_a_second_signal_cuts_it_short(ctx):
    for how in ("drain", "cut", "close"):
        s = ctx.start("--master", *SMALL, *(["--drain-close"] if how == "close" else []))
        worker = worker_of(s)
        connection, response = s.stream(CHAT, {"messages": [{"role": "user", "content": "Count."}], "max_tokens": 40 if how == "close" else 900 if how == "cut" else 150 if ctx.is_slow else 300,
                                               "ignore_eos": True})
        response.readline()
        s.engine.terminate()
        os.kill(worker, signal.SIGTERM)   # like a service manager that signals all: not a second request
        assert harness.until(lambda: " draining " in s.log(), 10)
        if how == "close":
            assert harness.until(lambda: s.request("GET", "/health").status == 502, 10)
        else:
            late = s.post(CHAT, {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2})
            assert late.status == 503 and late.error()["code"] == "draining", (late.status, late.body)
        if how == "cut":
            time.sleep(1.1)
            s.engine.terminate()
            assert s.engine.wait(5) == 0 and "drain_cut_short" in s.log(), s.log()
        else:
            assert list(harness.events(iter(response.readline, b"")))[-1] is None
            assert s.engine.wait(20) == 0
        connection.close()
        assert not is_alive(worker)


def test_a_model_that_is_gone_is_told(ctx):
    """R10: the model's file is truncated, and its worker dies. Requests are told that there is no model, and are answered once there is
    one again."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="infcgi-gone."))
    ctx.cleanups.append(lambda: shutil.rmtree(folder))
    path, body = folder / "model.gguf", {"prompt": "a text", "max_tokens": 4, "ignore_eos": True, "temperature": 0}
    path.write_bytes(TINY.read_bytes())
    s = ctx.start("--threads", "1", "--master", model=path)
    expected = s.post(COMPLETIONS, body).json()["choices"]
    worker = worker_of(s)
    os.truncate(path, 0)
    r = s.post(COMPLETIONS, body, timeout=20)
    assert (r.status, r.error()["code"]) in ((500, "io_error"), (502, "engine_unavailable")), r.body
    if r.status == 500:   # it did not need the missing part
        os.kill(worker, signal.SIGKILL)
    codes = []   # of a worker that still tries: model_loading

    def is_told():
        r = s.post(COMPLETIONS, body, timeout=20)
        codes.append((r.status, r.error()["code"]))
        return codes[-1] == (503, "model_unavailable") and r
    r = harness.until(is_told, 20)
    assert r and int(r.headers["Retry-After"]) >= 1, (codes, s.log()[-2000:])
    assert set(codes) <= {(502, "engine_unavailable"), (503, "model_loading"), (503, "model_unavailable")}, codes
    health = s.request("GET", "/health")
    assert health.status == 503 and health.json()["status"] == "failed" and s.ask("status")["state"] == "failed", health.body
    assert s.request("GET", "/v1/models").status in (200, 503) and s.request("GET", "/metrics").status == 200
    s.engine.send_signal(signal.SIGUSR2)   # still bad
    assert harness.until(lambda: "reload_failed" in s.log(), 20), s.log()[-2000:]
    assert s.post(COMPLETIONS, body).error()["code"] == "model_unavailable"
    path.write_bytes(TINY.read_bytes())
    run = s.ctl("reload")   # the master without a model answers there, too
    assert run.returncode == 0, run
    assert harness.until(lambda: s.post(COMPLETIONS, body).status == 200, 20), s.log()[-2000:]
    assert s.post(COMPLETIONS, body).json()["choices"] == expected and s.request("GET", "/health").status == 200
