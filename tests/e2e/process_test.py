"""Starting and ending: bad model files, a used port, kill -9, SIGTERM, run.sh, memory, time to the first token."""
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time

import harness
import records_test

CHAT = "/v1/chat/completions"
COUNT = [{"role": "user", "content": "Count from one to fifty in words."}]


def test_bad_model_files_end_with_65_at_once(ctx):
    cut = pathlib.Path(ctx.server.dir) / "cut.gguf"
    with open(ctx.model, "rb") as whole:
        cut.write_bytes(whole.read(3_000_000))
    empty = pathlib.Path(ctx.server.dir) / "empty.gguf"
    empty.write_bytes(b"")
    for path in (harness.ROOT / "README.md", cut, empty, harness.ROOT, "/nowhere/model.gguf"):
        def start(path=path):
            run = ctx.run_sh(harness.free_port(), MODEL=str(path))
            return run, *run.communicate(timeout=30)
        run, out, err = harness.quick(10, start)
        lines = [line for line in err.splitlines() if line]
        assert run.returncode == 65, (path, run.returncode, err)
        assert len(lines) == 1 and lines[0].startswith("error: ") and str(path) in lines[0], (path, err)
        assert out == ""


def test_inspect_check(ctx):
    def check(path):
        return subprocess.run([ctx.binary, "inspect", "--check", str(path)], capture_output=True, text=True)
    assert check(ctx.model).returncode == 0
    bad = check(harness.ROOT / "README.md")
    assert bad.returncode == 65
    assert re.fullmatch(r"error: .*README\.md: bad_magic at byte \d+: .+\n", bad.stdout + bad.stderr), bad


def test_port_in_use(ctx):
    run = ctx.run_sh(ctx.server.port)
    out, err = run.communicate(timeout=30)
    assert run.returncode == 1 and out == ""
    assert err.count("\n") == 1 and f"port {ctx.server.port}" in err and "in use" in err, err
    assert ctx.server.request("GET", "/health").status == 200


def processes_with(text):
    found = []
    for p in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if text in (p / "cmdline").read_bytes().decode(errors="replace"):
                found.append(int(p.name))
        except OSError:
            pass
    return found


def started(ctx, *args, **env):
    """Starts run.sh and waits for its ready line; returns the process, its port and its temporary folder."""
    port = harness.free_port()
    tmp = pathlib.Path(ctx.server.dir) / f"tmp{port}"
    tmp.mkdir()
    run = ctx.run_sh(port, *args, TMPDIR=str(tmp), **env)
    line = run.stdout.readline()
    assert re.fullmatch(rf"infcgi ready: http://127\.0\.0\.1:{port}/v1 \(model \S+\)\n", line), (line, run.poll() and run.stderr.read())
    console = run.stdout.readline()
    assert re.fullmatch(rf"Its console: .*infcgi\w* ctl --socket {tmp}/infcgi\.\w+/admin\.sock\n", console), console
    return run, port, tmp


@harness.in_release
def test_run_sh_stops_cleanly(ctx):
    for how in (signal.SIGTERM, signal.SIGINT):
        run, port, tmp = started(ctx, "--threads", "1")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/v1/models")
        assert connection.getresponse().status == 200
        connection.close()
        run.send_signal(how)
        out, err = run.communicate(timeout=40)
        assert run.returncode == 0, (how, run.returncode, err)
        assert out == "", f"two lines are all it prints: {out}"
        assert list(tmp.iterdir()) == []
        assert processes_with(str(tmp)) == []


@harness.in_release
def test_run_sh_ends_with_its_engine(ctx):
    run, _, tmp = started(ctx, "--threads", "1")
    engine = [p for p in processes_with(f"{ctx.variant}/infcgi") if run_is_parent(run.pid, p)]
    assert len(engine) == 1, engine
    os.kill(engine[0], signal.SIGKILL)
    out, err = run.communicate(timeout=30)
    assert run.returncode == 1 and "the engine ended" in err, (run.returncode, err)
    assert list(tmp.iterdir()) == [] and processes_with(str(tmp)) == []


TINY = harness.ROOT / "tests/golden/models/llama-biases.gguf"


