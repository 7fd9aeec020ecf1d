"""A back end that fails or is lost during computation, in a special build of the program (tests/support/faulty_backend.h)."""
import json
import re
import urllib.request

import harness

URL = "/v1/completions"
BODY = {"prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": True}
WHY = "told to fail by a test"


def lines(log, event):
    return [line for line in log.splitlines() if f" {event} " in line]


@harness.in_release
def test_a_failed_batch_is_told_once_and_the_engine_goes_on(ctx):
    s = ctx.start(*ctx.ARGS, program="infcgi_faulty", env={"INFCGI_FAULT": "out_of_memory@30"})
    replies = harness.at_once([lambda: s.post(URL, {**BODY, "max_tokens": 60}) for _ in range(4)])
    broken = [r for r in replies if r.status == 500]
    assert broken and {r.status for r in replies} <= {200, 500}, [r.status for r in replies]
    for r in broken:
        e = r.error()
        assert e["code"] == "out_of_memory" and e["message"] == WHY, e
        assert harness.until(lambda r=r: any(f"id={r.headers['X-Request-Id']} " in line and " status=500 code=out_of_memory " in line
                                             for line in lines(s.log(), "request"))), s.log()
    assert lines(s.log(), "batch_failed") == [line for line in s.log().splitlines() if f'error batch_failed code=out_of_memory reason="{WHY}"' in line]
    assert len(lines(s.log(), "batch_failed")) == 1, s.log()
    m = s.metrics()
    assert m['infcgi_failed_batches_total{code="out_of_memory"}'] == 1 and m["infcgi_up"] == 1
    assert m['infcgi_errors_total{code="out_of_memory"}'] == len(broken)
    assert s.post(URL, {**BODY, "max_tokens": 2}).status == 200


@harness.in_release
def test_a_row_that_is_no_number_ends_its_own_request(ctx):
    """R18: the other rows of its batch get the same results as alone."""
    def of(i):
        return {**BODY, "prompt": f"Number {i} of the list is", "max_tokens": 24, "temperature": 0}
    for is_stream in (False, True):
        s = ctx.start(*ctx.ARGS, "--speculate", "off", program="infcgi_faulty", env={"INFCGI_FAULT": "nan@10"})
        alone = [s.post(URL, of(i)).json()["choices"][0]["text"] for i in range(4)]

        def ask(i):
            if not is_stream:
                r = s.post(URL, of(i))
                assert r.status == (200 if "choices" in r.json() else 500), r.status
                return r.json()
            connection, response = s.stream(URL, of(i))
            got = list(harness.events(iter(response.readline, b"")))
            connection.close()
            assert ("error" in (got[-1] or {})) != (got[-1] is None), got[-1]
            return got[-1] or {"choices": [{"text": "".join(e["choices"][0]["text"] for e in got[:-1] if e["choices"])}]}
        answers = harness.at_once([lambda i=i: ask(i) for i in range(4)])
        spoilt = [a["error"] for a in answers if "error" in a]
        assert len(spoilt) == 1 and spoilt[0]["code"] == "numerical_error" and spoilt[0]["type"] == "server_error", answers
        assert all(a["choices"][0]["text"] == text for a, text in zip(answers, alone) if "error" not in a), (answers, alone)
        assert s.post(URL, of(0)).json()["choices"][0]["text"] == alone[0]
        assert s.metrics()['infcgi_errors_total{code="numerical_error"}'] == 1


@harness.in_long
def test_a_lost_back_end_ends_the_process(ctx):
    """Behind nginx: streams that have begun end with an error event, others with 500, /health reports it, and the status is 69."""
    s = ctx.start(*ctx.ARGS, "--parallel", "2", "--speculate", "off", program="infcgi_faulty", env={"INFCGI_FAULT": f"backend_lost@{150 if ctx.is_slow else 600}"})
    body = {**BODY, "max_tokens": 1800}
    opened = [s.stream(URL, body) for _ in range(2)]
    for _, response in opened:
        response.readline()
    waiting = harness.at_once([lambda: s.post(URL, body) for _ in range(3)])   # no slot is free
    for r in waiting:
        assert r.status in (500, 503) and r.error()["code"] == "backend_lost" and r.error()["message"] == WHY, (r.status, r.body)
    assert [r.status for r in waiting].count(500) >= 1
    for connection, response in opened:
        got = list(harness.events(iter(response.readline, b"")))
        assert None not in got and got[-1]["error"]["code"] == "backend_lost" and got[-1]["error"]["message"] == WHY, got[-2:]
        connection.close()
    assert s.engine.wait(30) == 69, s.log()
    log = s.log()
    assert len(lines(log, "batch_failed")) == 1 and " code=backend_lost " in lines(log, "batch_failed")[0], log
    requests = [line for line in lines(log, "request") if URL in line]
    assert len(requests) == 5 and all(" code=backend_lost " in line and " status=50" in line for line in requests), requests
    assert s.request("GET", "/health").status in (502, 503)


def test_a_back_end_that_is_lost_while_it_is_warmed_is_never_ready(ctx):
    s = ctx.start(*ctx.ARGS, program="infcgi_faulty", env={"INFCGI_FAULT": "backend_lost@1"}, wait=False)
    assert s.engine.wait(60) == 69, s.log()
    log = s.log()
    assert len(lines(log, "batch_failed")) == 1 and not lines(log, "ready"), log
    assert f"backend_lost: {WHY}" in log.splitlines()[-1], log
    s = ctx.start(*ctx.ARGS, "--no-warmup", program="infcgi_faulty", env={"INFCGI_FAULT": "backend_lost@1"})
    assert s.post(URL, {**BODY, "max_tokens": 2}).error()["code"] == "backend_lost"
    assert s.engine.wait(30) == 69, s.log()


def test_a_lost_back_end_is_there_again(ctx):
    """Like `make run`, with a master: running requests get an error, and the next request is answered by another worker."""
    port = harness.free_port()
    run = ctx.run_sh(port, "--threads", "1", V=ctx.variant, PROGRAM="infcgi_faulty", INFCGI_FAULT="backend_lost@40",
                     MODEL=str(harness.ROOT / "tests/golden/models/llama-biases.gguf"))
    line = run.stdout.readline()
    assert re.match("infcgi ready: ", line), (line, run.poll() and run.stderr.read())

    def ask(tokens):
        request = urllib.request.Request(f"http://127.0.0.1:{port}{URL}", json.dumps({**BODY, "prompt": [1, 2], "max_tokens": tokens}).encode(),
                                         {"Content-Type": "application/json"})
        try:
            return urllib.request.urlopen(request, timeout=60).status
        except urllib.error.HTTPError as e:
            assert json.load(e)["error"]["code"] == "backend_lost"
            return e.code
    assert ask(60) == 500
    assert harness.until(lambda: ask(2) == 200, 20)
    assert run.poll() is None


@harness.in_release
def test_run_sh_tells_that_the_back_end_was_lost(ctx):
    """Before it served any request."""
    run = ctx.run_sh(harness.free_port(), "--threads", "1", V=ctx.variant, PROGRAM="infcgi_faulty", INFCGI_FAULT="backend_lost@1",
                     MODEL=str(harness.ROOT / "tests/golden/models/llama-biases.gguf"))
    _, err = run.communicate(timeout=60)
    assert run.returncode == 69 and "error: the engine lost its back end" in err, (run.returncode, err)
