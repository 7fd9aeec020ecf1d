"""nginx/infcgi.conf: streaming without buffering, JSON for every error that nginx makes, CORS, limits, odd requests."""
import json
import pathlib
import re
import signal
import socket
import subprocess
import time

import harness

CHAT = "/v1/chat/completions"
HI = [{"role": "user", "content": "Hi"}]


def split(reply):
    """Status, headers (lower case) and body of raw reply bytes."""
    head, _, body = reply.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:])
    return int(lines[0].split()[1]), headers, body


def check_json_error(reply, status):
    got, headers, body = split(reply)
    assert got == status, reply[:300]
    assert headers["content-type"].startswith("application/json"), reply[:300]
    if headers.get("transfer-encoding") == "chunked":
        body = body.split(b"\r\n")[1]
    error = json.loads(body)["error"]
    assert error["message"] and error["type"] and error["code"] and "param" in error, error


@harness.in_release
def test_curl_streams_early_and_in_whole_characters(ctx):
    body = json.dumps({"messages": [{"role": "user", "content": "Write three lines of Japanese with emoji."}], "stream": True,
                       "temperature": 1.3, "seed": 4, "max_tokens": 60, "ignore_eos": True})
    base = ctx.server.base
    for _ in range(5):   # other programs use the machine; buffering would show every time
        start = time.monotonic()
        curl = subprocess.Popen(["curl", "-sN", f"{base}{CHAT}", "-H", "Content-Type: application/json", "-d", body],
                                stdout=subprocess.PIPE)
        first = None
        pieces = []
        while True:
            piece = curl.stdout.read1(65536)
            if not piece:
                break
            first = first or time.monotonic() - start
            pieces.append(piece)
        whole = time.monotonic() - start
        assert curl.wait(10) == 0
        if first < whole / 2 and len(pieces) > 10:
            break
    assert first < whole / 2, f"first byte after {first:.2f} s of {whole:.2f} s"
    assert len(pieces) > 10, f"{len(pieces)} pieces: something buffers"
    text = b"".join(pieces)
    for event in harness.events(text.split(b"\n")):
        if event and event["choices"][0]["delta"].get("content"):
            event["choices"][0]["delta"]["content"].encode("utf-8")   # no half of a surrogate pair
    assert text.endswith(b"data: [DONE]\n\n"), text[-200:]
    text.decode("utf-8")


def test_stream_headers(ctx):
    connection, r = ctx.server.stream(CHAT, {"messages": HI, "max_tokens": 2})
    assert r.headers["Content-Type"].startswith("text/event-stream")
    assert "no-store" in r.headers["Cache-Control"] or "no-cache" in r.headers["Cache-Control"]
    assert re.fullmatch("[0-9a-f]{32}", r.headers["X-Request-Id"])
    r.read()
    connection.close()


def test_request_id_of_the_client(ctx):
    r = ctx.server.request("GET", "/v1/models", headers={"X-Request-Id": "mine-42"})
    assert r.headers.get_all("X-Request-Id") == ["mine-42"]
    for wrong in ("bad id\"<", "x" * 65, "a/b", "", "é".encode("latin-1")):
        r = ctx.server.request("GET", "/v1/models", headers={"X-Request-Id": wrong})
        assert re.fullmatch("[0-9a-f]{32}", r.headers["X-Request-Id"]), (wrong, r.headers["X-Request-Id"])


@harness.in_release
def test_request_id_is_the_same_in_the_answer_and_both_logs(ctx):
    s = ctx.server
    longest = "Az09-_.:" * 8
    for sent, kept in ((longest, longest), (longest[:63], longest[:63]), ("a.b:c", "a.b:c"), (longest + "x", None), ("a b", None)):
        r = s.post(CHAT, {"messages": HI, "max_tokens": 1}, headers={"X-Request-Id": sent})
        got = r.headers.get_all("X-Request-Id")
        assert r.status == 200 and len(got) == 1 and (got == [kept] if kept else re.fullmatch("[0-9a-f]{32}", got[0])), (sent, got)
        for event in ("request", "generation"):
            assert harness.until(lambda: f" {event} id={got[0]} " in s.log()), (sent, event, s.log()[-2000:])
        access = pathlib.Path(s.dir) / "access.log"
        assert harness.until(lambda: f'"id":"{got[0]}"' in access.read_text()), (sent, access.read_text()[-2000:])


