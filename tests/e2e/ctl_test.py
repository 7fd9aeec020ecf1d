"""The admin socket and `infcgi ctl`: each command as text and as JSON, access, cancelling a request, and clients that stall."""
import json
import os
import pathlib
import pty
import re
import select
import shutil
import socket
import subprocess
import tempfile
import threading
import time

import harness
from harness import Skip, tried, until

COMMANDS = ("status", "requests", "tenants", "kv", "cache", "model", "log", "config", "devices", "memory", "threads", "kernels", "version", "help",
            "loglevel")
VERSION = re.search(r'SERVER_VERSION "(.+)"', (harness.ROOT / "fcgi/wire/server.h").read_text())[1]


def raw(s, data, end=True):
    """Sends bytes to the socket unchanged; returns the reply."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(s.admin)
        got = b""
        try:
            client.sendall(data)
            if end:
                client.shutdown(socket.SHUT_WR)
            while part := client.recv(65536):
                got += part
        except (ConnectionResetError, BrokenPipeError):
            pass   # the server did not read all of it
        return got


@harness.in_release
def test_every_command_as_text_and_as_json(ctx):
    c = ctx.server
    model = c.post("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 8}).json()["model"]
    for word in COMMANDS:
        text, as_json = c.ctl(word), c.ctl("--json", word)
        assert text.returncode == as_json.returncode == 0 and text.stdout, (word, text, as_json)
        value = json.loads(as_json.stdout)
        for name in value if isinstance(value, dict) else value[0] if value and isinstance(value[0], dict) else ():
            shown = re.sub("_bytes$", "", name).replace("_", " ")
            assert shown in text.stdout, (word, name, text.stdout)
    status = c.ask("status")
    assert status["state"] == "ok" and status["model"] == model and status["generated_tokens"] >= 8 and status["accepted"] >= 1, status
    assert c.idle() and c.ask("kv")["pages_used"] == 0 and c.ask("model")["architecture"] == "llama"
    assert {"scheduler", "poller", "admin", "log", "request"} <= {t["name"] for t in c.ask("threads")}
    assert c.ask("memory")["by_purpose"]["weights_bytes"] > 50 << 20
    options = {o["option"]: o for o in c.ask("config")}
    assert options["threads"] == {"option": "threads", "value": "2", "from": "command line"}, options["threads"]
    assert options["drain-timeout"] == {"option": "drain-timeout", "value": "30", "from": "default"}
    bench = c.ask("bench")
    assert bench["prompt_tokens"] == 128 and bench["answer_tokens"] == 32 and bench["answer_tokens_s"] > 0 and bench["copy_gib_s"] > 0, bench
    assert c.idle()


def test_what_is_refused_has_its_exit_status(ctx):
    c = ctx.server
    for words, status, says in ((("cancel", "7"), 1, "no request 7"), (("cancel",), 64, "expected `cancel ID`"), (("nonsense",), 64, "no such command"),
                                (("loglevel", "loud"), 64, "expected error, warn or info"), (("help", "nonsense"), 64, "no such command")):
        run = c.ctl(*words)
        assert run.returncode == status and says in run.stderr and not run.stdout, run
    failed = c.ctl("--json", "cancel", "7")
    assert failed.returncode == 1 and json.loads(failed.stdout)["error"]["status"] == 1
    nobody = subprocess.run([c.binary, "ctl", "--socket", f"{c.dir}/none.sock", "status"], capture_output=True, text=True)
    assert nobody.returncode == 69 and "--admin-socket" in nobody.stderr, nobody
    for words in (("help",), ("--json", "help"), ("help", "cancel")):   # help does not need a server
        alone = subprocess.run([c.binary, "ctl", "--socket", f"{c.dir}/none.sock", *words], capture_output=True, text=True)
        assert alone.returncode == 0 and alone.stdout == c.ctl(*words).stdout and "cancel ID" in alone.stdout, alone
    assert subprocess.run([c.binary, "ctl", "--socket", f"{c.dir}/none.sock", "help", "nonsense"], capture_output=True).returncode == 64
    with socket.socket(socket.AF_UNIX) as other:   # a server with another protocol
        other.bind(f"{c.dir}/other.sock")
        other.listen()
        run = subprocess.Popen([c.binary, "ctl", "--socket", f"{c.dir}/other.sock", "status"], stderr=subprocess.PIPE, text=True)
        peer = other.accept()[0]
        peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        peer.close()
        assert run.wait(20) == 69 and "admin socket" in run.stderr.read()


def test_lines_from_standard_input(ctx):
    c = ctx.server
    run = c.ctl(stdin="version\n# a comment\n\n--json version\nloglevel warn\nquit\nkv\n")
    assert run.returncode == 0 and run.stdout == f'version  {VERSION}\n{{"version":"{VERSION}"}}\nloglevel  warn\n', run
    c.ask("loglevel", "info")
    assert c.ctl(stdin="cancel 7\nversion\n").returncode == 1
    assert c.ctl(stdin="x" * 3000 + "\n").returncode == 64


def test_a_prompt_has_editing_and_history(ctx):
    c = ctx.server
    main, other = pty.openpty()
    p = subprocess.Popen([c.binary, "ctl", "--socket", c.admin, "--history", f"{c.dir}/history"], stdin=other, stdout=other, stderr=other,
                         env={**os.environ, "TERM": "xterm", "ASAN_OPTIONS": "detect_leaks=0"})   # libedit does not free two strings
    os.close(other)
    got = b""

    def read_until(word):
        nonlocal got
        end = time.monotonic() + 20
        while word not in got:
            assert select.select([main], [], [], max(0, end - time.monotonic()))[0], (word, got)
            got += os.read(main, 4096)
        seen, got = got, got[got.index(word) + len(word):]
        return seen
    read_until(b"infcgi>")
    os.write(main, b"verXX\x7f\x7fsion\n")   # two mistakes, corrected
    read_until(b"version  " + VERSION.encode())
    os.write(main, b"\x10\x01--json \n")     # the previous line, with a word inserted before it
    read_until(b'{"version":"%s"}' % VERSION.encode())
    os.write(main, b"drain\x03")              # discarded
    read_until(b"infcgi>")
    os.write(main, b"top\n")
    read_until(b"running 0, waiting 0")
    os.write(main, b"q")
    read_until(b"infcgi>")
    os.write(main, b"\x04")
    assert until(lambda: p.poll() is not None, 20) is True and p.returncode == 0
    os.close(main)
    assert "version" in pathlib.Path(f"{c.dir}/history").read_text()
    assert c.ask("status")["state"] == "ok"


def test_another_user_is_refused(ctx):
    if os.geteuid() != 0:
        raise Skip("only root can become another user")
    c = ctx.server
    os.chmod(c.dir, 0o755)

    def ask():
        """Connects as nobody, without starting a program, which nobody may not reach."""
        main, other = socket.socketpair()
        child = os.fork()
        if child == 0:
            try:
                os.setgid(65534)
                os.setuid(65534)
                with socket.socket(socket.AF_UNIX) as s:
                    s.connect(c.admin)
                    try:
                        s.sendall(b"drain\n")
                    except BrokenPipeError:
                        pass   # it was rejected already, and is told why
                    other.sendall(s.recv(4096))
            except OSError as e:
                other.sendall(type(e).__name__.encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        return main.recv(4096)
    assert ask() == b"PermissionError"   # the mode of the file
    os.chmod(c.admin, 0o666)
    ctx.cleanups.append(lambda: os.chmod(c.admin, 0o600))
    said = ask()
    assert said.startswith(b"denied expected the user that the server runs as, or root"), said
    assert until(lambda: "admin_denied uid=65534" in c.log()), c.log()
    assert c.ask("status")["state"] == "ok"


def test_ctl_says_that_the_user_may_not(ctx):
    if os.geteuid() != 0:
        raise Skip("only root can become another user")
    c = ctx.server
    public = pathlib.Path(tempfile.mkdtemp(prefix="infcgi-public."))
    ctx.cleanups.append(lambda: shutil.rmtree(public))
    os.chmod(public, 0o755)
    os.chmod(c.dir, 0o755)
    shutil.copy(c.binary, public / "infcgi")
    os.chmod(public / "infcgi", 0o755)
    ctx.cleanups.append(lambda: os.chmod(c.admin, 0o600))
    for mode in (0o600, 0o666):
        os.chmod(c.admin, mode)
        run = subprocess.run([public / "infcgi", "ctl", "--socket", c.admin, "status"], capture_output=True, text=True, user=65534, group=65534,
                             extra_groups=[], timeout=60)
        assert run.returncode == 77 and not run.stdout, (oct(mode), run)


def one_request(c):
    return until(lambda: [r for r in c.ask("requests") if r["state"] == "decode"])[0]


def test_drafts_are_counted_by_source(ctx):
    """A text that a grammar mostly forces, and that repeats: drafts of the running request, of the cache, and in /metrics."""
    c = ctx.server
    before = c.metrics()

    def begin():
        connection, response = c.stream("/v1/completions", {"prompt": "Say:", "max_tokens": 1500, "temperature": 0,
                                                            "guided_regex": "((one|two), and then of course nothing else happened at all[.] ){200}"})
        response.readline()
        drafting = until(lambda: [r for r in c.ask("requests") if r["state"] == "decode" and r["drafts"].get("forced", (0, 0))[1] > 0])
        if not drafting:
            connection.close()
        return connection, drafting

    connection, drafting = tried(begin, lambda begun: begun[1])  # a busy machine can make drafts not worth their time
    r = drafting[0]
    assert set(r["drafts"]) <= {"forced", "lookup"} and all(len(pair) == 2 for pair in r["drafts"].values()), r
    assert [sum(of) for of in zip(*r["drafts"].values())] == [r["drafted_tokens"], r["accepted_tokens"]], r
    assert '"forced":[' in c.ctl("requests").stdout and '"forced":[' in c.request("GET", "/status?full").body.decode()
    connection.close()
    assert c.idle()
    after, cache = c.metrics(), c.ask("cache")
    for kind, total in (("draft_tokens", "drafted_tokens"), ("draft_accepted_tokens", "accepted_tokens")):
        series = {name: n for name, n in after.items() if name.startswith(f"infcgi_{kind}_total{{")}
        assert len(series) == 4 * 8 and sum(series.values()) == after[f"infcgi_{total}_total"] == cache[total], (series, after)
        assert sum(row[total] for row in cache["drafts"]) == cache[total], cache
        first = f'infcgi_{kind}_total{{source="forced",position="1"}}'
        assert series[first] - before[first] > 0 and series[f'infcgi_{kind}_total{{source="model",position="8+"}}'] == 0, series
    by_source = {row["source"]: row for row in cache["drafts"]}
    assert list(by_source) == ["forced", "lookup", "head", "model"] and 0 < by_source["forced"]["recent_part"] <= 1, cache
    assert by_source["model"] == {"source": "model", "drafted_tokens": 0, "accepted_tokens": 0, "accepted_part": 0, "recent_part": None}, cache
    positions = cache["recent_parts"]
    assert [row["position"] for row in positions] == ["1", "2", "3", "4", "5", "6", "7", "8+"] and 0 < positions[0]["forced"] <= 1, cache


def test_a_running_stream_is_cancelled(ctx):
    c = ctx.server
    connection, response = c.stream("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 1800, "ignore_eos": True})
    response.readline()
    r = one_request(c)
    assert r["path"] == "/v1/completions" and r["completion_tokens"] > 0 and r["prompt_tokens"] == 4 and r["age_ms"] >= 0, r
    assert r["request_id"] == response.getheader("X-Request-Id"), r
    assert sum(t["running"] for t in c.ask("tenants")) == 1
    assert c.ask("cancel", str(r["id"])) == {"cancelled": r["id"]}
    last = [e for e in harness.events(iter(response.readline, b""))][-1]
    assert last["error"]["code"] == "cancelled" and "operator" in last["error"]["message"], last
    connection.close()
    assert c.idle() and c.ask("requests") == []
    assert until(lambda: re.search(r'admin command=cancel word="%d" uid=\d+ pid=\d+ result=ok' % r["id"], c.log()))


def test_a_request_that_is_not_streamed_is_cancelled(ctx):
    c = ctx.server
    answers = []
    model = c.request("GET", "/v1/models").json()["data"][0]["id"]
    for path, body in (("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1800, "ignore_eos": True}),
                       ("/v1/messages", {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1800, "ignore_eos": True})):
        t = threading.Thread(target=lambda: answers.append(c.post(path, body)))
        t.start()
        c.ask("cancel", str(one_request(c)["id"]))
        t.join(30)
        answer = answers.pop()
        assert answer.status == 499 and "operator" in answer.json()["error"]["message"], (path, answer.body)
    assert c.idle()


def test_a_stalled_client_holds_up_nobody(ctx):
    c = ctx.server
    stalled, begin = [], 0

    def ask():
        nonlocal begin
        while stalled:
            stalled.pop().close()
        begin = time.monotonic()
        for data in (b"", b"stat", b"--json config\n", b"log -f\n"):
            s = socket.socket(socket.AF_UNIX)
            s.connect(c.admin)
            s.sendall(data)
            stalled.append(s)
        assert c.ask("status")["state"] == "ok"
        assert c.post("/v1/completions", {"prompt": "Hi", "max_tokens": 4}).status == 200
    harness.quick(5 if ctx.is_slow else 3, ask)
    stalled[0].settimeout(15)
    assert stalled[0].recv(100) == b"" and time.monotonic() - begin > 4   # its five seconds are over
    for s in stalled:
        s.close()
    assert raw(c, b"x" * 5000, end=False).startswith(b"usage expected a line of at most 1023 bytes")
    assert raw(c, b"version").startswith(b"ok %d\nversion  %s\n" % (len(VERSION) + 10, VERSION.encode()))
    assert raw(c, b"\xff\xfe\n").startswith(b"usage no such command")


def test_lines_that_are_none(ctx):
    """Any invalid line gets an answer with what was expected, without other effects; of many lines the first one counts."""
    c = ctx.server
    before = c.ask("status")["state"], c.ask("config")
    for line in (b"", b" ", b"\0", b"status\0", b"--json", b"--json --json status", b"status now", b"status" + b" x" * 20, b"STATUS", b"drain now", b"drain;",
                 b"reload \0", b"cancel -1", b"cancel 0x1", b"cancel 1e3", b"cancel 18446744073709551616", b"cancel " + b"9" * 900, b"log -1", b"log 1.5",
                 b"loglevel \xff", b"loglevel info now", b"help \x1b[2J", b"%s%n%n", b"GET / HTTP/1.1\r", os.urandom(200).replace(b"\n", b"x")):
        got = raw(c, line + b"\n")
        assert got.split(b" ")[0] in (b"usage", b"refused") and got.endswith(b"\n") and len(got) < 600, (line, got)
        assert not set(got) & set(range(9)) and b"\x1b" not in got, (line, got)
    assert raw(c, b"version\n" * 1000).startswith(b"ok %d\nversion  %s\n" % (len(VERSION) + 10, VERSION.encode()))
    assert (c.ask("status")["state"], c.ask("config")) == before


def test_the_log_is_live(ctx):
    c = ctx.server
    p = subprocess.Popen([c.binary, "ctl", "--socket", c.admin, "log", "-f", "1"], stdout=subprocess.PIPE, text=True)
    assert " info " in p.stdout.readline()
    c.request("POST", "/v1/completions", {"prompt": "Hi", "max_tokens": 1}, {"X-Request-Id": "seen-live"})
    lines = []
    for line in p.stdout:
        lines.append(line)
        if "request id=" in line:
            break
    assert any("generation id=" in line for line in lines), lines
    p.send_signal(2)
    assert p.wait(10) == 0
    assert any("generation id=" in line for line in c.ask("log", "5"))
    c.ask("loglevel", "error")
    for name in "not-told", "told":
        c.request("POST", "/v1/completions", {"prompt": "Hi", "max_tokens": 1}, {"X-Request-Id": f"seen-{name}"})
        c.ask("loglevel", "info")
    assert until(lambda: "request id=seen-told" in c.log()) and "seen-not-told" not in c.log(), c.log()[-2000:]


@harness.in_release
def test_drain_ends_it_when_what_runs_is_done(ctx):
    c = ctx.start()
    connection, response = c.stream("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 60, "ignore_eos": True})
    response.readline()
    assert c.ask("drain")["draining"] is True
    assert list(harness.events(iter(response.readline, b"")))[-1] is None   # [DONE]
    connection.close()
    assert c.engine.wait(30) == 0
    assert not os.path.exists(c.admin)


def test_reload_reads_the_keys_again(ctx):
    keys = pathlib.Path(tempfile.mkdtemp(prefix="infcgi-keys.")) / "keys"
    ctx.cleanups.append(lambda: shutil.rmtree(keys.parent))
    keys.write_text("first-key\n")
    c = ctx.start(*ctx.ARGS, "--api-key-file", str(keys), wait=False)
    assert until(lambda: c.ctl("status").returncode == 0)
    assert c.ask("status")["state"] in ("loading", "ok")   # it answers while the model loads, too
    c.wait_ready()

    def status(key):
        return c.request("GET", "/v1/models", headers={"Authorization": f"Bearer {key}"}).status
    assert status("first-key") == 200 and status("second-key") == 401
    keys.write_text("second-key\n")
    c.ask("reload")
    assert until(lambda: status("second-key") == 200) and status("first-key") == 401
