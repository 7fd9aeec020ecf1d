"""/v1/models, /health and /metrics."""


def test_list_and_retrieve(ctx):
    client = ctx.server.client()
    models = client.models.list().data
    assert len(models) == 1 and models[0].object == "model"
    assert client.models.retrieve(models[0].id).id == models[0].id


def test_health(ctx):
    r = ctx.server.request("GET", "/health")
    assert r.status == 200 and r.json()["status"] == "ok"


def test_metrics_count(ctx):
    s = ctx.server
    before = s.metrics()
    s.post("/v1/completions", {"prompt": "One two three", "max_tokens": 3, "ignore_eos": True})
    after = s.metrics()
    tokens = "infcgi_generated_tokens_total"
    assert after[tokens] - before[tokens] == 3, (before[tokens], after[tokens])
    for histogram in ("infcgi_time_to_first_token_seconds", "infcgi_inter_token_latency_seconds"):
        assert after[f"{histogram}_count"] > before.get(f"{histogram}_count", 0), histogram
        buckets = [v for k, v in after.items() if k.startswith(f"{histogram}_bucket")]
        assert buckets == sorted(buckets) and buckets[-1] == after[f"{histogram}_count"]


def test_metrics_have_types(ctx):
    r = ctx.server.request("GET", "/metrics")
    assert r.headers["Content-Type"].startswith("text/plain")
    lines = r.body.decode().splitlines()
    typed = {line.split()[2] for line in lines if line.startswith("# TYPE ")}
    for line in lines:
        if line and not line.startswith("#"):
            name = line.split("{")[0].split(" ")[0]
            family = name.rsplit("_", 1)[0] if name.endswith(("_bucket", "_sum", "_count")) else name
            assert name in typed or family in typed, f"{name} has no # TYPE line"
