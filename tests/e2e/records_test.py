"""FastCGI records that nginx never sends, directly to the engine's socket: none may affect another request."""
import json
import os
import pathlib
import random
import re
import socket
import struct
import tempfile
import time

import harness

BEGIN, ABORT, END, PARAMS, STDIN, STDOUT, DATA, GET_VALUES, UNKNOWN = 1, 2, 3, 4, 5, 6, 8, 9, 11


def record(kind, content=b"", request=1, version=1, length=None, padding=0):
    size = len(content) if length is None else length
    return struct.pack(">BBHHBB", version, kind, request, size, padding, 0) + content + b"\0" * padding


def begin(role=1, flags=0, request=1):
    return record(BEGIN, struct.pack(">HB5x", role, flags), request=request)


def pair(name, value):
    def size(n):
        return bytes([n]) if n < 128 else struct.pack(">I", n | 0x80000000)
    return size(len(name)) + size(len(value)) + name + value


def params(**values):
    content = b"".join(pair(k.encode(), v.encode() if isinstance(v, str) else v) for k, v in values.items())
    return record(PARAMS, content) + record(PARAMS)


ENDED, CANNOT_MULTIPLEX = bytes(8), b"\0\0\0\0\1\0\0\0"   # contents of END_REQUEST
HEALTH = dict(REQUEST_METHOD="GET", REQUEST_URI="/health", DOCUMENT_URI="/health", QUERY_STRING="", CONTENT_LENGTH="",
              SERVER_PROTOCOL="HTTP/1.1")


def post_to(path, length):
    """Returns the parameters of a POST of JSON."""
    return {**HEALTH, "REQUEST_METHOD": "POST", "REQUEST_URI": path, "DOCUMENT_URI": path, "CONTENT_LENGTH": str(length),
            "CONTENT_TYPE": "application/json"}


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


def records_of(reply):
    """Returns [(type, request, content)] of well-formed records; fails on any other."""
    out = []
    while reply:
        version, kind, request, size, padding, _ = struct.unpack(">BBHHBB", reply[:8])
        assert version == 1 and len(reply) >= 8 + size + padding, reply[:64]
        out.append((kind, request, reply[8:8 + size]))
        reply = reply[8 + size + padding:]
    return out


def decode(reply, request=1):
    """Returns [(type, content)] of well-formed records, all of that request or of the process; fails on any other."""
    got = records_of(reply)
    assert all(of == (0 if kind in (GET_VALUES + 1, UNKNOWN) else request) for kind, of, _ in got), got
    return [(kind, content) for kind, _, content in got]


def said(reply, request=1):
    """Returns the body of an answer in well-formed records."""
    return b"".join(content for kind, content in decode(reply, request) if kind == STDOUT)


def closed(s, data, within=2.0):
    """Sends data and stays connected: returns the reply when the engine closes, which it must do in time."""
    def send():
        with socket.socket(socket.AF_UNIX) as c:
            c.settimeout(20)
            c.connect(f"{s.dir}/infcgi.sock")
            got = b""
            try:
                c.sendall(data)
                while part := c.recv(65536):
                    got += part
            except (ConnectionResetError, BrokenPipeError):
                pass
            return got
    return harness.quick(within, send)


def fine(s):
    r = s.request("GET", "/health", timeout=10)
    assert r.status == 200 and s.engine.poll() is None, (r.status, r.body, s.log()[-3000:])


def peak_kib(s):
    """Returns the engine's peak address space."""
    return int(re.search(r"^VmPeak:\s+(\d+) kB", pathlib.Path(f"/proc/{s.engine.pid}/status").read_text(), re.M).group(1))


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


def test_begins_of_other_lengths(ctx):
    """F04: the connection is closed immediately, without an answer."""
    s = ctx.server
    for n in (0, 1, 7, 9, 16, 65535):
        body = (b"\0\1" + bytes(n))[:n]
        assert closed(s, record(BEGIN, body) + params(**HEALTH) + record(STDIN)) == b"", n
    fine(s)