@harness.in_release
def test_run_sh_notices_an_engine_killed_at_any_time(ctx):
    """Right after the ready line, and a little later: an exit before the first check must not be missed."""
    for i in range(8):
        run, _, _ = started(ctx, "--threads", "1", MODEL=str(TINY))
        time.sleep(i // 2 * 0.02)
        engine = [p for p in processes_with(f"{ctx.variant}/infcgi") if run_is_parent(run.pid, p)]
        os.kill(engine[0], signal.SIGKILL)
        _, err = run.communicate(timeout=30)
        assert run.returncode == 1 and "the engine ended" in err, (i, run.returncode, err)


@harness.in_release
def test_run_sh_drains_when_its_group_is_signalled(ctx):
    """A signal to the group reaches make, which forwards it, and run.sh: both mean one stop."""
    for how in (signal.SIGTERM, signal.SIGINT):
        run, port, _ = started(ctx, "--threads", "1")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        connection.request("POST", CHAT, json.dumps({"messages": COUNT, "stream": True, "max_tokens": 40, "ignore_eos": True}),
                           {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.readline()
        os.killpg(run.pid, how)
        time.sleep(0.1)
        os.killpg(run.pid, how)
        got = list(harness.events(iter(response.readline, b"")))
        assert got[-1] is None, got[-2:]
        connection.close()
        _, err = run.communicate(timeout=40)
        assert run.returncode == 0, (how, run.returncode, err)


@harness.in_release
def test_run_sh_takes_any_file_name(ctx):
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder) / "it's \"a\" $HOME `id`;\n& model.gguf"
        model.symlink_to(TINY)
        run = ctx.run_sh(harness.free_port(), "--threads", "1", MODEL=str(model))
        line = run.stdout.readline()
        assert line.endswith(r"""(model it's \"a\" $HOME `id`;\n& model)""" + "\n"), (line, run.poll() and run.stderr.read())
        run.terminate()
        assert run.wait(40) == 0


def run_is_parent(parent, child):
    try:
        status = pathlib.Path(f"/proc/{child}/status").read_text()
    except OSError:   # of another test, and has ended
        return False
    return re.search(r"PPid:\s+(\d+)", status).group(1) == str(parent)


@harness.in_release
def test_the_default_model_answers_what_the_readme_asks(ctx):
    readme = (harness.ROOT / "README.md").read_text()
    body = json.loads(re.search(r"chat/completions [^\n]* -d '(\{.*?\n\})'", readme, re.S).group(1))
    run, port, _ = started(ctx, MODEL="")
    said = run.stdout.readline()
    assert "tiny" in said and "make run MODEL=" in said, said

    def ask(port, **more):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        connection.request("POST", CHAT, json.dumps({**body, **more}), {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert response.status == 200, response.read()
        until_done = iter(harness.events(iter(response.fp.readline, b"")).__next__, None)
        chunks = [e["choices"][0]["delta"].get("content") or "" for e in until_done]
        connection.close()
        return "".join(chunks)
    answers = [ask(port)] + [ask(port, seed=seed) for seed in range(20 if ctx.has_time else 4)]
    assert set(answers) == {"The capital of France is Paris."}, answers
    joke = {"type": "object", "properties": {"setup": {"type": "string"}, "punchline": {"type": "string"}}, "required": ["setup", "punchline"]}
    text = ask(port, messages=[{"role": "user", "content": "Tell me a joke about cats."}], max_tokens=400,
               response_format={"type": "json_schema", "json_schema": {"name": "Joke", "schema": joke}})
    assert set(json.loads(text)) == {"setup", "punchline"}, text   # it ends, and has no other members
    if not ctx.is_slow:   # the user's options override
        run, port, _ = started(ctx, "--temp", "2", "--top-p", "1", MODEL="")
        assert len({ask(port, seed=seed, max_tokens=8) for seed in range(5)}) > 1


@harness.in_release
def test_run_sh_refuses_bad_options(ctx):
    run = ctx.run_sh(harness.free_port(), "--no-such-option")
    out, err = run.communicate(timeout=30)
    assert run.returncode not in (0, 65) and "no-such-option" in err, (run.returncode, err)
    run = ctx.run_sh(harness.free_port(), PORT="eighty")
    out, err = run.communicate(timeout=30)
    assert run.returncode == 1 and "eighty" in err, err


@harness.in_release
def test_killed_engine_gives_json_and_the_next_start_works(ctx):
    s = ctx.start()
    opened = [s.stream(CHAT, {"messages": COUNT, "max_tokens": 1000, "ignore_eos": True}) for _ in range(6)]
    for _, response in opened:
        response.fp.readline()
    s.engine.kill()
    s.engine.wait()
    for connection, response in opened:
        try:
            assert b"[DONE]" not in response.read()
        except http.client.HTTPException:
            pass
        connection.close()
    r = s.post(CHAT, {"messages": COUNT})
    assert r.status in (502, 503) and r.error() and int(r.headers["Retry-After"]) >= 1, (r.status, r.body)
    assert s.request("GET", "/health").status in (502, 503)
    s.start_engine()
    s.wait_ready()
    assert s.post(CHAT, {"messages": COUNT, "max_tokens": 2}).status == 200


@harness.in_release
def test_sigterm_lets_running_streams_end(ctx):
    s = ctx.start()
    tokens = 60 if ctx.is_slow else 150
    opened = [s.stream(CHAT, {"messages": COUNT, "max_tokens": tokens, "ignore_eos": True}) for _ in range(4)]
    for _, response in opened:
        response.readline()
    s.engine.terminate()
    assert harness.until(lambda: " draining " in s.log(), 10)
    late = s.post(CHAT, {"messages": COUNT, "max_tokens": 2})
    assert late.status == 503 and late.error()["code"] == "draining", (late.status, late.body)
    assert int(late.headers["Retry-After"]) >= 1
    health = s.request("GET", "/health")
    assert health.status == 503 and health.json()["status"] == "draining", health.body
    for connection, response in opened:
        got = list(harness.events(iter(response.readline, b"")))
        assert got[-1] is None, got[-2:]
        reasons = [c["finish_reason"] for e in got if e for c in e["choices"] if c["finish_reason"]]
        assert reasons == ["length"], reasons
        connection.close()
    assert s.engine.wait(20) == 0


@harness.in_release
def test_sigterm_with_drain_close_leaves_new_requests_to_another_engine(ctx):
    s = ctx.start(*ctx.ARGS, "--drain-close")
    connection, response = s.stream(CHAT, {"messages": COUNT, "max_tokens": 60 if ctx.is_slow else 100, "ignore_eos": True})
    response.readline()
    s.engine.terminate()
    assert harness.until(lambda: s.request("GET", "/health").status == 502, 10)
    assert list(harness.events(iter(response.readline, b"")))[-1] is None
    connection.close()
    assert s.engine.wait(20) == 0


@harness.in_long
def test_a_restart_after_a_held_socket_refuses_nobody(ctx):
    """Like systemd: another process holds the socket, and the next engine answers clients that connected in between."""
    s = ctx.start()
    s.stop_engine()
    with socket.socket(socket.AF_UNIX) as held:
        os.unlink(f"{s.dir}/infcgi.sock")
        held.bind(f"{s.dir}/infcgi.sock")
        held.listen(64)
        s.start_engine(held)
        s.wait_ready()
        connection, response = s.stream(CHAT, {"messages": COUNT, "max_tokens": 150 if ctx.is_slow else 600, "ignore_eos": True})
        response.readline()
        n_taken = s.ask("status")["accepted"]
        early = socket.socket(socket.AF_UNIX)   # accepted, but its request arrives only when the engine ends
        early.settimeout(30)
        early.connect(f"{s.dir}/infcgi.sock")
        assert harness.until(lambda: s.ask("status")["accepted"] > n_taken)
        old = s.engine
        old.terminate()
        assert harness.until(lambda: " new=left" in s.log(), 10)
        early.sendall(records_test.begin() + records_test.params(**records_test.HEALTH) + records_test.record(records_test.STDIN))
        assert early.recv(4096)
        early.close()
        late = []
        waiting = threading.Thread(target=lambda: late.append(s.post(CHAT, {"messages": COUNT, "max_tokens": 2})))
        waiting.start()
        assert list(harness.events(iter(response.readline, b"")))[-1] is None
        connection.close()
        assert old.wait(20) == 0 and not late, [r.body for r in late]
        s.start_engine(held)
        s.wait_ready()
        waiting.join(60)
        assert late[0].status == 200 or late[0].error()["code"] == "model_loading", late[0].body


def blocks_sigterm(pid):
    try:
        blocked = int(re.search(r"SigBlk:\s+(\w+)", pathlib.Path(f"/proc/{pid}/status").read_text()).group(1), 16)
        return b"serve" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() and blocked >> (signal.SIGTERM - 1) & 1
    except OSError:
        return False


def test_sigterm_while_loading_ends_at_once(ctx):
    for how in (signal.SIGTERM, signal.SIGINT):
        for _ in range(5):   # until the signal arrived in time
            with tempfile.TemporaryDirectory() as cache:
                s = ctx.start("--threads", "1", "--pack-cache", cache, wait=False)
                assert harness.until(lambda: blocks_sigterm(s.engine.pid), 20, 0.001)
                s.engine.send_signal(how)
                assert s.engine.wait(20) == 0
                left = os.listdir(cache)
            if " ready " not in s.log():
                break
        assert " ready " not in s.log() and "stopped while loading" in s.log(), s.log()
        assert left == []


def test_what_the_model_is_not_to_blame_for(ctx):
    def fails(*args):
        run = subprocess.run([ctx.binary, "serve", "--model", ctx.model, *args], stdin=subprocess.DEVNULL, capture_output=True,
                             text=True, timeout=60)
        assert run.stderr.startswith("error: ") and run.stderr.count("\n") == 1, run.stderr
        assert str(ctx.model) not in run.stderr and str(args[1]) in run.stderr, run.stderr
        return run.returncode
    folder = ctx.server.dir
    for keys, text in (("absent", None), ("empty", ""), ("spaces", "ok\na b\n")):
        path = pathlib.Path(folder) / keys
        if text is not None:
            path.write_text(text)
        assert fails("--api-key-file", path, "--socket", f"{folder}/x.sock") == 78
        assert fails("--api-key-file", path, "--check-config") == 78
    assert fails("--socket", f"{folder}/no/x.sock") == 78
    assert fails("--socket", f"{folder}/infcgi.sock") == 78   # the shared engine's
    assert fails("--chat-template", f"{folder}/absent.jinja", "--check-config") == 64
    assert fails("--pooling", "maximum", "--check-config") == 64


MIB = 2**20
OVERHEAD = 48 * MIB  # everything except packed weights and KV


def peak_of(engine):
    status = pathlib.Path(f"/proc/{engine.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)) * 1024


def sizes_of(server):
    sizes = server.metrics()
    return (sizes[f'infcgi_memory_bytes{{purpose="{p}"}}'] for p in ("weights", "kv"))


@harness.in_release
def test_memory(ctx):
    if ctx.is_slow:
        raise harness.Skip("figures are of the release build")
    small = ctx.start("--threads", "2", "--ctx-size", "512", "--kv-tokens", "512")   # almost no KV
    loaded = peak_of(small.engine)
    weights, kv = sizes_of(small)
    print(f"     loaded: peak {loaded / MIB:.0f} MiB, packed weights {weights / MIB:.0f} MiB")
    assert loaded <= weights + kv + OVERHEAD, "weights must never be in memory twice"
    s = ctx.start("--threads", "2", "--ctx-size", "2048", "--kv-tokens", "2048")
    weights, kv = sizes_of(s)
    bodies = [{"prompt": f"{i} " + "word " * 350, "max_tokens": 20, "ignore_eos": True, "logprobs": 5} for i in range(8)]
    replies = harness.at_once([lambda b=b: s.post("/v1/completions", b) for b in bodies])
    assert all(r.status == 200 for r in replies), [r.status for r in replies]
    m = s.metrics()
    filled = m["infcgi_kv_pages_cached"] / m["infcgi_kv_pages"]
    assert filled > 0.9, f"the prompts fill {filled:.0%} of the KV pool"
    peak = peak_of(s.engine)
    print(f"     peak {peak / MIB:.0f} MiB, of it {(peak - weights - kv) / MIB:.1f} MiB beyond packed weights and KV")
    assert peak <= weights + kv + OVERHEAD


@harness.in_release
def test_start_to_first_token(ctx):
    if ctx.is_slow:
        raise harness.Skip("figures are of the release build")
    best = 99.0
    for _ in range(3):
        start = time.monotonic()
        s = ctx.start("--threads", "2", wait=False)
        s.wait_ready()
        connection, response = s.stream(CHAT, {"messages": COUNT, "max_tokens": 1})
        for event in harness.events(iter(response.fp.readline, b"")):
            if event is None or event["choices"][0]["delta"].get("content"):
                break
        best = min(best, time.monotonic() - start)
        connection.close()
    print(f"     {best:.2f} s from start to first token")
    assert best <= 30   # a figure to read, not a limit: machines are shared


@harness.in_release
def test_ready_means_warm(ctx):
    """Memory touched for the first time costs a page fault; unlike time, page faults can be counted."""
    if ctx.is_slow:
        raise harness.Skip("sanitizers touch memory of their own")

    def faults(s):
        return int(pathlib.Path(f"/proc/{s.engine.pid}/stat").read_text().rsplit(")", 1)[1].split()[7])
    for _ in range(3):
        s = ctx.start("--threads", "2")
        m = s.metrics()
        counted = {name: value for name, value in m.items()
                   if re.match(r"infcgi_(prompt|cached|generated|draft|accepted|cancelled|preemptions|step|time_to|kv_pages_(used|cached))", name)}
        assert len(counted) >= 8 and not any(counted.values()), counted   # warming is not a request
        at, new = faults(s), []
        for question in ("What is the capital of France?", "How many legs does a spider have?", "Who wrote Hamlet, and when?"):
            r = s.post(CHAT, {"messages": [{"role": "user", "content": question}], "max_tokens": 16})
            assert r.status == 200, r.body
            new.append(faults(s) - at)
            at = faults(s)
        print(f"     page faults of the first three requests: {new}")
        assert new[0] <= max(new[1:]) + 80, new   # without warming, the first one has 300


def test_a_model_file_that_is_cut_while_it_is_served(ctx):
    golden = pathlib.Path(__file__).resolve().parents[1] / "golden/models/llama-biases.gguf"
    with tempfile.NamedTemporaryFile(suffix=".gguf") as model:
        model.write(golden.read_bytes())
        model.flush()
        s = ctx.start("--threads", "1", model=model.name)
        body = {"prompt": [1, 2, 3], "max_tokens": 4, "ignore_eos": True}
        assert s.post("/v1/completions", body).status == 200
        os.truncate(model.name, 8192)
        r = s.post("/v1/completions", body)
        assert r.status == 500 and r.error()["code"] == "io_error", r.body
        r = s.request("GET", "/health")
        assert r.status == 503 and r.json()["status"] == "file_cut", r.body
        os.truncate(model.name, 0)  # now the vocabulary is gone too: nothing can be read, and no wrong answer is given
        r = s.post("/v1/completions", {**body, "prompt": "a text"})
        assert r.status in (500, 502), r.body
        if r.status == 502:
            assert s.engine.wait(10) == -signal.SIGBUS and "SIGBUS" in s.log(), s.log()


def test_second_engine_on_a_socket_is_refused(ctx):
    s = ctx.server
    second = subprocess.run(["spawn-fcgi", "-n", "-s", f"{s.dir}/infcgi.sock", "--", str(ctx.binary), "serve", "--model", str(ctx.model)],
                            capture_output=True, text=True, timeout=30)
    assert second.returncode != 0 and "in use" in second.stdout + second.stderr, second
    assert s.request("GET", "/health").status == 200


def test_chat_templates(ctx):
    """A model file without a template: rejected, the family's format, or that of --chat-template."""
    models = harness.ROOT / "tests/golden/models"
    hi = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
    s = ctx.start("--threads", "1", model=models / "llama-gqa-tied.gguf")
    r = s.post(CHAT, hi)
    assert r.status == 400 and r.error()["code"] == "no_chat_template", r.body
    assert "--chat-template" in r.error()["message"] and r.error()["param"] is None, r.body
    assert s.post("/v1/completions", {"prompt": "Hi", "max_tokens": 2}).status == 200
    tokens = {}
    for args, model in [(("chatml",), "llama-gqa-tied"), (("gemma",), "llama-gqa-tied"), ((), "gemma3-window")]:
        s = ctx.start("--threads", "1", *(("--chat-template", *args) if args else ()), model=models / f"{model}.gguf")
        r = s.post(CHAT, hi)
        assert r.status == 200, r.body
        tokens[args, model] = r.json()["usage"]["prompt_tokens"]
        assert ("format=gemma" in s.log()) == (not args), s.log()
    assert len(set(tokens.values())) > 1 and tokens[("gemma",), "llama-gqa-tied"] == tokens[(), "gemma3-window"], tokens
    bad = subprocess.run([s.binary, "serve", "--model", models / "llama-gqa-tied.gguf", "--chat-template", "lama3",
                          "--check-config"],
                         capture_output=True, text=True, timeout=30)
    assert bad.returncode == 64 and "llama3" in bad.stderr and "'lama3'" in bad.stderr, (bad.returncode, bad.stderr)
