"""/v1/embeddings: the openai package with a decoder that pools, and with an encoder."""
import math
import pathlib
import re

import harness

ENCODER = pathlib.Path(__file__).resolve().parents[1] / "golden/models/bert-cls.gguf"


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


@harness.in_release
def test_openai_package(ctx):
    client = ctx.start("--pooling", "mean", *ctx.ARGS).client()
    model = client.models.list().data[0].id
    texts = ["The cat sleeps on the sofa.", "A kitten is napping on the couch.", "Interest rates rose by half a point."]
    r = client.embeddings.create(model=model, input=texts)  # the package requests base64 and decodes it
    assert [d.index for d in r.data] == [0, 1, 2] and r.model == model and r.usage.prompt_tokens > 10
    cat, kitten, rates = (d.embedding for d in r.data)
    assert all(math.isclose(dot(v, v), 1, abs_tol=1e-5) for v in (cat, kitten, rates))
    assert dot(cat, kitten) > dot(cat, rates) and dot(cat, kitten) > dot(kitten, rates)
    plain = client.embeddings.create(model=model, input=texts[0], encoding_format="float").data[0].embedding
    assert plain == [float(x) for x in cat] or max(abs(a - b) for a, b in zip(plain, cat)) < 1e-8
    short = client.embeddings.create(model=model, input=texts[0], dimensions=64).data[0].embedding
    assert len(short) == 64 and math.isclose(dot(short, short), 1, abs_tol=1e-5)
    answer = client.completions.create(model=model, prompt="The capital of France is", temperature=0, max_tokens=4)
    assert "Paris" in answer.choices[0].text, answer


def test_a_decoder_without_pooling_says_how(ctx):
    r = ctx.server.post("/v1/embeddings", {"input": "a"})
    assert r.status == 400 and r.error()["code"] == "unsupported_endpoint" and "--pooling" in r.error()["message"]


def test_an_encoder(ctx):
    server = ctx.start("--threads", "1", model=ENCODER)
    ids = [[i, 2 * i, 7] for i in range(100)]
    r = server.post("/v1/embeddings", {"input": ids})
    assert r.status == 200, r.body
    data = r.json()["data"]
    assert harness.until(lambda: re.search(r" embeddings id=\S+ tenant=\S+ inputs=100 .* waited_ms=(none|[a-z]+:\d+)", server.log())), server.log()
    assert [d["index"] for d in data] == list(range(100)) and all(len(d["embedding"]) == 48 for d in data)
    alone = server.post("/v1/embeddings", {"input": ids[41]}).json()["data"][0]["embedding"]
    assert data[41]["embedding"] == alone
    r = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]})
    assert r.status == 400 and "/v1/embeddings" in r.error()["message"], r.body