def test_records_out_of_turn(ctx):
    """F10: a record that does not belong to the request's state does not become part of it: no 200, and the connection ends."""
    s = ctx.server
    body = b'{"content":"x"}'
    post = params(**post_to("/tokenize", len(body)))
    for name, data in {"a body first": begin() + record(STDIN, body) + post + record(STDIN), "its end first": begin() + record(STDIN) + post + record(STDIN, body) + record(STDIN),
                       "DATA in the head": begin() + record(DATA, b"x") + post + record(STDIN, body) + record(STDIN),
                       "DATA in the body": begin() + post + record(STDIN, body[:5]) + record(DATA, b"x") + record(STDIN, body[5:]) + record(STDIN),
                       "parameters in the body": begin() + post + record(STDIN, body[:5]) + post + record(STDIN, body[5:]) + record(STDIN)}.items():
        assert b"Status: 200" not in closed(s, data), name
    fine(s)


def test_aborts_end_the_request(ctx):
    """F11: END_REQUEST and the end of the connection, at any stage of the request, while its peer stays; aborts of other requests have
    no effect."""
    s = ctx.server
    long = json.dumps({"prompt": "Once", "max_tokens": 1900, "ignore_eos": True, "stream": True}).encode()
    head = begin() + params(**post_to("/v1/completions", len(long)))
    for name, data in {"in the head": head[:60], "behind it": head, "in the body": head + record(STDIN, long[:9])}.items():
        data = data if name != "in the head" else begin() + record(PARAMS, b"\5\5ab")
        assert decode(closed(s, data + record(ABORT, request=7) + record(ABORT) * 2))[-1] == (END, ENDED), name
    whole = head + record(STDIN, long) + record(STDIN)
    assert decode(closed(s, whole + record(ABORT)))[-1] == (END, ENDED)
    for n_read, noise in ((0, b""), (3, b""), (3, record(ABORT, request=2) + record(DATA, b"x" * 300) + record(ABORT, request=0))):
        def read_and_abort(n_read=n_read, abort=noise + record(ABORT)):
            with socket.socket(socket.AF_UNIX) as c:
                c.settimeout(20)
                c.connect(f"{s.dir}/infcgi.sock")
                c.sendall(whole)
                got = b""
                while got.count(b"data: ") < n_read:
                    got += c.recv(65536)
                for i in range(len(abort)):   # in all possible pieces
                    c.sendall(abort[i:i + 1])
                at = time.monotonic()
                while part := c.recv(65536):
                    got += part
                took = time.monotonic() - at
            got = decode(got)
            assert got[-1] == (END, ENDED) and b"[DONE]" not in b"".join(content for _, content in got), got[-3:]
            assert s.idle()
            return took
        took = harness.tried(read_and_abort, lambda took: took < 1)
        assert ctx.is_slow or took < 1, took
    with socket.socket(socket.AF_UNIX) as c:   # useless data is no longer read at some point, and delays no other client
        c.settimeout(1)
        c.connect(f"{s.dir}/infcgi.sock")
        c.sendall(whole)
        try:
            for _ in range(100):
                c.sendall(record(DATA, b"x" * 60000))
            raise AssertionError("all of it was read")
        except TimeoutError:
            pass
        fine(s)
    assert s.idle()


def answered(s, data):
    """Returns the records of the reply, which must end with an answer with status 200."""
    got = decode(talk(s, data, seconds=3, finish=False))
    assert got and got[-1][0] == END, (data[:80], got[:3])
    assert b"".join(c for kind, c in got if kind == STDOUT).startswith(b"Status: 200 "), (data[:80], got[:3])
    return got


