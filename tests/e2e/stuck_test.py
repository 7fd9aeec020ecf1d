"""Requests whose thread computes for too long: wide grammars, which are answered; and threads that a special build of the program keeps
busy (tests/support/faulty_task.c), which are stopped, or reported until the process is replaced."""
import json
import socket
import threading

import harness
import master_test
from master_test import COMPLETIONS, TINY

SPEC = {"prompt": [1, 2, 3], "max_tokens": 2, "grammar": 'root ::= "a" | "b"'}
PLAIN = {"prompt": [1, 2, 3], "max_tokens": 2}
LONG = 300   # seconds: the tests wait for CPU time, which a busy machine provides late


def wide(prefix, n):
    return (f'root ::= "{prefix}" (' + "|".join(f"r{i}" for i in range(n)) + ")\n" +
            "".join(f'r{i} ::= "x{i}(" r{i} ")" | "y{i}"\n' for i in range(n)))


def test_wide_grammars_are_answered(ctx):
    """At the start in the request's thread, later in the scheduler's masks."""
    s = ctx.server
    tagged = [{"type": "object", "properties": {"kind": {"const": f"k{i}"}, "v": {"type": "string"}}, "required": ["kind", "v"]} for i in range(300)]
    for body in ({"grammar": wide("", 254)}, {"grammar": wide("", 1000)}, {"grammar": wide("k", 254)}, {"grammar": wide("k", 1000)},
                 {"json_schema": {"anyOf": tagged}}, {"json_schema": {"anyOf": [{"const": [i]} for i in range(300)]}},
                 {"json_schema": {"enum": [[i, {"a": i}] for i in range(300)]}},
                 {"json_schema": {"type": "array", "minItems": 1, "items": {"anyOf": tagged}}}):
        r = s.post(COMPLETIONS, {"prompt": "a", "max_tokens": 6, "temperature": 0, **body})
        assert r.status == 200, (str(body)[:100], r.status, r.body[:300])
        text = r.json()["choices"][0]["text"]
        assert text[:1] in ("k", "x", "y", "[", "{") or text[:1].isspace(), (str(body)[:100], text)
    assert s.idle()


def test_a_request_that_computes_for_too_long_is_stopped(ctx):
    s = ctx.start("--threads", "1", "--compute-limit", "1", model=TINY, env={"INFCGI_FAULT": "turn@grammar"}, program="infcgi_faulty")
    r = s.request("POST", COMPLETIONS, SPEC, timeout=LONG)
    assert r.status == 504 and r.error()["code"] == "deadline_exceeded" and r.error()["param"] is None, (r.status, r.body)
    line = [x for x in s.log().splitlines() if "request_stuck" in x and "phase=" in x]
    assert len(line) == 1 and f" route={COMPLETIONS} " in line[0] and " phase=grammar " in line[0] and " limit_ms=1000 " in line[0], line
    assert s.post(COMPLETIONS, PLAIN).status == 200
    assert harness.until(lambda: s.request("GET", "/health").json()["stuck_requests"] == 0, LONG)
    health = s.request("GET", "/health")
    assert health.status == 200 and health.json()["status"] == "ok" and "request_lost" not in s.log(), health.body


def test_clients_that_leave_and_deadlines_end_what_is_computed(ctx):
    """Each phase that can take long, with a body that reaches it."""
    chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2}
    for phase, path, body in (("grammar", COMPLETIONS, SPEC), ("tokens", COMPLETIONS, {"prompt": "abc", "max_tokens": 2}),
                              ("template", "/v1/chat/completions", chat)):
        s = ctx.start("--threads", "1", "--compute-limit", "0", "--chat-template", "chatml", model=TINY, env={"INFCGI_FAULT": f"turn@{phase}"},
                      program="infcgi_faulty")
        r = s.request("POST", path, body, {"X-Request-Timeout-Ms": "200"}, timeout=LONG)
        assert r.status == 504 and r.error()["code"] == "deadline_exceeded", (phase, r.status, r.body)
        data = json.dumps(body).encode()
        with socket.create_connection(("127.0.0.1", s.port), timeout=LONG) as c:
            c.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nX-Request-Id: leaver\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
            assert harness.until(lambda: any(q["phase"] == phase for q in s.ask("requests")), LONG), s.ask("requests")
        assert harness.until(lambda: s.ask("requests") == [], LONG), s.ask("requests")
        assert s.log().count(" code=cancelled ") == 1 and s.log().count(" code=deadline_exceeded ") == 1, s.log()[-1000:]


def spin(s):
    """Sends a request that never ends; returns its client's thread, which is not joined."""
    def ask():
        try:
            s.request("POST", COMPLETIONS, SPEC, timeout=LONG)
        except OSError:
            pass
    client = threading.Thread(target=ask, daemon=True)
    client.start()
    return client


def test_a_request_that_cannot_be_stopped_is_reported(ctx):
    """Without a master: in the log, in /health and by `infcgi ctl requests`; other requests are answered."""
    with master_test.listening() as manager:
        s = ctx.start("--threads", "1", "--compute-limit", "1", model=TINY, env={"INFCGI_FAULT": "spin@grammar", **manager.env}, program="infcgi_faulty")
        ctx.cleanups.insert(-1, s.engine.kill)   # nothing else ends a thread that spins
        spin(s)
        assert harness.until(lambda: s.request("GET", "/health").json()["stuck_requests"] == 1, LONG), s.log()
        row = [q for q in s.ask("requests") if q["phase"] == "grammar"]
        assert len(row) == 1 and row[0]["state"] == "stuck" and row[0]["cpu_ms"] > 1000, row
        assert "phase" in s.ctl("requests").stdout
        assert harness.until(lambda: s.request("GET", "/health").status == 503, LONG), s.log()
        assert s.request("GET", "/health").json()["status"] == "stuck"
        log = s.log()
        assert log.index("request_stuck ") < log.index("request_lost ") and log.count("request_lost ") == 1, log
        assert s.post(COMPLETIONS, PLAIN).status == 200
        s.engine.kill()
        s.engine.wait()


def test_a_worker_with_a_request_that_cannot_be_stopped_is_replaced(ctx):
    s = ctx.start("--master", "--threads", "1", "--compute-limit", "1", model=TINY, env={"INFCGI_FAULT": "spin@grammar"}, program="infcgi_faulty")
    worker = master_test.worker_of(s)
    client = spin(s)
    assert harness.until(lambda: not master_test.is_alive(worker), LONG), s.log()
    client.join(LONG)
    assert harness.until(lambda: s.post(COMPLETIONS, PLAIN).status == 200, LONG)
    log = s.log()
    assert "request_lost " in log and f"worker_killed pid={worker}" in log and "stuck in a request (grammar)" in log, log
