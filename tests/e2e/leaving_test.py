"""Clients that disconnect: at every stage of a request, in every way a connection can end, through nginx and directly from the engine.
Nothing stays held, other answers do not change, and the next request is answered correctly."""
import http.client
import json
import os
import pathlib
import signal
import socket
import struct
import tempfile
import time

import ctl_test
import harness
import records_test
from records_test import ABORT, STDIN, record

URL = "/v1/completions"
TEXT = "The quick brown fox jumps over the lazy dog. "


# --- two ways in -------------------------------------------------------------------------------------------------------

def head_of(way, length, **more):
    """more: parameters, if it is direct."""
    if way == "direct":
        return records_test.begin() + records_test.params(**records_test.post_to(URL, length), **more)
    return f"POST {URL} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n".encode()


def body_of(way, data, is_whole=True):
    if way == "direct":
        return record(STDIN, data) + (record(STDIN) if is_whole else b"")
    return data


def connect(s, way):
    c = socket.socket(socket.AF_UNIX if way == "direct" else socket.AF_INET)
    c.settimeout(60)
    c.connect(f"{s.dir}/infcgi.sock" if way == "direct" else ("127.0.0.1", s.port))
    return c


# --- ways to end -------------------------------------------------------------------------------------------------------

def closes(c):
    c.close()


def resets(c):
    """RST instead of FIN."""
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    c.close()


def read_to_its_end(c):
    try:
        while c.recv(65536):
            pass
    except ConnectionError:
        pass
    c.close()


def closes_half(c):
    """nginx treats that as a disconnect, and so does the engine."""
    c.shutdown(socket.SHUT_WR)
    read_to_its_end(c)


def aborts(c):
    """Waits until the engine closes."""
    try:
        c.sendall(record(ABORT) * 2)
    except OSError:
        pass   # it has closed already
    read_to_its_end(c)


# --- moments -----------------------------------------------------------------------------------------------------------

def body(**more):
    return json.dumps({"prompt": "Once upon a time", "max_tokens": 1500, "ignore_eos": True, "temperature": 0, "stream": True, **more}).encode()


def in_its_head(s, way):
    c = connect(s, way)
    c.sendall(head_of(way, 1000)[:-9])
    return c


def in_its_body(s, way):
    c, data = connect(s, way), body()
    c.sendall(head_of(way, len(data)) + body_of(way, data[:40], is_whole=False))
    return c


def sent(s, way, data):
    c = connect(s, way)
    c.sendall(head_of(way, len(data)) + body_of(way, data))
    return c


def state(s, *names):
    """Returns the first of these states that a request is seen in. Asks without a process, which takes longer than many a state."""
    def seen():
        told = ctl_test.raw(s, b"--json requests\n")
        return next((name for name in names if f'"state":"{name}"'.encode() in told), None)
    found = harness.until(seen, every=0.005)
    assert found, (names, s.ask("requests"))
    return found


def in_the_queue(s, way):
    """After a running one, which disconnects too."""
    first = in_its_answer(s, "nginx")
    c = sent(s, way, body(prompt="Another"))
    state(s, "queued")
    closes(first)
    return c


def in_its_prompt(s, way):
    """Retries if it was over before it was seen."""
    for _ in range(5):
        c = sent(s, way, body(prompt=TEXT * 150, cache_prompt=False, cache_salt=os.urandom(8).hex()))
        if state(s, "prefill", "decode") == "prefill":
            return c
        closes(c)
        assert s.idle(), s.metrics()
    raise AssertionError("no prompt was seen")


def in_its_answer(s, way):
    c = sent(s, way, body())
    got = b""
    while got.count(b"data: ") < 3:
        got += c.recv(65536)
    return c


def of_a_whole_answer(s, way):
    c = sent(s, way, body(stream=False))
    state(s, "decode")
    return c


def after_its_last_token(s, way):
    c = sent(s, way, body(max_tokens=3))
    got = b""
    while got.count(b"data: ") < 3:
        got += c.recv(65536)
    return c


def after_its_end(s, way):
    c = sent(s, way, body(max_tokens=2))
    got = b""
    while b"[DONE]" not in got:
        got += c.recv(65536)
    return c


MOMENTS = (in_its_head, in_its_body, in_the_queue, in_its_prompt, in_its_answer, of_a_whole_answer, after_its_last_token, after_its_end)


def holdings(s):
    return len(os.listdir(f"/proc/{s.engine.pid}/fd"))


def counts(s):
    """Returns the tokens generated and the sequences cancelled since the start."""
    return s.metrics()["infcgi_generated_tokens_total"], s.cancelled()