def test_management_records(ctx):
    """F01, F13: each is answered immediately, whatever it holds, and so is the request next to it."""
    s = ctx.server
    whole = begin() + params(**HEALTH) + record(STDIN)
    for data, wanted in ((record(GET_VALUES, pair(b"FCGI_MAX_CONNS", b""), request=0), (GET_VALUES + 1, b"")),
                         (record(GET_VALUES, b"\xff" * 9, request=0), (GET_VALUES + 1, b"")),
                         *((record(k, b"x" * k, request=0), (UNKNOWN, bytes([k]) + b"\0" * 7)) for k in (0, BEGIN, STDIN, 12, 255))):
        for asked in (data + whole, begin() + data + whole[16:]):
            assert answered(s, asked)[0] == wanted, asked
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
        reply = talk(s, begin() + params(**post_to("/tokenize", length)) + record(STDIN, body) + record(STDIN), finish=False)
        text = b"".join(c for kind, c in decode(reply) if kind == STDOUT)
        assert b"Status: 400" in text, (length, text[:200])
    fine(s)


def test_odd_methods_and_paths(ctx):
    s = ctx.server
    for method, path in (("", "/health"), ("GET", ""), ("GET", "x"), ("GET", "/a" * 15000), ("GET", "/" + "a" * 61440), ("X" * 30000, "/health"), ("G\r\nX: y", "/health"), ("GET", "/v1/x\r\nX-Bad: 1"),
                         ("GET", "/v1/models/%0d%0aX-Bad:%201"), ("GET", "/\0/health")):
        reply = talk(s, begin() + params(**{**HEALTH, "REQUEST_METHOD": method, "REQUEST_URI": path, "DOCUMENT_URI": path[:999]}) + record(STDIN),
                     finish=False)
        head = b"".join(c for kind, c in decode(reply) if kind == STDOUT).split(b"\r\n\r\n")[0]
        assert b"\nX-Bad" not in head and b"\nX: y" not in head, head
        assert any(code in head for code in (b"Status: 400", b"Status: 404", b"Status: 405")), (method, path[:40], head[:200])
    for missing, statuses in ((("REQUEST_METHOD",), (405,)), (("REQUEST_URI",), (200,)), (("REQUEST_URI", "DOCUMENT_URI"), (400, 404)), (tuple(HEALTH), (404, 405))):
        rest = {k: v for k, v in HEALTH.items() if k not in missing}
        head = said(talk(s, begin() + params(**rest) + record(STDIN), finish=False))
        assert int(head[8:11]) in statuses, (missing, head[:200])
    for name in ("PATH_INFO", "SCRIPT_NAME", "SCRIPT_FILENAME", "PATH_TRANSLATED"):   # without meaning here, as for CVE-2019-11043
        for value in ("", "/v1/x%0a", "/\n", "a" * 20000):
            assert said(talk(s, begin() + params(**HEALTH, **{name: value}) + record(STDIN), finish=False)).startswith(b"Status: 200 "), (name, value[:20])
    fine(s)


def refused_head(got):
    """Returns the error of an answer with 431, in well-formed records."""
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
    data = begin() + params(**post_to("/tokenize", len(body))) + b"".join(record(STDIN, body[i:i + 60000]) for i in range(0, len(body), 60000)) + record(STDIN)
    got = decode(closed(s, data, 20))
    text = b"".join(c for kind, c in got if kind == STDOUT)
    head, answer = text.split(b"\r\n\r\n", 1)
    assert len(answer) > 65535 and got[-1] == (END, ENDED) and head.startswith(b"Status: 200 "), (got[-1], head)
    assert len(json.loads(answer)["tokens"]) > 20000 and b"\nContent-Length: %d\r\n" % len(answer) in head + b"\r\n", head




