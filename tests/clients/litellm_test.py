"""LiteLLM, which speaks to a server as any of its providers does: chat, responses, embeddings, rerank, Anthropic's and Ollama's form
(litellm_run.py)."""
import subprocess

import harness
from javascript_test import call

PYTHON = harness.ROOT / "build/clients/venv/bin/python"


def run(server, what, n, *more):
    model = server.request("GET", "/v1/models").json()["data"][0]["id"]
    done = subprocess.run([PYTHON, harness.ROOT / "tests/clients/litellm_run.py", what, server.base, model, *more], capture_output=True,
                          text=True, timeout=200, env={"LITELLM_LOCAL_MODEL_COST_MAP": "True", "PATH": "/usr/bin:/bin", "HOME": server.dir})
    print(done.stdout, end="")
    assert done.returncode == 0 and done.stdout.count("ok ") == n, done.stdout + done.stderr[-6000:] + server.log()[-3000:]


def test_generation(ctx):
    rules = [{"if": ["RAIN"], "say": "Take an umbrella ☂ to Paris."},
             {"if": ["Paris or"], "say": "A moment.\n" + call("get_weather", city="Paris") + "\n" + call("get_weather", city="Київ")},
             {"if": ["as JSON", "json_tool_call"], "say": call("json_tool_call", city="Paris")},   # a form that is asked for as a tool
             {"if": ["as JSON"], "say": '{"city": "Paris"}'},
             {"say": "<think>\nHm\n</think>\n\nGood day."}]
    run(ctx.scripted(rules), "generation", 14)


def test_embeddings(ctx):
    run(ctx.start("--threads", "1", model=harness.ROOT / "tests/golden/models/bert-cls.gguf"), "embeddings", 2)


def test_rerank(ctx):
    run(ctx.start("--threads", "1", model=harness.ROOT / "tests/golden/rank/bert-xlmr-pair.gguf"), "rerank", 2)