def behind_leaving(s, way, leave, moment):
    """Disconnects in this way; returns the number of tokens computed afterwards."""
    _, n_cancelled = counts(s)
    c = moment(s, way)
    n_tokens, _ = counts(s)
    leave(c)
    assert s.idle(30), (way, leave, moment, s.ask("requests"), s.metrics())
    after = counts(s)
    assert moment not in MOMENTS[2:6] or after[1] > n_cancelled, (way, leave, moment, n_cancelled, after)
    return after[0] - n_tokens


@harness.in_long
def test_at_every_moment_in_every_way(ctx):
    """D01, D02, D03, D08, D10, F11. After the end only a moment's worth of tokens is computed, not the answer, and each disconnect is
    counted."""
    s = ctx.start(*ctx.ARGS, "--parallel", "1", "--batch-size", "64")   # keeps steps short
    expected = s.post(URL, {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}).json()["choices"]
    assert s.idle()
    for _ in range(2):   # starts the threads that it needs
        closes(in_the_queue(s, "direct"))
    assert s.idle()
    before = harness.until(lambda: holdings(s) or 0)
    for way in "nginx", "direct":
        for leave in (closes, closes_half, aborts if way == "direct" else resets):
            # Through nginx the engine sees only one kind of end, so for nginx's other kinds the stages of computing are
            # enough.
            for moment in MOMENTS if leave is closes or way == "direct" else MOMENTS[2:5]:
                n = harness.tried(lambda moment=moment: behind_leaving(s, way, leave, moment), lambda n: n < 300)
                assert n < 300, (way, leave, moment, n)   # of 1,500 requested
            again = s.post(URL, {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0})
            assert again.status == 200 and again.json()["choices"] == expected, (way, leave, again.body)
    assert s.ask("requests") == [] and s.engine.poll() is None
    assert harness.until(lambda: holdings(s) <= before + 2, 20), (before, holdings(s))
    assert s.log().count("\n") < 1000, "a storm of lines"


def read_all(opened):
    connection, response = opened
    got = list(harness.events(iter(response.readline, b"")))
    connection.close()
    return got


def texts(got):
    return "".join(e["choices"][0]["text"] for e in got if e and e["choices"])


@harness.in_release
def test_who_shares_a_prefix_stays_as_it_was(ctx):
    """D06: of two sequences with one prefix, either can leave first."""
    s = ctx.server
    ask = {"prompt": TEXT * 8, "max_tokens": 24, "temperature": 0, "ignore_eos": True}
    alone = texts(read_all(s.stream(URL, ask)))
    for first_stays in True, False:
        opened = [s.stream(URL, ask) for _ in range(2)]
        for _, response in opened:
            response.readline()
        stays, leaves = opened if first_stays else reversed(opened)
        leaves[1].close()
        leaves[0].close()
        got = read_all(stays)
        assert got[-1] is None and texts(got) == alone, got[-3:]
    assert s.idle()


@harness.in_release
def test_nginx_reloads_and_dies_in_the_middle(ctx):
    """D07: an nginx reload lets streams end; if its worker is killed, a stream is cut, and the engine stops computing it."""
    s = ctx.server
    opened = s.stream(URL, {"prompt": "Once", "max_tokens": 40, "ignore_eos": True})
    opened[1].readline()
    s.nginx.send_signal(signal.SIGHUP)
    got = read_all(opened)
    assert got[-1] is None and len(got) > 20, got[-2:]
    connection, response = s.stream(URL, {"prompt": "Once", "max_tokens": 1800, "ignore_eos": True})
    response.readline()
    with open(f"/proc/{s.nginx.pid}/task/{s.nginx.pid}/children", encoding="ascii") as children:
        for pid in children.read().split():
            os.kill(int(pid), signal.SIGKILL)
    try:
        assert b"[DONE]" not in response.read()
    except (http.client.HTTPException, OSError):
        pass
    connection.close()
    assert harness.until(lambda: s.request("GET", "/health").status == 200), s.log()[-2000:]   # another worker
    assert s.idle(20)


def test_while_a_grammar_is_made_and_snapshots_are_written(ctx):
    """D09: an object under construction is right or does not exist."""
    folder = tempfile.TemporaryDirectory(prefix="infcgi-kv.")
    ctx.cleanups.append(folder.cleanup)
    s = ctx.start("--threads", "1", "--cache-dir", f"{folder.name}/kv", model=harness.ROOT / "tests/golden/models/llama-biases.gguf")
    ask = {"prompt": TEXT * 8, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    expected = texts(read_all(s.stream(URL, ask)))
    for i in range(12):
        schema = {"enum": [f"value {i} {k}" for k in range(3000)]}
        c = sent(s, "nginx", body(prompt=TEXT * 8 + str(i), max_tokens=100, response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}))
        if i % 2 == 0:
            c.settimeout(0.005 + 0.01 * i)
            try:
                c.recv(100)
            except TimeoutError:
                pass
        resets(c)
    assert s.idle(30)
    assert harness.until(lambda: s.metrics()["infcgi_snapshot_pending"] == 0)
    s.engine.kill()
    s.engine.wait()
    s.start_engine()
    s.wait_ready()
    assert texts(read_all(s.stream(URL, ask))) == expected
    m = s.metrics()
    assert m["infcgi_snapshot_reads_total"] > 0 and m["infcgi_snapshot_refused_total"] == 0, m