def test_odd_but_legal(ctx):
    """F03, F05, F06, F12: answered normally, each once, and the connection is closed although it was to be kept. An overlapping request
    is told that connections are not shared."""
    s = ctx.server
    content = params(**HEALTH)[8:-8]

    def whole(request=1, flags=0):
        return begin(flags=flags, request=request) + record(PARAMS, content, request=request) + record(PARAMS, request=request) + \
            record(STDIN, request=request)
    other = record(PARAMS, content, request=9) + record(STDIN, b"x", request=9)
    two = begin() + begin(request=2)
    of_each = {"id 65535": whole(65535), "to be kept": whole(flags=1), "two, the second is to wait": whole(flags=1) + whole(),
               "another's records between": begin() + other + record(PARAMS, content) + other + record(PARAMS) + other + record(STDIN),
               "two begun": two + whole()[16:], "one begun twice": begin() + whole(),
               "in turns": two + record(PARAMS, content[:9]) + record(PARAMS, content, request=2) + record(PARAMS, content[9:]) + record(PARAMS) +
               record(PARAMS, request=2) + record(STDIN, request=2) + record(STDIN),
               "a byte at a time": begin() + b"".join(record(PARAMS, content[i:i + 1]) for i in range(len(content))) + record(PARAMS) + record(STDIN),
               "more after its end": whole() + record(STDIN, b"more") + record(ABORT, request=3)}
    for name, data in of_each.items():
        got = records_of(closed(s, data))
        refused = {"two begun": 2, "in turns": 2, "one begun twice": 1}.get(name)
        if refused:
            assert got.pop(0) == (END, refused, CANNOT_MULTIPLEX), (name, got[0])
        request = 65535 if name == "id 65535" else 1
        assert {of for _, of, _ in got} == {request} and [(k, c) for k, _, c in got if k == END] == [(END, ENDED)] and got[-1][0] == END, (name, got)
        text = b"".join(c for kind, _, c in got if kind == STDOUT)
        assert text.count(b"Status: ") == 1 and text.startswith(b"Status: 200 "), (name, text[:300])
    fine(s)


def test_a_full_record_of_body(ctx):
    """F03: 65,535 bytes with 255 of padding, and records of only padding, count as exactly their content."""
    s = ctx.server
    text = b"a b " * 32000
    body = b'{"content":"' + text + b'"}'
    data = begin() + params(**post_to("/tokenize", len(body)))
    data += b"".join(record(STDIN, body[i:i + 65535], padding=255) for i in range(0, len(body), 65535)) + record(STDIN, padding=255)
    whole = said(closed(s, data, 20)).split(b"\r\n\r\n", 1)[1]
    assert len(body) > 65535 and json.loads(whole) == s.post("/tokenize", {"content": text.decode()}).json()


def test_a_thousand_requests(ctx):
    """F12: in sequence, with and without keeping connections: each connection is closed after its answer, and none is left."""
    s = ctx.server
    files = pathlib.Path(f"/proc/{s.engine.pid}/fd")
    fine(s)
    before = len(list(files.iterdir()))
    for i in range(200 if ctx.is_slow else 1000):
        assert b"Status: 200 " in closed(s, begin(flags=i % 2) + params(**HEALTH) + record(STDIN)), i
    assert harness.until(lambda: len(list(files.iterdir())) <= before + 1)


def test_parameters_that_stand_twice(ctx):
    """F08, F09, P17: either one can count; the body is never taken as longer than it is, and one key never as two."""
    s = ctx.server
    body = b'{"content":"x"}'
    post = params(**post_to("/tokenize", len(body)))[8:-8]
    for extra, statuses in ((pair(b"CONTENT_LENGTH", b"3"), (200, 400)), (pair(b"CONTENT_LENGTH", b""), (200,)), (pair(b"", b""), (200,)),
                            (pair(b"", b"x") * 20, (200,)), (pair(b"REQUEST_METHOD", b"GET"), (200, 405)), (pair(b"REQUEST_URI", b"/nothing"), (200, 404)),
                            (pair(b"CONTENT_TYPE", b"text/html"), (200, 415)), (pair(b"HTTP_AUTHORIZATION", b"Bearer a") * 2, (200,)),
                            (pair(b"HTTP_X_REQUEST_ID", b"a\r\nX-Bad: 1"), (200,)), (pair(b"REQUEST_ID", b"a\r\nX-Bad: 1"), (200,)),
                            (pair(b"HTTP_X_REQUEST_TIMEOUT_MS", b"-1"), (200, 400)), (pair(b"INFCGI_TENANT", b"a" * 5000), (200, 400, 401))):
        for content in (post + extra, extra + post):
            text = said(talk(s, begin() + record(PARAMS, content) + record(PARAMS) + record(STDIN, body) + record(STDIN), finish=False))
            assert text[8:11].isdigit() and int(text[8:11]) in statuses and b"\nX-Bad" not in text, (extra[:60], text[:300])
    fine(s)


