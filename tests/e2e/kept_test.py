"""Kept responses: which ones are evicted, and which fields of its request a response can repeat."""
import tempfile

from share_test import ask

MARK = "release"

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
HI = [{"role": "user", "content": "Hi"}]


def check_that_one_evicts_no_other(s, one, other):
    """`one` and `other` distinguish the clients."""
    r = ask(s, "POST", RESPONSES, {"input": "first turn", "max_output_tokens": 2}, **one)
    assert r.status == 200, r.body
    kept = r.json()["id"]
    large = [{"role": "user", "content": "a", "x": "y" * 300000}]   # unknown fields of an item are kept with it
    ids = []
    for _ in range(20):
        r = ask(s, "POST", RESPONSES, {"input": large, "max_output_tokens": 1}, **other)
        assert r.status == 200, r.body
        ids.append(r.json()["id"])
    found = [ask(s, "GET", f"{RESPONSES}/{i}", **other).status for i in ids]
    assert found[0] == 404 and found[-1] == 200 and 2 <= found.count(200) <= 3, found   # one MiB for all
    r = ask(s, "GET", f"{RESPONSES}/{kept}", **one)
    assert r.status == 200, r.body
    r = ask(s, "POST", RESPONSES, {"input": "second turn", "previous_response_id": kept, "max_output_tokens": 1}, **one)
    assert r.status == 200, r.body


def test_a_key_evicts_no_other_keys_responses(ctx):
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
        keys.write("sk-alice\nsk-eve\n")
        keys.flush()
        s = ctx.start(*ctx.ARGS, "--response-memory", "1", "--api-key-file", keys.name)
        check_that_one_evicts_no_other(s, {"key": "sk-alice"}, {"key": "sk-eve"})


def test_an_address_evicts_no_other_addresses_responses(ctx):
    s = ctx.start(*ctx.ARGS, "--response-memory", "1")
    check_that_one_evicts_no_other(s, {"address": "127.0.0.1"}, {"address": "127.0.0.2"})


def test_strings_are_strings_of_bounded_length(ctx):
    """Fields that a response repeats are kept with it."""
    s = ctx.server
    for field in "user", "safety_identifier", "prompt_cache_key", "service_tier":
        for path, body in (RESPONSES, {"input": "a", "max_output_tokens": 1}), (CHAT, {"messages": HI, "max_tokens": 1}):
            for value, found in ({"a": "x" * 4000}, "found an object"), (["a"], "found an array"), (5, "found a number"):
                r = s.post(path, {**body, field: value})
                assert r.status == 400 and r.error()["code"] == "invalid_type" and r.error()["param"] == field, (path, r.body)
                assert f"{field}: expected a string" in r.error()["message"], r.body
            r = s.post(path, {**body, field: "x" * 4000})
            assert r.status == 400 and r.error()["code"] == "invalid_value", r.body
            assert r.error()["message"] == f"{field}: expected at most 512 characters, found 4000", r.body
    for body in {"metadata": {"a": {"b": "c"}}}, {"metadata": {"a": "x" * 513}}, {"metadata": {"a" * 65: "x"}}, {"metadata": "a"}, \
            {"metadata": {str(i): "x" for i in range(17)}}, {"reasoning": {"summary": {"a": "x"}}}, {"reasoning": {"summary": "x" * 513}}, \
            {"reasoning": {"generate_summary": ["x"]}}, {"text": {"verbosity": {"a": "x"}}}, {"max_tool_calls": "x" * 4000}:
        r = s.post(RESPONSES, {"input": "a", "max_output_tokens": 1, **body})
        assert r.status == 400 and "expected" in r.error()["message"] and "found" in r.error()["message"], (body, r.status, r.body)
    fine = {"user": "ä" * 512, "prompt_cache_key": "k" * 512, "safety_identifier": None, "metadata": {"a" * 64: "ö" * 512}, "max_tool_calls": 3,
            "service_tier": "auto", "reasoning": {"summary": "auto"}, "text": {"verbosity": "low"}}
    r = s.post(RESPONSES, {"input": "a", "max_output_tokens": 1, **fine})
    assert r.status == 200, r.body
    assert r.json()["user"] == fine["user"] and r.json()["metadata"] == fine["metadata"]
