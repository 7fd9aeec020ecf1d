"""FastCGI records as nginx never sends them, straight to the engine's socket: none may harm another request."""
import json
import os
import pathlib
import re
import socket
import struct

BEGIN, ABORT, END, PARAMS, STDIN, STDOUT, DATA, GET_VALUES = 1, 2, 3, 4, 5, 6, 8, 9


def record(kind, content=b"", request=1, version=1, length=None, padding=0):
    size = len(content) if length is None else length
    return struct.pack(">BBHHBB", version, kind, request, size, padding, 0) + content + b"\0" * padding


def begin(role=1, flags=0):
    return record(BEGIN, struct.pack(">HB5x", role, flags))


def pair(name, value):
    def size(n):
        return bytes([n]) if n < 128 else struct.pack(">I", n | 0x80000000)
    return size(len(name)) + size(len(value)) + name + value


def params(**values):
    content = b"".join(pair(k.encode(), v.encode() if isinstance(v, str) else v) for k, v in values.items())
    return record(PARAMS, content) + record(PARAMS)


HEALTH = dict(REQUEST_METHOD="GET", REQUEST_URI="/health", DOCUMENT_URI="/health", QUERY_STRING="", CONTENT_LENGTH="",
              SERVER_PROTOCOL="HTTP/1.1")


def talk(s, data, seconds=5, finish=True):
    """Sends data to the engine's socket and returns what comes back until it closes or is silent for `seconds`."""
    with socket.socket(socket.AF_UNIX) as c:
        c.settimeout(seconds)
        c.connect(f"{s.dir}/infcgi.sock")
        got = b""
        try:
            c.sendall(data)
            if finish:
                c.shutdown(socket.SHUT_WR)
            while True:
                part = c.recv(65536)
                if not part:
                    return got
                got += part
        except (socket.timeout, ConnectionError):
            return got


def decode(reply):
    """[(type, content)] of well-formed records; fails on any other."""
    out = []
    while reply:
        version, kind, _, size, padding, _ = struct.unpack(">BBHHBB", reply[:8])
        assert version == 1 and len(reply) >= 8 + size + padding, reply[:64]
        out.append((kind, reply[8:8 + size]))
        reply = reply[8 + size + padding:]
    return out


def fine(s):
    r = s.request("GET", "/health", timeout=10)
    assert r.status == 200 and s.engine.poll() is None, (r.status, r.body, s.log()[-3000:])


def test_well_formed(ctx):
    got = decode(talk(ctx.server, begin() + params(**HEALTH) + record(STDIN), finish=False))
    body = b"".join(content for kind, content in got if kind == STDOUT)
    assert b"application/json" in body and got[-1][0] == END, got


