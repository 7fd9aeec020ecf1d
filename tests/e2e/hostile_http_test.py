"""Invalid HTTP from clients and invalid answers from engines, with nginx between them: each is answered in the API's format, and the
other side is not affected."""
import http.client
import json
import os
import pathlib
import re
import socket
import struct
import threading
import time

import harness
from nginx_test import check_json_error, split
from records_test import END, STDOUT, record

URL = "/v1/completions"
TINY = harness.ROOT / "tests/golden/models/llama-biases.gguf"
HOST = b"Host: x\r\nConnection: close\r\n"


def accepted(s):
    """Returns the number of connections that the engine has accepted, without those of this question."""
    return s.ask("status")["accepted"]


def test_requests_that_are_none(ctx):
    """N05, N06: invalid methods, versions, lengths and line ends; no message can count as two requests on one side and one on the other."""
    s = ctx.server
    post = b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
    chunked = b"Transfer-Encoding: chunked\r\n"
    smuggled = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
    before = accepted(s)
    cases = {
        "CONNECT": (b"CONNECT x:443 HTTP/1.1\r\n" + HOST + b"\r\n", (400, 405)), "a method in small letters": (b"get / HTTP/1.1\r\n" + HOST + b"\r\n", (400,)),
        "a method with signs": (b"GE/T / HTTP/1.1\r\n" + HOST + b"\r\n", (400,)), "another protocol": (b"GET / ICY/1.0\r\n" + HOST + b"\r\n", (400,)),
        "no version number": (b"GET / HTTP/1\r\n" + HOST + b"\r\n", (400,)), "two hosts": (b"GET / HTTP/1.1\r\nHost: y\r\n" + HOST + b"\r\n", (400,)),
        "a bad host": (b"GET / HTTP/1.1\r\nHost: a/b\0\r\n\r\n", (400,)), "a name with a blank": (b"GET / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding : chunked\r\n\r\n", (400,)),
        "CR in a path": (b"GET /v1/\rmodels HTTP/1.1\r\n" + HOST + b"\r\n", (400,)), "NUL in a header": (b"GET / HTTP/1.1\r\n" + HOST + b"X: a\0b\r\n\r\n", (400,)),
        "both lengths": (post + b"Content-Length: 6\r\n" + chunked + b"\r\n0\r\n\r\n" + smuggled, (400,)),
        "both, the other way": (post + chunked + b"Content-Length: 6\r\n\r\n0\r\n\r\n" + smuggled, (400,)),
        "two lengths": (post + b"Content-Length: 2\r\nContent-Length: 4\r\n\r\n{}" + smuggled, (400,)),
        "a list of lengths": (post + b"Content-Length: 2, 2\r\n\r\n{}", (400,)), "less than none": (post + b"Content-Length: -1\r\n\r\n", (400,)),
        "with a sign": (post + b"Content-Length: +2\r\n\r\n{}", (400,)), "in hex": (post + b"Content-Length: 0x2\r\n\r\n{}", (400,)),
        "2^64": (post + b"Content-Length: 18446744073709551616\r\n\r\n", (400,)), "chunks twice": (post + chunked * 2 + b"\r\n0\r\n\r\n", (400, 501)),
        "chunks in quotes": (post + b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n', (400, 501)), "chunks and more": (post + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", (400, 501)),
        "chunks in 1.0": (post.replace(b"1.1", b"1.0") + chunked + b"\r\n0\r\n\r\n", (400, 501)), "a chunk of no number": (post + chunked + b"\r\nzz\r\n{}\r\n0\r\n\r\n", (400,)),
        "a chunk of 2^64": (post + chunked + b"\r\nffffffffffffffff0\r\n{}", (400, 413)), "a chunk less than none": (post + chunked + b"\r\n-1\r\n{}\r\n0\r\n\r\n", (400,)),
    }
    for name, (data, statuses) in cases.items():
        reply = s.raw(data, is_one=True)
        assert reply.startswith(b"HTTP/1.1 ") and int(reply[9:12]) in statuses, (name, reply[:200])
        check_json_error(reply, int(reply[9:12]))
        assert reply.count(b"HTTP/1.1 ") == 1, (name, reply)
    assert accepted(s) == before, "one of them came through"


def test_requests_that_are_odd(ctx):
    """N06: odd requests that nginx accepts reach the engine once and whole, however else they could be read."""
    s = ctx.server
    body = b'{"content":"x"}'
    post, length = b"POST /tokenize HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n", b"Content-Length: 15\r\n"
    chunked = post + b"Transfer-Encoding: chunked\r\n\r\n"
    taken = {
        "ends of lines without CR": (post + length).replace(b"\r\n", b"\n") + b"\n" + body, "one such": post + b"X: y\n" + length + b"\r\n" + body,
        "chunks with more to say": chunked + b"f;a=b\r\n" + body + b"\r\n0\r\n\r\n", "zeros": chunked + b"000f\r\n" + body + b"\r\n0\r\n\r\n",
        "chunks without CR": chunked + b"f\n" + body + b"\n0\n\n", "a length behind the chunks": chunked + b"f\r\n" + body + b"\r\n0\r\nContent-Length: 3\r\n\r\n",
        "capitals": chunked.replace(b"chunked", b"CHUNKED") + b"f\r\n" + body + b"\r\n0\r\n\r\n", "names with _": post + b"Transfer_Encoding: chunked\r\nContent_Length: 3\r\n" + length + b"\r\n" + body,
        "blanks around a length": post + b"Content-Length:   15  \r\n\r\n" + body, "empty lines before": b"\r\n\r\n" + post + length + b"\r\n" + body,
        "a whole URL": post.replace(b"/tokenize", b"http://x/tokenize") + length + b"\r\n" + body,
    }
    for name, data in taken.items():
        before = accepted(s)
        status, _, answer = split(s.raw(data))
        assert status == 200 and answer.count(b'"count":1,') == 1 and answer.endswith(b"}") and accepted(s) == before + 1, (name, status, answer)
    refused = {
        "CR in a value": (post + b"X: a\rb\r\n" + length + b"\r\n" + body, 400), "a folded line": (post + b"X: a\r\n b\r\n" + length + b"\r\n" + body, 400),
        "a folded length": (post + b"Content-Length:\r\n 15\r\n\r\n" + body, 400), "the same length twice": (post + length * 2 + b"\r\n" + body, 400),
        "0x": (chunked + b"0xf\r\n" + body + b"\r\n0\r\n\r\n", 400), "chunks without LF": (chunked + b"f\r" + body + b"\r0\r\r", 400),
        "more than the chunk": (chunked + b"3\r\n" + body + b"\r\n0\r\n\r\n", 400), "a tab": (chunked.replace(b": chunked", b":\tchunked") + body, 501),
        "a vertical tab": (chunked.replace(b"chunked", b"\x0bchunked") + body, 501), "another coding": (chunked.replace(b"chunked", b"xchunked") + body, 501),
        "no coding": (post + b"Transfer-Encoding: identity\r\n" + length + b"\r\n" + body, 501), "HTTP/2.0": (post.replace(b"1.1", b"2.0") + length + b"\r\n" + body, 505),
        "no name": (post + b": x\r\n" + length + b"\r\n" + body, 400), "a blank in the path": (post.replace(b"/tok", b"/to k") + length + b"\r\n" + body, 400),
        "many chunks": (chunked + (b"1000\r\n" + b"x" * 4096 + b"\r\n") * 1100 + b"0\r\n\r\n", 413),   # N03
    }
    before = accepted(s)
    for name, (data, status) in refused.items():
        reply = s.raw(data, is_one=True)
        assert reply.count(b"HTTP/1.1 ") == 1, (name, reply)
        check_json_error(reply, status)
    assert accepted(s) == before


def test_statuses_pages_say_nothing_of_who_asks(ctx):
    """No answer contains the requested address, query or headers, and none of them adds a header."""
    s = ctx.server
    for path in ("/status?<script>", "/status?html&<script>", "/status?json&full&" + "x" * 8000, "/status?%00", "/status?html%0d%0aX-Bad:1", "/status/..",
                 "/metrics?<script>", "/metrics/%3Cscript%3E", "/health?x=<script>", "/v1/models/%3Cscript%3E%0d%0aX-Bad:1", "/slots?fail_on_no_slot=<script>"):
        status, headers, body = split(s.raw(b"GET " + path.encode() + b" HTTP/1.1\r\nHost: x\r\nX-Request-Id: <script>\r\nConnection: close\r\n\r\n"))
        assert status in (200, 400, 404, 501) and "x-bad" not in headers, (path, status, headers)
        assert b"<script>" not in body or headers["content-type"].startswith("application/json"), (path, body[:300])


def restart_nginx(s):
    """Restarts nginx with the current configuration of its folder."""
    s.nginx.terminate()
    s.nginx.wait(10)
    s.nginx = type(s.nginx)(["nginx", "-p", s.dir, "-c", f"{s.dir}/nginx.conf", "-e", f"{s.dir}/error.log"])
    s.wait_ready()


def configure(s, **directives):
    """Sets directives of infcgi.conf to values that a test has time for."""
    text = (harness.ROOT / "nginx/infcgi.conf").read_text()
    for name, value in directives.items():
        text, n = re.subn(rf"^{name} [^;]+;", f"{name} {value};", text, flags=re.M)
        assert n == 1, name
    (pathlib.Path(s.dir) / "infcgi.conf").write_text(text)
    conf = pathlib.Path(s.dir) / "nginx.conf"
    text, n = re.subn(r"include \S+/infcgi\.conf;", f"include {s.dir}/infcgi.conf;", conf.read_text())
    assert n == 1
    conf.write_text(text)
    restart_nginx(s)


class Impatient:
    """A server whose nginx waits for a client two seconds instead of 15 or 30. s: the server."""

    def __init__(self, ctx):
        self.s = ctx.start("--threads", "1", "--chat-template", "chatml", model=TINY)
        configure(self.s, client_header_timeout="2s", client_body_timeout="2s", send_timeout="2s")


def test_slow_clients_end_at_nginx(ctx):
    """N01, N02: heads and bodies that arrive a byte at a time, from 150 clients: 408 or closed, in time, and the engine does not see
    them."""
    s = Impatient(ctx).s
    before, opened = accepted(s), []
    for i in range(150):
        c = socket.create_connection(("127.0.0.1", s.port), timeout=20)
        c.sendall((b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n", b"GET /v1/mod", b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                   b"Content-Length: 1000\r\n\r\n{")[i % 3])
        opened.append(c)
    n_asked = [0]

    def ask():
        n_asked[0] += 1
        assert s.post(URL, {"prompt": [1, 2, 3], "max_tokens": 4}).status == 200
    harness.quick(2, ask)
    begin = time.monotonic()
    for c in opened[::2]:
        try:
            c.sendall(b"X")
        except ConnectionError:
            pass
    for c in opened:
        try:
            got = c.recv(65536)
            assert got == b"" or got.startswith(b"HTTP/1.1 408 "), got[:200]
        except ConnectionError:
            pass
        c.close()
    assert time.monotonic() - begin < 10
    assert accepted(s) == before + n_asked[0]


def drip(c, data, seconds):
    """Sends a byte every tenth of a second; returns the reply when the other side closes, or the time is over."""
    end, got = time.monotonic() + seconds, b""
    c.settimeout(0.1)
    for i in range(len(data)):
        try:
            c.sendall(data[i:i + 1])
            part = c.recv(65536)
            got += part
            if not part:
                break
        except TimeoutError:
            pass
        except ConnectionError:
            break
        if time.monotonic() > end:
            return None
    return got


@harness.in_release
def test_clients_that_drip_end_at_nginx(ctx):
    """N01, N02: slow bytes. A head has a total time limit. A body has the limit between two bytes, so it can continue, at nginx, and the
    engine sees neither. A client that stops gets 408, which is logged."""
    s = Impatient(ctx).s
    before, post = accepted(s), b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
    opened = [socket.create_connection(("127.0.0.1", s.port), timeout=20) for _ in range(40)]
    for c in opened[20:]:
        c.sendall(post)
    asked, ended = [], threading.Event()

    def ask():
        while not ended.is_set():
            begin = time.monotonic()
            asked.append((s.post(URL, {"prompt": [1, 2, 3], "max_tokens": 4}).status, time.monotonic() - begin))
    asking = threading.Thread(target=ask)
    asking.start()
    try:
        got = harness.at_once([lambda c=c, data=data: drip(c, data, 6) for c, data in zip(opened, [post] * 20 + [b" " * 900] * 20)])
    finally:
        ended.set()
        asking.join()
    assert all(g is not None and (g == b"" or g.startswith(b"HTTP/1.1 408 ")) for g in got[:20]), got[:20]
    assert got[20:] == [None] * 20, got[20:]
    asked_s = sorted(took for _, took in asked)
    assert {status for status, _ in asked} == {200} and (ctx.is_slow or asked_s[-2] < 1), asked_s[-9:]   # other programs can delay one
    for c in opened[20:]:
        c.settimeout(20)
        reply = c.recv(65536)   # nginx closes when a body is late, or answers
        assert reply == b"" or reply.startswith(b"HTTP/1.1 408 "), reply
    for c in opened:
        c.close()
    assert accepted(s) == before + len(asked)
    log = pathlib.Path(s.dir) / "access.log"
    assert harness.until(lambda: sum(e["status"] == 408 for e in map(json.loads, log.read_text().splitlines())) >= 40), log.read_text()[-1000:]


@harness.in_release
def test_limits_are_told_as_the_api_tells_them(ctx):
    """N10: too many open requests of one address, and too many at the same time, on routes of the API; other clients are not affected."""
    s = ctx.start(*ctx.ARGS)
    configure(s, limit_conn="infcgi_conn 2", limit_req="zone=infcgi_req burst=4 nodelay")
    for name, new in (("nginx.conf", ("server_name localhost;", "set_real_ip_from 127.0.0.1; real_ip_header X-Real-Ip;")), ("infcgi-http.conf", ("rate=1000r/s", "rate=1r/m"))):
        conf = pathlib.Path(s.dir) / name
        assert new[0] in conf.read_text(), name
        conf.write_text(conf.read_text().replace(*new))
    restart_nginx(s)

    def ask(address, path=URL, **more):
        return s.post(path, {"prompt": "Hi", "max_tokens": 1, **more}, headers={"X-Real-Ip": address})

    def is_told(r):
        return r.status == 429 and r.error()["code"] == "rate_limit_exceeded" and int(r.headers["Retry-After"]) >= 1 and b"<html" not in r.body
    opened = []
    for _ in range(2):
        c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60)
        c.request("POST", URL, json.dumps({"prompt": "Hi", "max_tokens": 1900, "ignore_eos": True, "stream": True}),
                  {"Content-Type": "application/json", "X-Real-Ip": "192.0.2.1"})
        assert c.getresponse().readline() != b""
        opened.append(c)
    assert is_told(ask("192.0.2.1")) and ask("192.0.2.2").status == 200 and ask("127.0.0.1").status == 200
    for c in opened:
        c.close()
    assert harness.until(lambda: s.metrics()["infcgi_requests_running"] == 0)
    answers = [ask("192.0.2.3") for _ in range(8)]
    assert [r.status for r in answers[:5]] == [200] * 5 and all(is_told(r) for r in answers[5:]), [r.status for r in answers]
    r = ask("192.0.2.3", "/v1/messages")
    assert r.status == 429 and r.json()["type"] == "error" and r.json()["error"]["type"] == "rate_limit_error", r.body
    assert ask("192.0.2.4").status == 200


# --- HTTP/2 ------------------------------------------------------------------------------------------------------------

H2_DATA, H2_HEADERS, H2_RESET, H2_SETTINGS, H2_WINDOW = 0, 1, 3, 4, 8   # RFC 9113, section 6
H2_END_STREAM, H2_END_HEADERS = 1, 4


def h2(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def h2_request(stream, body):
    """Makes the headers as literals without indexing [RFC 7541, section 6.2.2], and the body."""
    names = {b":method": b"POST", b":scheme": b"http", b":authority": b"x", b":path": URL.encode(), b"content-type": b"application/json",
             b"content-length": str(len(body)).encode()}
    block = b"".join(b"\0" + bytes([len(n)]) + n + bytes([len(v)]) + v for n, v in names.items())
    return h2(H2_HEADERS, H2_END_HEADERS, stream, block) + h2(H2_DATA, H2_END_STREAM, stream, body)


def open_and_reset(port, body, n, at_once, pause):
    """Opens n streams on separate connections, each reset immediately, or `pause` seconds after `at_once` of them."""
    n_done = 0
    while n_done < n:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as c:
            c.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + h2(H2_SETTINGS, 0, 0))
            reader = threading.Thread(target=read_until_closed, args=(c,), daemon=True)
            reader.start()
            try:
                for first in range(1, 1000, 2 * at_once):   # nginx ends a connection after 1,000 requests
                    streams = range(first, first + 2 * at_once, 2)
                    resets = [h2(H2_RESET, 0, i, (8).to_bytes(4, "big")) for i in streams]
                    if pause:
                        c.sendall(b"".join(h2_request(i, body) for i in streams))
                        time.sleep(pause)
                        c.sendall(b"".join(resets))
                    else:
                        c.sendall(b"".join(h2_request(i, body) + r for i, r in zip(streams, resets)))
                    n_done += at_once
            except ConnectionError:
                pass   # nginx closed the connection
            c.shutdown(socket.SHUT_WR)
            reader.join(20)


def read_until_closed(c):
    try:
        while c.recv(65536):
            pass
    except OSError:
        pass


def h2_answer(c, stream):
    """Reads the answer of that stream to its end; returns the body, and whether its status is 200."""
    data, body, is_fine = b"", b"", False
    while True:
        while len(data) < 9 or len(data) < 9 + int.from_bytes(data[:3], "big"):
            part = c.recv(65536)
            assert part, "closed"
            data += part
        n, kind, flags, of = int.from_bytes(data[:3], "big"), data[3], data[4], int.from_bytes(data[5:9], "big")
        content, data = data[9:9 + n], data[9 + n:]
        if of == stream:
            is_fine = is_fine or (kind == H2_HEADERS and content[0] == 0x88)   # :status 200 of the static table [RFC 7541, appendix A]
            body += content if kind == H2_DATA else b""
            if flags & H2_END_STREAM:
                return is_fine, body


@harness.in_release
def test_a_connection_goes_on_after_resets(ctx):
    """D08: HTTP/2 streams that are reset, immediately and in their answer, leave nothing in the next stream of their connection."""
    s = ctx.start(*ctx.ARGS)
    port = with_h2(s)
    ask = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
    expected = s.post(URL, ask).json()["choices"]
    long = b'{"prompt":"Hi","max_tokens":1900,"ignore_eos":true,"stream":true}'
    reset = (8).to_bytes(4, "big")
    with socket.create_connection(("127.0.0.1", port), timeout=60) as c:
        c.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + h2(H2_SETTINGS, 0, 0) + h2(H2_WINDOW, 0, 0, (1 << 30).to_bytes(4, "big")))
        for first in range(1, 100, 10):
            c.sendall(h2_request(first, long) + h2(H2_RESET, 0, first, reset) + h2_request(first + 2, long))
            if first % 20 == 1:
                time.sleep(0.05)
            c.sendall(h2(H2_RESET, 0, first + 2, reset) + h2_request(first + 4, json.dumps(ask).encode()))
            is_fine, body = h2_answer(c, first + 4)
            assert is_fine and json.loads(body)["choices"] == expected, (first, body)
    assert s.idle()


def with_h2(s):
    """Returns a port on which it speaks HTTP/2, too."""
    port, conf = harness.free_port(), pathlib.Path(s.dir) / "nginx.conf"
    text, n = re.subn(r"(listen 127\.0\.0\.1:\d+;)", rf"\1\n listen 127.0.0.1:{port} http2;", conf.read_text())
    assert n == 1, text
    conf.write_text(text)
    restart_nginx(s)
    return port


@harness.in_release
def test_rapid_resets(ctx):
    """N09: thousands of HTTP/2 streams that are reset when they are opened, or a moment later: each costs at most a step, others
    continue, and nothing is left."""
    s = ctx.start(*ctx.ARGS)
    port = with_h2(s)
    body = b'{"prompt":"Hi","max_tokens":1900,"ignore_eos":true,"stream":true}'
    assert s.post(URL, {"prompt": "Hi", "max_tokens": 1}).status == 200
    before, came, files = s.metrics(), accepted(s), len(os.listdir(f"/proc/{s.engine.pid}/fd"))
    connection, response = s.stream(URL, {"prompt": "Once", "max_tokens": 60, "ignore_eos": True})
    others, ended = [], threading.Event()

    def ask():
        while not ended.is_set():
            others.append(s.post(URL, {"prompt": "Hi", "max_tokens": 1}).status)
    asking = threading.Thread(target=ask)
    asking.start()
    try:
        rounds = 0
        while rounds == 0 or (accepted(s) - came - len(others) <= 200 and rounds < 20):   # nginx drops most before it connects
            harness.at_once([lambda: open_and_reset(port, body, 2000, 50, 0) for _ in range(2)]
                            + [lambda: open_and_reset(port, body, 400, 20, 0.03) for _ in range(2)])
            rounds += 1
    finally:
        ended.set()
        asking.join()
    got = list(harness.events(iter(response.readline, b"")))
    connection.close()
    assert got[-1] is None and got.count(None) == 1, got[-1]
    assert 200 in others and set(others) <= {200, 503 if ctx.is_slow else 200}, others   # with a sanitizer the queue can get full
    assert s.idle()
    after, came = s.metrics(), accepted(s) - came
    steps = after["infcgi_steps_total"] - before["infcgi_steps_total"]
    assert came - len(others) > 200 and steps < came + 100, (came, len(others), steps)
    assert after["infcgi_request_memory_bytes"] <= before["infcgi_request_memory_bytes"] + 65536, (before, after)
    assert harness.until(lambda: len(os.listdir(f"/proc/{s.engine.pid}/fd")) <= files + 1), files


# --- engines that fail -------------------------------------------------------------------------------------------------

class Engine:
    """Replaces the engine: accepts connections, reads a complete request, and does `act` with each."""

    def __init__(self, s, act, backlog=64, path=None):
        path = path or f"{s.dir}/infcgi.sock"
        if os.path.exists(path):
            os.unlink(path)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(backlog)
        self.n = 0
        self.act = act
        if act:
            threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                c = self.listener.accept()[0]
            except OSError:
                return
            self.n += 1
            got = b""
            while not got.endswith(record(5)[:6] + got[-2:]) and (part := c.recv(65536)):
                got += part
            self.act(c)
            c.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def answer(text, end=True):
    return record(STDOUT, text) + (record(STDOUT) + record(END, bytes(8)) if end else b"")


HEAD = b"Status: 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
BAD_ENGINES = {   # its answer, and the statuses for the client
    "nothing": (b"", (502,)), "noise": (b"\xff" * 100, (502,)), "HTTP": (b"HTTP/1.1 200 OK\r\n\r\n", (502,)), "half a record": (answer(HEAD)[:5], (502,)),
    "an end alone": (record(END, bytes(8)), (502,)), "another version": (record(STDOUT, HEAD, version=9), (502,)),
    "no head": (answer(b"just text, no head"), (502,)), "a head without its end": (answer(b"Status: 200 OK\r\nX: " + b"y" * 100, end=False), (502,)),
    "a head of 64 KiB": (answer(b"X: " + b"y" * 30000) + answer(b"z" * 30000), (502,)), "a status of letters": (answer(b"Status: abc\r\n\r\n"), (502,)),
    "overloaded": (record(END, struct.pack(">IB3x", 0, 2)), (502,)),
    "a cut stream": (answer(HEAD + b"data: {}\n\n", end=False), (200,)),
}


@harness.in_release
def test_a_start_is_told(ctx):
    """N11: from the start on, each request is answered: no engine yet, then that its model is loading, and then by it."""
    s = ctx.start(*ctx.ARGS)
    told = {}
    for _ in range(5):   # until a request arrived during loading, which is short
        s.stop_engine()
        s.start_engine()
        while (r := s.post(URL, {"prompt": "Hi", "max_tokens": 1}, timeout=20)).status != 200:
            assert r.status in (502, 503) and int(r.headers["Retry-After"]) >= 1, (r.status, r.body)
            told.setdefault(r.error()["code"], r.status)
        if "model_loading" in told:
            break
    assert told.pop("model_loading") == 503 and set(told) <= {"engine_unavailable"}, told


def test_a_post_goes_to_one_engine(ctx):
    """N12: a request that an engine accepted does not go to another when the engine fails; one that it could not accept does. N11: 504
    if none answers in time."""
    s = ctx.start("--threads", "1", model=TINY)
    s.stop_engine()
    other = f"{s.dir}/other.sock"
    conf = pathlib.Path(s.dir) / "infcgi-http.conf"
    text, n = re.subn(r"(server unix:\S+/infcgi\.sock);", rf"\1 max_fails=0; server unix:{other} backup;", conf.read_text())
    assert n == 1
    conf.write_text(text)
    s.start_engine()
    configure(s, fastcgi_read_timeout="700ms")
    s.stop_engine()
    body = {"prompt": "Hi"}
    with Engine(s, lambda c: None, path=other) as second:
        with Engine(s, lambda c: None) as first:
            r = s.post(URL, body)
            assert r.status == 502 and (first.n, second.n) == (1, 0), (r.status, first.n, second.n)
        with Engine(s, lambda c: time.sleep(1.5)) as first:
            r = s.post(URL, body)
            assert r.status == 504 and r.error()["code"] == "engine_timeout" and int(r.headers["Retry-After"]) >= 1, (r.status, r.body)
            assert (first.n, second.n) == (1, 0), (first.n, second.n)
        os.unlink(f"{s.dir}/infcgi.sock")
        s.post(URL, body)
        assert second.n == 1
    s.start_engine()
    s.wait_ready()


@harness.in_release
def test_who_waits_hears_something(ctx):
    """N13: a stream in the queue, for longer than nginx's read timeout."""
    s = ctx.start("--threads", "2", "--ctx-size", "8192", "--kv-tokens", "16384", "--parallel", "1", "--speculate", "off", "--sse-ping-interval", "1")
    configure(s, fastcgi_read_timeout="6s")
    long = {"prompt": "Once upon a time " * 30, "max_tokens": 7000, "ignore_eos": True}
    running, first = s.stream(URL, long)
    assert "choices" in next(harness.events(iter(first.readline, b"")))
    waiting, second = s.stream(URL, {**long, "max_tokens": 2})
    lines, begin = [], time.monotonic()
    while time.monotonic() - begin < 7.5:
        lines.append(second.readline().strip())
        first.read1(65536)
    running.close()
    rest = [line.strip() for line in second]
    waiting.close()
    assert lines.count(b": ping") >= 5 and not any(line.startswith(b"data:") for line in lines), lines
    assert rest[-2:].count(b"data: [DONE]") == 1 and sum(b"choices" in line for line in rest) >= 2, rest


def test_engines_that_fail(ctx):
    """N11, N12: JSON with Retry-After and never a page of nginx; a request that was sent is not sent again."""
    s = ctx.start("--threads", "1", model=TINY)
    s.stop_engine()
    body = {"prompt": "Hi", "stream": True}
    r = s.post(URL, body)
    assert r.status in (502, 503) and r.error()["code"] == "engine_unavailable" and int(r.headers["Retry-After"]) >= 1, (r.status, r.body)
    for name, (says, statuses) in BAD_ENGINES.items():
        with Engine(s, lambda c, says=says: c.sendall(says)) as engine:
            try:
                r = s.post(URL, body)
            except OSError:
                assert 200 in statuses, name   # truncated in the middle
                continue
            except Exception as e:  # noqa: BLE001 http.client has many for a cut answer
                assert 200 in statuses and "IncompleteRead" in type(e).__name__, (name, e)
                continue
            finally:
                assert engine.n == 1, (name, engine.n)
            assert r.status in statuses, (name, r.status, r.body[:200])
            if r.status != 200:
                assert r.error()["code"] == "engine_unavailable" and int(r.headers["Retry-After"]) >= 1, (name, r.headers)
            assert b"[DONE]" not in r.body and b"<html" not in r.body, (name, r.body)
    with Engine(s, None, backlog=0):   # it accepts no connection: its backlog is full with one or two
        held = []
        for _ in range(3):
            c = socket.socket(socket.AF_UNIX)
            c.setblocking(False)
            try:
                c.connect(f"{s.dir}/infcgi.sock")
            except BlockingIOError:
                pass
            held.append(c)
        r = harness.quick(4, lambda: s.post(URL, body))   # not after fastcgi_connect_timeout
        assert r.status == 502 and r.error()["code"] == "engine_unavailable" and int(r.headers["Retry-After"]) >= 1, (r.status, r.body)
        for c in held:
            c.close()
    os.unlink(f"{s.dir}/infcgi.sock")
    s.start_engine()
    s.wait_ready()
