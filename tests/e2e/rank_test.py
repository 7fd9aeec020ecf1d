"""/v1/rerank and /v1/score through nginx: a cross-encoder whose scores do not depend on other documents."""
import pathlib

RERANKER = pathlib.Path(__file__).resolve().parents[1] / "golden/rank/bert-xlmr-pair.gguf"


def test_a_reranker(ctx):
    server = ctx.start("--threads", "1", model=RERANKER)
    documents = [f"text {i} of a list" for i in range(80)]
    for path in "/v1/rerank", "/v2/rerank", "/rerank":
        r = server.post(path, {"query": "which", "documents": documents, "top_n": 70, "return_documents": True})
        assert r.status == 200, r.body
        results = r.json()["results"]
        scores = [x["relevance_score"] for x in results]
        assert len(results) == 70 and scores == sorted(scores, reverse=True)
        assert all(x["document"]["text"] == documents[x["index"]] for x in results)
    for path in "/v1/score", "/score":
        alone = server.post(path, {"text_1": "which", "text_2": documents[results[0]["index"]]})
        assert alone.status == 200 and alone.json()["data"][0]["score"] == scores[0], alone.body
    r = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]})
    assert r.status == 400 and "/v1/rerank" in r.error()["message"], r.body


def test_a_model_that_ranks_nothing(ctx):
    r = ctx.server.post("/v1/rerank", {"query": "a", "documents": ["b"]})
    assert r.status == 400 and r.error()["code"] == "unsupported_endpoint"
    assert "cls.output.weight" in r.error()["message"], r.body
