"""A pytest plugin that runs llama.cpp's own server tests against infcgi behind nginx: their ServerProcess starts our stack, its
options translated, on the default model in place of theirs. peer_tests.py runs it."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import sys
import tempfile
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))
import harness  # noqa: E402


def fetch_nothing(url, out=None):
    raise RuntimeError(f"not fetched: {url}")


# Two packages that the tests' helpers import: of the one only a lock around their downloads is used, of the other a download.
sys.modules["filelock"] = types.SimpleNamespace(FileLock=contextlib.nullcontext)
sys.modules["wget"] = types.SimpleNamespace(download=fetch_nothing)

FREE_PORT = harness.free_port
CACHE = os.environ["PEER_TESTS_CACHE"]   # packed weights: a start of the engine takes a tenth of the time
RANK_CONTEXT = 2048


def with_context(model, family, n):
    """A copy of a GGUF file whose context has n tokens: its vocabulary has little more than bytes."""
    copy = pathlib.Path(CACHE) / f"context-{n}-{model.name}"
    data, key = bytearray(model.read_bytes()), f"{family}.context_length".encode()
    at = data.index(key) + len(key) + 4   # after the value's type
    data[at:at + 4] = n.to_bytes(4, "little")
    copy.write_bytes(data)
    return copy


def model_of(server):
    """The default model; for infill a copy whose vocabulary has tokens for that; for ranking a tiny model with random weights."""
    model = pathlib.Path(os.environ["PEER_TESTS_MODEL"])
    if server.server_reranking:
        return with_context(ROOT / "tests/golden/rank/qwen3-yes.gguf", "qwen3", RANK_CONTEXT)
    if server.model_alias != "tinyllama-infill":
        return model
    infill = pathlib.Path(CACHE) / "infill.gguf"
    if not infill.exists():
        harness.with_fim(model, infill)
    return infill


def options(server, folder):
    """The options of `infcgi serve` for what a test set."""
    slots = server.n_slots or 1
    context = (server.n_ctx or 4096) if server.kv_unified else (server.n_ctx or 4096 * slots) // slots
    context = RANK_CONTEXT if server.server_reranking else context
    args = ["--threads", "2", "--any-model", "--pack-cache", CACHE, "--ctx-size", context, "--kv-tokens", max(context * slots, 512),
            "--parallel", slots]
    template = server.chat_template
    if template and not re.fullmatch(r"[a-z0-9.-]+", template):   # not a name
        template = folder / "template.jinja"
        template.write_text(server.chat_template)
    if server.chat_template_file:
        template = (pathlib.Path.cwd() / server.chat_template_file).resolve()
    pairs = {"--seed": server.seed, "--alias": server.model_alias, "--tags": server.model_tags, "--temp": server.temperature, "--n-predict": server.n_predict,
             "--batch-size": server.n_batch, "--pooling": server.pooling or ("mean" if server.server_embeddings else None),
             "--chat-template": template, "--reasoning": server.reasoning, "--reasoning-format": server.reasoning_format}
    for name, value in pairs.items():
        if value is not None:
            args += [name, value]
    args += ["--metrics"] if server.server_metrics else ["--no-metrics"]
    args += [] if server.server_slots else ["--no-slots"]
    if server.slot_save_path:
        pathlib.Path(server.slot_save_path).chmod(0o700)   # it is to be of the engine's user alone
        args += ["--slot-save-path", server.slot_save_path]
    if server.api_key:
        keys = folder / "keys"
        keys.write_text(server.api_key + "\n")
        args += ["--api-key-file", keys]
    return [str(a) for a in args]


class Process:
    """What tests look at of the process."""

    def __init__(self, stack):
        self.stack = stack
        self.pid = stack.engine.pid

    def poll(self):
        return self.stack.engine.poll()


def start(self, timeout_seconds=60):
    import utils
    folder = pathlib.Path(tempfile.mkdtemp(prefix="infcgi-peer."))
    self._folder = folder
    self._stack = None
    args = options(self, folder)
    print("adapter: infcgi serve", *args)
    if getattr(self, "_port", None):   # a second start is where the first was
        harness.free_port = lambda: self._port
    self._stack = harness.Server(os.environ["PEER_TESTS_VARIANT"], model_of(self), args, wait=False)
    utils.server_instances.add(self)
    self._stack.wait_ready(timeout_seconds)
    harness.free_port = FREE_PORT
    self.server_port = self._port = self._stack.port
    self.process = Process(self._stack)
    self.ready = True


def stop(self):
    import utils
    utils.server_instances.discard(self)
    stack, self._stack = getattr(self, "_stack", None), None
    if stack:
        print(stack.log()[-4000:])
        stack.engine.terminate()   # a test may leave streams open, which nobody waits for
        stack.stop()
    shutil.rmtree(getattr(self, "_folder", ""), ignore_errors=True)


def make_request(self, method, path, data=None, *rest, **kw):
    """Their --verbose is a field of each request here."""
    if self.debug and isinstance(data, dict) and "verbose" not in data:
        data = {**data, "verbose": True}
    return send(self, method, path, data, *rest, **kw)


def pytest_configure(config):
    global send
    import utils
    send = utils.ServerProcess.make_request
    utils.ServerProcess.make_request = make_request
    utils.ServerProcess.start = start
    utils.ServerProcess.stop = stop
    utils.ServerPreset.load_all = staticmethod(lambda: None)


def pytest_runtest_logreport(report):
    """One line a case for peer_tests.py."""
    if report.when == "call" or report.outcome != "passed":
        why = "" if report.passed else str(report.longrepr)[-6000:]
        with open(os.environ["PEER_TESTS_RESULTS"], "a") as out:
            out.write(json.dumps({"name": report.nodeid, "when": report.when, "outcome": report.outcome, "why": why}) + "\n")