def test_a_deadline_ends_a_stream_with_an_error(ctx):
    """D11: in the middle, after a head with status 200, and no [DONE]."""
    s = ctx.server
    connection = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60)
    connection.request("POST", URL, body(max_tokens=1900, temperature=1.5), {"Content-Type": "application/json", "X-Request-Timeout-Ms": "1500"})
    response = connection.getresponse()
    got = list(harness.events(iter(response.readline, b"")))
    assert response.status == 200 and None not in got and got[-1]["error"]["code"] == "deadline_exceeded", got[-2:]
    connection.close()
    assert s.idle()


def test_a_deadline_ends_what_waits(ctx):
    """D11: in the queue, 504 for a whole answer, and an error for a stream, whose head was sent."""
    s = ctx.start(*ctx.ARGS, "--parallel", "1")
    headers = {"Content-Type": "application/json", "X-Request-Timeout-Ms": "1000"}
    running, text = s.stream(URL, json.loads(body(max_tokens=1900, temperature=1.5)))
    assert "choices" in next(harness.events(iter(text.readline, b"")))
    whole = s.post(URL, json.loads(body(prompt=TEXT * 20, max_tokens=4, stream=False)), headers=headers)
    assert whole.status == 504 and whole.error()["code"] == "deadline_exceeded", (whole.status, whole.body)
    connection = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60)
    connection.request("POST", URL, body(prompt=TEXT * 20, max_tokens=4), headers)
    got = list(harness.events(iter(connection.getresponse().readline, b"")))
    assert len(got) == 1 and got[0]["error"]["code"] == "deadline_exceeded", got
    connection.close()
    assert s.metrics()["infcgi_requests_running"] == 1
    running.close()
    assert s.idle()


@harness.in_release
def test_what_looks_like_an_event_is_none(ctx):
    """D12: lines, ends of lines and [DONE] in the text of an answer."""
    text = 'a\\r\\ndata: [DONE]\\n\\ndata: {\\"x\\": 1}\\r\\n: b\\n\\nevent: c\\n' + "d" * 40
    s = ctx.server
    got = read_all(s.stream(URL, {"prompt": "Say", "max_tokens": 300, "grammar": f'root ::= "{text}"'}))
    assert got[-1] is None and got.count(None) == 1
    assert texts(got) == text.encode().decode("unicode_escape"), texts(got)


def test_readers_that_stop(ctx):
    """D04, F14: as many clients as slots stop reading and stay connected. They hold little, other requests take their slots, and a
    client that continues to read gets everything."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="infcgi-long."))
    n, tokens = 16, 3000
    s = ctx.start("--threads", "1", "--ctx-size", "4096", "--kv-tokens", str(2 * n * 4096), "--parallel", str(n),
                  model=harness.with_context(harness.ROOT / "tests/golden/models/llama-biases.gguf", 4096, folder))
    data = json.dumps({"prompt": [1, 2, 3], "max_tokens": tokens, "ignore_eos": True, "stream": True, "temperature": 0, "logprobs": 5}).encode()
    before = s.metrics()
    stopped = [connect(s, "direct") for _ in range(n)]
    for c in stopped:
        c.sendall(head_of("direct", len(data)) + body_of("direct", data))

    def said():
        return s.metrics()["infcgi_generated_tokens_total"]
    counts = [0]

    def is_still():
        counts.append(said())
        return counts[-1] == counts[-2] > before["infcgi_generated_tokens_total"] + 256 * n
    assert harness.until(is_still, 60, 0.3), counts[-5:]
    now = s.metrics()
    assert counts[-1] - before["infcgi_generated_tokens_total"] < n * tokens * 0.9 and now["infcgi_requests_running"] == n, (counts[-1], now)
    each = (now["infcgi_request_memory_bytes"] - before["infcgi_request_memory_bytes"]) / n
    assert each < 128 << 10, each   # 48 KiB are of its 3,000 tokens and their alternatives
    answers = harness.quick(30 if ctx.is_slow else 3, lambda: harness.at_once(
        [lambda: s.post(URL, {"prompt": [1, 2, 4], "max_tokens": 32, "ignore_eos": True}) for _ in range(n)]))
    assert {r.status for r in answers} == {200}
    got = b""
    while part := stopped[0].recv(65536):
        got += part
    text = b"".join(content for kind, content in records_test.decode(got) if kind == records_test.STDOUT)
    assert text.endswith(b"data: [DONE]\n\n") and text.count(b"data: {") == tokens + 1, text[-300:]
    for c in stopped:
        c.close()
    assert s.idle()