def test_errors_of_nginx_are_json(ctx):
    s = ctx.server
    port = s.port
    host = f"Host: 127.0.0.1:{port}\r\nConnection: close\r\n".encode()
    check_json_error(s.raw(b"GET /nothing HTTP/1.1\r\n" + host + b"\r\n"), 404)
    check_json_error(s.raw(b"GET /v1 HTTP/1.1\r\n" + host + b"\r\n"), 404)
    check_json_error(s.raw(b"POST / HTTP/1.1\r\n" + host + b"Content-Length: 0\r\n\r\n"), 405)
    check_json_error(s.raw(b"TRACE /v1/models HTTP/1.1\r\n" + host + b"\r\n"), 405)
    check_json_error(s.raw(b"GET /v1/models HTTP/1.1\r\nno colon\r\n\r\n"), 400)
    check_json_error(s.raw(b"GET /v1/models HTTP/1.1\r\nConnection: close\r\n\r\n"), 400)
    check_json_error(s.raw(b"GET /v1/models HTTP/1.1\r\n" + host + b"X: " + b"a" * 40000 + b"\r\n\r\n"), 400)
    check_json_error(s.raw(b"GET /v1/models?" + b"a" * 40000 + b" HTTP/1.1\r\n" + host + b"\r\n"), 414)
    check_json_error(s.raw(b"POST /v1/completions HTTP/1.1\r\n" + host + b"Content-Length: 99999999\r\n\r\n", is_one=True), 413)
    check_json_error(s.raw(b"POST /v1/completions HTTP/1.1\r\n" + host + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400)


def test_pages_of_wrong_conditions_and_versions_are_json(ctx):
    s = ctx.server
    host = b"Host: x\r\nConnection: close\r\n"
    check_json_error(s.raw(b"GET / HTTP/1.1\r\n" + host + b'If-Match: "other"\r\n\r\n'), 412)
    check_json_error(s.raw(b"GET / HTTP/1.1\r\n" + host + b"If-Unmodified-Since: Thu, 01 Jan 1970 00:00:01 GMT\r\n\r\n"), 412)
    check_json_error(s.raw(b"GET /chat.js HTTP/1.1\r\n" + host + b"Range: bytes=9999999-\r\n\r\n"), 416)
    check_json_error(s.raw(b"POST /v1/completions HTTP/1.1\r\n" + host + b"Transfer-Encoding: gzip\r\n\r\n"), 501)
    check_json_error(s.raw(b"GET /v1/models HTTP/3.0\r\n" + host + b"\r\n"), 505)


def log_entries(s):
    return [json.loads(line) for line in (pathlib.Path(s.dir) / "access.log").read_text().splitlines()]


def test_access_log_has_the_path_of_the_client(ctx):
    s = ctx.start()
    for path in ("/nothing/here", "/v1/models//", "/chat.js%20"):
        assert s.request("GET", path + "?secret#secret").status == 404
        entry = harness.until(lambda: next((e for e in log_entries(s) if e["uri"] == path), None))
        assert entry and entry["status"] == 404, log_entries(s)
    s.raw(b"POST /tokenize?secret HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n", is_one=True)
    assert harness.until(lambda: log_entries(s)[-1]["uri"] == "/tokenize" and log_entries(s)[-1]["status"] == 413), log_entries(s)
    assert "secret" not in json.dumps(log_entries(s)) and "infcgi-error" not in json.dumps(log_entries(s))


def test_a_body_over_the_limit_is_refused_by_its_length(ctx):
    """nginx and the engine have the same limit: nginx does not read a body that the engine would reject."""
    limit = 4 << 20
    head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: "
    check_json_error(ctx.server.raw((head + f"{limit + 1}\r\n\r\n").encode(), is_one=True), 413)
    body = json.dumps({"prompt": [1], "max_tokens": 1}).encode()
    body += b" " * (limit - len(body))
    assert split(ctx.server.raw((head + f"{limit}\r\n\r\n").encode() + body))[0] == 200


def test_every_route_is_passed_on(ctx):
    """The engine's table, the table of docs/api.md and nginx's locations agree."""
    table = re.findall(r'\{"(GET|POST|DELETE)", "([^"]+)"', (harness.ROOT / "fcgi/routes.c").read_text())
    assert len(table) > 10
    for method, path in table:
        r = ctx.server.request("PATCH", path + ("x" if path.endswith("/") else ""))
        assert r.status == 405 and method in r.headers["Allow"].split(", "), (path, r.status, r.body)
    rows = re.findall(r"^\| (?:GET|POST|DELETE)[A-Z, ]* \| ([^|]+)", (harness.ROOT / "docs/api.md").read_text(), re.M)
    documented = {path for row in rows for path in re.findall(r"`(/[^`]+)`", row) if "}/" not in path}   # a part of another path
    assert documented == {path + ("{id}" if path.endswith("/") else "") for _, path in table}
    assert ctx.server.post("/chat/completions", {"messages": HI, "max_tokens": 1}).status == 200


def test_limits_are_for_floods_from_elsewhere(ctx):
    s = ctx.start("--threads", "1", model=harness.ROOT / "tests/golden/models/llama-biases.gguf")
    conf = pathlib.Path(s.dir) / "nginx.conf"
    conf.write_text(conf.read_text().replace("server_name localhost;", "set_real_ip_from 127.0.0.1; real_ip_header X-Real-Ip;"))
    s.nginx.send_signal(signal.SIGHUP)

    def ask(n, address, path="/icon.svg"):
        """Returns how many of n quick requests are answered 429."""
        head = f"HEAD {path} HTTP/1.1\r\nHost: x\r\n" + (f"X-Real-Ip: {address}\r\n" if address else "")
        replies = [s.raw((f"{head}\r\n" * 50 + f"{head}Connection: close\r\n\r\n").encode()) for _ in range(n // 51)]
        return sum(r.count(b"HTTP/1.1 429 ") for r in replies)
    assert harness.until(lambda: ask(6000, "192.0.2.1") > 0, 30)
    assert ask(1020, "192.0.2.2") == 0   # quick, but not a flood
    assert ask(510, "192.0.2.1", "/health") == 0
    assert ask(6000, None) == 0


def test_metrics_are_local_only(ctx):
    text = (harness.ROOT / "nginx/infcgi.conf").read_text()
    block = re.search(r"location = /metrics \{(.*?)\n\}", text, re.S).group(1)
    assert "allow 127.0.0.1;" in block and "deny all;" in block


def test_paths_that_are_no_routes(ctx):
    for path in ("//v1/models", "/V1/models", "/v1/../admin", "/v1/models/..%2f..%2fetc", "/v1/models;x", "/v1/models%00", "/v1/models%0a/x",
                 "/.git/config", "/../chat.js", "/html/chat.js", "/infcgi-error", "/v1/chat/completions/"):
        reply = ctx.server.raw(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        status, headers, _ = split(reply)
        assert status in (400, 404), (path, reply[:200])
        assert headers["content-type"].startswith("application/json"), (path, reply[:200])


def test_cors(ctx):
    s = ctx.server
    mine = {"Origin": "http://localhost:3000", "Access-Control-Request-Method": "POST"}
    r = s.request("OPTIONS", CHAT, headers=mine)
    assert r.status == 200 and r.headers["Access-Control-Allow-Origin"] == mine["Origin"]
    assert "Authorization" in r.headers["Access-Control-Allow-Headers"]
    r = s.request("GET", "/v1/models", headers=mine)
    assert r.headers.get_all("Access-Control-Allow-Origin") == [mine["Origin"]]
    for origin in ("https://elsewhere.example", "http://localhost.elsewhere.example", "null"):
        r = s.request("OPTIONS", CHAT, headers={**mine, "Origin": origin})
        assert r.headers["Access-Control-Allow-Origin"] is None, origin
        assert s.request("GET", "/nothing", headers={"Origin": origin}).headers["Access-Control-Allow-Origin"] is None


def curl(url, *words):
    """Returns status and body from curl, with its own headers."""
    run = subprocess.run(["curl", "-sS", "-w", "\n%{http_code}", url, *words], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run
    body, _, status = run.stdout.rpartition("\n")
    return int(status), json.loads(body)


BODIES = {"/api/generate": {"prompt": "Hi", "stream": False, "options": {"num_predict": 1}},
          "/api/chat": {"messages": HI, "stream": False, "options": {"num_predict": 1}},
          "/completion": {"prompt": "Hi", "n_predict": 1}, "/tokenize": {"content": "Hi"},
          "/detokenize": {"tokens": [1]}, "/apply-template": {"messages": HI}, "/chat/completions": {"messages": HI, "max_tokens": 1}}


@harness.in_release
def test_curl_examples_without_a_content_type(ctx):
    """`curl -d` declares its body as a form. The documents of Ollama and llama-server use it; OpenAI's and Anthropic's name the type."""
    s = ctx.server
    for path, body in BODIES.items():
        for words in ((), ("-H", "Content-Type:"), ("-H", "Content-Type: application/json")):
            status, answer = curl(s.base + path, "-d", json.dumps(body), *words)
            assert status == 200, (path, words, answer)
        status, answer = curl(s.base + path, "-d", json.dumps(body), "-H", "Content-Type: text/plain")
        assert status == 415, (path, answer)
    for path in (CHAT, "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings", "/v1/rerank"):
        status, answer = curl(s.base + path, "-d", "{}")
        assert status == 415 and "found 'application/x-www-form-urlencoded'" in answer["error"]["message"], (path, answer)
        status, answer = curl(s.base + path, "-d", "{}", "-H", "Content-Type:")
        assert status == 415 and "found no such header" in answer["error"]["message"], (path, answer)


def test_pages_of_other_origins_compute_nothing(ctx):
    """Requests that a browser sends for any site's page without a preflight: a body without a type, a form, a text."""
    s = ctx.server
    bodies = {**BODIES, CHAT: {"messages": HI, "max_tokens": 1}, "/v1/completions": {"prompt": "Hi", "max_tokens": 1},
              "/v1/responses": {"input": "Hi", "max_output_tokens": 1}, "/v1/messages/count_tokens": {"messages": HI}}
    mine = f"http://127.0.0.1:{s.port}"
    before = s.metrics()
    for path, body in bodies.items():
        data = json.dumps(body).encode()
        for sender in ({"Origin": "https://elsewhere.example"}, {"Origin": "null"}, {"Origin": f"http://192.0.2.1:{s.port}"}, {"Sec-Fetch-Site": "cross-site"},
                       {"Origin": "https://elsewhere.example", "Sec-Fetch-Site": "cross-site"},
                       {"Origin": f"http://elsewhere.example:{s.port}", "Host": f"elsewhere.example:{s.port}"}):   # a foreign name for this machine
            for kind in ({}, {"Content-Type": "application/x-www-form-urlencoded"}, {"Content-Type": "text/plain"}, {"Content-Type": "application/json"}):
                r = s.request("POST", path, data, {**sender, **kind})
                assert r.status == 403, (path, sender, kind, r.status, r.body)
                assert "Origin: expected" in r.body.decode(), r.body
                assert r.headers["Access-Control-Allow-Origin"] is None
    after = s.metrics()
    for name in ("infcgi_prompt_tokens_total", "infcgi_generated_tokens_total"):
        assert after[name] == before[name], name
    for sender in ({"Origin": mine}, {"Origin": "http://localhost:3000"}, {"Origin": mine, "Sec-Fetch-Site": "same-origin"}, {}):
        r = s.post(CHAT, bodies[CHAT], headers=sender)
        assert r.status == 200, (sender, r.body)
        if sender:   # a page states its content type
            r = s.request("POST", "/tokenize", b'{"content": "Hi"}', {**sender, "Content-Type": "application/x-www-form-urlencoded"})
            assert r.status == 415, (sender, r.body)
    assert s.request("DELETE", "/v1/responses/resp_1", headers={"Origin": "https://elsewhere.example"}).status == 403
    assert s.request("GET", "/v1/models", headers={"Origin": "https://elsewhere.example"}).headers["Access-Control-Allow-Origin"] is None


def test_large_and_chunked_bodies(ctx):
    s = ctx.server
    text = "x " * 500_000
    r = s.post("/v1/completions", {"prompt": text})
    assert r.status == 400 and r.error()["code"] == "context_length_exceeded", r.body[:300]
    body = json.dumps({"messages": HI, "max_tokens": 1}).encode()
    chunked = b"".join(b"%x\r\n%s\r\n" % (len(body[i:i + 7]), body[i:i + 7]) for i in range(0, len(body), 7)) + b"0\r\n\r\n"
    reply = s.raw(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
                  "Transfer-Encoding: chunked\r\n\r\n".encode() + chunked)
    assert split(reply)[0] == 200, reply[:300]


def test_http_1_0_and_expect(ctx):
    s = ctx.server
    assert split(s.raw(b"GET /v1/models HTTP/1.0\r\n\r\n"))[0] == 200
    body = json.dumps({"messages": HI, "max_tokens": 1}).encode()
    reply = s.raw(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Type: application/json\r\n"
                  f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
    assert b" 200 " in reply.split(b"\r\n")[0] or b"\r\nHTTP/1.1 200" in reply, reply[:300]


def test_pipelined_requests(ctx):
    one = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
    reply = ctx.server.raw(one * 3 + b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert reply.count(b"HTTP/1.1 200 OK") == 4, reply[:500]


def test_slow_reader_holds_up_nobody(ctx):
    s = ctx.server
    body = json.dumps({"messages": HI, "stream": True, "max_tokens": 60 if ctx.is_slow else 400, "ignore_eos": True, "logprobs": True,
                       "top_logprobs": 20}).encode()
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.connect(("127.0.0.1", s.port))
    slow.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    r = s.post(CHAT, {"messages": HI, "max_tokens": 8})
    assert r.status == 200, r.body
    slow.close()
    assert s.idle(60), s.metrics()


@harness.in_release
def test_access_log_holds_no_prompt(ctx):
    s = ctx.start()
    secret = "xyzzysecret"
    s.post(CHAT + f"?q={secret}", {"messages": [{"role": "user", "content": secret}], "max_tokens": 1})
    lines = harness.until(lambda: (pathlib.Path(s.dir) / "access.log").read_text())
    entry = json.loads(lines.splitlines()[-1])
    assert entry["uri"] == CHAT and entry["id"]
    assert secret not in lines and secret not in s.log()
