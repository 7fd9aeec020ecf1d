"""The engine's answers to invalid requests."""
import json
import os
import re
import signal
import tempfile

import openai

import harness

CHAT = "/v1/chat/completions"
HI = [{"role": "user", "content": "Hi"}]


def raises(kind, call):
    try:
        call()
    except kind as e:
        return e
    raise AssertionError(f"no {kind.__name__}")


def test_bad_fields_name_the_parameter(ctx):
    bad = [("temperature", "hot"), ("temperature", -0.1), ("temperature", 2.5), ("top_p", 1.5), ("n", 0), ("n", 10**6), ("n", 1.5),
           ("max_tokens", -5), ("top_logprobs", 21), ("stop", 5), ("stop", [""]), ("seed", "x"), ("logit_bias", {"AI": 101}),
           ("logit_bias", {"999999999": 1}), ("stream", "yes"), ("messages", []), ("messages", "Hi"), ("messages", None),
           ("presence_penalty", 3), ("min_p", -1), ("logprobs", 7),
           ("tools", [{"type": "function", "function": {"name": "a b"}}]), ("tools", [{"function": {"name": "a"}}]),
           ("tool_choice", "any"), ("functions", [{"name": "a"}])]
    for field, value in bad:
        extra = {"logprobs": True} if field == "top_logprobs" else {}
        r = ctx.server.post(CHAT, {"messages": HI, "max_tokens": 1, **extra, field: value})
        assert r.status == 400, (field, value, r.status, r.body)
        e = r.error()
        assert e["param"] and e["param"].startswith(field), (field, value, e)
        assert e["type"] == "invalid_request_error" and e["code"], e


def test_bad_messages(ctx):
    for message in ({"role": "user"}, {"role": "king", "content": "x"}, {"content": "x"}, "Hi", {"role": "user", "content": 5},
                    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}):
        r = ctx.server.post(CHAT, {"messages": [message], "max_tokens": 1})
        assert r.status == 400 and r.error()["param"].startswith("messages"), (message, r.body)


def test_bad_json(ctx):
    for body, codes in [(b"{", {"invalid_json"}), (b"", {"invalid_json"}), (b"[]", None), (b'{"a":1} x', {"invalid_json"}),
                        (b'{"messages":"\xff\xfe"}', {"invalid_utf8", "invalid_json"}), (b"[" * 100000, None), (b'{"n":NaN}', {"invalid_json"})]:
        r = ctx.server.post(CHAT, body, headers={"Content-Type": "application/json"})
        assert r.status == 400, (body[:40], r.status, r.body)
        assert codes is None or r.error()["code"] in codes, (body[:40], r.body)


def test_openai_exceptions(ctx):
    client = ctx.server.client()
    e = raises(openai.BadRequestError, lambda: client.chat.completions.create(model=client.models.list().data[0].id, messages=HI, temperature=9))
    assert e.param == "temperature" and e.status_code == 400
    e = raises(openai.NotFoundError, lambda: client.chat.completions.create(model="no-such-model", messages=HI))
    assert e.code == "model_not_found"
    e = raises(openai.NotFoundError, lambda: client.models.retrieve("no-such-model"))
    assert e.code == "model_not_found"


def test_too_long_a_prompt_tells_both_counts(ctx):
    limit = 2048
    text = "word " * (limit + 500)
    count = len(ctx.server.post("/tokenize", {"content": text}).json()["tokens"])
    for path, body in ((CHAT, {"messages": [{"role": "user", "content": text}]}), ("/v1/completions", {"prompt": text})):
        r = ctx.server.post(path, body)
        e = r.error()
        assert r.status == 400 and e["code"] == "context_length_exceeded", r.body
        assert str(limit) in e["message"], e
        if path != CHAT:
            assert str(count) in e["message"], e


def test_unknown_url_and_method(ctx):
    r = ctx.server.request("GET", "/v1/nothing")
    assert r.status == 404 and r.error()["code"] == "unknown_url"
    r = ctx.server.request("GET", CHAT)
    assert r.status == 405 and "POST" in r.headers["Allow"] and r.error()


def test_api_keys(ctx):
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
        keys.write("sk-one\nsk-two\n")
        keys.flush()
        s = ctx.start(*ctx.ARGS, "--api-key-file", keys.name)
        for headers in ({}, {"Authorization": "Bearer sk-on"}, {"Authorization": "Bearer sk-one1"}, {"Authorization": "sk-one"},
                        {"Authorization": "Bearer "}):
            for method, path, body in (("POST", CHAT, {"messages": HI}), ("GET", "/v1/models", None), ("POST", "/tokenize", {"content": "x"})):
                r = s.request(method, path, body, headers=headers)
                assert r.status == 401 and r.error()["code"] == "invalid_api_key", (headers, path, r.status, r.body)
                assert r.headers["WWW-Authenticate"] == "Bearer"
        raises(openai.AuthenticationError, lambda: s.client("wrong").models.list())
        for key in ("sk-one", "sk-two"):
            model = s.client(key).models.list().data[0].id
            assert s.client(key).chat.completions.create(model=model, messages=HI, max_tokens=1).choices
        assert s.request("GET", "/health").status == 200, "health needs no key"


