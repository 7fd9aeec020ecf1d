"""Ollama's API through nginx: a stream of lines, and the lists."""
import json


def test_chat_and_lists(ctx):
    server = ctx.server
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    r = server.post("/api/chat", {"messages": messages, "options": {"temperature": 0, "num_predict": 12}})
    assert r.status == 200, r.body
    lines = [json.loads(line) for line in r.body.splitlines()]
    assert [x["done"] for x in lines] == [False] * (len(lines) - 1) + [True] and len(lines) > 3
    plain = server.post("/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 12}).json()
    assert "".join(x["message"]["content"] for x in lines) == plain["choices"][0]["message"]["content"], lines
    assert 0 < lines[-1]["eval_count"] <= 12 and lines[-1]["total_duration"] > lines[-1]["eval_duration"] > 0
    model = server.request("GET", "/api/tags").json()["models"][0]["name"]
    assert server.post("/api/show", {"model": model + ":latest"}).json()["details"]["format"] == "gguf"
    assert server.request("GET", "/api/version").status == 200 and server.request("GET", "/api/ps").json()["models"][0]["model"] == model
    r = server.post("/api/generate", {"model": "no such model", "prompt": "a"})
    assert r.status == 404 and "no such model" in r.json()["error"]