def test_records_of_every_wrong_kind(ctx):
    s = ctx.server
    whole = begin() + params(**HEALTH) + record(STDIN)
    wrong = [record(BEGIN, b"\0\1", version=7), record(0), record(12, b"x"), record(255, b"x" * 100), record(BEGIN, b"\0"),
             begin(role=2), begin(role=3), begin(role=99), record(PARAMS, b"x" * 10, request=65535),
             begin() + begin() + params(**HEALTH) + record(STDIN), begin() + record(ABORT), record(ABORT), begin() + record(ABORT) * 2,
             begin() + record(STDIN) + params(**HEALTH), begin() + record(DATA, b"x") + params(**HEALTH) + record(STDIN),
             begin() + record(PARAMS, b"\x05\x05ab") + record(PARAMS) + record(STDIN), begin() + record(PARAMS, b"\xff"),
             begin() + record(PARAMS, length=65535, padding=255),
             whole + whole, os.urandom(4096), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"]
    for data in wrong:
        talk(s, data, seconds=3)
        fine(s)


def test_management_records(ctx):
    s = ctx.start(env={"ASAN_OPTIONS": "detect_leaks=0"})   # libfcgi 2.4.2 loses 48 bytes each time
    for data in (record(GET_VALUES, pair(b"FCGI_MAX_CONNS", b""), request=0), record(STDIN, b"x", request=0)):
        talk(s, data, seconds=3)
        fine(s)


def test_cut_at_every_byte_of_the_start(ctx):
    whole = begin() + params(**HEALTH) + record(STDIN)
    for cut in list(range(0, 40)) + [len(whole) - 9, len(whole) - 1]:
        talk(ctx.server, whole[:cut], seconds=3)
    fine(ctx.server)


def test_params_split_at_every_byte(ctx):
    content = b"".join(pair(k.encode(), v.encode()) for k, v in HEALTH.items())
    for at in range(1, len(content), 7):
        data = begin() + record(PARAMS, content[:at]) + record(PARAMS, content[at:]) + record(PARAMS) + record(STDIN)
        body = b"".join(c for kind, c in decode(talk(ctx.server, data, finish=False)) if kind == STDOUT)
        assert b"application/json" in body, (at, body)


def test_lengths_that_lie(ctx):
    s = ctx.server
    body = b'{"content":"x"}'
    for length in ("3", "99", "-1", "+15", " 15", "18446744073709551616", "abc"):
        fields = {**HEALTH, "REQUEST_METHOD": "POST", "REQUEST_URI": "/tokenize", "DOCUMENT_URI": "/tokenize", "CONTENT_LENGTH": length,
                  "CONTENT_TYPE": "application/json"}
        reply = talk(s, begin() + params(**fields) + record(STDIN, body) + record(STDIN), finish=False)
        text = b"".join(c for kind, c in decode(reply) if kind == STDOUT)
        assert b"Status: 400" in text, (length, text[:200])
    fine(s)


def test_odd_methods_and_paths(ctx):
    s = ctx.server
    for method, path in (("", "/health"), ("GET", ""), ("GET", "x"), ("GET", "/a" * 15000), ("G\r\nX: y", "/health"), ("GET", "/v1/x\r\nX-Bad: 1"),
                         ("GET", "/v1/models/%0d%0aX-Bad:%201"), ("GET", "/\0/health")):
        reply = talk(s, begin() + params(**{**HEALTH, "REQUEST_METHOD": method, "REQUEST_URI": path, "DOCUMENT_URI": path}) + record(STDIN),
                     finish=False)
        head = b"".join(c for kind, c in decode(reply) if kind == STDOUT).split(b"\r\n\r\n")[0]
        assert b"\nX-Bad" not in head and b"\nX: y" not in head, head
        assert any(code in head for code in (b"Status: 400", b"Status: 404", b"Status: 405")), (method, path[:40], head[:200])
    fine(s)


def refused_head(got):
    """The error of an answer of 431, in records that are as they should be."""
    got = decode(got)
    text = b"".join(content for kind, content in got if kind == STDOUT)
    head, body = text.split(b"\r\n\r\n", 1)
    assert head.startswith(b"Status: 431 Request Header Fields Too Large\r\n") and b"application/json" in head, head
    assert got[-1] == (END, b"\0" * 8), got[-1]
    return json.loads(body)["error"]


def test_heads_have_bounds(ctx):
    s = ctx.server
    status = pathlib.Path(f"/proc/{s.engine.pid}/status")

    def rss():
        return int(re.search(r"VmHWM:\s+(\d+)", status.read_text()).group(1))
    before = rss()
    filler = {f"HTTP_X_{i}": "x" for i in range(256 - len(HEALTH))}
    assert b"Status: 200" in talk(s, begin() + params(**HEALTH, **filler) + record(STDIN), finish=False)
    assert b"Status: 200" in talk(s, begin() + params(**HEALTH, HTTP_X="x" * 60000) + record(STDIN), finish=False)
    many = begin() + b"".join(record(PARAMS, b"".join(pair(b"HTTP_X_%d" % (i + k), b"") for k in range(1000))) for i in range(0, 100000, 1000))
    long = begin() + record(PARAMS, pair(b"HTTP_X", b"x" * (32 << 20))[:65535]) + record(PARAMS, b"x" * 65535) * 511
    lies = [begin() + record(PARAMS, lengths) for lengths in
            (b"\xff\xff\xff\xff" * 2, b"\xff\xff\xff\xff\0", b"\0\xff\xff\xff\xff", b"\x80\1\0\1\0x", b"\x01\xff\xff\xff\xffN")]
    for data in (begin() + params(**HEALTH, **filler, HTTP_Y="x"), many, long, *lies):
        error = refused_head(talk(s, data, finish=False))
        assert error["code"] == "request_head_too_large" and "256" in error["message"] and "65536" in error["message"], error
    talk(s, record(GET_VALUES, b"\xff\xff\xff\xff" * 2, request=0), seconds=3)
    fine(s)
    assert rss() - before < 20 * 1024, (before, rss())
    headers = {f"X-Filler-{i}": "x" for i in range(300)}   # through nginx it is the client's answer
    r = s.request("GET", "/health", headers=headers)
    assert r.status == 431 and r.error()["code"] == "request_head_too_large", (r.status, r.body)


def test_other_roles_are_told_so(ctx):
    s = ctx.server
    for role in (0, 2, 3, 99):
        got = decode(talk(s, begin(role=role) + params(**HEALTH) + record(STDIN), finish=False))
        assert got == [(END, b"\0\0\0\0\3\0\0\0")], (role, got)
    fine(s)


def test_padding_changes_nothing(ctx):
    body = begin()[8:]
    content = params(**HEALTH)[8:-8]
    for n in (1, 8, 255):
        data = record(BEGIN, body, padding=n) + record(PARAMS, content, padding=n) + record(PARAMS, padding=n) + record(STDIN, padding=n)
        assert b"Status: 200" in talk(ctx.server, data, finish=False), n


def test_silent_connections_hold_up_nobody(ctx):
    s = ctx.server
    silent = []
    for _ in range(50):
        c = socket.socket(socket.AF_UNIX)
        c.connect(f"{s.dir}/infcgi.sock")
        silent.append(c)
    fine(s)
    assert s.post("/v1/completions", {"prompt": "Hi", "max_tokens": 2}).status == 200
    for c in silent:
        c.close()


def test_long_answers_are_legal_records(ctx):
    s = ctx.server
    body = b'{"content":"' + b"a b " * 20000 + b'"}'
    fields = {**HEALTH, "REQUEST_METHOD": "POST", "REQUEST_URI": "/tokenize", "DOCUMENT_URI": "/tokenize", "CONTENT_LENGTH": str(len(body)),
              "CONTENT_TYPE": "application/json"}
    data = begin() + params(**fields) + b"".join(record(STDIN, body[i:i + 60000]) for i in range(0, len(body), 60000)) + record(STDIN)
    got = decode(talk(s, data, seconds=20, finish=False))
    text = b"".join(c for kind, c in got if kind == STDOUT)
    assert len(text) > 65535 and text.rstrip().endswith(b"}"), text[-100:]