def test_two_keys_are_one(ctx):
    """F08: the first of two counts, so a good key after a bad one has no effect."""
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
        keys.write("sk-good\n")
        keys.flush()
        s = ctx.start("--threads", "1", "--api-key-file", keys.name, model=harness.ROOT / "tests/golden/models/llama-biases.gguf")
        body = b'{"content":"x"}'
        good, bad = (pair(b"HTTP_AUTHORIZATION", b"Bearer sk-" + k) for k in (b"good", b"bad"))
        for extra, status in ((good, 200), (bad, 401), (b"", 401), (good + good, 200), (good + bad, 200), (bad + good, 401)):
            content = params(**post_to("/tokenize", len(body)))[8:-8]
            for place in (content + extra, extra + content):
                text = said(closed(s, begin() + record(PARAMS, place) + record(PARAMS) + record(STDIN, body) + record(STDIN)))
                assert int(text[8:11]) == status, (extra, text[:200])


def test_questions_about_the_process(ctx):
    """F13: ten thousand unknown names, the known ones repeatedly, and thousands of queries: the answer is bounded, and a request after
    them is answered. libfcgi writes its answer to a few known names beyond a buffer."""
    s = ctx.server
    whole = begin() + params(**HEALTH) + record(STDIN)
    names = b"".join(pair(b"NAME_%05d" % i, b"") for i in range(10000))
    asked = b"".join(record(GET_VALUES, names[i:i + 65000], request=0) for i in range(0, len(names), 65000))
    for data in (asked, record(GET_VALUES, request=0) * 5000, *(record(GET_VALUES, pair(b"FCGI_MPXS_CONNS", b"") * n, request=0) for n in (4, 500))):
        assert len(answered(s, data + whole)) < 32
        fine(s)


def test_records_of_others_hide_nothing(ctx):
    """F05, F07: after an empty record of another request libfcgi skips the content of the next one: a part of the parameters, so that it
    reads lengths from other data. That could allocate any amount of memory."""
    s = ctx.server
    empty = record(STDIN, request=9)
    answered(s, begin() + empty + params(**HEALTH) + empty + record(STDIN))
    answered(s, empty + begin() + params(**HEALTH) + record(STDIN, b"x", request=9) + record(STDIN))
    before = peak_kib(s)
    talk(s, begin() + empty + record(PARAMS, b"\x01\x64N" + b"x" * 20) + record(PARAMS, b"\xff\xff\xff\0\0" + b"y" * 75), seconds=2)
    assert peak_kib(s) < before + (1 << 20), (before, peak_kib(s))
    fine(s)


def test_changed_at_random(ctx):
    """Whole requests with bytes changed, removed, doubled or moved: an answer in whole records or none."""
    s = ctx.server
    body = b'{"content":"some text"}'
    whole = begin() + params(**post_to("/tokenize", len(body))) + record(STDIN, body) + record(STDIN)
    for seed in range(40 if ctx.is_slow else 150):
        rng = random.Random(seed)
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            at, n = rng.randrange(len(data)), rng.randrange(1, 20)
            how = rng.randrange(4)
            if how == 0:
                data[at] = rng.choice((0, 1, 127, 128, 255, data[at] ^ 1 << rng.randrange(8)))
            elif how == 1:
                del data[at:at + n]
            elif how == 2:
                data[at:at] = data[at:at + n]
            else:
                data += data[at:at + n * 4]
        try:
            records_of(talk(s, bytes(data), seconds=3))
        except (AssertionError, struct.error) as e:
            raise AssertionError(f"seed {seed}: {e}") from e
        if seed % 50 == 49:
            fine(s)
    fine(s)
