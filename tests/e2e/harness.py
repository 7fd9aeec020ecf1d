"""A real nginx with nginx/infcgi.conf, a real spawn-fcgi and the engine, on a free port, for the end-to-end tests.

Test functions are named test_*, are in *_test.py and take one argument, the Context. The tests of a run share ctx.server; a test that
kills or configures an engine starts its own with ctx.start(). Everything that a test starts ends with the run.
"""
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

ROOT = pathlib.Path(__file__).resolve().parents[2]
SANITIZER_REPORT = re.compile(r"(ERROR|WARNING): \w+Sanitizer|runtime error:")


class Skip(Exception):
    """The test does not apply to this variant."""


# Where `make test` runs a test over HTTP. A test without a mark runs under ASan. A module whose tests share a mark has
# MARK = "release" instead. `make test-long` runs all tests in both builds.
def in_release(test):
    """Marks a test that takes long: it runs in the release build; unit tests run its C code under ASan."""
    test.mark = "release"
    return test


def in_long(test):
    """Marks a test that only `make test-long` runs."""
    test.mark = "long"
    return test


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def until(condition, seconds=10.0, every=0.02):
    """Waits until condition() is true; returns its value, or its last value on timeout."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value or time.monotonic() > end:
            return value
        time.sleep(every)


def tried(act, is_good):
    """Returns act()'s result if it is good, else its last of five results. Five tries because other programs use the machine: a real
    fault fails every time."""
    for _ in range(5):
        value = act()
        if is_good(value):
            break
    return value


def quick(seconds, act):
    """Returns act()'s result from the first try that took less than this many seconds; fails if none did."""
    took = []

    def timed():
        begin = time.monotonic()
        value = act()
        took.append(time.monotonic() - begin)
        return value
    value = tried(timed, lambda _: took[-1] < seconds)
    assert took[-1] < seconds, f"expected less than {seconds} s, found {', '.join(f'{t:.2f}' for t in took)}"
    return value


def with_context(model, n, folder):
    """Copies a GGUF file with a training context of n tokens and returns the copy's path: for agents, whose prompts are long, with a model
    whose answers do not matter."""
    data = bytearray(pathlib.Path(model).read_bytes())
    key = b".context_length"
    at = data.index(key) + len(key) + 4   # after the type
    data[at:at + 4] = n.to_bytes(4, "little")
    (folder / "long.gguf").write_bytes(data)
    return folder / "long.gguf"


# Tokens of the default model that no test uses, and others of the same length that replace them.
FIM_NAMES = {b"<issue_closed>": b"<|fim_prefix|>", b"<empty_output>": b"<|fim_suffix|>", b"<jupyter_text>": b"<|fim_middle|>"}


def with_fim(model, path):
    """Makes a copy of the default model, at `path`, whose vocabulary has the tokens for infill."""
    data = pathlib.Path(model).read_bytes()
    for old, new in FIM_NAMES.items():
        assert data.count(old) == 1, old
        data = data.replace(old, new)
    path.write_bytes(data)
    return path


class Response:
    """Status, headers and body of a request through http.client."""

    def __init__(self, raw):
        self.status = raw.status
        self.headers = raw.headers
        self.body = raw.read()

    def json(self):
        return json.loads(self.body)

    def error(self):
        """Returns the error object; fails if the body is not an error in the API's format."""
        assert self.headers["Content-Type"].startswith("application/json"), self.headers["Content-Type"]
        error = self.json()["error"]
        assert set(error) >= {"message", "type", "param", "code"}, error
        assert isinstance(error["message"], str) and error["message"], error
        return error


def events(lines):
    """Yields the JSON objects of an SSE stream given as lines of bytes; None for [DONE]."""
    for line in lines:
        if line.startswith(b"data: "):
            data = line[6:].strip()
            yield None if data == b"[DONE]" else json.loads(data)