@harness.in_release
def test_keys_share_no_cached_prefix(ctx):
    """One key's cached_tokens reveal nothing of another's prompts, whatever salts their clients send."""
    prompt = "The quick brown fox jumps over the lazy dog and runs into the wood. " * 12
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
        keys.write("sk-one\nsk-two\n")
        keys.flush()

        def cached(s, key, **fields):
            r = s.post("/v1/completions", {"prompt": prompt, "max_tokens": 1, **fields},
                       headers={"Authorization": f"Bearer {key}"})
            assert r.status == 200, r.body
            return r.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        s = ctx.start(*ctx.ARGS, "--api-key-file", keys.name)
        assert cached(s, "sk-one") == 0
        full = cached(s, "sk-one")
        assert full > 0
        assert cached(s, "sk-two") == 0
        assert cached(s, "sk-one", cache_salt="x") == 0
        assert cached(s, "sk-two", cache_salt="x") == 0
        assert cached(s, "sk-one", cache_salt="x") == full
        keys.write("sk-three\n")
        keys.flush()
        os.kill(s.engine.pid, signal.SIGHUP)
        assert harness.until(lambda: "api_keys_reloaded" in s.log())
        assert cached(s, "sk-three") == 0
        assert cached(s, "sk-one") == full, "a key that was read again lost its pages"
        shared = ctx.start(*ctx.ARGS, "--api-key-file", keys.name, "--share-cache")
        assert cached(shared, "sk-one") == 0
        assert cached(shared, "sk-two") == full
        assert cached(shared, "sk-two", cache_salt="x") == 0


@harness.in_release
def test_full_queue(ctx):
    s = ctx.start(*ctx.ARGS, "--parallel", "1", "--queue-max", "1")
    body = {"messages": HI, "max_tokens": 30 if ctx.is_slow else 60, "ignore_eos": True}
    replies = harness.at_once([lambda: s.post(CHAT, body) for _ in range(8)])
    statuses = sorted(r.status for r in replies)
    assert statuses[0] == 200 and statuses[-1] == 503 and set(statuses) == {200, 503}, statuses
    for r in replies:
        if r.status == 503:
            assert r.error()["code"] == "server_overloaded"
            assert int(r.headers["Retry-After"]) >= 1
    assert s.idle()
    assert s.post(CHAT, {"messages": HI, "max_tokens": 1}).status == 200
    assert harness.until(lambda: re.search(r" generation id=\S+ .* waited_ms=seat:\d+", s.log())), s.log()
    assert s.metrics()['infcgi_wait_seconds_total{reason="seat"}'] > 0


def test_a_full_queue_looks_into_nothing(ctx):
    """A request that the queue cannot take is rejected before its fields are read; requests that need no slot are answered."""
    s = ctx.start(*ctx.ARGS, "--parallel", "1", "--queue-max", "1")
    body = {"messages": HI, "max_tokens": 1900, "ignore_eos": True}
    opened = [s.stream(CHAT, body) for _ in range(2)]
    assert harness.until(lambda: s.metrics()["infcgi_requests_waiting"] == 1)
    for path in CHAT, "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings":
        r = s.post(path, b"{no JSON", headers={"Content-Type": "application/json"})
        assert r.status == 503 and int(r.headers["Retry-After"]) >= 1, (path, r.status, r.body)
    for path, asked in (("/tokenize", {"content": "x"}), ("/v1/messages/count_tokens", {"model": "SmolLM2-135M-Instruct.Q4_1", "messages": HI})):
        r = s.post(path, asked)
        assert r.status == 200, (path, r.status, r.body)
    assert s.request("GET", "/health").status == 200
    for connection, _ in opened:
        connection.close()
    assert s.idle()
    assert s.post(CHAT, b"{no JSON", headers={"Content-Type": "application/json"}).error()["code"] == "invalid_json"


def test_deep_and_wide_json(ctx):
    for body in ({"messages": HI, "metadata": json.loads("[" * 900 + "]" * 900)}, {"messages": HI, "max_tokens": 1, "x": list(range(100000))}):
        assert ctx.server.post(CHAT, body).status in (200, 400)
    assert ctx.server.request("GET", "/health").status == 200
