"""Work that one request can cause: no work repeats for each of many parts if once is enough, and the first text that is too long ends
the request. Memory shows the work: with --request-memory repeated work does not fit."""
import json
import pathlib

import harness

CHAT = "/v1/chat/completions"
RERANKER = pathlib.Path(__file__).resolve().parents[1] / "golden/rank/bert-xlmr-pair.gguf"
ENCODER = pathlib.Path(__file__).resolve().parents[1] / "golden/models/bert-cls.gguf"
MANY = 2048


def refused(r, param):
    assert r.status == 400, (r.status, r.body[:300])
    error = r.error()
    assert (error["code"], error["param"]) == ("context_length_exceeded", param), error


def test_a_query_is_tokenized_once(ctx):
    """Repeating the query of 80 KB for each document takes more than a GiB."""
    s = ctx.start("--threads", "1", "--request-memory", "64", model=RERANKER)
    query = "the cat sat " * (80000 // 12)
    for path in "/v1/rerank", "/v2/rerank", "/rerank":
        refused(s.post(path, {"query": query, "documents": ["x"] * MANY}), "documents")
    for path in "/v1/score", "/score":
        refused(s.post(path, {"text_1": query, "text_2": ["x"] * MANY}), "text_2")
        refused(s.post(path, {"text_1": [query] + ["x"] * 30, "text_2": ["x"] * 31}), "text_2")
    r = s.post("/v1/rerank", {"query": "which", "documents": ["x", query]})
    refused(r, "documents")
    assert "text 1 of the documents" in r.error()["message"], r.body
    r = s.post("/v1/rerank", {"query": "which", "documents": ["x"] * MANY})
    assert r.status == 200 and len(r.json()["results"]) == MANY, r.body[:300]


def test_the_first_text_that_is_too_long_ends_the_request(ctx):
    """The texts after it are not checked: they have another error."""
    long_text = "a b c " * 10000
    s = ctx.server
    for path in "/v1/completions", "/completion":
        refused(s.post(path, {"prompt": [long_text, ["no id"]], "max_tokens": 1}), "prompt")
        refused(s.post(path, {"prompt": ["fine", long_text, {}], "max_tokens": 1}), "prompt")
        assert s.post(path, {"prompt": ["fine", {}, long_text], "max_tokens": 1}).error()["code"] != "context_length_exceeded"
    s = ctx.start("--threads", "1", model=ENCODER)
    refused(s.post("/v1/embeddings", {"input": [[7] * 100000, ["no id"]]}), "input")
    r = s.post("/api/embed", {"input": ["cat " * 10000, 5], "truncate": False})
    assert r.status == 400 and "maximum context length" in r.json()["error"], r.body


@harness.in_release
def test_a_suffix_is_tokenized_once(ctx):
    model = harness.with_fim(ctx.model, pathlib.Path(ctx.start().dir) / "fim.gguf")
    s = ctx.start(*ctx.ARGS, "--request-memory", "64", model=model)
    refused(s.post("/v1/completions", {"prompt": ["a"] * 128, "suffix": "b c " * 100000, "max_tokens": 1}), "suffix")
    refused(s.post("/v1/completions", {"prompt": ["a", "b c " * 10000, 5], "suffix": "x", "max_tokens": 1}), "prompt")
    r = s.post("/v1/completions", {"prompt": ["a"] * 8, "suffix": "b", "max_tokens": 1})
    assert r.status == 200 and len(r.json()["choices"]) == 8, r.body


@harness.in_release
def test_an_item_is_parsed_once(ctx):
    """An item of 180 KB whose tree takes 6 MiB, referred to twenty times."""
    s = ctx.start(*ctx.ARGS, "--request-memory", "128")
    item = {"type": "message", "role": "user", "content": "hi", "x": [{}] * 60000}
    r = s.post("/v1/responses", {"input": [item], "max_output_tokens": 1})
    assert r.status == 200, r.body[:300]
    reference = {"type": "item_reference", "id": f"in_{r.json()['id'][5:]}_0"}
    said = {"role": "user", "content": "a"}
    for path, size in ("/v1/responses/input_tokens", 20), ("/v1/responses", 20):
        r = s.post(path, {"input": [reference] * size + [said], "max_output_tokens": 1, "store": False})
        assert r.status == 200, (path, r.status, r.body[:300])
    inline = s.post("/v1/responses/input_tokens", {"input": [{"role": "user", "content": "hi"}] * 20 + [said]}).json()
    by_reference = s.post("/v1/responses/input_tokens", {"input": [reference] * 20 + [said]}).json()
    assert inline == by_reference
    for n in 64, 4000:
        r = s.post("/v1/responses", {"input": [reference] * n + [said], "max_output_tokens": 1})
        assert r.status == 413 and r.error()["param"] == "input" and "references to items" in r.error()["message"], (n, r.body[:300])