class Server:
    """nginx and the engine in one temporary folder."""

    def __init__(self, variant, model, args=(), wait=True, env=None, prefix=(), program="infcgi"):
        self.binary = ROOT / "build" / variant / program
        self.model = model
        self.args = list(args)
        self.prefix = list(prefix)   # a program that runs the engine: prlimit
        self.env = {**os.environ, **(env or {})}
        self.dir = tempfile.mkdtemp(prefix="infcgi-e2e.")
        self.port = free_port()
        self.base = f"http://127.0.0.1:{self.port}"
        self.log_path = pathlib.Path(self.dir) / "engine.log"
        self.admin = f"{self.dir}/admin.sock"
        self.engine = None
        self.nginx = None
        subprocess.run(["sh", ROOT / "nginx/conf.sh", self.dir, f"127.0.0.1:{self.port}", f"{self.dir}/error.log",
                        f"{self.dir}/access.log"], check=True)
        self.start_engine()
        self.nginx = subprocess.Popen(["nginx", "-p", self.dir, "-c", f"{self.dir}/nginx.conf", "-e",
                                       f"{self.dir}/error.log"], stdin=subprocess.DEVNULL)
        if wait:
            try:
                self.wait_ready()
            except BaseException:
                self.engine.kill()
                self.nginx.terminate()   # a killed nginx leaves its workers
                self.nginx.wait(10)
                raise

    def start_engine(self, held=None):
        """Starts the engine with spawn-fcgi, or on a listening socket that the caller keeps."""
        is_slow = self.binary.parent.name != "release" and self.binary.name == "infcgi"
        no_warmup = ["--no-warmup"] if is_slow else []   # it takes all CPUs for two seconds under a sanitizer
        spawn = ["spawn-fcgi", "-n", "-s", f"{self.dir}/infcgi.sock", "-M", "0660", "--"] if held is None else []
        with open(self.log_path, "ab") as log:
            self.engine = subprocess.Popen(
                [*spawn, *self.prefix, str(self.binary), "serve", "--model", str(self.model), "--admin-socket", self.admin, *no_warmup,
                 *self.args],
                stdin=held or subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=self.env)

    def stop_engine(self):
        self.engine.terminate()
        assert self.engine.wait(40) == 0, self.log()

    def wait_ready(self, seconds=60):
        def ready():
            if self.engine.poll() is not None:
                raise AssertionError(f"the engine ended with {self.engine.returncode}:\n{self.log()}")
            if self.nginx.poll() is not None:
                raise AssertionError(f"nginx ended:\n{(pathlib.Path(self.dir) / 'error.log').read_text()}")
            try:
                return self.request("GET", "/health", timeout=5).status == 200
            except OSError:
                return False
        assert until(ready, seconds), f"not ready after {seconds} s:\n{self.log()}"

    def ctl(self, *words, stdin=None):
        """Runs `infcgi ctl` with these words."""
        return subprocess.run([self.binary, "ctl", "--socket", self.admin, *words], input=stdin, capture_output=True, text=True, timeout=60)

    def ask(self, *words):
        """Returns its answer as JSON."""
        run = self.ctl("--json", *words)
        assert run.returncode == 0, run
        return json.loads(run.stdout)

    def log(self):
        return self.log_path.read_text(errors="replace")

    def stop(self):
        """Stops both; fails if the engine ended badly or a sanitizer reported an error."""
        status = None
        if self.engine.poll() is None:
            self.engine.terminate()
            try:
                status = self.engine.wait(40)
            except subprocess.TimeoutExpired:
                self.engine.kill()
                status = "no end within 40 s of SIGTERM"
        if self.nginx and self.nginx.poll() is None:
            self.nginx.terminate()
            self.nginx.wait(10)
        log = self.log()
        shutil.rmtree(self.dir, ignore_errors=True)
        assert status in (None, 0), f"the engine ended with {status}:\n{log[-3000:]}"
        report = SANITIZER_REPORT.search(log)
        assert not report, log[report.start():report.start() + 6000]

    def request(self, method, path, body=None, headers=None, timeout=60):
        """Sends one request; a body that is not bytes is sent as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        headers = dict(headers or {})
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            headers.setdefault("Content-Type", "application/json")
        try:
            connection.request(method, path, body, headers)
            return Response(connection.getresponse())
        finally:
            connection.close()

    def post(self, path, body, **kw):
        return self.request("POST", path, body, **kw)

    def raw(self, data, timeout=20, is_one=False):
        """Sends bytes unchanged and returns everything until the server closes. is_one: until one answer has arrived, because nginx
        waits five seconds for the rest of a rejected body."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as s:
            s.sendall(data)
            got = b""
            while True:
                head, _, body = got.partition(b"\r\n\r\n")
                length = re.search(rb"\r\nContent-Length: (\d+)", head)
                if is_one and length and len(body) >= int(length[1]):
                    return got
                try:
                    part = s.recv(65536)
                except (ConnectionResetError, socket.timeout):
                    return got
                if not part:
                    return got
                got += part

    def stream(self, path, body, timeout=120):
        """Opens a stream; returns (connection, response). Closing the connection is a disconnect."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        connection.request("POST", path, json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
        return connection, connection.getresponse()

    def metrics(self):
        """Returns all samples of /metrics: {'name{labels}': value}."""
        samples = {}
        for line in self.request("GET", "/metrics").body.decode().splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                samples[name] = float(value)
        return samples

    def cancelled(self):
        """Returns the number of sequences cancelled since the start."""
        return sum(v for k, v in self.metrics().items() if k.startswith("infcgi_cancelled_total"))

    def idle(self, seconds=10.0):
        """Returns True as soon as no sequence runs or waits and none holds a page, which is shortly after the end of the last answer."""
        def is_idle():
            m = self.metrics()
            return m["infcgi_requests_running"] == m["infcgi_requests_waiting"] == m["infcgi_kv_pages_used"] == 0
        return until(is_idle, seconds)

    def client(self, key="none", **kw):
        import openai
        return openai.OpenAI(base_url=f"{self.base}/v1", api_key=key, max_retries=0, timeout=120, **kw)


class Context:
    """The objects for a test. Servers start on first use."""

    # One small configuration for most tests: a context that a test can fill, and a pool for sixteen streams.
    ARGS = ("--threads", "2", "--ctx-size", "2048", "--kv-tokens", "16384")

    def __init__(self, variant, is_long=False):
        self.variant = variant
        self.binary = ROOT / "build" / variant / "infcgi"
        self.is_slow = variant != "release"   # sanitizers: fewer rounds, no figures
        self.has_time = is_long and not self.is_slow   # more rounds of the same kind; not in `make test`
        self.cleanups = []
        self._model = None
        self._server = None
        self._broken = False

    @property
    def model(self):
        """Returns the path of the default model, fetched like `make run` does."""
        if not self._model:
            run = subprocess.run([ROOT / "nginx/fetch-model.sh"], stdout=subprocess.PIPE, text=True, check=True)
            self._model = pathlib.Path(run.stdout.strip())
        return self._model

    @property
    def server(self):
        if self._server and self._server.engine.poll() is not None:
            log = self._server.log()
            self._server = None
            raise AssertionError(f"the engine died during the test before this one:\n{log[-6000:]}")
        if self._broken:
            raise AssertionError("the shared server did not start; see the first failure")
        if not self._server:
            self._broken = True
            self._server = Server(self.variant, self.model, self.ARGS)
            self._broken = False
        return self._server

    def start(self, *args, model=None, wait=True, env=None, prefix=(), program="infcgi"):
        """Starts a server only for this test; it is stopped after the test, and its end is checked."""
        server = Server(self.variant, model or self.model, args or self.ARGS, wait=False, env=env, prefix=prefix, program=program)
        self.cleanups.append(server.stop)
        if wait:
            server.wait_ready()
        return server

    def scripted(self, rules, *args, model=None, log=None):
        """Starts a server only for this test whose answers are those of `rules` (tests/support/scripted_backend.h), with tools.jinja as
        its template."""
        folder = tempfile.mkdtemp(prefix="infcgi-script.")
        self.cleanups.append(lambda: shutil.rmtree(folder))
        script = pathlib.Path(folder) / "script.json"
        script.write_text(json.dumps(rules))
        env = {"INFCGI_SCRIPT": str(script), **({"INFCGI_SCRIPT_LOG": str(log)} if log else {})}
        return self.start(*(args or self.ARGS), "--chat-template", str(ROOT / "tests/e2e/tools.jinja"), model=model, env=env,
                          program="infcgi_scripted")

    def run_sh(self, port, *args, **env):
        """Starts nginx/run.sh like `make run`, with its output to read; it is killed after the test."""
        process = subprocess.Popen(
            ["bash", ROOT / "nginx/run.sh", *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            env={**os.environ, "V": self.variant, "PORT": str(port), "MODEL": str(self.model), **env})

        def end():
            if process.poll() is None:
                process.terminate()
                process.wait(60)
        self.cleanups.append(end)
        return process

    def after_test(self):
        """Stops what the test started, last first; raises the first error after everything is stopped."""
        problem = None
        while self.cleanups:
            try:
                self.cleanups.pop()()
            except Exception as e:  # noqa: BLE001 the others must end too
                problem = problem or e
        if problem:
            raise problem

    def close(self):
        if self._server:
            server, self._server = self._server, None
            server.stop()


def at_once(functions, seconds=300):
    """Runs the functions in threads, returns their results in order; raises the first exception."""
    results = [None] * len(functions)
    problems = []

    def call(i):
        try:
            results[i] = functions[i]()
        except Exception as e:  # noqa: BLE001 raised below
            problems.append(e)
    threads = [threading.Thread(target=call, args=(i,), daemon=True) for i in range(len(functions))]
    for t in threads:
        t.start()
    end = time.monotonic() + seconds
    for t in threads:
        t.join(max(0, end - time.monotonic()))
        assert not t.is_alive(), f"no answer within {seconds} s"
    if problems:
        raise problems[0]
    return results
