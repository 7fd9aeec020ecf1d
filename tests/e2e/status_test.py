"""The status page through nginx, the log of slow requests, and Server-Timing."""
import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile

import harness
from harness import until

ROWS = ("pool", "state", "start time", "start since", "accepted conn", "open connections", "running sequences", "queued sequences", "slow requests")


def test_the_page_in_each_form(ctx):
    s = ctx.server
    model = s.post("/v1/completions", {"prompt": "Hi", "max_tokens": 2}).json()["model"]
    text, page, html = (s.request("GET", f"/status{query}") for query in ("", "?json", "?html&full"))
    assert [r.status for r in (text, page, html)] == [200] * 3
    assert [r.headers["Content-Type"] for r in (text, page, html)] == ["text/plain; charset=utf-8", "application/json", "text/html; charset=utf-8"]
    lines = dict(re.split(r":\s+", line, maxsplit=1) for line in text.body.decode().splitlines())
    values = page.json()
    assert list(lines) == list(values) and set(ROWS) <= set(values), (lines, values)
    assert values["pool"] == lines["pool"] == model and values["state"] == "ok", values
    assert values["accepted conn"] > int(lines["accepted conn"]) >= 1 and values["generated tokens"] >= 2, (values, lines)
    assert re.fullmatch(r"\d\d/\w\w\w/\d{4}:\d\d:\d\d:\d\d \+0000", lines["start time"]), lines
    for name in ROWS:
        assert f"<th>{name}</th>" in html.body.decode(), name
    assert s.request("HEAD", "/status").status == 200 and s.request("POST", "/status", {}).status == 405


def test_full_lists_requests_without_their_text(ctx):
    s = ctx.server
    connection, response = s.stream("/v1/chat/completions", {"messages": [{"role": "user", "content": "xyzzysecret"}], "max_tokens": 1500,
                                                            "logit_bias": {"2": -100}})
    response.readline()

    def mine():
        return [r for r in s.request("GET", "/status?json&full").json()["requests"] if r["state"] == "decode"]
    row = until(mine)[0]
    assert row["path"] == "/v1/chat/completions" and row["completion_tokens"] > 0 and row["age_ms"] >= 0, row
    for query in ("?full", "?full&json", "?html&full"):
        body = s.request("GET", f"/status{query}").body.decode()
        assert "/v1/chat/completions" in body and "xyzzy" not in body, body
    assert "requests" not in s.request("GET", "/status?json").json()
    connection.close()
    assert s.idle()


def test_others_are_refused(ctx):
    with socket.create_connection(("127.0.0.1", ctx.server.port), source_address=("127.0.0.2", 0), timeout=20) as other:
        other.sendall(b"GET /status HTTP/1.0\r\nHost: x\r\n\r\n")
        assert other.recv(65536).startswith(b"HTTP/1.1 403 ")


def milliseconds(header):
    return {name: float(ms) for name, ms in re.findall(r"(\w+);dur=([\d.]+)", header)}


def test_server_timing(ctx):
    s = ctx.server
    r = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Count to ten."}], "max_tokens": 20})
    got = milliseconds(r.headers["Server-Timing"])
    assert list(got) == ["queue", "prefill", "decode", "total"] and got["prefill"] > 0 and got["decode"] > 0, got
    assert got["queue"] + got["prefill"] + got["decode"] <= got["total"] + 1, got
    connection, response = s.stream("/v1/completions", {"prompt": "Hi", "max_tokens": 1})
    assert response.getheader("Server-Timing") is None
    response.read()
    connection.close()


@harness.in_release
def test_slow_requests_are_told(ctx):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="infcgi-slow."))
    ctx.cleanups.append(lambda: shutil.rmtree(folder))
    s = ctx.start(*ctx.ARGS, "--slow-log", "0.001", "--slow-log-file", str(folder / "slow.log"))
    s.request("POST", "/v1/completions", {"prompt": "xyzzysecret", "max_tokens": 30, "ignore_eos": True}, {"X-Request-Id": "slow-1"})
    line = until(lambda: (folder / "slow.log").exists() and (folder / "slow.log").read_text()).splitlines()[-1]
    got = dict(re.findall(r"(\w+)=(\S+)", line))
    assert " warn slow_request " in line and "xyzzy" not in line and "slow_request" not in s.log(), line
    assert got["id"] == "slow-1" and got["route"] == "/v1/completions" and got["status"] == "200" and got["completion_tokens"] == "30", got
    assert 0 < int(got["prefill_ms"]) + int(got["decode_ms"]) <= int(got["total_ms"]) and int(got["reader_ms"]) < 1000, got
    os.rename(folder / "slow.log", folder / "old.log")   # like logrotate
    connection, response = s.stream("/v1/completions", {"prompt": "Hi", "max_tokens": 30, "ignore_eos": True})
    response.read()
    connection.close()
    assert until(lambda: (folder / "slow.log").exists())
    (folder / "slow.log").unlink()
    (folder / "slow.log").mkdir()   # cannot be written
    s.post("/v1/completions", {"prompt": "Hi", "max_tokens": 30, "ignore_eos": True})
    assert until(lambda: "slow_request id=" in s.log())
    assert s.metrics()["infcgi_slow_requests_total"] >= 3 and s.request("GET", "/status?json").json()["slow requests"] >= 3


def test_the_munin_plugin(ctx):
    s = ctx.server
    s.post("/v1/completions", {"prompt": "Hi", "max_tokens": 2})
    plugin = harness.ROOT / "nginx/munin/infcgi_"
    folder = pathlib.Path(tempfile.mkdtemp(prefix="infcgi-munin."))
    ctx.cleanups.append(lambda: shutil.rmtree(folder))

    def run(graph, *words, url=f"{s.base}/metrics"):
        link = folder / f"infcgi_{graph}"
        if not link.is_symlink():
            link.symlink_to(plugin)
        r = subprocess.run([link, *words], env={**os.environ, "url": url}, capture_output=True, text=True, timeout=60)
        assert r.returncode == 0, r
        return r.stdout
    assert run("", "autoconf") == "yes\n" and run("", "autoconf", url=f"{s.base}/nothing").startswith("no (")
    for graph in run("", "suggest").split():
        labels = re.findall(r"^(\w+)\.label ", run(graph, "config"), re.M)
        values = dict(re.findall(r"^(\w+)\.value (\S+)$", run(graph), re.M))
        assert labels and list(values) == labels and "U" not in values.values(), (graph, labels, values)
    assert int(dict(re.findall(r"(\w+)\.value (\d+)", run("tokens")))["generated"]) >= 2
